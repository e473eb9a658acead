"""pFedMe's personal models: the inner solution θ_i of each client, which the local solver `moreau` finds on its way.

Intuition: to know how to move the shared model w, each client looks for a model near it that suits its own data, and
may as well use it.

    θ_i ≈ argmin_θ  F_i(θ) + (λ/2)‖θ − w‖²

Where the model has running statistics, those of θ_i are what its inner steps left, and they are what is averaged.

Reduces to: the shared model when λ is so large that θ_i = w.
Differs from the authors' code: it evaluates w_i, the local shared model, as personal, for θ_i is overwritten before it
is used. Here θ_i is a copy, and what is reported is θ_i's own loss.
Reference: T. Dinh, Tran, Nguyen. NeurIPS 2020. arXiv:2006.08848.
"""

from dataclasses import replace

from turnout.learned import Learned
from turnout.personal.at_clients import AtClients, Used, model_rows
from turnout.requests import Fit, Steps, Trained
from turnout.settings import rule


@rule("personal")
class Moreau:
    """Each client's inner solution of the local solver `moreau`."""

    needs_inner_solution = True
    keeps_statistics = True

    def train(self, here: AtClients, fit: Fit) -> Steps[Learned]:
        """Train the shared model, and keep where the inner steps ended."""
        room, has_buffers = here.new_rows(here.rows()), here.buffers is not None
        sent: Trained = yield replace(fit, wants_ends=here.names, ends_into=room, wants_buffers=has_buffers)
        return Learned(sent=sent, rows=model_rows(sent))

    def models(self, here: AtClients) -> Used:
        """Return each client's inner solution of the last round it took part in."""
        return {"personal": here.own_models()}
