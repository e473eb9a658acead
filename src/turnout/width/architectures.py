"""Architectures: every client trains the model of its architecture, one of a family of models.

Intuition: devices differ by more than speed. A small one has a small network of its own design, not a corner of a large
one. The server averages the updates of each architecture; Fed-ET then teaches its own model what all of them know.

    x_a ← x_a − Σ_{i : a_i = a} w_i Δ_i      a_i: the architecture of client i, the same in every round

Reduces to: training one model with FedAvg when there is one architecture, for that model.
Differs from the paper: devices may get the larger models by their speed.
Reference: Cho, Manoel, Joshi, Sim, Dimitriadis (Fed-ET). IJCAI 2022. arXiv:2204.12703.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np

from turnout.array_types import Ids
from turnout.errors import Problem
from turnout.protocols import Population, View
from turnout.settings import CountOrZero, PositiveShare, When, rule
from turnout.width.rates import clients_in_order, in_shares


@rule("width")
class Architectures:
    """The model of each client's architecture, of a family of models."""

    # which client has which architecture of model.clients: "fixed" by chance, "by-speed" of the devices of fleet.clock,
    # so that the fastest have the largest model, "listed" a number for each client; all for good
    assign: Literal["fixed", "by-speed", "listed"] = "fixed"
    # share of the clients that has each architecture, above 0; left out, all are equally frequent
    shares: Annotated[tuple[PositiveShare, ...] | None, When(assign=("fixed", "by-speed"))] = None
    # number of each client's architecture in model.clients, from 0
    numbers: Annotated[tuple[CountOrZero, ...] | None, When(assign="listed")] = None

    @property
    def needs_speed(self) -> bool:
        """Whether architectures follow from the speed of devices."""
        return self.assign == "by-speed"

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield a list of the wrong length."""
        count = len(self.numbers or ())
        if self.assign == "listed" and count != population.num_clients:
            yield Problem(
                f'Architectures with assign = "listed" needs one number per client; got {count} for '
                f"{population.num_clients} clients. Change width.numbers, or width.assign.",
                "width.numbers",
            )

    def family_problems(self, members: int) -> Iterator[Problem]:
        """Yield shares or numbers that do not fit a family with so many architectures."""
        if self.shares is not None and len(self.shares) != members:
            yield Problem(
                f"Architectures needs one share for each architecture; got {len(self.shares)} shares for {members} "
                "models in model.clients. Change width.shares, or leave it out for equal shares.",
                "width.shares",
            )
        if max(self.numbers or (0,)) >= members:
            yield Problem(
                f"Architectures needs numbers below {members}, the number of models in model.clients; got "
                f"{max(self.numbers or (0,))}. Change width.numbers, which count from 0.",
                "width.numbers",
            )

    def members_of(self, clients: Ids, sizes: tuple[int, ...], view: View) -> Ids:
        """Return the number of each client's architecture, of those with models of so many parameters."""
        if self.assign == "listed":
            return np.asarray(np.array(self.numbers, dtype=np.int64)[clients])
        numbers = list(range(len(sizes)))
        if self.assign == "by-speed":
            numbers.sort(key=lambda number: -sizes[number])  # the largest first; of equal ones the first
        shares = self.shares or (1.0,) * len(sizes)
        order = clients_in_order(self.assign, type(self).__name__, view)
        dealt = in_shares(order, tuple(map(float, numbers)), tuple(shares[number] for number in numbers))
        return np.asarray(dealt[clients].astype(np.int64))
