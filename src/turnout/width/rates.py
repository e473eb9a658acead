"""What all width rules share: their settings, and which client has which rate."""

from collections.abc import Iterator
from math import ceil
from typing import Annotated, Literal, Protocol

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError, Problem
from turnout.protocols import Population, View
from turnout.settings import PositiveShare, When, rule

Assignment = Literal["fixed", "drawn", "by-speed", "listed"]


class ByArchitecture(Protocol):
    """Which model of a family a client trains."""

    def members_of(self, clients: Ids, sizes: tuple[int, ...], view: View) -> Ids:
        """Return the number of each client's architecture, of those with models of so many parameters."""
        ...


class Width(Protocol):
    """How much of the model a client trains."""

    def rates_of(self, clients: Ids, view: View) -> Floats:
        """Return the rate of each of these clients in this round."""
        ...

    def units(self, group: int, size: int, rate: float, clients: Ids, view: View) -> Ids:
        """Return the units that clients of this rate train, ascending; the group is a hidden layer of this size.

        One row per client, or one list for all of them.
        """
        ...


AnyWidth = Width | ByArchitecture


def count_of(rate: float, size: int) -> int:
    """Return ⌈r d⌉, the number of units of a layer at a rate; a product that is whole but for rounding counts as it."""
    return max(1, ceil(rate * size - 1e-9))


def in_shares(order: Ids, rates: tuple[float, ...], shares: tuple[float, ...]) -> Floats:
    """Return the rate of each client: the first in the order have the first rate, and so on, by these shares."""
    ends = np.round(np.cumsum(shares) / sum(shares) * len(order)).astype(np.int64)
    assigned = np.empty(len(order))
    assigned[order] = np.array(rates)[np.searchsorted(ends, np.arange(len(order)), side="right")]
    return assigned


def clients_in_order(assign: Assignment, called: str, view: View) -> Ids:
    """Return all clients in the order in which rates are given to them: the fastest first, or by chance."""
    if assign != "by-speed":
        return np.argsort(
            view.streams.uniforms("width", 0, np.arange(view.population.num_clients))[:, 0], kind="stable"
        )
    seconds = None if view.devices is None else view.devices.seconds_per_step
    if seconds is None:
        raise ConfigError(
            f'{called} with assign = "by-speed" needs to know how fast devices are, and nobody '
            'says it. Set fleet.clock, or width.assign to "fixed".',
            setting="width.assign",
        )
    return np.argsort(seconds, kind="stable")


@rule("width")
class Rates:
    """The settings of every width rule; each rule says which units a rate means."""

    # rates r of the clients, each above 0 and at most 1: the share of the units of a hidden layer that a client trains;
    # 1, 1/2, 1/4, 1/8 and 1/16 are usual
    rates: tuple[PositiveShare, ...]
    # which client has which rate: "fixed" by chance and for good, "drawn" anew in every round, "by-speed" of the
    # devices of fleet.clock, so that the fastest have the largest, "listed" one rate for each client
    assign: Assignment = "fixed"
    # share of the clients that has each rate, above 0; left out, all rates are equally frequent
    shares: Annotated[tuple[PositiveShare, ...] | None, When(assign=("fixed", "drawn", "by-speed"))] = None

    # in training, set the logits of labels that a client does not hold to 0, and leave their rows of the last layer out
    # of its part of the mean; as in HeteroFL, where clients hold few labels each
    mask_labels: bool = False

    def __post_init__(self) -> None:
        called = type(self).__name__
        if not self.rates:
            raise ConfigError(f"{called} needs rates, one at least; got none. Set width.rates.", setting="width.rates")
        if self.shares is not None and len(self.shares) != len(self.rates):
            raise ConfigError(
                f"{called} needs one share for each rate; got {len(self.shares)} shares for {len(self.rates)} rates. "
                "Change width.shares, or leave it out for equal shares.",
                setting="width.shares",
            )

    @property
    def known_rates(self) -> tuple[float, ...]:
        """Every rate that a client may have."""
        return self.rates

    @property
    def needs_speed(self) -> bool:
        """Whether rates follow from the speed of devices."""
        return self.assign == "by-speed"

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield a list of the wrong length, and labels that change with time."""
        if self.assign == "listed" and len(self.rates) != population.num_clients:
            yield Problem(
                f'{type(self).__name__} with assign = "listed" needs one rate per client; got {len(self.rates)} for '
                f"{population.num_clients} clients. Change width.rates, or width.assign.",
                "width.rates",
            )
        if self.mask_labels and population.drift is not None:
            yield Problem(
                f"{type(self).__name__} with mask_labels = true needs clients whose labels stay the same; these data "
                "drift. Set width.mask_labels = false.",
                "width.mask_labels",
            )

    def rates_of(self, clients: Ids, view: View) -> Floats:
        """Return the rate of each of these clients in this round."""
        if self.assign == "listed":
            return np.asarray(np.array(self.rates)[clients])
        shares = self.shares or (1.0,) * len(self.rates)
        if self.assign == "drawn":
            draw = view.streams.uniforms("width", view.round, clients)[:, 0]
            limits = np.cumsum(shares) / sum(shares)
            return np.asarray(np.array(self.rates)[np.searchsorted(limits[:-1], draw, side="right")])
        order, rates = clients_in_order(self.assign, type(self).__name__, view), self.rates
        if self.assign == "by-speed":
            widest_first = sorted(zip(self.rates, shares, strict=True), reverse=True)
            rates, shares = tuple(r for r, _ in widest_first), tuple(s for _, s in widest_first)
        return np.asarray(in_shares(order, rates, shares)[clients])
