"""APFL: every client uses a mixture of the shared model and a model of its own.

Intuition: α_i = 0 is the shared model, α_i = 1 is training alone; the best lies between, and a client can learn where.

    v̄_i = α_i v_i + (1 − α_i) w_i                                what client i uses; v_i = x⁰ at first
    w_i ← w_i − η_l ∇f_i(w_i; batch)                             the shared training, as ever
    v_i ← v_i − η α_i ∇f_i(v̄_i; batch)                           the same mini-batch
    adaptive, once a round:  α_i ← clip(α_i − η_α ⟨∇f_i(v̄_i; first batch), v_i − x⟩, 0, 1)

The gradient of F_i(v̄) with respect to v has the factor α_i. The shared path is the same for every α, bit for bit.

Reduces to: the local model of FedAvg when α = 0; training alone when α = 1.
Differs from the paper: nothing in the formulas; the authors' code mixes outputs, not parameters, which is the same for
linear models, and pulls α towards 0 by a term that the paper does not have. Outputs are not mixed here: an engine
trains and measures one set of parameters per client, and a mixture of outputs needs two. α_i moves before the local
steps, on the first mini-batch, as in their code. In simulation the shared steps are done a second time beside the
personal ones, so that the shared path cannot change; the costs count them once. They are then plain SGD, so a local
solver with other steps is refused. A model with running statistics is refused, too: those of the mixture are not the
mixture of those of v_i and w_i.
Reference: Deng, Kamani, Mahdavi. 2020. arXiv:2003.13461.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats
from turnout.learned import Learned
from turnout.local.sgd import SGD
from turnout.personal.at_clients import AtClients
from turnout.protocols import Memory, SlotUpdate
from turnout.requests import Fit, Steps, Trained
from turnout.row_table import TableExcerpt
from turnout.settings import Positive, Share, rule

GRADIENT = {"coefficients": None, "wants_ends": ()}  # rows come back: of one step with rate 1, the gradients


@rule("personal")
class APFL:
    """A mixture of the shared model and a model of its own for every client."""

    mixing: Share = 0.5  # share α of the client's own model in the mixture, 0 to 1; the first value where it adapts
    lr: Positive | None = None  # learning rate η of the client's own model, above 0; none is the local learning rate
    # learning rate η_α of the share α_i, above 0; none keeps α as it is, 0.01 to 0.1 is usual
    mixing_lr: Positive | None = None

    repeats_shared_steps = True

    def train(self, here: AtClients, fit: Fit) -> Steps[Learned]:
        """Train the shared model, then the client's own through the mixture."""
        sent: Trained = yield fit
        mixing, gradients = self._mixing(here), 0
        if self.mixing_lr is not None:
            mixing = yield from self._adapted(here, mixing)
            gradients = here.samples(here.solver(None)[0], here.steps(1))
        solver, settings = here.solver(None)
        mixture = Mixture(lr=solver.lr, steps=1, batch_size=solver.batch_size, batches=solver.batches)
        how = (mixture, settings | {"mixing": mixing, "own_lr": here.solver(self.lr)[1]["lr"]})
        own: Trained = yield here.training(
            how, 2 * fit.steps, None, kept={"own": here.rows()}, wants_ends=(), purpose=fit.purpose
        )
        rows = {"model": own.kept["own"], "mixing": torch.as_tensor(mixing, dtype=here.model.dtype)[:, None]}
        return Learned(sent=sent, rows=rows, gradients=gradients + here.samples(solver, fit.steps))

    def models(self, here: AtClients) -> Mapping[str, Tensor]:
        """Return each client's own model, and its mixture with the shared one."""
        own = here.rows().take(here.clients)
        return {"personal": own, "mixture": self._mixtures(here, self._mixing(here), own)}

    def _mixing(self, here: AtClients) -> Floats:
        """Return α_i of each client."""
        first = here.model.new_full((1,), self.mixing)
        table = here.rows("mixing", first).take(here.clients)
        mixing: Floats = table[:, 0].double().cpu().numpy()
        return mixing

    def _mixtures(self, here: AtClients, mixing: Floats, own: Tensor) -> Tensor:
        share = here.spread(mixing)
        return share * own + (1.0 - share) * here.model

    def _adapted(self, here: AtClients, mixing: Floats) -> Steps[Floats]:
        """Move each α_i against its gradient on the client's first mini-batch."""
        own = here.rows().take(here.clients)
        mixtures = TableExcerpt(here.clients, self._mixtures(here, mixing, own))
        probe: Trained = yield here.training(
            here.solver(1.0), here.steps(1), mixtures, coefficients=None, wants_ends=()
        )
        assert probe.delta is not None
        slope = (probe.delta.double() * (own - here.model).double()).sum(1).cpu().numpy()
        assert self.mixing_lr is not None
        return np.clip(mixing - self.mixing_lr * np.where(np.isfinite(slope), slope, 0.0), 0.0, 1.0)


@rule("local")
class Mixture(SGD):
    """The steps of APFL: in turn one of the shared model, and one of the client's own through the mixture."""

    @property
    def cycle(self) -> tuple[int, ...]:
        """Both steps use the same mini-batch."""
        return (0, 0)

    @property
    def features(self) -> frozenset[str]:
        """The mixing share, and the learning rate of the client's own model."""
        return frozenset({"mixing", "own_lr"})

    @property
    def keeps(self) -> tuple[str, ...]:
        """The client's own model."""
        return ("own",)

    def begin(self, params: Sequence[Tensor]) -> list[Memory]:
        """Return room for both models; the client's own is written over by what it kept."""
        return [{"own": torch.zeros_like(param), "shared": param.clone()} for param in params]

    def update(self, slot: SlotUpdate) -> None:
        """Move one model, and put the parameters where the next gradient is taken."""
        rows, share = len(slot.param), slot.settings["mixing"]
        own, shared = slot.state["own"][:rows], slot.state["shared"][:rows]
        if slot.step % 2 == 0:
            shared.sub_(slot.grad * slot.settings["lr"])
            slot.param.copy_(own * share + shared * (1.0 - share))
        else:
            own.sub_(slot.grad * slot.settings["own_lr"] * share)
            slot.param.copy_(shared)
