"""Who took part in one run: every client's state in every round, how its jobs ended, how often its update was used."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.journal.codec import OUTCOMES, USED, decode_clients, decode_ids, decode_mask
from turnout.report.fairness import edges, jain
from turnout.report.load_studies import Arm
from turnout.requests import Outcome

# The state of a client in a round: unavailable, available, or, if it was asked, the outcome of its job.
UNAVAILABLE, NOT_ASKED = 0, 1
STATES = ("unavailable", "available, not asked", *OUTCOMES)
STATE_OF = {outcome: len(STATES) - len(OUTCOMES) + outcome for outcome in Outcome}
USED_STATES = tuple(STATE_OF[outcome] for outcome in USED)


@dataclass(frozen=True, slots=True)
class AvailableByRound(Sequence[Ids]):
    """The available clients of each round; decoded one round at a time, because all may not fit in memory."""

    encoded: Sequence[tuple[bytes, int]]  # (ids, number of clients)

    @overload
    def __getitem__(self, place: int) -> Ids: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Ids]: ...
    def __getitem__(self, place: int | slice) -> Ids | Sequence[Ids]:
        return AvailableByRound(self.encoded[place]) if isinstance(place, slice) else decode_ids(*self.encoded[place])

    def __len__(self) -> int:
        return len(self.encoded)

    def mask(self, place: int) -> NDArray[np.bool_]:
        """Return whether each client was available in one round."""
        return decode_mask(*self.encoded[place])


@dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    """Who took part in a run. `clients` lists the asked clients round by round; `counts` has their number per round."""

    num_clients: int
    rounds: Ids  # from 1; nobody trains in round 0
    up: AvailableByRound
    up_key: bytes  # equal for runs in which the same clients were available
    counts: Ids  # number of clients asked, by round
    clients: Ids  # that were asked, round after round
    states: NDArray[np.uint8]  # of those clients: the outcome's state
    times_up: Ids  # by client
    times_asked: Ids  # by client
    times_answered: Ids  # by client: how often its update was used
    weight: Floats  # by client: the sum of its coefficients

    @property
    def share(self) -> Floats:
        """Each client's share of the aggregation; zeros if nothing was aggregated."""
        total = self.weight.sum()
        return self.weight / total if total > 0 else np.zeros(self.num_clients)

    @property
    def outcomes(self) -> Ids:
        """The number of jobs by outcome, in the order of `Outcome`; "at work" are jobs that had not ended at the end.

        A job that spans several rounds is recorded when it starts ("at work") and again when it ends.
        """
        ended = np.bincount(self.states, minlength=len(STATES))[STATE_OF[Outcome.COMPLETE] :]
        _, last = np.unique(self.clients[::-1], return_index=True)  # the last entry of each client
        ended[Outcome.AT_WORK] = (self.states[::-1][last] == STATE_OF[Outcome.AT_WORK]).sum()
        return ended


def participation(arm: Arm, seed: int) -> Participation:
    """Read who took part in one run."""
    rounds, available, counts, jobs = [], [], [], []
    times_up, key = np.zeros(0, dtype=np.int64), blake2b(digest_size=16)
    for row in arm.study.round_clients(arm.own_name, seed):
        if row.num_clients > len(times_up):
            times_up = np.pad(times_up, (0, row.num_clients - len(times_up)))
        if row.round == 0:
            continue
        rounds.append(row.round)
        available.append((row.up, row.num_clients))
        times_up[: row.num_clients] += decode_mask(row.up, row.num_clients)
        key.update(b"%d %d " % (row.round, len(row.up)) + row.up)
        jobs.append(_jobs(row.asked, row.num_clients, row.num_asked))
        counts.append(len(jobs[-1]["client"]))
    all_jobs = {name: np.concatenate([each[name] for each in jobs]) for name in jobs[0]} if jobs else _jobs(None, 0, 0)
    num_clients = len(times_up)
    clients, was_used = all_jobs["client"], np.isin(all_jobs["state"], USED_STATES)
    return Participation(
        num_clients=num_clients,
        rounds=np.array(rounds, dtype=np.int64),
        up=AvailableByRound(available),
        up_key=key.digest(),
        counts=np.array(counts, dtype=np.int64),
        clients=clients,
        states=all_jobs["state"],
        times_up=times_up,
        times_asked=np.bincount(clients, minlength=num_clients),
        times_answered=np.bincount(clients[was_used], minlength=num_clients),
        weight=np.bincount(clients, weights=all_jobs["coefficient"], minlength=num_clients).astype(np.float64),
    )


def _jobs(encoded: bytes | None, num_clients: int, count: int) -> dict[str, NDArray[Any]]:
    """Return the clients asked in a round, the state in which each job ended, and its coefficient."""
    if encoded is None:
        nobody = np.zeros(0, dtype=np.int64)
        return {"client": nobody, "state": nobody.astype(np.uint8), "coefficient": np.zeros(0)}
    facts = decode_clients(encoded, num_clients, count)
    states = (facts["outcome"] + STATE_OF[Outcome.COMPLETE]).astype(np.uint8)
    return {"client": facts["client"], "state": states, "coefficient": facts["coefficient"]}


def figures(run: Participation) -> dict[str, float]:
    """Return the numbers of one run for the table of participation."""
    top = edges(run.share)[1] * np.ceil(run.num_clients / 10) if run.num_clients else float("nan")
    used = run.times_answered.astype(np.float64)
    return {
        "clients": float(run.num_clients),
        "never_up": float((run.times_up == 0).sum()),
        "never_asked": float((run.times_asked == 0).sum()),
        "never_answered": float((run.times_answered == 0).sum()),
        "times_answered_median": float(np.median(used)) if len(used) else float("nan"),
        "times_answered_most": float(used.max()) if len(used) else float("nan"),
        "top_tenth_share": float(top) if run.weight.any() else float("nan"),
        "times_answered_jain": jain(used) if len(used) else float("nan"),
    }
