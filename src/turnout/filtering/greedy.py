"""FilFL: keep the clients whose averaged model does best on a small held-out set, found greedily.

Intuition: a client that makes the average worse today is left out until the next look.

    R(S) = C₀ − F_V( (1/|S|) Σ_{i∈S} x_i )            X = ∅, Y = all considered
    for u in random order:  a = R(X∪{u}) − R(X);  b = R(Y∖{u}) − R(Y)
        deterministic  accept iff a > b
        randomised     accept with probability a⁺/(a⁺+b⁺), or 1 when both are 0
        accept: X ← X∪{u};   reject: Y ← Y∖{u}        in the end X = Y is kept

Average models that are equal up to rounding share one loss: where clients are alike, a and b are then exactly 0, or
exactly equal, and `ties` and the second line decide, not the last bit of a sum. Equal means that the averages of the
changes are nearer to each other than a millionth of their length.

A look happens in the first round, every h-th round, and whenever another set of clients is up; in between the kept
clients that are up stay. A look trains everyone considered once, and the round uses those very rows.

V, the set that models are scored on, is either what the server holds (`on = "server"`): samples it took from the
clients (`data.server_samples`), or a public set that no client holds (`data.server_from = "test"`, or the `server` that
was passed to `from_clients`). Or it is the hold-out of one client, drawn anew for each look from those considered that
have one (`on = "client"`); where none has, everyone considered stays.

Reduces to: the base algorithm when everyone is accepted.
Differs from the paper: R(∅) is undefined there; `empty` says which reading is used, and the default is that of the
authors' code (R(∅) = 0 with C₀ = 10). Both X and Y are restricted to the clients considered, so that they meet.
Reference: Fourati, Kharrat, Aggarwal, Alouini, Canini. FilFL: client filtering. ECAI 2024. arXiv:2302.06599.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Ids
from turnout.protocols import Ask, Kept, Population, View
from turnout.requests import Scored, Steps, Trained
from turnout.settings import Clients, Count, Number, When, rule

EQUAL = 1e-6  # average changes nearer than this share of their length are equal up to rounding


def accepts(gain_in: float, gain_out: float, mode: str, coin: float, *, ties: bool = False) -> bool:
    """Return whether a client that gains a by joining X and b by leaving Y is accepted."""
    if mode == "deterministic":
        return gain_in >= gain_out if ties else gain_in > gain_out
    joins, leaves = max(gain_in, 0.0), max(gain_out, 0.0)
    return coin < (1.0 if joins + leaves == 0 else joins / (joins + leaves))


class Average(NamedTuple):
    """The average change of a set of clients, and the loss of the model it makes."""

    change: Tensor
    loss: float

    def shared_with(self, *others: "Average") -> "Average":
        """Return this average with the loss of the first of the others that is equal up to rounding, if any is."""
        size = self.change.norm()
        for other in others:
            if (self.change - other.change).norm() <= EQUAL * torch.maximum(size, other.change.norm()):
                return Average(self.change, other.loss)
        return self


class Ledger:
    """The two sets as running sums of rows, in float64, so that a step costs one row and not the whole set."""

    def __init__(self, model: Tensor, deltas: Tensor) -> None:
        self.model, self.deltas = model, deltas
        self.inside = torch.zeros(model.numel(), dtype=torch.float64, device=model.device)  # Σ_X Δ
        self.outside = deltas.double().sum(0)  # Σ_Y Δ
        self.num_inside, self.num_outside = 0, len(deltas)

    def with_row(self, row: int) -> Tensor:
        """Return the average change of X ∪ {u}."""
        return (self.inside + self.deltas[row]) / (self.num_inside + 1)

    def without_row(self, row: int) -> Tensor:
        """Return the average change of Y ∖ {u}."""
        return (self.outside - self.deltas[row]) / (self.num_outside - 1)

    def all(self) -> Tensor:
        """Return the average change of Y."""
        return self.outside / self.num_outside

    def models(self, *changes: Tensor) -> Tensor:
        """Return the models after these average changes, one a row."""
        return torch.stack([self.model - change.to(self.model.dtype) for change in changes])

    def accept(self, row: int) -> None:
        """Put u into X."""
        self.inside += self.deltas[row]
        self.num_inside += 1

    def reject(self, row: int) -> None:
        """Take u out of Y."""
        self.outside -= self.deltas[row]
        self.num_outside -= 1


@rule("filtering")
class Greedy:
    """Greedy client filtering."""

    mode: Literal["deterministic", "randomised"] = "deterministic"  # χ
    every: Count = 5  # h
    most: Clients | None = None  # n: clients considered in a look; left out, all who are up
    on: Literal["server", "client"] = "server"  # V: what the server holds (its own, or public), or a drawn hold-out
    empty: Literal["offset", "global", "-inf"] = "offset"  # what R(∅) is
    offset: Annotated[Number, When(empty="offset")] = 10.0  # C₀, with empty = "offset"
    ties: Annotated[bool, When(mode="deterministic")] = False  # a = b is accepted, as in the authors' code

    def objections_for(self, population: Population) -> Iterator[str]:
        """Yield why it cannot filter these clients."""
        if self.on == "server" and population.server_size == 0:
            yield (
                'Greedy on = "server" needs samples at the server to score models on; this federation has none. '
                'Set data.server_samples to 50 or more, or filtering.on = "client" with data.holdout above 0.'
            )
        if self.on == "client" and population.holdout_sizes is not None and not population.holdout_sizes.any():
            yield (
                'Greedy on = "client" needs samples that clients hold out, to score models on; these hold out none. '
                'Set data.holdout to 0.1, for example, or filtering.on = "server" with data.server_samples above 0.'
            )

    def keep(self, pool: Ids, view: View, ask: Ask) -> Steps[Kept]:
        """Return who stays: by a new look where one is due, else those of the last look who are up."""
        before = view.memory.get("pool")
        is_due = before is None or view.round % self.every == 0 or not np.array_equal(before, pool)
        if len(pool) == 0 or not is_due:
            stay = pool if before is None else np.intersect1d(view.memory["kept"], pool)
            return Kept(clients=stay, metrics={"filter_kept": float(len(stay))})
        order = view.streams.generator("filter-order", view.round).permutation(pool)[: self.most]
        trained: Trained = yield ask.train(np.sort(order))
        here = trained.clients[trained.finite]
        order = order[np.isin(order, here)]
        assert trained.delta is not None
        rows = trained.delta[torch.from_numpy(np.searchsorted(trained.clients, order))]
        taken = yield from self._look(rows, order, view, ask)
        kept = np.sort(order[taken])
        metrics = {"filter_kept": float(len(kept)), "filter_considered": float(len(order))}
        memory = {"kept": kept, "pool": pool} if len(order) else {}  # where nobody answered, the next round looks again
        return Kept(clients=kept, trained=trained, memory=memory, metrics=metrics)

    def _look(self, rows: Tensor, order: Ids, view: View, ask: Ask) -> Steps[np.ndarray]:
        """Return which of the rows are accepted, in their order."""
        taken = np.zeros(len(order), dtype=bool)
        if len(order) == 0:
            return taken
        whose = self._judge(order, view) if self.on == "client" else None
        if self.on == "client" and whose is None:
            return ~taken
        coins = view.streams.uniforms("filter", view.round, order)[:, 0]
        ledger = Ledger(view.model, rows)
        changes = [ledger.all(), torch.zeros_like(ledger.outside)]
        first: Scored = yield ask.score(ledger.models(*changes), self.on, whose)
        at_out, nobody = (Average(change, loss) for change, loss in zip(changes, first.loss, strict=True))  # Y and ∅
        at_in = nobody  # X
        for row in range(len(order)):
            last = ledger.num_outside == 1
            changes = [ledger.with_row(row)] + ([] if last else [ledger.without_row(row)])
            scored: Scored = yield ask.score(ledger.models(*changes), self.on, whose)
            joined = Average(changes[0], scored.loss[0]).shared_with(at_in, at_out)
            left = nobody if last else Average(changes[1], scored.loss[1]).shared_with(at_in, at_out, joined)
            gain_in = self._reward(joined) - (self._reward(at_in) if ledger.num_inside else self._nothing(nobody))
            gain_out = (self._nothing(nobody) if last else self._reward(left)) - self._reward(at_out)
            forced = self.empty == "-inf" and (ledger.num_inside == 0 or last)
            if forced or accepts(gain_in, gain_out, self.mode, coins[row], ties=self.ties):
                ledger.accept(row)
                taken[row], at_in = True, joined
            else:
                ledger.reject(row)
                at_out = left
        return taken

    def _reward(self, average: Average) -> float:
        """Return R of a set that is not empty."""
        return (self.offset if self.empty == "offset" else 0.0) - average.loss

    def _nothing(self, nobody: Average) -> float:
        """Return R(∅)."""
        return 0.0 if self.empty == "offset" else -nobody.loss

    def _judge(self, order: Ids, view: View) -> int | None:
        """Draw the client whose hold-out decides; None where nobody holds anything out."""
        sizes = view.population.holdout_sizes
        able = np.sort(order if sizes is None else order[sizes[order] > 0])
        return int(view.streams.generator("filter-judge", view.round).choice(able)) if len(able) else None
