"""Scheduled membership: named clients come and go before named rounds.

Intuition: a hospital joins in May and another leaves in June.

    arrival of l:     p_k = n_k / (n + n_l), schedules restart, and l's coefficient is times b(j) = 1 + (b₁ − 1) / jᵖ
                      in its j-th round (fast reboot; b ≡ 1 is vanilla)
    departure of l:   include  l stays in the objective, inactive for ever
                      exclude  p_k = n_k / (n − n_l), schedules restart
                      auto     exclude  ⇔  T − τ₀ ≥ c·√(Γ_l·τ₀)          τ₀: rounds completed before it left

Reduces to: the federation without membership when nobody comes or goes; a vanilla reboot when b₁ = 1.
Differs from the paper: the paper leaves open b beyond "from 3 to 1 as O(j⁻²)", c, and how to know Γ_l. Here Γ̂_l is
what the leaving client's own local work, as in the first round, would gain it, F_l(x) − F_l(x_l), asked of it before
it goes: neither the decayed rate nor the work its device manages this round is in it.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from turnout.array_types import Ids
from turnout.errors import ConfigError
from turnout.fleet.membership.terms import Terms
from turnout.protocols import Ask, Changes, Population, View
from turnout.settings import rule

if TYPE_CHECKING:
    from turnout.requests import Steps

Moves = Mapping[int, int] | Sequence[Mapping[str, int]]  # a study file's keys are texts: they are read as numbers


def move_list(moves: Moves, name: str) -> list[tuple[int, int]]:
    """Return (client, round) pairs of a table client -> round, or of a list of { client, round }."""
    try:
        if isinstance(moves, Mapping):
            pairs = [(int(client), int(round)) for client, round in moves.items()]
        else:
            pairs = [(int(move["client"]), int(move["round"])) for move in moves]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"Scheduled needs {name} as a table of client = round, or a list of {{ client, round }}; got {moves}. "
            f"Change fleet.membership.{name}."
        ) from error
    for client, round in pairs:
        if client < 0 or round < 1:
            raise ConfigError(
                f"Scheduled needs clients from 0 and rounds from 1; got client {client} in round {round}. "
                f"Change fleet.membership.{name}."
            )
    return pairs


@rule("fleet.membership")
class Scheduled(Terms):
    """Comings and goings by a list."""

    arrivals: dict[int, int] | tuple[dict[str, int], ...] = ()  # { client = round }, or a list of { client, round }
    departures: dict[int, int] | tuple[dict[str, int], ...] = ()  # a client is there until before this round

    def __post_init__(self) -> None:
        for client, moves in self._moves().items():
            for (round, comes), (next_round, comes_next) in pairwise(moves):
                if comes == comes_next or round == next_round:
                    what = "comes and goes in one round" if comes != comes_next else f"{_verb(comes)} twice in a row"
                    raise ConfigError(
                        f"Scheduled needs arrivals and departures of a client in turn; client {client} {what} "
                        f"(rounds {round} and {next_round}). Change fleet.membership.{_verb(comes_next, True)}."
                    )

    def _moves(self) -> dict[int, list[tuple[int, bool]]]:
        """Return each client's moves in the order of time: (round, whether it comes)."""
        moves: dict[int, list[tuple[int, bool]]] = {}
        for name, comes in (("arrivals", True), ("departures", False)):
            for client, round in move_list(getattr(self, name), name):
                moves.setdefault(client, []).append((round, comes))
        return {client: sorted(found) for client, found in moves.items()}

    def objections_for(self, population: Population) -> Iterator[str]:
        """Yield who is named and is none of these clients, and whether nobody is there at the start."""
        total, moves = population.num_clients, self._moves()
        if unknown := [client for client in moves if client >= total]:
            listed = "arrivals" if unknown[0] in dict(move_list(self.arrivals, "arrivals")) else "departures"
            yield f"Scheduled needs clients in 0…{total - 1}; got {unknown[0]}. Change fleet.membership.{listed}."
        elif len(self.at_start(population)) == 0:
            yield (
                "Scheduled needs at least one client at the start; all are to arrive later. "
                "Change fleet.membership.arrivals: take one out."
            )

    def at_start(self, population: Population) -> Ids:
        """Return everyone but those whose first move is an arrival."""
        there = np.ones(population.num_clients, dtype=bool)
        there[[client for client, moves in self._moves().items() if moves[0][1]]] = False
        return np.flatnonzero(there)

    def changes(self, view: View, ask: Ask) -> "Steps[Changes]":
        """Return who is due to have come or gone by this round and has not yet: a round left out loses nobody."""
        there = np.zeros(view.population.num_clients, dtype=bool)
        there[view.population.everyone] = True
        arrivals: list[int] = []
        departures: list[int] = []
        for client, moves in self._moves().items():
            past = [comes for round, comes in moves if round <= view.round]
            if past and past[-1] != there[client]:
                (arrivals if past[-1] else departures).append(client)
        came, went = (np.array(sorted(found), dtype=np.int64) for found in (arrivals, departures))
        return (yield from self.moved(came, went, view, ask))


def _verb(comes: bool, noun: bool = False) -> str:
    if noun:
        return "arrivals" if comes else "departures"
    return "comes" if comes else "goes"
