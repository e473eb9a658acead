"""The audit: effective weights by hand, causes that sum to the whole, and no mismatch where there is none."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnout as to
from tests.support.audited_runs import run_quadratics
from tests.support.journal_records import info, journal, record
from turnout.analysis.audit import audit, audit_runs
from turnout.analysis.audit.audit import Audit
from turnout.analysis.audit.groups import quarter_of
from turnout.analysis.audit.mismatch import (
    chance_variation,
    chi_square,
    effective_clients,
    split_causes,
    total_variation,
)
from turnout.analysis.audit.weights import CAUSES, RoundFacts, Weights, summed_weights
from turnout.analysis.audit.words import sentences, summarise
from turnout.array_types import Floats
from turnout.errors import JournalError
from turnout.journal import ClientFacts, Journal, frames

SIZES = np.array([1, 1, 2])
P = np.array([0.25, 0.25, 0.5])


@pytest.fixture
def out() -> Iterator[Journal]:
    made = journal()
    yield made
    made.close()


def one_round(**changes: Any) -> RoundFacts:
    """Clients 0 and 2 of three are asked and answer, with 2 steps and 1 step, weighed by data size."""
    everyone = np.ones(3, dtype=bool)
    facts: dict[str, Any] = {
        "counted": everyone,
        "present": everyone,
        "up": everyone,
        "kept": everyone,
        "drawn": np.array([1.0, 0.0, 1.0]),
        "used": np.array([1.0, 0.0, 1.0]),
        "asked_steps": np.array([2.0, 0.0, 1.0]),
        "local_steps": np.array([2.0, 0.0, 1.0]),
        "work": np.array([2.0, 0.0, 1.0]),
        "fresh": np.array([2 / 3, 0.0, 2 / 3]),
        "total": np.array([2 / 3, 0.0, 2 / 3]),
    }
    return RoundFacts(**{**facts, **changes})


def weights_of(rounds: Sequence[RoundFacts]) -> Weights:
    found = summed_weights(rounds, SIZES)
    assert found is not None
    return found


def adds(found: Weights) -> dict[str, float]:
    return {cause.name: cause.adds for cause in split_causes(found)}


def test_golden_two_of_three_clients_by_hand() -> None:
    found = weights_of([one_round()])
    assert np.allclose(found.asked, P)
    assert np.allclose(found.effective, [0.5, 0, 0.5])
    assert total_variation(found.effective, found.asked) == pytest.approx(0.25)
    assert chi_square(found.effective, found.asked) == pytest.approx(0.25 + 0.25)
    assert effective_clients(found.effective) == pytest.approx(2)
    # selection: (1/3, 0, 2/3) − p, signs (+, −, 0); local work: (1/2, 0, 1/2) − (1/3, 0, 2/3)
    assert adds(found) == pytest.approx({**dict.fromkeys(CAUSES, 0.0), "selection": 1 / 6, "local work": 1 / 12})


def test_golden_each_cause_alone() -> None:
    away = np.array([True, False, True])
    third = np.array([1 / 3, 0.0, 2 / 3])
    even = {"work": np.array([1.0, 0, 1]), "fresh": third, "total": third}
    cases = {
        "membership": {"present": away, "up": away, "kept": away},
        "availability": {"up": away, "kept": away},
        "filtering": {"kept": away},
        "selection": {},
        "lost updates": {"drawn": np.ones(3)},
    }
    for cause, changes in cases.items():
        found = adds(weights_of([one_round(**even, **changes)]))
        assert found == pytest.approx({**dict.fromkeys(CAUSES, 0.0), cause: 0.25}), cause


def test_golden_draws_count_as_often_as_they_were_made_and_used() -> None:
    changes = {
        "drawn": np.array([3.0, 1, 0]),
        "used": np.array([2.0, 1, 0]),  # one draw of client 0 was lost
        "work": np.array([1.0, 2, 0]),
        "fresh": np.array([0.5, 0.5, 0]),
        "total": np.array([0.5, 0.5, 0]),
    }
    found = weights_of([one_round(**changes)])
    of_cause = dict(zip(CAUSES, found.stages[1:], strict=True))
    assert np.allclose(of_cause["selection"], [3 / 4, 1 / 4, 0])
    assert np.allclose(of_cause["lost updates"], [2 / 3, 1 / 3, 0])
    assert np.allclose(of_cause["local work"], [1 / 2, 1 / 2, 0])
    assert found.draws.tolist() == [2, 1, 0]
    assert found.worked_draws.tolist() == [2, 2, 0]
    assert found.square_worked_draws.tolist() == [4, 4, 0]


def test_golden_a_client_out_of_the_objective_is_no_member() -> None:
    two = np.array([True, False, True])
    found = weights_of([one_round(counted=two, drawn=np.ones(3), used=np.ones(3), work=np.ones(3))])
    assert np.allclose(found.asked, [1 / 3, 0, 2 / 3])
    for stage in found.stages[1:-2]:  # until the run's own coefficients
        assert np.allclose(stage, [1 / 3, 0, 2 / 3])


def test_golden_work_and_weighting_cancel_under_fednova() -> None:
    everyone, work = np.ones(3), np.array([4.0, 1.0, 1.0])
    facts = {"drawn": everyone, "used": everyone, "work": work}
    averaged = weights_of([one_round(**facts, fresh=P * work, total=P * work)])
    normalised = weights_of([one_round(**facts, fresh=P * 1.75, total=P * 1.75)])
    assert np.allclose(averaged.effective, np.array([1, 0.25, 0.5]) / 1.75)
    assert adds(averaged)["local work"] == pytest.approx(1 / 1.75 - 0.25)
    assert np.allclose(normalised.effective, P)
    assert total_variation(normalised.effective, P) == 0
    moved = {cause.name: cause.moves for cause in split_causes(normalised)}
    assert moved["local work"] == moved["weighting"] == pytest.approx(1 / 1.75 - 0.25)


def test_golden_stored_gradients_are_the_cause_memory() -> None:
    found = weights_of([one_round(total=np.array([2 / 3, 1 / 3, 2 / 3]))])
    assert np.allclose(found.effective, [0.4, 0.2, 0.4])
    # fresh rows alone give (½, 0, ½); signs of p̃ − p are (+, −, −)
    assert adds(found)["memory"] == pytest.approx(0.5 * (-0.1 - 0.2 + 0.1))


def test_golden_rounds_count_by_the_length_of_their_step() -> None:
    first = one_round()
    alone = np.array([0.0, 4.0, 0.0])
    second = one_round(drawn=alone / 4, used=alone / 4, work=alone / 4, fresh=alone, total=alone)
    found = weights_of([first, second])
    assert np.allclose(found.effective, np.array([2 / 3, 4, 2 / 3]) / (16 / 3))


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_property_the_causes_sum_to_the_whole(seed: int, rounds: int) -> None:
    rng = np.random.default_rng(seed)

    def drawn_round() -> RoundFacts:
        present = rng.random(3) < 0.9
        up = present & (rng.random(3) < 0.7)
        kept = up & (rng.random(3) < 0.8)
        draws = kept * rng.integers(0, 3, 3).astype(float)
        used, work = draws * (rng.random(3) < 0.8), rng.random(3)
        fresh = used * rng.random(3)
        stored = rng.random(3) if seed % 2 else np.zeros(3)
        facts = {"present": present, "up": up, "kept": kept, "drawn": draws, "used": used, "work": work}
        return one_round(counted=rng.random(3) < 0.9, **facts, fresh=fresh, total=fresh + stored)

    found = summed_weights([drawn_round() for _ in range(rounds)], SIZES)
    if found is None:
        return
    assert np.allclose(found.stages.sum(1), 1)
    assert sum(adds(found).values()) == pytest.approx(total_variation(found.effective, found.asked), abs=1e-12)


def test_property_chance_is_the_mean_mismatch_of_fair_draws() -> None:
    rng = np.random.default_rng(0)
    sizes, everyone = np.ones(20, dtype=np.int64), np.ones(20, dtype=bool)
    found, expected = [], []
    for _ in range(60):
        rounds = []
        for _ in range(100):
            drawn = np.zeros(20)
            drawn[rng.permutation(20)[:4]] = 1.0
            masks: dict[str, Any] = dict.fromkeys(("counted", "present", "up", "kept"), everyone)
            values: dict[str, Any] = dict.fromkeys(
                ("drawn", "used", "asked_steps", "local_steps", "work", "fresh", "total"), drawn
            )
            rounds.append(RoundFacts(**masks, **values))
        weights = summed_weights(rounds, sizes)
        assert weights is not None
        found.append(total_variation(weights.effective, weights.asked))
        expected.append(chance_variation(weights))
    error = float(np.std(found, ddof=1)) / len(found) ** 0.5
    assert np.mean(expected) == pytest.approx(np.mean(found), abs=3 * error)


def test_identity_full_participation_equal_work_and_data_weights_have_no_mismatch_at_all() -> None:
    found = run_quadratics(rounds=40).found
    assert found.total_variation == found.chi_square == 0
    assert [(cause.adds, cause.moves) for cause in found.causes] == [(0, 0)] * len(CAUSES)
    assert found.most_changed()[0].size == found.most_changed()[1].size == found.unseen.size == 0
    assert sentences(summarise([found])) == ["study minimised exactly the mean loss over all samples."]


def test_golden_a_journal_is_read_back(out: Journal) -> None:
    sizes = ClientFacts(sizes=np.array([1, 1, 1, 2, 5]))
    run = out.begin(replace(info(), holdings=sizes))
    out.write([(run, record(0, asked=()))])
    work = np.array([3.0, 0.0])
    out.write([(run, record(1, asked=(1, 3), work=work, coefficients=np.array([0.5, 0.0])))])
    stored = np.array([0.0, 0.0, 0.5, 0.0, 0.0])
    kept, counted = np.array([1, 2, 3]), np.array([0, 1, 2, 3])
    out.write([(run, record(2, asked=(1, 3), work=work, reused=stored, kept=kept, counted=counted))])
    found = audit(frames(out), "FedAvg", 0)
    assert np.allclose(found.weights.asked, [0.2, 0.2, 0.2, 0.4, 0])
    assert np.allclose(found.weights.effective, [0, 3 / 3.5, 0.5 / 3.5, 0, 0])
    assert found.unseen.tolist() == [0, 3]
    assert found.unseen_share == pytest.approx(0.6)
    since = audit(frames(out), "FedAvg", 0, since=2)
    assert since.weights.rounds == 1
    assert np.allclose(since.weights.effective, [0, 1.5 / 2, 0.5 / 2, 0, 0])


def test_golden_a_journal_counts_draws_of_used_updates_and_the_rate_of_the_server(out: Journal) -> None:
    run = out.begin(replace(info(), holdings=ClientFacts(sizes=np.ones(5, dtype=np.int64))))
    out.write([(run, record(0, asked=()))])
    changes: dict[str, Any] = {"work": np.array([3.0, 0.0]), "multiplicity": np.array([2, 4])}  # 3 does not answer
    out.write([(run, record(1, asked=(1, 3), metrics={"loss": 1.0, "server_lr": 1.0}, **changes))])
    stored = np.array([0.0, 0.0, 0.5, 0.0, 0.0])
    faster = {"loss": 1.0, "server_lr": 2.0}
    out.write([(run, record(2, asked=(1, 3), metrics=faster, reused=stored, **changes))])
    found = audit(frames(out), "FedAvg", 0).weights
    assert found.draws.tolist() == [0, 4, 0, 0, 0]
    assert np.allclose(found.effective, [0, 4.5 / 5.5, 1 / 5.5, 0, 0])


def test_golden_a_client_out_of_the_objective_with_weight_makes_chi_square_infinite() -> None:
    assert chi_square(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == np.inf


def test_golden_quarters_keep_equal_values_together() -> None:
    assert quarter_of(np.array([1.0, 1, 1, 1, 9])).tolist() == [0, 0, 0, 0, 3]
    assert quarter_of(np.arange(8.0)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_property_groups_carry_all_the_weight() -> None:
    fleet = to.Fleet(availability=to.fleet.Bernoulli(prob=(0.2, 0.4, 0.6, 0.8, 1.0, 0.3)))
    found = run_quadratics(rounds=60, fleet=fleet).found
    for by in {group.by for group in found.groups}:
        groups = [group for group in found.groups if group.by == by]
        assert sum(group.effective for group in groups) == pytest.approx(1)
        assert sum(group.asked for group in groups) == pytest.approx(1)
        assert sum(group.clients for group in groups) == 6
    assert {group.by for group in found.groups} == {"data size", "availability"}


def test_golden_the_words_name_the_heaviest_and_those_without_weight() -> None:
    weights = weights_of([one_round()])
    found = Audit(arm="FedAvg", seed=0, weights=replace_errors(weights, 0.0), groups=(), client_names=None)
    said = sentences(summarise([found]))
    assert said[0] == (
        "FedAvg did not minimise the mean loss over all samples: 1 of 3 clients carries 50 % of the weight and holds "
        "25 % of the samples; 1 client carries none, with 25 % of the samples."
    )
    assert said[1] == (
        "25.0 % of the weight is at other clients than the samples are; in a run of this length, chance alone gives "
        "about 0.0 %."
    )
    assert said[2] == "Causes: selection 16.7 %, local work 8.3 %."
    assert said[3].startswith("What to do: the selection prefers some clients; ")


def replace_errors(weights: Weights, value: float) -> Weights:
    errors: Floats = np.full(len(weights.asked), value)
    return replace(weights, standard_errors=errors)


def test_error_a_run_that_never_moved_is_named(out: Journal) -> None:
    run = out.begin(replace(info(), holdings=ClientFacts(sizes=np.ones(5, dtype=np.int64))))
    out.write([(run, record(1, coefficients=np.zeros(2)))])
    with pytest.raises(JournalError, match=r"An audit needs a round in which the model moved; arm 'FedAvg'"):
        audit(frames(out), "FedAvg", 0)


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e308])
def test_error_numbers_that_no_run_has_are_no_audit(value: float) -> None:
    wild = np.array([value, value, value])
    assert summed_weights([one_round(total=wild, fresh=wild), one_round(total=-wild)], SIZES) is None


def test_error_an_unknown_arm_or_seed_is_named(out: Journal) -> None:
    run = out.begin(replace(info(), holdings=ClientFacts(sizes=np.ones(5, dtype=np.int64))))
    out.write([(run, record(1))])
    loaded = frames(out)
    with pytest.raises(JournalError, match=r"There is no arm 'FedAgv' in phones. Did you mean FedAvg\? It has"):
        audit_runs(loaded, "FedAgv")
    with pytest.raises(JournalError, match=r"There is no run with seed 7 in phones. It has the seeds 0\."):
        audit_runs(loaded, None, 7)
