"""Scheduled membership: listed clients join and leave before listed rounds.

Intuition: a hospital joins in May and another leaves in June.

    client l is a member in round t  ⇔  its last move at or before t is an arrival,
                                        or it has none and its first move is not an arrival

What an arrival or a departure means for the objective is the server's choice: see the settings of `turnover`.

Reduces to: the federation without membership when nobody joins or leaves.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from turnout.array_types import Ids
from turnout.errors import ConfigError, Problem
from turnout.protocols import Population, View
from turnout.settings import rule

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
            f"Change fleet.membership.{name}.",
            setting=f"fleet.membership.{name}",
        ) from error
    for client, round in pairs:
        if client < 0 or round < 1:
            raise ConfigError(
                f"Scheduled needs clients from 0 and rounds from 1; got client {client} in round {round}. "
                f"Change fleet.membership.{name}.",
                setting=f"fleet.membership.{name}",
            )
    return pairs


@rule("fleet.membership")
class Scheduled:
    """Arrivals and departures from a list."""

    # round before which each listed client joins: { client = round }, or a list of { client, round }; other clients are
    # members from the start
    arrivals: dict[int, int] | tuple[dict[str, int], ...] = ()
    # round before which each listed client leaves: { client = round }, or a list of { client, round }
    departures: dict[int, int] | tuple[dict[str, int], ...] = ()

    def __post_init__(self) -> None:
        for client, moves in self._moves().items():
            for (round, comes), (next_round, comes_next) in pairwise(moves):
                if comes == comes_next or round == next_round:
                    what = "comes and goes in one round" if comes != comes_next else f"{_verb(comes)} twice in a row"
                    raise ConfigError(
                        f"Scheduled needs arrivals and departures of a client in turn; client {client} {what} "
                        f"(rounds {round} and {next_round}). Change fleet.membership.{_verb(comes_next, True)}.",
                        setting=f"fleet.membership.{_verb(comes_next, True)}",
                    )

    def _moves(self) -> dict[int, list[tuple[int, bool]]]:
        """Return each client's arrivals and departures in the order of time, as (round, whether it is an arrival)."""
        moves: dict[int, list[tuple[int, bool]]] = {}
        for name, comes in (("arrivals", True), ("departures", False)):
            for client, round in move_list(getattr(self, name), name):
                moves.setdefault(client, []).append((round, comes))
        return {client: sorted(pairs) for client, pairs in moves.items()}

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield listed clients that do not exist, and whether the federation has no client at the start."""
        total, moves = population.num_clients, self._moves()
        if unknown := [client for client in moves if client >= total]:
            setting = "arrivals" if unknown[0] in dict(move_list(self.arrivals, "arrivals")) else "departures"
            yield Problem(
                f"Scheduled needs clients in 0…{total - 1}; got {unknown[0]}. Change fleet.membership.{setting}.",
                f"fleet.membership.{setting}",
            )
        elif all(client in moves and moves[client][0][1] for client in range(total)):
            yield Problem(
                "Scheduled needs at least one client at the start; all are to arrive later. "
                "Change fleet.membership.arrivals: take one out.",
                "fleet.membership.arrivals",
            )

    def members(self, view: View) -> Ids:
        """Return who has joined and not left by this round; a round that is skipped loses nobody."""
        is_member = np.ones(view.population.num_clients, dtype=bool)
        for client, moves in self._moves().items():
            past = [joins for round, joins in moves if round <= view.round]
            is_member[client] = past[-1] if past else not moves[0][1]
        return np.flatnonzero(is_member)


def _verb(comes: bool, noun: bool = False) -> str:
    if noun:
        return "arrivals" if comes else "departures"
    return "arrives" if comes else "departs"
