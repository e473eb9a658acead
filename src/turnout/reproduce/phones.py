"""Recorded phones assigned to clients, and the selection rules of that study."""

import os
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError
from turnout.fleet.recordings import read_recording
from turnout.fleet.traces import UP, Trace
from turnout.protocols import Ask, Choice, View
from turnout.selection import Uniform
from turnout.settings import Clients, rule

RECORDING = Path("availability-traces") / "flash_300_devices_6d.json"


@rule("fleet.availability")
class RankedPhones:
    """FLASH's 300 phones, sorted by their time up, one per client.

    With deal = "drawn" every seed shuffles the phones, so availability does not depend on data. With deal = "by-id"
    clients with lower ids are up more often. Both assign the same phones. The recording repeats at its end.
    """

    needs_clock: ClassVar[bool] = True
    deal: Literal["drawn", "by-id"] = "drawn"  # how phones are assigned: at random, or by client id
    folder: str | None = None  # folder that has availability-traces; none is TURNOUT_DATA

    def up(self, view: View) -> Ids:
        """Return the clients with a phone that is up now."""
        trace, ranked = _recorded(self._folder())
        everyone = view.population.everyone
        if view.population.num_clients > len(ranked):
            raise ConfigError(
                f"RankedPhones needs at most {len(ranked)} clients; got {view.population.num_clients}. "
                "Change data.clients.",
                setting="data.clients",
            )
        is_up = trace.states_at(view.sim_seconds % trace.length_seconds) == UP
        return np.asarray(everyone[is_up[self._phones(ranked, view)[everyone]]])

    def _phones(self, ranked: Ids, view: View) -> Ids:
        """Return each client's phone."""
        clients = np.arange(view.population.num_clients)
        # with fewer clients, evenly spaced phones
        ranks = np.floor(clients * len(ranked) / len(clients)).astype(np.int64)
        if self.deal == "drawn":
            ranks = ranks[np.argsort(view.streams.uniforms("device", 0, clients)[:, 0])]
        return np.asarray(ranked[ranks])

    def _folder(self) -> Path:
        root = self.folder or os.environ.get("TURNOUT_DATA")
        if root is None:
            raise ConfigError(
                "RankedPhones needs FLASH's recording; TURNOUT_DATA is not set. "
                "Set fleet.availability.folder to the folder that holds availability-traces.",
                setting="fleet.availability.folder",
            )
        return Path(root).expanduser()


@lru_cache(maxsize=2)
def _recorded(root: Path) -> tuple[Trace, Ids]:
    """Return the recording, and its phones sorted by their time up, longest first."""
    trace = read_recording(root / RECORDING)
    return trace, np.argsort(-trace.seconds_up(), kind="stable")


def _counts(name: str, clients: Ids, view: View) -> Ids:
    """Return a rule's counts so far, with one more for each of these clients."""
    counted: Ids = view.memory.get(name, np.zeros(view.population.num_clients, dtype=np.int64)).copy()
    counted[clients] += 1
    return counted


@rule("selection")
class LeastAsked:
    """Selects the K available clients that were selected least often so far; ties are broken at random.

    Intuition: a phone that is seldom up goes first when it is.
    """

    knows_inclusion_prob: ClassVar[bool] = False
    cohort_size: Clients  # cohort size K, 1 or more

    def choose(self, pool: Ids, view: View, ask: Ask) -> Choice:
        """Return the K clients that were selected least often."""
        asked = _counts("asked", pool[:0], view)
        lots = view.streams.uniforms("selection", view.round, pool)[:, 0]
        clients = np.sort(pool[np.lexsort((lots, asked[pool]))[: self.cohort_size]])
        return Choice(
            clients=clients,
            multiplicity=np.ones(len(clients), dtype=np.int64),
            memory={"asked": _counts("asked", clients, view)},
        )


@rule("selection")
class UniformOverTime:
    """Uniform selection with inclusion probabilities over time: π_i = (t_i / t) · K / |A_t|.

    Client i was up in t_i of the t rounds so far. `Uniform` has π_i = K / |A_t|, given the available clients. With
    weighting "ht", `Uniform` is unbiased over the available clients, and this rule over all clients as t grows. Both
    draw the same clients.
    """

    cohort_size: Clients  # cohort size K, 1 or more

    def choose(self, pool: Ids, view: View, ask: Ask) -> Choice:
        """Return K clients of the pool, drawn uniformly, with the probability of each to be up and selected."""
        drawn = Uniform(cohort_size=self.cohort_size).choose(pool, view, ask)
        seen = _counts("up", pool, view)
        prob: Floats = np.asarray(drawn.inclusion_prob) * seen[drawn.clients] / view.round
        return Choice(clients=drawn.clients, multiplicity=drawn.multiplicity, inclusion_prob=prob, memory={"up": seen})
