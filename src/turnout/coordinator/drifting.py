"""Clients whose samples change with time: what they have received by a round."""

from dataclasses import replace

from turnout.array_types import Ids
from turnout.drift import Blocks
from turnout.protocols import Population


def at_round(people: Population, round: int) -> Population:
    """Return the population with the samples that it has received by a round, and those it is then measured on."""
    if people.drift is None:
        return people
    sizes = people.drift.counts(people.everyone, people.drift.received(round, people.everyone))
    measured = people.drift.sizes[:, people.drift.measured_step(round)]
    return replace(people, sizes=sizes, weights=sizes / sizes.sum(), holdout_sizes=measured)


def with_blocks(people: Population, clients: Ids, blocks: Blocks | None) -> Population:
    """Return the population in which these clients have only the samples of these time steps."""
    if people.drift is None or blocks is None:
        return people
    sizes = people.sizes.copy()
    sizes[clients] = people.drift.counts(clients, blocks)
    return replace(people, sizes=sizes, weights=sizes / sizes.sum())
