"""Replay: a recorded run as a fleet. The same rules and seed end in the same model, bit for bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import turnout as to
from tests.support.command import Turnout
from tests.support.fleet_claims import recording, view_of
from tests.support.journal_records import info, journal, record
from tests.support.runs import models_of
from turnout.errors import ConfigError, JournalError, StudyNote
from turnout.journal import frames as loaded_frames
from turnout.journal.recorded_run import read_run, recording_in
from turnout.progress import Progress
from turnout.requests import Outcome
from turnout.study import Result, load_study, preview_notes, resolved_settings

CLIENTS, ROUNDS = 12, 9
SPREAD = to.fleet.Lognormal(median=1.0, sigma=0.7)
HALF_UP = to.fleet.Bernoulli(prob=0.7)


def study(**changes: Any) -> to.Study:
    """A small study of clients with unequal data."""
    given: dict[str, Any] = {
        "name": "replayed",
        "data": to.data.Synthetic(clients=CLIENTS, samples=30),
        "model": "softmax",
        "local": {"lr": 0.05, "batch_size": 5, "epochs": 2},
        "selection": {"cohort_size": 5},
        "rounds": ROUNDS,
        "seeds": (3,),
    }
    return to.Study(**{**given, **changes})


def clock(**ending: Any) -> to.fleet.Deadline:
    return to.fleet.Deadline(seconds_per_step=SPREAD, down_bandwidth=1e4, up_bandwidth=5e3, **ending)


FEDBUFF = {"asynchrony": to.asynchrony.FedBuff(buffer_size=3, concurrency=5), "selection": {"cohort_size": 6}}
# the recorded fleet, what else the study has, and how the server ends rounds
SCENES: dict[str, tuple[to.Fleet, dict[str, Any], dict[str, Any]]] = {
    "availability": (to.Fleet(availability=HALF_UP), {}, {}),
    "work": (to.Fleet(work=to.fleet.Fraction(fraction=0.5, spread=0.5)), {"aggregation": "fednova"}, {}),
    "lost": (to.Fleet(availability=HALF_UP, work=to.fleet.Fraction(fraction=0.2, spread=0.2)), {}, {}),
    "deadline": (
        to.Fleet(availability=HALF_UP, clock=clock(deadline_seconds=9.0)),
        {"aggregation": "fednova"},
        {"deadline_seconds": 9.0},
    ),
    "drop": (
        to.Fleet(clock=clock(deadline_seconds=12.0, incomplete="drop")),
        {},
        {"deadline_seconds": 12.0, "incomplete": "drop"},
    ),
    "over-selection": (
        to.Fleet(availability=HALF_UP, clock=clock(over_selection=1.5)),
        {},
        {"over_selection": 1.5},
    ),
    "deadline and over-selection": (
        to.Fleet(work=to.fleet.Stragglers(prob=0.5), clock=clock(deadline_seconds=8.0, over_selection=1.7)),
        {},
        {"deadline_seconds": 8.0, "over_selection": 1.7},
    ),
    "nobody up": (
        to.Fleet(availability=to.fleet.Bernoulli(prob=0.1), clock=clock(idle_seconds=17.0)),
        {},
        {"idle_seconds": 17.0},
    ),
    "fedbuff": (to.Fleet(availability=HALF_UP, clock=clock()), FEDBUFF, {}),
    "fedbuff with losses": (
        to.Fleet(work=to.fleet.Fraction(fraction=0.1, spread=0.3), clock=clock()),
        FEDBUFF,
        {},
    ),
    "fedbuff, few": (
        to.Fleet(availability=to.fleet.Bernoulli(prob=0.4), work=to.fleet.Stragglers(prob=0.5), clock=clock()),
        FEDBUFF,
        {},
    ),
    "members": (
        to.Fleet(membership=to.fleet.Scheduled(arrivals={2: 3, 5: 4}, departures={1: 5}), availability=HALF_UP),
        {"turnover": {"on_departure": "exclude"}},
        {},
    ),
    "members and time": (
        to.Fleet(membership=to.fleet.Random(arrival_prob=0.3, departure_prob=0.2), clock=clock(deadline_seconds=9.0)),
        {"turnover": {"reboot": "vanilla"}},
        {"deadline_seconds": 9.0},
    ),
}


def frames(result: Result) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What a run did, but for how long the computer took."""
    rounds = result.loaded.rounds.drop(columns=["replay_recorded"], errors="ignore")
    timed = [name for name in rounds.columns if "wall" in name]
    return rounds.drop(columns=timed), result.loaded.clients


