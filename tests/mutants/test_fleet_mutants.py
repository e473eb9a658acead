"""Mistakes that others have published, made on purpose in our own fleet: the checks must see each of them."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from tests.support import fleet_claims as claims
from turnout.array_types import Floats, Ids
from turnout.fleet import Deadline, HalfAndHalf, Recorded, Trace
from turnout.fleet.availability import half_and_half
from turnout.fleet.traces import UP
from turnout.protocols import Timing, View

TRACE = claims.trace_of((0, 0, 10), (1, 0, 40), (0, 20, 30), (2, 15, 25), (1, 60, 90), (2, 70, 100))
TIMES = [0, 30, 0, 70, 20, 90]


def faithful(trace: Trace) -> Recorded:
    return Recorded(trace=trace, round_seconds=10.0, repeat=False)


@dataclass
class OneSegmentPerCall:
    """Each call moves every client to its next segment, whatever the time is."""

    trace: Trace
    calls: int = field(default=0)

    def up(self, view: View) -> Ids:
        moments = np.unique(np.concatenate([self.trace.starts, self.trace.ends]))
        now = moments[min(self.calls, len(moments) - 1)]
        self.calls += 1
        return np.flatnonzero(self.trace.states_at(now) == UP)


@dataclass
class WaitsForMore:
    """Looks ahead until enough are up (as far as a test can wait), instead of asking who is up now."""

    rule: Recorded
    wanted: int = 2

    def up(self, view: View) -> Ids:
        later = (self.rule.up(replace(view, round=view.round + ahead)) for ahead in range(100))
        return next((up for up in later if len(up) >= self.wanted), np.zeros(0, dtype=np.int64))


class IdlesInNoTime(Deadline):
    """A round in which nobody is asked takes no time: those who come later never come."""

    __slots__ = ()

    def run(self, clients: Ids, steps: Ids, model_bytes: int | Ids, view: View) -> Timing:
        timing = Deadline.run(self, clients, steps, model_bytes, view)
        seconds = timing.round_seconds if len(clients) else 0.0
        return Timing(done=timing.done, late=timing.late, round_seconds=seconds)


def test_golden_the_checks_pass_what_is_right() -> None:
    claims.assert_replays(faithful, TRACE, TIMES)
    claims.assert_halves_lose_the_same(HalfAndHalf())
    claims.assert_asks_who_is_up_now()
    claims.assert_time_goes_on(claims.WAITING)


def test_contract_a_trace_that_moves_on_one_segment_per_call_is_seen() -> None:
    with pytest.raises(AssertionError, match="at "):
        claims.assert_replays(OneSegmentPerCall, TRACE, TIMES)


def test_contract_waiting_until_enough_are_up_is_seen() -> None:
    with pytest.raises(AssertionError):
        claims.assert_asks_who_is_up_now(WaitsForMore)


def test_contract_waiting_for_ever_because_time_stands_still_is_seen() -> None:
    with pytest.raises(AssertionError, match="a round took no time"):
        claims.assert_time_goes_on(IdlesInNoTime(seconds_per_step=1.0))


def test_contract_ids_taken_for_positions_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_id(members: Ids, lots: Floats, count: int) -> Ids:
        ids = members[np.argsort(lots, kind="stable")[:count]]
        return np.delete(members, ids[ids < len(members)])  # ids beyond the half delete nothing

    monkeypatch.setattr(half_and_half, "without_drawn", by_id)
    with pytest.raises(AssertionError, match="round 2: 10 are up"):
        claims.assert_halves_lose_the_same(HalfAndHalf())
