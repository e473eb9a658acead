"""Data that changes between a start and a resumption is noticed, refused, and noted where it is accepted."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch

import turnout as to
from tests.support.command import Turnout
from turnout.data.digest import federation_digest
from turnout.data.federation import Federation, Held
from turnout.data.relabelled import relabelled
from turnout.errors import JournalError
from turnout.journal import load
from turnout.requests import Record
from turnout.streams import Streams

SOURCE = """\
    from dataclasses import dataclass
    import numpy as np
    from turnout.data import from_clients

    @dataclass(frozen=True)
    class FromFile:
        path: str = "samples.npy"

        def build(self, streams):
            x = np.load(self.path)
            return from_clients([(each, each[:, 0] > 0) for each in x], test=(x[0], x[0][:, 0] > 0))
    """
STUDY = """\
    name = "own"
    rounds = 4
    seeds = 2
    data = "source_for_test:FromFile"
    model = "softmax"
    local = { lr = 0.1, steps = 1 }
    """


def write_samples(clients: int = 3, shift: float = 0.0) -> None:
    x = np.random.default_rng(0).normal(size=(clients, 8, 4)).astype(np.float32)
    x[-1, -1, -1] += shift
    np.save("samples.npy", x)


def stop_at(seed: int, round: int) -> Callable[[str, int, Record], None]:
    def stop(_: str, of: int, record: Record) -> None:
        if (of, record.round) == (seed, round):
            raise KeyboardInterrupt

    return stop


@pytest.fixture
def stopped(turnout: Turnout) -> Iterator[Turnout]:
    """Run the command in a folder with a study of own data whose first seed was stopped after two rounds."""
    Path("source_for_test.py").write_text(dedent(SOURCE))
    Path("own.toml").write_text(dedent(STUDY))
    sys.path.append("")
    write_samples()
    study = to.load_study("own.toml", allow_code=True)
    with pytest.raises(KeyboardInterrupt):
        study.run("out", engine="sequential", together=1, on_progress=stop_at(0, 2))
    yield turnout
    sys.modules.pop("source_for_test", None)


# the digest


def whole() -> Federation:
    x = torch.arange(40, dtype=torch.float32).reshape(20, 2)
    y = torch.arange(20) % 3
    clients = [(x[:10], y[:10]), (x[10:], y[10:])]
    return to.data.from_clients(
        clients, holdout=0.2, test=clients[0], server=clients[1], names=["a", "b"], groups=["n", "s"]
    )


def held(shares: Any, **changes: Any) -> Held:
    result: Held = replace(shares, **changes)
    return result


@pytest.mark.parametrize(
    "change",
    [
        lambda f: replace(f, train=held(f.train, x=f.train.x.flip(0))),
        lambda f: replace(f, train=held(f.train, y=f.train.y.roll(1))),
        lambda f: replace(f, train=held(f.train, offsets=f.train.offsets + np.array([0, 1, 0]))),
        lambda f: replace(f, train=held(f.train, order=torch.arange(16).flip(0))),
        lambda f: replace(f, train=held(f.train, x=f.train.x.double())),
        lambda f: replace(f, holdout=None),
        lambda f: replace(f, holdout=held(f.holdout, offsets=f.holdout.offsets - np.array([0, 1, 0]))),
        lambda f: replace(f, test=to.data.Samples(f.test.x + 1, f.test.y)),
        lambda f: replace(f, server=None),
        lambda f: replace(f, client_names=("a", "c")),
        lambda f: replace(f, client_groups=None),
        lambda f: replace(f, num_classes=4),
        lambda f: relabelled(f, np.array([True, False]), lambda y, classes: classes - 1 - y),
    ],
)
def test_property_a_change_of_any_part_changes_the_digest(change: Callable[[Federation], Federation]) -> None:
    assert federation_digest(whole()) == federation_digest(whole())
    assert federation_digest(change(whole())) != federation_digest(whole())


def test_contract_clients_made_on_demand_have_a_digest_of_their_settings() -> None:
    def digest(seed: int, **settings: Any) -> str:
        return federation_digest(
            to.data.SyntheticOnDemand(clients=100, test_clients=1, **settings).build(Streams(seed))
        )

    assert digest(0) == digest(0)
    assert len({digest(0), digest(1), digest(0, samples=12)}) == 3


# going on


def test_error_changed_data_is_refused_and_nothing_is_changed(stopped: Turnout) -> None:
    before = load("out").rounds
    write_samples(shift=1e-3)
    for command in (("resume", "out"), ("run", "own.toml", "--out", "out")):
        said = stopped(*command, "--allow-code")
        assert said.code == 2
        assert "out: nothing was changed, for the data of arm 'own' with seed 0 is not what it began with" in said.err
        assert "--accept-changed-data" in said.err
    assert load("out").rounds.equals(before)
    write_samples()
    assert stopped("resume", "out", "--allow-code").code == 0


def test_contract_changed_data_that_is_accepted_is_noted_and_reported(stopped: Turnout) -> None:
    write_samples(shift=1e-3)
    said = stopped("resume", "out", "--allow-code", "--accept-changed-data")
    assert said.code == 0
    (note,) = load("out").study["facts"]["changed_data"]
    assert (note["arm"], note["seed"]) == ("own", 0)
    assert note["before"] != note["now"]
    assert set(load("out").runs["status"]) == {"finished"}
    assert stopped("report", "out").code == 0
    page = Path("out/report.html").read_text()
    assert "<dt>changed data</dt>" in page
    assert note["now"] in page


def test_error_data_of_a_later_seed_is_looked_at_when_its_turn_comes(stopped: Turnout) -> None:
    study = to.load_study("own.toml", allow_code=True)
    with pytest.raises(KeyboardInterrupt):
        study.run("out", engine="sequential", on_progress=stop_at(1, 2))
    write_samples(shift=1e-3)
    with pytest.raises(JournalError, match=r"arm 'own' with seed 0 is not what it began with"):
        study.run("out", engine="sequential")
    rest = study.run("out", engine="sequential", accept_changed_data=True)
    assert [note["seed"] for note in rest.loaded.study["facts"]["changed_data"]] == [0, 1]
    assert study.run("out", engine="sequential").was_finished  # a finished study does not look at its data again


def test_error_a_run_cannot_go_on_with_other_clients(stopped: Turnout) -> None:
    write_samples(clients=4)
    said = stopped("resume", "out", "--allow-code", "--accept-changed-data")
    assert said.code == 2
    assert "arm 'own' with seed 0 began with 3 clients and its data has 4 now, so it cannot go on" in said.err


def test_error_a_federation_made_in_python_is_held_to_the_same(tmp_path: Path) -> None:
    def study(data: Federation) -> to.Study:
        return to.Study(data=data, model="softmax", local={"lr": 0.1, "steps": 1}, rounds=3, name="mine")  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt):
        study(whole()).run(tmp_path / "out", engine="sequential", on_progress=stop_at(0, 1))
    other = study(replace(whole(), client_names=("a", "z")))
    with pytest.raises(JournalError, match=r"the data of arm 'mine' with seed 0 is not what it began with"):
        other.run(tmp_path / "out", engine="sequential")
    found = other.run(tmp_path / "out", engine="sequential", accept_changed_data=True).loaded
    assert found.holdings("mine", 0).client_names == ("a", "z")  # type: ignore[union-attr]
