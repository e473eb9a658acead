"""FilFL: keep the clients whose averaged model has the lowest loss on a small validation set, by a greedy search.

Intuition: a client that makes the average model worse is left out until the next search.

    R(S) = C₀ − F_V( (1/|S|) Σ_{i∈S} x_i )            X = ∅, Y = all considered clients
    for u in random order:  a = R(X∪{u}) − R(X);  b = R(Y∖{u}) − R(Y)
        deterministic  accept iff a > b
        randomised     accept with probability a⁺/(a⁺+b⁺), or 1 when both are 0
        accept: X ← X∪{u};   reject: Y ← Y∖{u}        at the end X = Y are the kept clients

Average models that are equal up to rounding get the same loss. If clients are equal, a and b are then exactly 0 or
exactly equal, so that `ties` and the second line decide, and not a rounding error. Two averages are equal if the
distance of their average updates is at most a millionth of the larger norm.

The search runs in the first round, in every h-th round, and whenever the set of available clients changes. In between,
the kept clients that are available stay. A search trains every considered client once, and the round uses these
updates.

V is the validation set. With `on = "server"` it is the server's own set: samples that the server took from the clients
(`data.server_samples`), or a public set that no client holds (`data.server_from = "test"`, or the `server` passed to
`from_clients`). With `on = "client"` it is the hold-out of one client, drawn for each search from the considered
clients that have a hold-out; if none has one, all considered clients are kept.

Reduces to: the algorithm without a filter when every client is accepted.
Differs from the paper: the paper does not define R(∅); `empty` selects a definition, and the default is that of the
authors' code (R(∅) = 0 with C₀ = 10). X and Y contain only considered clients, so that they are equal at the end.
Reference: Fourati, Kharrat, Aggarwal, Alouini, Canini. FilFL: client filtering. ECAI 2024. arXiv:2302.06599.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Ids
from turnout.errors import Problem
from turnout.protocols import Ask, Kept, Population, View
from turnout.requests import Scored, Steps, Trained
from turnout.settings import Clients, Count, Number, When, rule

EQUALITY_TOLERANCE = 1e-6  # average updates with a smaller relative distance are equal up to rounding


def accepts(gain_in: float, gain_out: float, mode: str, coin: float, *, ties: bool = False) -> bool:
    """Return whether a client that gains a by joining X and b by leaving Y is accepted."""
    if mode == "deterministic":
        return gain_in >= gain_out if ties else gain_in > gain_out
    joins, leaves = max(gain_in, 0.0), max(gain_out, 0.0)
    return coin < (1.0 if joins + leaves == 0 else joins / (joins + leaves))


class Average(NamedTuple):
    """The average update of a set of clients, and the loss of the model after this update."""

    update: Tensor
    loss: float

    def with_loss_of_equal(self, *others: "Average") -> "Average":
        """Return this average with the loss of the first other one that is equal up to rounding, if there is one."""
        norm = self.update.norm()
        for other in others:
            larger_norm = torch.maximum(norm, other.update.norm())
            if (self.update - other.update).norm() <= EQUALITY_TOLERANCE * larger_norm:
                return Average(self.update, other.loss)
        return self


class UpdateSums:
    """The sums of updates over X and Y, in float64, so that a step of the search costs one row and not a whole set."""

    def __init__(self, model: Tensor, deltas: Tensor) -> None:
        self.model, self.deltas = model, deltas
        self.inside = torch.zeros(model.numel(), dtype=torch.float64, device=model.device)  # Σ_X Δ
        self.outside = deltas.double().sum(0)  # Σ_Y Δ
        self.num_inside, self.num_outside = 0, len(deltas)

    def with_row(self, row: int) -> Tensor:
        """Return the average update of X ∪ {u}."""
        return (self.inside + self.deltas[row]) / (self.num_inside + 1)

    def without_row(self, row: int) -> Tensor:
        """Return the average update of Y ∖ {u}."""
        return (self.outside - self.deltas[row]) / (self.num_outside - 1)

    def all(self) -> Tensor:
        """Return the average update of Y."""
        return self.outside / self.num_outside

    def models(self, *updates: Tensor) -> Tensor:
        """Return the model after each of these average updates, one per row."""
        return torch.stack([self.model - update.to(self.model.dtype) for update in updates])

    def accept(self, row: int) -> None:
        """Add u to X."""
        self.inside += self.deltas[row]
        self.num_inside += 1

    def reject(self, row: int) -> None:
        """Remove u from Y."""
        self.outside -= self.deltas[row]
        self.num_outside -= 1


@rule("filtering")
class Greedy:
    """Greedy client filtering."""

    needs_one_model: ClassVar[bool] = True
    # how a client is accepted (χ in the paper): "deterministic" if a > b, "randomised" with probability a⁺/(a⁺+b⁺)
    mode: Literal["deterministic", "randomised"] = "deterministic"
    every: Count = 5  # number of rounds h between two searches, 1 or more; 5 is usual
    most: Clients | None = None  # largest number n of clients in a search, 1 or more; none is all available clients
    # validation set V: "server" is the server's own set, "client" is the hold-out of a randomly drawn client
    on: Literal["server", "client"] = "server"
    # value of R(∅): "offset" is 0 with R(S) = C₀ − loss, "global" is minus the loss of the current model, "-inf" forces
    # at least one client to be kept
    empty: Literal["offset", "global", "-inf"] = "offset"
    # constant C₀ of empty = "offset", any number; larger than the usual loss, 10 in the authors' code
    offset: Annotated[Number, When(empty="offset")] = 10.0
    # accept a client if a = b (true, as in the authors' code), or reject it (false, as in the paper)
    ties: Annotated[bool, When(mode="deterministic")] = False

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why there is no validation set."""
        if self.on == "server" and population.server_size == 0:
            yield Problem(
                'Greedy on = "server" needs samples at the server to score models on; this federation has none. '
                'Set data.server_samples to 50 or more, or filtering.on = "client" with data.holdout above 0.',
                "data.server_samples",
            )
        if self.on == "client" and population.holdout_sizes is not None and not population.holdout_sizes.any():
            yield Problem(
                'Greedy on = "client" needs samples that clients hold out, to score models on; these hold out none. '
                'Set data.holdout to 0.1, for example, or filtering.on = "server" with data.server_samples above 0.',
                "data.holdout",
            )

    def keep(self, pool: Ids, view: View, ask: Ask) -> Steps[Kept]:
        """Return the kept clients: by a new search if one is due, else those of the last search that are available."""
        last_pool = view.memory.get("pool")
        is_due = last_pool is None or view.round % self.every == 0 or not np.array_equal(last_pool, pool)
        if len(pool) == 0 or not is_due:
            clients = pool if last_pool is None else np.intersect1d(view.memory["kept"], pool)
            return Kept(clients=clients, metrics={"filter_kept": float(len(clients))})
        order = view.streams.generator("filter-order", view.round).permutation(pool)[: self.most]
        trained: Trained = yield ask.train(np.sort(order))
        finite_clients = trained.clients[trained.finite]
        order = order[np.isin(order, finite_clients)]
        assert trained.delta is not None
        rows = trained.delta[torch.from_numpy(np.searchsorted(trained.clients, order))]
        is_accepted = yield from self._search(rows, order, view, ask)
        clients = np.sort(order[is_accepted])
        metrics = {"filter_kept": float(len(clients)), "filter_considered": float(len(order))}
        memory = {"kept": clients, "pool": pool} if len(order) else {}  # without updates, search again next round
        return Kept(clients=clients, trained=trained, memory=memory, metrics=metrics)

    def _search(self, rows: Tensor, order: Ids, view: View, ask: Ask) -> Steps[np.ndarray]:
        """Return for each row whether it is accepted."""
        is_accepted = np.zeros(len(order), dtype=bool)
        if len(order) == 0:
            return is_accepted
        validator = self._draw_validator(order, view) if self.on == "client" else None
        if self.on == "client" and validator is None:
            return ~is_accepted
        coins = view.streams.uniforms("filter", view.round, order)[:, 0]
        sums = UpdateSums(view.model, rows)
        updates = [sums.all(), torch.zeros_like(sums.outside)]
        first: Scored = yield ask.score(sums.models(*updates), self.on, validator)
        at_out, empty = (Average(update, loss) for update, loss in zip(updates, first.loss, strict=True))  # Y and ∅
        at_in = empty  # X
        for row in range(len(order)):
            last = sums.num_outside == 1
            updates = [sums.with_row(row)] + ([] if last else [sums.without_row(row)])
            scored: Scored = yield ask.score(sums.models(*updates), self.on, validator)
            joined = Average(updates[0], scored.loss[0]).with_loss_of_equal(at_in, at_out)
            left = empty if last else Average(updates[1], scored.loss[1]).with_loss_of_equal(at_in, at_out, joined)
            gain_in = self._reward(joined) - (self._reward(at_in) if sums.num_inside else self._empty_reward(empty))
            gain_out = (self._empty_reward(empty) if last else self._reward(left)) - self._reward(at_out)
            is_forced = self.empty == "-inf" and (sums.num_inside == 0 or last)
            if is_forced or accepts(gain_in, gain_out, self.mode, coins[row], ties=self.ties):
                sums.accept(row)
                is_accepted[row], at_in = True, joined
            else:
                sums.reject(row)
                at_out = left
        return is_accepted

    def _reward(self, average: Average) -> float:
        """Return R of a set that is not empty."""
        return (self.offset if self.empty == "offset" else 0.0) - average.loss

    def _empty_reward(self, empty: Average) -> float:
        """Return R(∅)."""
        return 0.0 if self.empty == "offset" else -empty.loss

    def _draw_validator(self, order: Ids, view: View) -> int | None:
        """Draw the client whose hold-out is the validation set; None if no client has a hold-out."""
        sizes = view.population.holdout_sizes
        eligible = np.sort(order if sizes is None else order[sizes[order] > 0])
        return int(view.streams.generator("filter-judge", view.round).choice(eligible)) if len(eligible) else None
