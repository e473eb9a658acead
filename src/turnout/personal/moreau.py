"""pFedMe's personal models: the inner solution θ_i of each client, which the local solver `moreau` finds on its way.

Intuition: to know how to move the shared model w, each client looks for a model near it that suits its own data, and
may as well use it.

    θ_i ≈ argmin_θ  F_i(θ) + (λ/2)‖θ − w‖²

Reduces to: the shared model when λ is so large that θ_i = w.
Differs from the authors' code: it evaluates w_i, the local shared model, as personal, for θ_i is overwritten before it
is used. Here θ_i is a copy, and what is reported is θ_i's own loss.
Reference: T. Dinh, Tran, Nguyen. NeurIPS 2020. arXiv:2006.08848.
"""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from turnout.learned import Learned
from turnout.personal.at_clients import AtClients
from turnout.requests import Fit, Steps, Trained
from turnout.settings import rule


@rule("personal")
class Moreau:
    """Each client's inner solution of the local solver `moreau`."""

    needs_inner_solution = True

    def train(self, here: AtClients, fit: Fit) -> Steps[Learned]:
        """Train the shared model, and keep where the inner steps ended."""
        sent: Trained = yield replace(fit, wants_ends=here.names, ends_into=here.new_rows(here.rows()))
        assert sent.ends is not None
        return Learned(sent=sent, rows={"model": sent.ends})

    def models(self, here: AtClients) -> Mapping[str, Tensor]:
        """Return each client's inner solution of the last round it took part in."""
        return {"personal": here.rows().take(here.clients)}
