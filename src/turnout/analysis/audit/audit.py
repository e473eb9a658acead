"""The audit of a run: its effective weights beside those asked for, the mismatch, its causes, and groups of clients."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from turnout.analysis.audit.groups import Group, weights_of_groups
from turnout.analysis.audit.mismatch import (
    Cause,
    chance_variation,
    chi_square,
    difference,
    effective_clients,
    split_causes,
    total_variation,
)
from turnout.analysis.audit.weights import NothingToAuditError, Weights, client_facts, client_weights
from turnout.array_types import Ids
from turnout.errors import JournalError, did_you_mean
from turnout.journal import Loaded

MOST_NAMED = 5  # clients that are listed as most over- and under-weighted
HEAVY = 0.1  # the share of clients that counts as the heaviest


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Audit:
    """What one run minimised."""

    arm: str
    seed: int
    weights: Weights
    groups: tuple[Group, ...]
    client_names: tuple[str, ...] | None  # None: clients have numbers only

    @property
    def num_clients(self) -> int:
        """Number of clients."""
        return len(self.weights.asked)

    @property
    def total_variation(self) -> float:
        """The share of the weight that is at another client than asked for."""
        return total_variation(self.weights.effective, self.weights.asked)

    @property
    def chance(self) -> float:
        """The total variation that the randomness of the rounds alone gives on average."""
        return chance_variation(self.weights)

    @property
    def chi_square(self) -> float:
        """χ² of p̃ from p."""
        return chi_square(self.weights.effective, self.weights.asked)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes; what they add sums to the total variation."""
        return split_causes(self.weights)

    @property
    def unseen(self) -> Ids:
        """Clients of the objective that carry no weight."""
        return np.flatnonzero((self.weights.asked > 0) & (self.weights.effective == 0))

    @property
    def unseen_share(self) -> float:
        """The weight that the objective asks for at clients that carry none."""
        return float(self.weights.asked[self.unseen].sum())

    @property
    def heaviest(self) -> Ids:
        """The tenth of the clients with the largest weights, largest first."""
        return np.argsort(-self.weights.effective, kind="stable")[: math.ceil(HEAVY * self.num_clients)]

    def name_of(self, client: int) -> str:
        """Return the name of a client, or its number."""
        return str(client) if self.client_names is None else self.client_names[client]

    def most_changed(self, count: int = MOST_NAMED) -> tuple[Ids, Ids]:
        """Return the clients with the most weight above what was asked for, and those with the most below."""
        gap = difference(self.weights.effective, self.weights.asked)
        order = np.argsort(-gap, kind="stable")
        over, under = order[: int((gap > 0).sum())], order[::-1][: int((gap < 0).sum())]
        return over[:count], under[:count]

    def as_dict(self) -> dict[str, Any]:
        """Return every number of the audit as plain values."""
        weights, (over, under) = self.weights, self.most_changed()
        return {
            "arm": self.arm,
            "seed": self.seed,
            "rounds": weights.rounds,
            "steps": weights.steps,
            "clients": self.num_clients,
            "total_variation": self.total_variation,
            "chance": self.chance,
            "chi_square": self.chi_square,
            "effective_clients": effective_clients(weights.effective),
            "effective_clients_asked": effective_clients(weights.asked),
            "unseen": self.unseen.tolist(),
            "unseen_share": self.unseen_share,
            "causes": [asdict(cause) for cause in self.causes],
            "groups": [asdict(group) for group in self.groups],
            "over_weighted": over.tolist(),
            "under_weighted": under.tolist(),
            "asked": weights.asked.tolist(),
            "effective": weights.effective.tolist(),
            "standard_errors": weights.standard_errors.tolist(),
        }


def audit(loaded: Loaded, arm: str, seed: int, *, since: int = 1) -> Audit:
    """Return the audit of one run over its rounds from `since` on."""
    if next(loaded.round_by_client("assignment", arm, seed), None) is not None:
        raise NothingToAuditError(
            f"Arm {arm!r} of {loaded.study['name']} has several models, and each has an objective of its own; an audit "
            "compares the weights of one. Audit an arm without [assignment]."
        )
    weights, facts = client_weights(loaded, arm, seed, since=since), client_facts(loaded, arm, seed)
    groups = weights_of_groups(weights, facts)
    return Audit(arm=arm, seed=seed, weights=weights, groups=groups, client_names=facts.client_names)


def audit_runs(loaded: Loaded, arm: str | None = None, seed: int | None = None, *, since: int = 1) -> list[Audit]:
    """Return the audits of a study's runs, or of those of one arm or one seed."""
    if arm is not None and arm not in loaded.arms:
        raise JournalError(
            f"There is no arm {arm!r} in {loaded.study['name']}.{did_you_mean(arm, list(loaded.arms))} "
            f"It has {', '.join(loaded.arms)}."
        )
    known: Sequence[tuple[str, int]] = [
        (str(name), int(number))
        for name, number in zip(loaded.runs["arm"], loaded.runs["seed"], strict=True)
        if arm in (None, name) and seed in (None, number)
    ]
    if not known:
        seeds = ", ".join(map(str, sorted(set(loaded.runs["seed"].tolist()))))
        raise JournalError(f"There is no run with seed {seed} in {loaded.study['name']}. It has the seeds {seeds}.")
    return [audit(loaded, name, number, since=since) for name, number in known]