@pytest.mark.parametrize("scene", SCENES)
def test_identity_the_same_rules_and_seed_end_in_the_same_model(scene: str, tmp_path: Path) -> None:
    fleet, changes, ending = SCENES[scene]
    recorded = study(fleet=fleet, **changes).run(tmp_path / "recorded", engine="sequential")
    again = study(fleet=to.fleet.replay(run=tmp_path / "recorded", **ending), **changes).run(engine="sequential")
    for one, other in zip(frames(recorded), frames(again), strict=True):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    first, second = models_of(recorded), models_of(again)
    assert all(torch.equal(first[run], second[run]) for run in first)
    asked = again.loaded.rounds["replay_recorded"].dropna()
    assert len(asked)
    assert (asked == 1.0).all() or "asynchrony" in changes  # what is at work at the end has no recorded end


def test_identity_a_replay_of_a_replay_is_the_replay(tmp_path: Path) -> None:
    fleet, changes, ending = SCENES["deadline"]
    study(fleet=fleet, **changes).run(tmp_path / "first", engine="sequential")
    other = {"selection": {"cohort_size": 8}, **changes}
    second = study(fleet=to.fleet.replay(run=tmp_path / "first", **ending), **other)
    assert second.run(tmp_path / "second", engine="sequential").loaded.rounds["replay_recorded"].dropna().max() < 1
    third = study(fleet=to.fleet.replay(run=tmp_path / "second", **ending), **other)
    before, after = (models_of(each) for each in (second.run(tmp_path / "second"), third.run(engine="sequential")))
    assert all(torch.equal(before[run], after[run]) for run in before)


def test_contract_a_journal_keeps_late_and_cut_off_work(tmp_path: Path) -> None:
    fleet = to.Fleet(clock=clock(deadline_seconds=9.0, over_selection=1.6))
    clients = study(fleet=fleet).run(engine="sequential").loaded.clients
    late = clients[clients["outcome"] == "late"]
    assert (late["local_steps"] == 0).all()
    assert (late["progress"] > 0).any()
    cut = clients[clients["cut_off"]]
    assert len(cut)
    assert (cut["seconds"] == 9.0).all()
    assert (cut["progress"] < cut["asked_steps"]).all()
    used = clients[clients["answered"]]
    assert (used["progress"] == used["local_steps"]).all()


NAN = float("nan")
MADE = recording(
    [
        (0, 1, 10, 10, 20.0, False),  # complete: 2 s a step
        (0, 2, 10, 4, 16.0, False),  # stopped by itself: 4 s a step
        (0, 3, 10, 5, 15.0, True),  # cut off at 15 s: 3 s a step
        (1, 1, 10, 0, NAN, False),  # lost
        (2, 1, 10, 0, 15.0, True),  # not a step in 15 s
    ]
)


def steps_of(client: int, round: int, asked: int) -> int:
    return int(MADE.done(np.array([asked]), np.array([client]), view_of(4, round))[0])


@pytest.mark.parametrize(
    ("client", "round", "asked", "done"),
    [(0, 1, 10, 10), (0, 1, 6, 6), (0, 1, 14, 14), (0, 2, 10, 4), (0, 2, 3, 3), (0, 2, 20, 4), (0, 3, 10, 10),
     (1, 1, 10, 0), (2, 1, 10, 10), (1, 2, 10, 0), (0, 5, 10, 10)],
)  # fmt: skip
def test_golden_recorded_work(client: int, round: int, asked: int, done: int) -> None:
    assert steps_of(client, round, asked) == done  # client 1 has one other job, which was lost; round 5 is round 1


@pytest.mark.parametrize(
    ("client", "round", "steps", "seconds"),
    [(0, 1, 10, 20.0), (0, 1, 5, 10.0), (0, 1, 12, 24.0), (0, 2, 4, 16.0), (0, 3, 5, 15.0), (0, 3, 10, 30.0),
     (0, 4, 10, 30.0), (1, 1, 10, 30.0), (2, 1, 10, 30.0), (2, 1, 1, 15.0), (3, 1, 2, 6.0)],
)  # fmt: skip
def test_golden_recorded_and_extrapolated_seconds(client: int, round: int, steps: int, seconds: float) -> None:
    took = MADE.pace(np.array([client]), view_of(4, round)).duration(np.array([steps]))
    assert took.tolist() == [seconds]  # client 0 has 2, 3 and 4 s a step: the median is 3, which the others take, too


