"""An order: what clients are asked to do, and how what they return will be weighed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.drift import Blocks
from turnout.ids import are_equal, is_among
from turnout.protocols import Linear, Local
from turnout.rows import Facts
from turnout.streams import Streams
from turnout.submodels import Parts


@dataclass(frozen=True, slots=True)
class Weighing:
    """How returned updates are weighed: a pure function of how far each client got.

    It travels with the request, so that a world that knows how far clients will get can have an engine sum their
    updates block by block, and a world that hears it from clients can weigh rows when they are there.
    """

    rule: Linear | None  # None: the aggregation needs the rows themselves
    local: Local
    settings: Mapping[str, Floats]  # the solver's, one value per client asked
    asked: Facts  # of everyone asked, as if each did all its steps

    def facts(self, clients: Ids, steps: Ids, availability_prob: Floats | None = None) -> Facts:
        """Return the facts of these clients, which did so many steps."""
        everyone = are_equal(self.asked.clients, clients)
        here = None if everyone else is_among(self.asked.clients, clients)
        known = self.asked if here is None else self.asked.keep(here)
        if are_equal(steps, known.local_steps):  # everyone did all that was asked
            return known if availability_prob is None else replace(known, availability_prob=availability_prob)
        settings = self.settings if here is None else {n: values[here] for n, values in self.settings.items()}
        work = self.local.local_work(steps, settings)
        return replace(known, local_steps=steps, local_work=work, availability_prob=availability_prob)

    def coefficients(self, facts: Facts) -> Floats | None:
        """Return the coefficient of each update; None where the aggregation needs the rows themselves."""
        if self.rule is None:
            return None
        coefficients = self.rule.coefficients(facts)
        return coefficients if facts.boost is None else coefficients * facts.boost


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What clients are asked to do."""

    round: int
    streams: Streams  # each client's mini-batches are keyed by (seed, "batches", round, client)
    model: Tensor
    buffers: Tensor | None
    clients: Ids  # each once
    steps: Ids  # local steps asked of each
    local: Local
    weighing: Weighing
    shared: Tensor | None = None  # the server's part of what clients remember: SCAFFOLD's global control variate
    refresh: bool = False  # the clients' part is brought up to date by this work
    wants_norms: bool = False  # return ‖Δ_i‖² too
    uploads: bool = True  # whether every client sends its row: a rule may look at norms first, and few send
    whole: bool = False  # all of the work, whatever the fleet would allow
    on_server: bool = False  # train one row on the server's own samples; `clients` is then [SERVER]
    parts: Parts | None = None  # which part of the model each client trains; None: all of it
    blocks: Blocks | None = None  # the time steps whose samples each client trains on; None: all that it has received
    by_model: tuple["Order", ...] = ()  # one order for each model in use; each part is collected on its own

    def part(self, model: Tensor, here: np.ndarray) -> "Order":
        """Return the order of some of the clients, given by a mask, for this model."""
        known, settings = self.weighing.asked.keep(here), {n: values[here] for n, values in self.settings.items()}
        weighing = replace(self.weighing, asked=known, settings=settings)
        blocks, steps = None if self.blocks is None else self.blocks[here], self.steps[here]
        return replace(
            self, model=model, clients=self.clients[here], steps=steps, weighing=weighing, blocks=blocks, by_model=()
        )

    @property
    def settings(self) -> Mapping[str, Floats]:
        """The solver's settings, one value per client."""
        return self.weighing.settings

    @property
    def refreshes_from_updates(self) -> bool:
        """Whether this work also makes new rows for the clients to remember, from their updates."""
        state = self.local.client_state
        return self.refresh and state is not None and state.source == "update"
