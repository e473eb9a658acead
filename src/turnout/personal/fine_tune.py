"""Fine-tuning: before it uses the shared model, every client takes a few steps on its own data.

Intuition: nothing is kept and nothing changes in training. It is the baseline that every other personal rule must beat.

    v_i = x after `steps` steps of plain SGD with learning rate η on the client's training data

With the local solver `meta` this is Per-FedAvg: the shared model is trained to be a good start for these steps.

Reduces to: the shared model when `steps` is 0.
Reference: Fallah, Mokhtari, Ozdaglar. NeurIPS 2020. arXiv:2002.07948.
"""

from turnout.learned import ModelRows
from turnout.personal.at_clients import AtClients, Used
from turnout.requests import Steps, Trained
from turnout.settings import CountOrZero, Positive, rule


@rule("personal")
class FineTune:
    """A few steps on the client's own data before the shared model is used."""

    steps: CountOrZero = 5  # number of steps before the model is used, 0 or more; 1 to 10 is usual
    # learning rate of these steps, above 0; none is the local learning rate, with the solver `meta` its inner_lr
    lr: Positive | None = None

    keeps_statistics = True

    def models(self, here: AtClients) -> Steps[Used]:
        """Return the shared model after these steps, for each client."""
        if self.steps == 0:
            return {"personal": here.model.repeat(len(here.clients), 1)}
        rates = here.settings.get("inner_lr", here.settings["lr"])
        solver, settings = here.solver(self.lr)
        if self.lr is None:
            settings = settings | {"lr": rates}
        how = {"purpose": "fine-tune", "wants_buffers": here.buffers is not None}
        own: Trained = yield here.training((solver, settings), here.steps(self.steps), None, **how)
        assert own.ends is not None
        return {"personal": ModelRows(parameters=own.ends, buffers=own.buffer_ends)}
