"""Mistakes and choices of other libraries, made in turnout's rules: they must then give the other library's numbers.

That a peer differs from turnout says little. That turnout differs in the same digits, once it does what the peer is
said to do, shows that nothing else is different.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from benchmarks.peers.networks import MIXING
from turnout.learned import Learned
from turnout.local import Moreau
from turnout.personal import Ditto
from turnout.personal.at_clients import AtClients
from turnout.protocols import Memory, SlotUpdate
from turnout.requests import Fit, Steps, Trained
from turnout.settings import rule


@dataclass(frozen=True, slots=True)
class MergedNotTrained:
    """fluke's APFL: v_i ← α v_i + (1 − α) w_i once a round, and no gradient ever reaches v_i."""

    mixing: float = MIXING  # α

    def train(self, here: AtClients, fit: Fit) -> Steps[Learned]:
        """Train the shared model, and mix the client's own with where that training ended."""
        sent: Trained = yield replace(fit, wants_ends=here.names)
        assert sent.ends is not None
        merged = self.mixing * here.rows().take(here.clients) + (1.0 - self.mixing) * sent.ends
        return Learned(sent=sent, rows={"model": merged})


@rule("local")
class MoreauWithoutPull(Moreau):
    """fluke's pFedMe: θ is pulled towards itself, which is no pull, and θ is sent in place of w."""

    def update(self, slot: SlotUpdate) -> None:
        """Do one step of plain SGD."""
        slot.param.sub_(slot.grad * slot.settings["inner_lr"])

    def finish(self, delta: Tensor, state: Memory) -> tuple[Tensor, Tensor | None]:
        """Return how far θ has moved."""
        return delta, None


@rule("personal")
class DittoFromFirstRound(Ditto):
    """FLGo's Ditto: v_i starts as the model of the first round in which client i is selected, not as x⁰."""

    def train(self, here: AtClients, fit: Fit) -> Steps[Learned]:
        """Train as Ditto does, where rows that were never written are the round's model."""
        return (yield from Ditto.train(self, replace(here, first_model=here.model), fit))
