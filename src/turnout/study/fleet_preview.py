"""A preview of the fleet before the first round: how many clients are ever available, and how much of a trace is used.

Availability is a pure function of the seed, the round and the simulated time, so shipped rules can be evaluated before
the run. If the duration of rounds depends on a clock, the first round is the estimate for all rounds, and the note says
so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from turnout import number_format
from turnout.axes import FLEET_AXES
from turnout.catalogue import catalogue
from turnout.coordinator.plan import Plan
from turnout.data.federation import Federation
from turnout.fleet import (
    Always,
    Deadline,
    Never,
    Recorded,
    Recording,
    ReplayedAvailability,
    ReplayedClock,
    ReplayedMembership,
    ReplayedWork,
)
from turnout.protocols import Availability, Population, View
from turnout.streams import Streams
from turnout.study.driver import Run
from turnout.study.study import Study
from turnout.traits import DataTraits, traits_of

FROM_FIRST_ROUND = "How long rounds last is an estimate, from the first."
FROM_DEADLINE = "That is an estimate: each round is taken to last fleet.clock.deadline_seconds."
REPLAYED = (ReplayedAvailability, ReplayedClock, ReplayedMembership, ReplayedWork)
MOST_NAMED = 6  # arms in one note
MOST_ROUNDS_SEEN = 5000  # rounds in which availability is evaluated
MOST_ANSWERS = 20_000_000  # clients times rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPreview:
    """The clients that the rounds of one run will reach."""

    rounds: int
    num_clients: int
    ever_up: int
    is_whole: bool  # whether every round was evaluated
    recording: Recorded | None
    round_seconds: float | None  # None: availability does not depend on time
    guess: str = ""  # how the duration of rounds was estimated, if a clock decides it

    @property
    def text(self) -> str:
        """One line; empty if every client takes part and no trace is used."""
        if self.recording is None and self.ever_up == self.num_clients:
            return ""
        never = self.num_clients - self.ever_up
        least = "" if self.is_whole else "at least "
        who = (
            f"{least}{self.ever_up:,} of {self.num_clients:,} clients are up in at least one of {self.rounds:,} rounds"
        )
        who += f", {never:,} in none" if never and self.is_whole else ""
        parts = [*self._replayed(), who]
        return f"fleet.availability: {'; '.join(parts)}.{self.guess and f' {self.guess}'}"

    def _replayed(self) -> Iterator[str]:
        if self.recording is not None and self.round_seconds is not None:
            seconds, length = self.rounds * self.round_seconds, self.recording.length_seconds
            yield (
                f"{self.rounds:,} rounds take {number_format.seconds(seconds)} of a recording of "
                f"{number_format.seconds(length)} ({number_format.percent(seconds / length)})"
            )


def preview_fleet(plan: Plan, view: View, round_seconds: float | None = None) -> FleetPreview | None:
    """Return the preview of a plan; None if availability cannot be predicted.

    Args:
        plan: plan of the run.
        view: view of the first round; the model may be empty if `round_seconds` is given.
        round_seconds: longest duration of a round; None computes the duration of the first round from the clock.
    """
    rule, clients = plan.fleet.availability, view.population.num_clients
    if isinstance(rule, Always) or not _is_predictable(rule) or plan.traits.availability.requires is not None:
        return None
    recording = _recording(rule)
    timed = plan.traits.availability.needs_clock
    seconds = None if recording is None else recording.round_seconds
    if timed:
        seconds = first_round_seconds(plan, view) if round_seconds is None else round_seconds
        if seconds is None:
            return None
    looks = min(plan.rounds, MOST_ROUNDS_SEEN, max(1, MOST_ANSWERS // clients))
    seen = np.zeros(clients, dtype=bool)
    for round in np.unique(np.linspace(1, plan.rounds, looks).astype(np.int64)).tolist():
        seen[rule.up(replace(view, round=round, sim_seconds=(round - 1) * (seconds or 0.0)))] = True
    return FleetPreview(
        rounds=plan.rounds,
        num_clients=clients,
        ever_up=int(seen.sum()),
        is_whole=looks == plan.rounds,
        recording=recording,
        round_seconds=seconds,
        guess="" if not timed else FROM_FIRST_ROUND if round_seconds is None else FROM_DEADLINE,
    )


def first_round_seconds(plan: Plan, view: View) -> float | None:
    """Return the duration of the first round with clients evenly spaced over all ids; None without a clock."""
    clock, everyone = plan.fleet.clock, view.population.everyone
    if clock is None:
        return None
    waiting = plan.asynchrony
    size = (plan.selection.cohort_size if waiting is None else waiting.concurrency) or len(everyone)
    clients = everyone[np.unique(np.linspace(0, len(everyone) - 1, min(size, len(everyone))).astype(np.int64))]
    steps = plan.fleet.work.done(plan.local.asked(clients, view), clients, view)
    model_bytes = view.model.numel() * view.model.element_size()
    if waiting is None:
        return clock.run(clients, steps, model_bytes, view).round_seconds
    return float(clock.seconds(clients, steps, model_bytes, view).mean()) * waiting.buffer_size / waiting.concurrency


def replay_note(plan: Plan, num_clients: int) -> str:
    """Return what a replay of a recorded run lacks: rounds, or its end; empty where nothing is missing."""
    rules = [getattr(plan.fleet, axis) for axis in FLEET_AXES]
    recordings = list(dict.fromkeys(rule.recording for rule in rules if isinstance(rule, REPLAYED)))
    return " ".join(filter(None, (_lacks(recording, plan.rounds, num_clients) for recording in recordings)))


def _lacks(recording: Recording, rounds: int, num_clients: int) -> str:
    parts, last = [], recording.num_rounds
    if last < recording.planned_rounds:
        parts.append(f"the run did not finish: {last:,} of its {recording.planned_rounds:,} rounds are recorded")
    if last < rounds:
        parts.append(
            f"after round {last:,} of {rounds:,} the replay starts again at the first, and all work counts as "
            "extrapolated"
        )
    if recording.num_clients > num_clients:
        parts.append(f"of its {recording.num_clients:,} clients the first {num_clients:,} are replayed")
    return f"fleet: this replays {recording.name}; {'; '.join(parts)}." if parts else ""


def start_notes(runs: Sequence[tuple[str, Run]]) -> list[str]:
    """Return the notes to show before the first round: data without test samples, and previews of the fleets."""
    tests: dict[str, str] = {}
    own: dict[str, str] = {}
    seen: dict[str, str] = {}
    replays: dict[str, str] = {}
    known: dict[tuple[int, ...], str] = {}
    for arm, run in runs:
        tests[arm] = _test_note(run.task.federation)
        own[arm] = _own_models_note(run)
        replays[arm] = replay_note(run.plan, run.population.num_clients)
        parts = (run.plan.fleet, run.plan.local, run.plan.selection, run.task.federation)
        key = (run.plan.rounds, *map(id, parts))  # arms share the parts that they do not change
        if key not in known:
            known[key] = _preview_of_run(run)
        seen[arm] = known[key]
    return [*lines_by_arm(tests), *lines_by_arm(own), *lines_by_arm(replays), *lines_by_arm(seen)]


def _preview_of_run(run: Run) -> str:
    people, model = run.population, run.state.model
    first = View(round=1, rounds=run.plan.rounds, streams=run.streams, population=people, model=model)
    try:
        preview = preview_fleet(run.plan, first)
    except Exception:  # a rule that works only within its round; errors are raised there
        return ""
    return "" if preview is None else preview.text


def _test_note(federation: Federation) -> str:
    if federation.test is not None:
        return ""
    only = ", only on the clients' hold-outs" if federation.holdout is not None else ""
    return (
        f"{federation.name} has no test set: the model is not measured{only}. "
        "Give the data one, such as test=(x, y) of from_clients, to compare arms by accuracy or loss."
    )


def _own_models_note(run: Run) -> str:
    federation = run.task.federation
    if run.plan.personal is None or federation.holdout is not None:
        return ""
    return (
        f"{federation.name} has no hold-outs: clients' own models are trained, but not measured. "
        "Set data.holdout = 0.2, for example, or give hold-outs to from_clients."
    )


def preview_notes(study: Study) -> list[str]:
    """Return the notes that need no data, with the arms of each."""
    found: dict[str, str] = {}
    replays: dict[str, str] = {}
    for name, version in study.versions().items():
        clients = traits_of(DataTraits, version.data).known_clients
        if clients is not None:
            people = Population.of(np.ones(clients, dtype=np.int64))
            streams = Streams(study.all_seeds[0])
            view = View(round=1, rounds=version.rounds, streams=streams, population=people, model=torch.zeros(0))
            found[name] = _preview_without_data(version.plan, view)
            replays[name] = replay_note(version.plan, clients)
    return [*lines_by_arm(replays), *lines_by_arm(found)]


def _preview_without_data(plan: Plan, view: View) -> str:
    """Return the note on a plan before its data is loaded."""
    clock = plan.fleet.clock
    limit = clock.deadline_seconds if isinstance(clock, Deadline) else None
    if plan.traits.availability.needs_clock and limit is None:
        return (
            "fleet.availability: how long rounds last, and so which clients a study will see, follows from the clock; "
            "a run says it before its first round."
        )
    try:
        seen = preview_fleet(plan, view, limit)
    except Exception:  # a rule that needs labels, which are not loaded yet
        return ""
    return "" if seen is None else seen.text


def lines_by_arm(by_arm: Mapping[str, str]) -> list[str]:
    """Return each line once; if arms differ, with the names of its arms."""
    arms: dict[str, list[str]] = {}
    for arm, text in by_arm.items():
        arms.setdefault(text, []).append(arm)
    if len(arms) == 1:
        return [text for text in arms if text]
    return [f"{_arm_list(names)}: {text}" for text, names in arms.items() if text]


def _arm_list(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more arms" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _is_predictable(rule: Availability) -> bool:
    own = type(rule) in catalogue("availability").values()
    return own and (not isinstance(rule, Never) or _is_predictable(rule.others))


def _recording(rule: Availability) -> Recorded | None:
    if isinstance(rule, Never):
        return _recording(rule.others)
    return rule if isinstance(rule, Recorded) else None