@pytest.mark.parametrize(
    ("job", "asked", "done"),
    [((0, 1, 10, 5, 15.0, True), 8, 8), ((0, 1, 10, 6, 15.0, False), 3, 2), ((0, 1, 10, 1, 15.0, False), 3, 1)],
)
def test_golden_the_share_of_another_round(job: tuple[Any, ...], asked: int, done: int) -> None:
    """Cut-off work would have gone on; of 3 steps, 0.6 is 1.8 and rounds to 2, and 0.1 is one at least."""
    assert recording([job]).done(np.array([asked]), np.array([0]), view_of(4, 2)).tolist() == [done]


def test_golden_the_median_of_two_rounds_is_their_mean() -> None:
    made = recording([(0, 1, 10, 10, 20.0, False), (0, 2, 10, 10, 60.0, False)])  # 2 and 6 s a step
    assert made.pace(np.array([0]), view_of(4, 3)).duration(np.array([10])).tolist() == [40.0]


@pytest.mark.parametrize(
    ("client", "round", "deadline", "steps"),
    [(0, 1, 20.0, 10), (0, 1, 19.9, 9), (0, 3, 15.0, 5), (0, 3, 9.0, 3), (0, 3, 21.0, 7), (0, 3, 30.0, 10),
     (2, 1, 15.0, 0), (2, 1, 10.0, 0), (2, 1, 16.0, 5), (0, 4, 30.0, 10)],
)  # fmt: skip
def test_golden_steps_by_a_deadline(client: int, round: int, deadline: float, steps: int) -> None:
    pace = MADE.pace(np.array([client]), view_of(4, round))
    assert pace.steps_by(deadline, np.array([10])).tolist() == [steps]


@pytest.mark.parametrize(
    ("client", "round", "asked", "deadline", "known"),
    [(0, 1, 10, None, True), (0, 1, 5, None, True), (0, 1, 11, None, False), (0, 2, 10, None, True),
     (0, 3, 10, None, False), (0, 3, 10, 15.0, True), (0, 3, 10, 15.1, False), (0, 3, 5, None, True),
     (0, 4, 10, None, False), (1, 1, 10, None, True), (2, 1, 10, 15.0, True), (2, 1, 10, 16.0, False),
     (3, 1, 10, None, False), (0, 5, 10, None, False)],
)  # fmt: skip
def test_golden_what_counts_as_recorded(
    client: int, round: int, asked: int, deadline: float | None, known: bool
) -> None:
    who, view = np.array([client]), view_of(4, round)
    steps = MADE.done(np.array([asked]), who, view)
    both = MADE.has_progress(np.array([asked]), who, view) & MADE.has_pace(steps, who, view, deadline)
    assert both.tolist() == [known]


def test_contract_extrapolated_work_is_drawn_from_the_clients_own_rounds() -> None:
    rows = [(0, round, 10, 0 if round <= 3 else 5, NAN, False) for round in range(1, 13)]  # lost in 3 rounds of 12
    made = recording([*rows, (1, 1, 10, 10, NAN, False)], rounds=2000, clients=3)
    drawn = [made.done(np.array([8, 8, 8]), np.arange(3), view_of(3, round)) for round in range(100, 1100)]
    own, complete, stranger = np.stack(drawn).T
    assert set(own) == {0, 4}  # half of what is asked, or nothing
    assert 0.2 < (own == 0).mean() < 0.3
    assert (complete == 8).all()
    assert set(stranger) == {0, 4, 8}  # as anybody
    again = made.done(np.array([8, 8, 8]), np.arange(3), view_of(3, 100))
    assert np.array_equal(again, drawn[0])
    assert not np.array_equal(own, np.array([made.done(np.array([8]), np.array([0]), view_of(3, r, seed=1))[0]
                                             for r in range(100, 1100)]))  # fmt: skip


def test_contract_the_share_is_told_by_round_and_in_the_comparison(tmp_path: Path) -> None:
    fleet = to.Fleet(availability=HALF_UP, clock=clock(deadline_seconds=9.0))
    study(fleet=fleet).run(tmp_path / "recorded", engine="sequential")
    replayed = to.fleet.replay(run=tmp_path / "recorded", deadline_seconds=9.0)
    arms = [to.arm("as recorded"), to.arm("more clients", selection={"cohort_size": 9})]
    result = study(fleet=replayed, arms=arms).run(engine="sequential")
    shares = result.loaded.rounds[["arm", "replay_recorded"]].dropna().groupby("arm")["replay_recorded"].mean()
    assert shares["as recorded"] == 1.0
    assert 0.3 < shares["more clients"] < 0.9
    as_recorded, more = (note for note in result.comparison().notes if "of the asked work was recorded" in note)
    assert as_recorded.startswith("as recorded: 100.0 % of the asked work was recorded, 0.0 % extrapolated")
    assert more.startswith("more clients: ")


