"""Jobs handed out and not yet ended: what the coordinator remembers of each until its update is back."""

from dataclasses import dataclass

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.ids import is_among
from turnout.orders import Order
from turnout.protocols import Local, Memory, View
from turnout.rows import Facts

SETTING = "setting "  # begins the name of a column with one of the solver's settings


@dataclass(frozen=True, slots=True)
class Jobs:
    """One entry per job, in the order of client ids: a client has at most one."""

    clients: Ids
    draws: Ids  # how often the client was drawn
    rounds: Ids  # the round that handed it out
    asked: Ids  # local steps
    settings: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.clients)

    @classmethod
    def of(cls, columns: Memory) -> "Jobs":
        """Return the jobs of the columns of a state; none where there are no columns."""
        if not columns:
            none = np.zeros(0, dtype=np.int64)
            return cls(none, none, none, none, {})
        settings = {name.removeprefix(SETTING): values for name, values in columns.items() if name.startswith(SETTING)}
        return cls(columns["clients"], columns["draws"], columns["rounds"], columns["asked"], settings)

    @classmethod
    def handed_out(cls, order: Order, clients: Ids) -> "Jobs":
        """Return the jobs of those clients of an order that were handed their work."""
        here = is_among(order.clients, clients)
        settings = {name: values[here] for name, values in order.settings.items()}
        rounds = np.full(int(here.sum()), order.round)
        return cls(order.clients[here], order.weighing.asked.multiplicity[here], rounds, order.steps[here], settings)

    def columns(self) -> Memory:
        """Return the jobs as columns, to be saved with a state."""
        settings = {f"{SETTING}{name}": values for name, values in self.settings.items()}
        names = ("clients", "draws", "rounds", "asked")
        return {**dict(zip(names, (self.clients, self.draws, self.rounds, self.asked), strict=True)), **settings}

    def keep(self, mask: np.ndarray) -> "Jobs":
        """Return the jobs where the mask is true."""
        settings = {name: values[mask] for name, values in self.settings.items()}
        return Jobs(self.clients[mask], self.draws[mask], self.rounds[mask], self.asked[mask], settings)

    def facts(self, local: Local, view: View, steps: Ids, availability_prob: Floats | None) -> Facts:
        """Return the facts of jobs that did so many steps, weighed by the objective of now."""
        return Facts(
            clients=self.clients,
            weights=view.population.weights[self.clients],
            num_examples=view.population.sizes[self.clients],
            asked_steps=self.asked,
            local_steps=steps,
            local_work=local.local_work(steps, self.settings) if len(self) else np.zeros(0),
            local_lr=self.settings["lr"] if len(self) else np.zeros(0),
            multiplicity=self.draws,
            inclusion_prob=None,
            num_clients=view.population.num_counted,
            availability_prob=availability_prob,
        )


def merged(one: Jobs, other: Jobs) -> Jobs:
    """Return the jobs of both, in the order of client ids."""
    if not len(one) or not len(other):
        return other if not len(one) else one
    order = np.argsort(np.concatenate([one.clients, other.clients]), kind="stable")
    first, second = one.columns(), other.columns()
    return Jobs.of({name: np.concatenate([first[name], second[name]])[order] for name in first})
