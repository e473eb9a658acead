"""What local Adagrad, Adam and Yogi share: an adaptive solver at the clients, and a correction of its updates."""

from typing import Literal, Protocol

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.settings import Count, Positive

Correction = Literal["none", "local", "joint"]
DOCSTRING = """Return the sections of {title}.

    Args:
        correction: what is taken out of an update: "none", the "local" preconditioner, or "joint" with a common one put
            back by the server; usually "joint".
        lr: learning rate η_l of the clients, above 0, usually {usual_lr}.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; none if steps are given.
        steps: local steps τ, 1 or more, or a range drawn per client and round; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; none for all of a client's samples.
        adaptivity: constant τ_a added to the root, above 0, usually 0.001; larger values adapt less.
    """


class LocalAdaptive(Protocol):
    """An algorithm with an adaptive solver at the clients."""

    def __call__(
        self,
        *,
        correction: Correction = ...,
        lr: Positive = ...,
        epochs: Work | None = ...,
        steps: Work | None = ...,
        batch_size: Count | None = ...,
        adaptivity: Positive = ...,
    ) -> Sections:
        """Return the sections of the algorithm."""
        ...


def local_adaptive(solver: str, *, module: str, title: str, default_lr: float, usual_lr: str) -> LocalAdaptive:
    """Return the function of an algorithm with an adaptive solver at the clients.

    Args:
        solver: name of the rule on the local axis.
        module: module of the algorithm, which has its description and its example.
        title: name of the algorithm in its docstring.
        default_lr: default of the learning rate of the clients.
        usual_lr: usual values of the learning rate, for the docstring.
    """

    def sections(
        *,
        correction: Correction = "joint",
        lr: Positive = default_lr,
        epochs: Work | None = 1,
        steps: Work | None = None,
        batch_size: Count | None = 20,
        adaptivity: Positive = 1e-3,
    ) -> Sections:
        work = given(epochs=epochs, steps=steps, batch_size=batch_size)
        return {
            "local": {"use": solver, "lr": lr, "correction": correction, "adaptivity": adaptivity, **work},
            "aggregation": {"use": "joint" if correction == "joint" else "fedavg"},
        }

    sections.__name__ = sections.__qualname__ = module.rpartition(".")[2]
    sections.__module__ = module
    sections.__doc__ = DOCSTRING.format(title=title, usual_lr=usual_lr)
    return algorithm(sections)