def test_contract_a_longer_deadline_gets_more_done(tmp_path: Path) -> None:
    study(fleet=to.Fleet(clock=clock(deadline_seconds=6.0))).run(tmp_path / "recorded", engine="sequential")
    done = {}
    for deadline in (3.0, 6.0, 12.0, None):
        fleet = to.fleet.replay(run=tmp_path / "recorded", deadline_seconds=deadline)
        done[deadline] = study(fleet=fleet).run(engine="sequential").loaded.clients["local_steps"].sum()
    assert done[3.0] < done[6.0] < done[12.0] < done[None]


def test_contract_work_that_ends_later_counts_for_the_round_that_handed_it_out() -> None:
    def row(round: int, seconds: float, outcomes: list[int], **changes: Any) -> Any:
        clients = np.array([1, 3])
        progress = Progress(clients=clients, steps=np.array([7, 0]), seconds=np.array([seconds, NAN]),
                            cut_off=np.zeros(2, dtype=bool))  # fmt: skip
        return record(round, outcomes=np.array(outcomes), progress=progress, **changes)

    at_work, complete = Outcome.AT_WORK, Outcome.COMPLETE
    with journal() as to_write:
        run = to_write.begin(info())
        to_write.write([(run, record(0, asked=()))])
        to_write.write([(run, row(1, NAN, [at_work, Outcome.LOST]))])
        to_write.write([(run, row(2, 4.5, [complete, at_work]))])
        to_write.write([(run, row(3, 2.5, [complete, complete], multiplicity=np.array([1, 1]), asked=(1, 2)))])
        jobs = recording_in(loaded_frames(to_write)).jobs
    assert list(zip(jobs.clients, jobs.rounds, strict=True)) == [(1, 1), (1, 3), (2, 3), (3, 1), (3, 2)]
    assert jobs.seconds[:2].tolist() == [4.5, 2.5]
    assert jobs.cut_off.tolist() == [False, False, False, False, True]
    assert 3.0 < jobs.seconds[-1] < 3.001  # rounds 2 and 3 took 1.5 s each: it was at work for longer


def test_error_a_folder_that_is_no_run(tmp_path: Path, turnout: Turnout) -> None:
    file = tmp_path / "study.toml"
    text = 'rounds = 2\nmodel = "softmax"\nlocal.lr = 0.1\nfleet = { use = "journal", run = "nowhere" }\n'
    file.write_text(text + '[data]\nuse = "synthetic"\nclients = 3\n')
    said = turnout("check", file)
    assert said.code == 2
    assert "study.toml:4: There is no folder nowhere. Name the folder that turnout run wrote to." in said.err
    (tmp_path / "nowhere").mkdir()
    assert "study.toml:4: nowhere holds no journal.sqlite. Name the folder" in turnout("check", file).err
    file.write_text(file.read_text().replace('use = "journal"', 'use = "tape"'))
    assert 'fleet.use must be one of journal; got "tape"' in turnout("check", file).err
    file.write_text(file.read_text().replace('use = "tape", ', 'use = "journal", deadline = 3, '))
    assert "replay has no setting deadline. Did you mean deadline_seconds?" in turnout("check", file).err


def test_error_a_run_of_fewer_clients_is_told_once(tmp_path: Path) -> None:
    study(fleet=to.Fleet(clock=clock()), rounds=2).run(tmp_path / "recorded", engine="sequential")
    more = study(fleet=to.fleet.replay(run=tmp_path / "recorded"), data=to.data.Synthetic(clients=13, samples=30))
    with pytest.raises(ConfigError) as caught:
        more.run(engine="sequential")
    message = str(caught.value)
    assert "needs a recording of at least as many clients as the study has" in message
    assert "has 12, and the study 13. Use fewer clients, or another run." in message
    assert message.count("as many clients") == 1


