import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

import turnout as to
from tests.support.journal_records import info, journal
from turnout.drift import Drift
from turnout.errors import JournalError
from turnout.journal import ClientFacts, RunInfo, frames, load
from turnout.journal.codec import decode_counts, encode_counts
from turnout.journal.schema import FILE
from turnout.streams import Streams


def held(first: int = 3, **changes: np.ndarray) -> ClientFacts:
    return ClientFacts(sizes=np.array([first, 300, 7]), **changes)  # type: ignore[arg-type]


def begun(arm: str, seed: int, holdings: ClientFacts | None) -> RunInfo:
    return RunInfo(arm=arm, seed=seed, rounds=3, config={}, holdings=holdings)


@given(st.lists(st.integers(0, 2**62), max_size=300))
def test_property_counts_come_back(counts: list[int]) -> None:
    given = np.array(counts, dtype=np.int64)
    np.testing.assert_array_equal(decode_counts(encode_counts(given)), given)


def test_golden_what_clients_hold_comes_back(tmp_path: Path) -> None:
    labels, seconds = np.array([[1, 2], [300, 0], [0, 7]]), np.array([0.1, 0.25, 1e-9])
    with journal(tmp_path) as out:
        out.begin(begun("A", 0, held(label_counts=labels, seconds_per_step=seconds)))
        out.begin(begun("B", 0, held()))
        out.begin(begun("C", 0, None))
    loaded = load(tmp_path)
    found = loaded.holdings("A", 0)
    assert found is not None
    assert found.sizes.tolist() == [3, 300, 7]
    np.testing.assert_array_equal(found.label_counts, labels)
    np.testing.assert_array_equal(found.seconds_per_step, seconds)
    bare = loaded.holdings("B", 0)
    assert bare is not None
    assert (bare.label_counts, bare.seconds_per_step) == (None, None)
    assert loaded.holdings("C", 0) is None


def test_golden_how_data_drift_comes_back_and_a_wrong_length_does_not() -> None:
    sizes, concepts = np.array([[1, 2], [3, 4], [5, 6]]), np.array([[0, 1], [0, 0], [1, 1]])
    facts = held(drift=Drift(sizes, concepts, 20))  # type: ignore[arg-type]
    found = ClientFacts.decoded(*facts.encoded())  # type: ignore[arg-type]
    assert found.drift is not None
    assert (found.drift.sizes.tolist(), found.drift.concepts.tolist()) == (sizes.tolist(), concepts.tolist())
    assert found.drift.rounds_per_step == 20
    for numbers in ([20, *range(11)], [0, *range(12)], [20]):
        with pytest.raises(ValueError, match="are no time steps of 3 clients"):
            ClientFacts.decoded(encode_counts(facts.sizes), None, None, encode_counts(np.array(numbers)), None, None)


def test_contract_equal_arrays_are_kept_once() -> None:
    with journal() as out:
        for seed in range(5):
            out.begin(begun("A", seed, held(seconds_per_step=np.full(3, 0.1 * (seed + 1)))))
            out.begin(begun("B", seed, held()))
        assert out.read("SELECT count(*) FROM array") == [(1 + 5,)]
        assert out.read("SELECT count(DISTINCT sizes) FROM run") == [(1,)]


def test_contract_a_study_tells_the_journal_what_its_clients_hold() -> None:
    data = to.data.Digits(clients=12)
    clock = to.fleet.Deadline(seconds_per_step=to.fleet.Lognormal(median=0.2, sigma=1.0))
    study = to.Study(
        data=data,
        model=to.models.Softmax(),
        local=to.local.SGD(lr=0.1, batch_size=8, steps=1),
        rounds=1,
        seeds=2,
        arms=(to.arm("clock", fleet=to.Fleet(clock=clock)), to.arm("none")),
    )
    loaded = study.run().loaded
    for seed in (0, 1):
        federation = data.build(Streams(seed))
        timed, plain = loaded.holdings("clock", seed), loaded.holdings("none", seed)
        assert timed is not None
        assert plain is not None
        np.testing.assert_array_equal(plain.sizes, federation.sizes)
        np.testing.assert_array_equal(plain.label_counts, federation.label_counts())
        assert plain.seconds_per_step is None
        draws = Streams(seed).uniforms("device seconds_per_step", 0, np.arange(federation.num_clients))[:, 0]
        np.testing.assert_allclose(timed.seconds_per_step, 0.2 * np.exp(ndtri(draws)))  # type: ignore[arg-type]


def test_error_a_run_that_is_not_there_names_what_is() -> None:
    with journal() as out:
        out.begin(info("A"))
        with pytest.raises(JournalError, match=r"no run of arm 'B' with seed 2. It has the arms A; see .runs"):
            frames(out).holdings("B", 2)


def test_error_an_earlier_format_says_to_run_again(tmp_path: Path) -> None:
    with journal(tmp_path):
        pass
    with sqlite3.connect(tmp_path / FILE) as database:
        database.execute("PRAGMA user_version = 1")
    database.close()
    with pytest.raises(JournalError, match=r"an earlier turnout: its format is 1.*Run the study again"):
        load(tmp_path)
