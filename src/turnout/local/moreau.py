"""pFedMe's local solver: the shared model follows the gradient of each client's Moreau envelope.

Intuition: a client first finds θ, a model near w that suits its own data, and then moves w a little towards θ.

    F̃_i(w) = min_θ F_i(θ) + (λ/2)‖θ − w‖²,      ∇F̃_i(w) = λ·(w − θ̂_i(w))

    w = θ = x at the start of the round; for each mini-batch
        K times:  θ ← θ − η_p · ( ∇f_i(θ; batch) + λ·(θ − w) )      the same mini-batch; θ goes on where it was
        w ← w − η_l λ · (w − θ)
    the client sends Δ_i = x − w; `personal = "moreau"` keeps θ, the client's own model

One mini-batch is one local step for `steps` and `epochs`, and K gradients: clocks, deadlines and costs count gradients.
A client that is cut off in the middle of the K inner steps does not move w for that mini-batch.

Reduces to: local SGD with rate η_l when λ → ∞ and the inner problem is solved exactly; no movement when λ = 0.
Differs from the paper: clients are selected before they train, not after. The factor β of the server is `server.lr`.
Reference: T. Dinh, Tran, Nguyen. NeurIPS 2020. arXiv:2006.08848.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError
from turnout.local.solver import Solver
from turnout.protocols import Memory, SlotUpdate, View
from turnout.settings import Count, Positive, rule


@rule("local")
class Moreau(Solver):
    """pFedMe: inner steps on a model near the shared one, then a step of the shared one towards it."""

    strength: Positive = 15.0  # strength λ of the pull towards the shared model, above 0; 15 is usual
    inner_steps: Count = 5  # number of inner steps K on every mini-batch, 1 or more; 5 is usual
    inner_lr: Positive = 0.1  # learning rate η_p of the inner steps, above 0; inner_lr · strength must be below 2

    def __post_init__(self) -> None:
        self._check_work()
        if self.inner_lr * self.strength >= 2:
            raise ConfigError(
                f"Moreau needs inner_lr · strength below 2, or the inner steps diverge; got {self.inner_lr:g} · "
                f"{self.strength:g}. Lower local.inner_lr or local.strength.",
                setting="local.inner_lr",
            )

    has_inner_solution = True
    work_is_linear = False

    @property
    def cycle(self) -> tuple[int, ...]:
        """All inner steps use one mini-batch."""
        return (0,) * self.inner_steps

    def numbers(self) -> dict[str, float]:
        """Return the numeric settings except the learning rate."""
        return {**Solver.numbers(self), "strength": self.strength, "inner_lr": self.inner_lr}

    @property
    def features(self) -> frozenset[str]:
        """The settings, and the number of inner steps."""
        return frozenset({*self.numbers(), f"{self.inner_steps} inner steps"})

    @property
    def client_state(self) -> None:
        """Nothing that enters the next round."""
        return None

    def asked(self, clients: Ids, view: View) -> Ids:
        """Return K gradients for every mini-batch."""
        return Solver.asked(self, clients, view) * self.inner_steps

    def local_work(self, steps: Ids, settings: Mapping[str, Floats]) -> Floats:
        """Return the number of steps of the shared model."""
        return np.asarray(steps // self.inner_steps, dtype=np.float64)

    def begin(self, params: Sequence[Tensor]) -> list[Memory]:
        """Return where the shared model is, and how far it has moved."""
        return [{"start": param.clone(), "moved": torch.zeros_like(param)} for param in params]

    def update(self, slot: SlotUpdate) -> None:
        """Do one inner step and, after the last one of a mini-batch, move the shared model."""
        s, start, moved = slot.settings, *(slot.state[name][: len(slot.param)] for name in ("start", "moved"))
        shared = start - moved  # w
        slot.param.sub_((slot.grad + (slot.param - shared) * s["strength"]) * s["inner_lr"])
        if slot.step % self.inner_steps == self.inner_steps - 1:
            moved.add_((shared - slot.param) * (s["lr"] * s["strength"]))

    def finish(self, delta: Tensor, state: Memory) -> tuple[Tensor, Tensor | None]:
        """Return how far the shared model has moved, not the inner one."""
        return state["moved"], None