def test_error_several_runs_need_a_choice(tmp_path: Path) -> None:
    arms = [to.arm("small"), to.arm("large", selection={"cohort_size": 7})]
    study(arms=arms, seeds=(3, 4), rounds=2).run(tmp_path / "recorded", engine="sequential")
    message = r"needs one run; .* has 4 of arm = none, seed = none. It has small \(seed 3, 4\); large \(seed 3, 4\)"
    with pytest.raises(JournalError, match=message):
        read_run(tmp_path / "recorded")
    with pytest.raises(JournalError, match=r"has 0 of arm = none, seed = 5"):
        read_run(tmp_path / "recorded", seed=5)
    assert read_run(tmp_path / "recorded", "large", 4).name.startswith("arm 'large' with seed 4 of ")


def test_error_a_deadline_needs_recorded_times(tmp_path: Path) -> None:
    study(rounds=2).run(tmp_path / "recorded", engine="sequential")
    assert to.fleet.replay(run=tmp_path / "recorded").clock is None
    with pytest.raises(ConfigError, match=r"need a recording of how long clients took; .* ran without a clock"):
        to.fleet.replay(run=tmp_path / "recorded", deadline_seconds=3.0)
    fleet = to.Fleet(clock=to.fleet.ReplayedClock(folder=tmp_path / "recorded"))
    with pytest.raises(ConfigError, match=r"ReplayedClock needs a recording of how long clients took"):
        study(fleet=fleet).run(engine="sequential")


def test_contract_rounds_beyond_the_recording_start_again_and_are_noted(tmp_path: Path) -> None:
    study(fleet=to.Fleet(availability=HALF_UP), rounds=3).run(tmp_path / "recorded", engine="sequential")
    longer = study(fleet=to.fleet.replay(run=tmp_path / "recorded"), rounds=7)
    (line,) = preview_notes(longer)
    assert "after round 3 of 7 the replay starts again at the first, and all work counts as extrapolated." in line
    with pytest.warns(StudyNote, match="the replay starts again at the first"):
        found = longer.run(engine="sequential").loaded
    for round in range(4, 8):
        assert np.array_equal(found.up("replayed", 3, round), found.up("replayed", 3, (round - 1) % 3 + 1))
    shares = found.rounds["replay_recorded"].to_numpy()[1:]
    assert (shares[:3] == 1.0).all()
    assert (shares[3:] == 0.0).all()


def test_contract_an_unfinished_run_and_left_out_clients_are_noted(tmp_path: Path) -> None:
    with journal(tmp_path / "cut short") as out:
        run = out.begin(info())
        out.write([(run, record(0, asked=()))])
        out.write([(run, record(1))])
    made = study(fleet=to.fleet.replay(run=tmp_path / "cut short"), rounds=1, data=to.data.Synthetic(clients=4))
    (line,) = preview_notes(made)
    assert "the run did not finish: 1 of its 3 rounds are recorded; of its 5 clients the first 4 are replayed." in line


def test_error_a_run_that_is_being_written(tmp_path: Path) -> None:
    with journal(tmp_path / "open") as out:
        out.begin(info())
        with pytest.raises(JournalError, match=r"is being written, and a replay of it would change as it grows"):
            read_run(tmp_path / "open")
    with pytest.raises(JournalError, match=r"needs at least one round in which a client was asked"):
        read_run(tmp_path / "open")


def test_identity_the_resolved_study_is_the_study(tmp_path: Path) -> None:
    fleet, changes, ending = SCENES["members and time"]
    study(fleet=fleet, **changes).run(tmp_path / "recorded", engine="sequential")
    by_name = study(fleet={"use": "journal", "run": str(tmp_path / "recorded"), **ending})
    by_function = study(fleet=to.fleet.replay(run=str(tmp_path / "recorded"), **ending))
    assert resolved_settings(by_name) == resolved_settings(by_function)
    assert resolved_settings(by_name)["fleet"]["clock"]["use"] == "journal"
    file = tmp_path / "study.toml"
    file.write_text(
        'rounds = 9\nmodel = "softmax"\nlocal = { lr = 0.1, steps = 1 }\ndata = { use = "synthetic", clients = 12 }\n'
        f'[fleet]\nuse = "journal"\nrun = "{tmp_path / "recorded"}"\ndeadline_seconds = 9.0\n'
        '[[arm]]\nname = "long"\nfleet.deadline_seconds = 90.0\n'
    )
    (arm,) = load_study(file).arms
    clock: Any = by_name.fleet.clock
    assert arm.changes["fleet"] == replace(by_name.fleet, clock=replace(clock, deadline_seconds=90.0))
