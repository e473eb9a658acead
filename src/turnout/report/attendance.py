"""Who took part in one run: every client's state in every round, and how often each counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.journal.codec import decode_clients, decode_ids, decode_mask
from turnout.report.fairness import edges, jain
from turnout.report.load_studies import Arm, rows_of
from turnout.requests import Outcome

AWAY, UP, ASKED, PARTIAL, ANSWERED, DROPPED = range(6)
STATES = {
    AWAY: "away",
    UP: "up, not asked",
    ASKED: "asked, answer still to come",
    PARTIAL: "answered in part",
    ANSWERED: "answered",
    DROPPED: "dropped: asked, nothing was used",
}
BY_OUTCOME = np.array(  # the state of a client whose job ended so
    [
        {Outcome.COMPLETE: ANSWERED, Outcome.PARTIAL: PARTIAL, Outcome.AT_WORK: ASKED}.get(outcome, DROPPED)
        for outcome in Outcome
    ],
    dtype=np.uint8,
)


@dataclass(frozen=True, slots=True)
class UpByRound(Sequence[Ids]):
    """Who was up, by round; each is unpacked when it is asked for: all of them may be more than fits in memory."""

    packed: Sequence[tuple[bytes, int]]  # the ids, of how many clients

    @overload
    def __getitem__(self, place: int) -> Ids: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Ids]: ...
    def __getitem__(self, place: int | slice) -> Ids | Sequence[Ids]:
        return UpByRound(self.packed[place]) if isinstance(place, slice) else decode_ids(*self.packed[place])

    def __len__(self) -> int:
        return len(self.packed)

    def mask(self, place: int) -> NDArray[np.bool_]:
        """Return whether each client was up in one round."""
        return decode_mask(*self.packed[place])


@dataclass(frozen=True, slots=True, kw_only=True)
class Attendance:
    """One run. Clients that were asked are listed round after round: `counts` says how many belong to each round."""

    num_clients: int
    rounds: Ids  # from 1; round 0 trains nobody
    up: "UpByRound"
    up_key: bytes  # the same for runs in which the same clients were up
    counts: Ids  # asked, by round
    clients: Ids
    states: NDArray[np.uint8]
    times_up: Ids  # by client
    times_asked: Ids
    times_answered: Ids
    weight: Floats  # the sum of the client's coefficients

    @property
    def share(self) -> Floats:
        """Each client's share of the aggregation; zero throughout where nothing was aggregated."""
        total = self.weight.sum()
        return self.weight / total if total > 0 else np.zeros(self.num_clients)


def attendance(arm: Arm, seed: int) -> Attendance:
    """Read who took part in one run."""
    rounds, packed, counts, facts = [], [], [], []
    times_up, key = np.zeros(0, dtype=np.int64), blake2b(digest_size=16)
    for round, total, count, up_blob, blob in rows_of(arm, seed, "round, num_clients, asked_count, up, clients"):
        if total > len(times_up):
            times_up = np.pad(times_up, (0, total - len(times_up)))
        if round == 0:
            continue
        rounds.append(round)
        packed.append((up_blob, total))
        times_up[:total] += decode_mask(up_blob, total)
        key.update(b"%d %d " % (round, len(up_blob)) + up_blob)
        asked = _asked(blob, total, count)
        counts.append(len(asked["client"]))
        facts.append(asked)
    whole = {name: np.concatenate([fact[name] for fact in facts]) for name in facts[0]} if facts else _asked(None, 0, 0)
    num_clients = len(times_up)
    clients, came = whole["client"], np.isin(whole["state"], (PARTIAL, ANSWERED))
    return Attendance(
        num_clients=num_clients,
        rounds=np.array(rounds, dtype=np.int64),
        up=UpByRound(packed),
        up_key=key.digest(),
        counts=np.array(counts, dtype=np.int64),
        clients=clients,
        states=whole["state"],
        times_up=times_up,
        times_asked=np.bincount(clients, minlength=num_clients),
        times_answered=np.bincount(clients[came], minlength=num_clients),
        weight=np.bincount(clients, weights=whole["coefficient"], minlength=num_clients).astype(np.float64),
    )


def _asked(blob: bytes | None, num_clients: int, count: int) -> dict[str, NDArray[Any]]:
    """Return who was asked in a round, the state each ended in, and what it counted for."""
    if blob is None:
        none = np.zeros(0, dtype=np.int64)
        return {"client": none, "state": none.astype(np.uint8), "coefficient": np.zeros(0)}
    told = decode_clients(blob, num_clients, count)
    return {"client": told["client"], "state": BY_OUTCOME[told["outcome"]], "coefficient": told["coefficient"]}


def figures(run: Attendance) -> dict[str, float]:
    """Return one run in a few numbers."""
    top = edges(run.share)[1] * np.ceil(run.num_clients / 10) if run.num_clients else float("nan")
    answered = run.times_answered.astype(np.float64)
    return {
        "clients": float(run.num_clients),
        "never_up": float((run.times_up == 0).sum()),
        "never_asked": float((run.times_asked == 0).sum()),
        "never_answered": float((run.times_answered == 0).sum()),
        "times_answered_median": float(np.median(answered)) if len(answered) else float("nan"),
        "times_answered_most": float(answered.max()) if len(answered) else float("nan"),
        "top_tenth_share": float(top) if run.weight.any() else float("nan"),
        "times_answered_jain": jain(answered) if len(answered) else float("nan"),
    }
