"""Recorded phones dealt to clients, and the selection rules that only the study of them needs."""

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
    """FLASH's 300 phones, from the one that is up most to the one that is up least, one for each client.

    With deal = "drawn" every seed shuffles them, and who is up says nothing of what is held. With deal = "by-id" the
    lower a client's id, the more its phone is up. Both deal out the same phones. The recording is repeated at its end.
    """

    needs_clock: ClassVar[bool] = True
    deal: Literal["drawn", "by-id"] = "drawn"
    folder: str | None = None  # holds availability-traces; left out, the folder of TURNOUT_DATA

    def up(self, view: View) -> Ids:
        """Return the clients whose phone is up now."""
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
        ranks = np.floor(clients * len(ranked) / len(clients)).astype(np.int64)  # fewer clients: every so many-th phone
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
    """Return the recording, and its phones from the one that is up most to the one that is up least."""
    trace = read_recording(root / RECORDING)
    return trace, np.argsort(-trace.seconds_up(), kind="stable")


def _counts(name: str, clients: Ids, view: View) -> Ids:
    """Return what a rule counted so far, with one more for each of these clients."""
    counted: Ids = view.memory.get(name, np.zeros(view.population.num_clients, dtype=np.int64)).copy()
    counted[clients] += 1
    return counted


@rule("selection")
class LeastAsked:
    """The K of those that are up that were asked least often so far; ties are drawn.

    Intuition: a phone that is seldom up goes first when it is.
    """

    knows_inclusion_prob: ClassVar[bool] = False
    cohort_size: Clients  # K

    def choose(self, pool: Ids, view: View, ask: Ask) -> Choice:
        """Return the K clients that were asked least often."""
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
    """Uniform selection that counts being up as part of being asked: π_i = (t_i / t) · K / |A_t|.

    t_i is in how many of the t rounds so far client i was up. `Uniform` says π_i = K / |A_t|, given who is up; with
    weighting "ht" that makes the mean right over those that are up, and this over everyone, as t grows. The draws are
    those of `Uniform`.
    """

    cohort_size: Clients  # K

    def choose(self, pool: Ids, view: View, ask: Ask) -> Choice:
        """Return K clients of the pool, evenly drawn, with how likely each was to be up and drawn."""
        drawn = Uniform(cohort_size=self.cohort_size).choose(pool, view, ask)
        seen = _counts("up", pool, view)
        prob: Floats = np.asarray(drawn.inclusion_prob) * seen[drawn.clients] / view.round
        return Choice(clients=drawn.clients, multiplicity=drawn.multiplicity, inclusion_prob=prob, memory={"up": seen})
