"""What is said before the first round: which share of a recording and of the clients a study will see."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import turnout as to
from tests.support.command import Turnout
from turnout.errors import ConfigError, StudyNote
from turnout.fleet.traces import UP, Intervals, Trace
from turnout.study import preview_notes
from turnout.study.fleet_preview import lines_by_arm

HOUR = 3600.0


def staggered(clients: int = 40, hours: float = 117.0) -> Trace:
    """A recording in which one client after another is up, each for its part of the whole."""
    edges = np.linspace(0.0, hours * HOUR, clients + 1)
    return Trace.of(Intervals(np.arange(clients), edges[:-1], edges[1:], np.full(clients, UP, dtype=np.int8)))


def study(availability: Any, *, rounds: int = 40, clients: int = 40, clock: Any = None, **changes: Any) -> to.Study:
    given = {"data": to.data.Digits(clients=clients), "model": "softmax", "local": {"lr": 0.1, "steps": 1}}
    fleet = to.Fleet(availability=availability, clock=clock)
    return to.Study(**{**given, "fleet": fleet, "rounds": rounds, "name": "seen", **changes})


def seen_in(made: to.Study) -> int:
    """Return how many clients were really up in some round."""
    found = made.run(engine="sequential").loaded
    arm, rounds = found.arms[0], int(found.rounds["round"].max())
    return len(set().union(*(found.up(arm, 0, round).tolist() for round in range(1, rounds + 1))))


def test_golden_a_recording_of_which_little_is_replayed() -> None:
    made = study(to.fleet.Recorded(trace=staggered(), round_seconds=3 * HOUR / 40), selection={"cohort_size": 1})
    (line,) = preview_notes(made)
    assert line == (
        "fleet.availability: 40 rounds take 3 h of a recording of 4.88 days (2.6 %); "
        "2 of 40 clients are up in at least one of 40 rounds, 38 in none."
    )
    with pytest.warns(StudyNote, match=r"2 of 40 clients are up in at least one of 40 rounds, 38 in none\."):
        found = made.run(engine="sequential").loaded
    assert found.study["facts"]["notes"] == [line]
    assert seen_in(made) == 2


@pytest.mark.parametrize(
    ("availability", "is_told"),
    [
        (to.fleet.Cyclic(groups=8), True),
        (to.fleet.Resampled(size=2), True),
        (to.fleet.Never(count=3), True),
        (to.fleet.Never(count=3, others=to.fleet.Cyclic(groups=8)), True),
        (to.fleet.Bernoulli(prob=0.05), True),
        (to.fleet.Markov(), True),
        (to.fleet.HalfAndHalf(absent=0.0), False),
        (to.fleet.Always(), False),
    ],
)
def test_identity_the_clients_foreseen_are_those_that_turn_up(availability: Any, is_told: bool) -> None:
    made = study(availability, rounds=4, clients=20)
    lines, seen = preview_notes(made), seen_in(made)
    assert bool(lines) == is_told == (seen < 20)
    if lines:
        assert lines[0].startswith(f"fleet.availability: {seen} of 20 clients are up in at least one of 4 rounds, ")


def test_golden_rounds_of_a_clock_are_an_estimate_and_called_one() -> None:
    clock = to.fleet.Deadline(seconds_per_step=HOUR, down_bandwidth=1e12, up_bandwidth=1e12)
    timed = to.fleet.Recorded(trace=staggered())
    made = study(timed, rounds=6, clock=clock)
    assert preview_notes(made) == [
        "fleet.availability: how long rounds last, and so which clients a study will see, follows from the clock; "
        "a run says it before its first round."
    ]
    with pytest.warns(StudyNote, match=r"6 rounds take 6 h of a recording.*; 2 of 40 .*an estimate, from the first"):
        made.run(engine="sequential")
    assert seen_in(made) == 2
    (line,) = preview_notes(study(timed, rounds=6, clock=to.fleet.Deadline(deadline_seconds=2 * HOUR)))
    assert "6 rounds take 12 h of a recording of 4.88 days (10.3 %); 4 of 40 clients" in line
    assert line.endswith("That is an estimate: each round is taken to last fleet.clock.deadline_seconds.")


def test_contract_arms_that_see_different_things_are_named() -> None:
    assert lines_by_arm({"a": "x", "b": "x"}) == ["x"]
    assert lines_by_arm({"a": "x", "b": "y", "c": "x"}) == ["a, c: x", "b: y"]
    assert lines_by_arm({"a": "x", "b": ""}) == ["a: x"]


def test_contract_a_study_of_very_many_rounds_is_looked_at_in_part() -> None:
    (line,) = preview_notes(study(to.fleet.Resampled(size=1, every=1), rounds=10**6, clients=10**5))
    assert "at least " in line
    assert " in none" not in line


@pytest.mark.filterwarnings("always::turnout.errors.StudyNote")
def test_contract_check_says_it_as_a_comment(turnout: Turnout) -> None:
    Path("study.toml").write_text(
        'rounds = 2\ndata = { use = "digits", clients = 6 }\nmodel = "softmax"\nlocal = { lr = 0.1, steps = 1 }\n'
        'fleet = { availability = { use = "cyclic", groups = 3 } }\n'
    )
    said = turnout("check", "study.toml")
    line = "# fleet.availability: 4 of 6 clients are up in at least one of 2 rounds, 2 in none."
    assert said.out.splitlines()[1] == line
    Path("again.toml").write_text(said.out)
    assert turnout("check", "again.toml").code == 0
    ran = turnout("run", "study.toml")
    assert f"note: {line[2:]}" in ran.err


def test_contract_data_without_a_test_set_is_said_at_the_start(tmp_path: Path) -> None:
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    clients = [(x[:6], torch.arange(6) % 2), (x[6:], torch.arange(6) % 2)]
    for holdout, only in ((0.0, "the model is not measured."), (0.5, "not measured, only on the clients' hold-outs.")):
        data = to.data.from_clients(clients, holdout=holdout, name="mine")
        with pytest.warns(StudyNote, match=rf"mine has no test set: .*{only} Give the data one, such as test="):
            made = study("always", data=data, rounds=1).run(tmp_path / str(holdout))
        (note,) = made.loaded.study["facts"]["notes"]
        assert note.startswith("mine has no test set")
        with pytest.raises(ConfigError, match=r"^target needs a test set, .*; mine has none\. Give"):
            study("always", data=data, rounds=1, target={"accuracy": 0.8}).run(tmp_path / "refused")
        assert not (tmp_path / "refused").exists()
    tested = to.data.from_clients(clients, test=clients[0])
    assert "notes" not in study("always", data=tested, rounds=1).run().loaded.study["facts"]
