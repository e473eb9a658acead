"""Ditto: every client also trains a model of its own, which is pulled towards the shared model.

Intuition: the shared model is trained as ever; beside it, each client keeps v_i, a compromise between its own data and
the shared model. The strength λ of the pull says how far apart the two may be.

    min_v  F_i(v) + (λ/2)‖v − x‖²

    v_i ← v_i − η_p · ( ∇f_i(v_i; batch) + λ·(v_i − x) )        x: the round's model; v_i = x⁰ at first

"together": one personal step on every mini-batch of the shared training. "after": `steps` personal steps after it, on
mini-batches of their own. The shared path is the same, bit for bit, for every strength. Where the model has running
statistics, v_i has its own.

Reduces to: training alone when λ = 0; the local model of FedAvg when v_i = x, η_p = η_l and one step is done.
Differs from the paper: nothing; the authors' code interleaves the two, which is "together". A personal step does not
depend on the shared step beside it, so the personal steps are done as one piece of work.
Reference: Li, Hu, Beirami, Smith. ICML 2021. arXiv:2012.04221.
"""

from typing import Annotated, Literal

from turnout.learned import Learned
from turnout.personal.at_clients import AtClients, Used, model_rows
from turnout.requests import Fit, Steps, Trained
from turnout.settings import Count, NonNegative, Positive, When, rule


@rule("personal")
class Ditto:
    """A model of its own for every client, pulled towards the shared model."""

    strength: NonNegative = 1.0  # strength λ of the pull towards the shared model, 0 or more; 0.1 to 2 is usual
    lr: Positive | None = None  # learning rate η_p of the personal steps, above 0; none is the local learning rate
    order: Literal["together", "after"] = "together"  # when the personal steps are done
    steps: Annotated[Count, When(order="after")] = 10  # number of personal steps in a round, 1 or more

    keeps_statistics = True

    def train(self, here: AtClients, fit: Fit) -> Steps[Learned]:
        """Train the shared model, then each client's own."""
        sent: Trained = yield fit
        solver = here.solver(self.lr, self.strength)
        together = self.order == "together"
        steps = here.mini_batches(fit.steps) if together else here.steps(self.steps)
        purpose = fit.purpose if together else "personal"
        rows = here.rows()
        how = {"purpose": purpose, "ends_into": here.new_rows(rows), **here.statistics()}
        own: Trained = yield here.training(solver, steps, rows, **how)
        return Learned(sent=sent, rows=model_rows(own), gradients=here.samples(solver[0], steps))

    def models(self, here: AtClients) -> Used:
        """Return each client's own model."""
        return {"personal": here.own_models()}
