"""Parts that all local solvers share: the learning rate, the mini-batches and the number of local steps."""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, Any, Protocol

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.axes import default_rule
from turnout.errors import ConfigError
from turnout.local.batches import ONE_EACH, steps_per_epoch
from turnout.protocols import Batching, Memory, View
from turnout.settings import Count, Positive, StepCount, When, rule
from turnout.traits import EffortTraits, traits_of

Work = StepCount | tuple[StepCount, StepCount]


class Schedule(Protocol):
    """How the local learning rate changes over the rounds."""

    def factor(self, round: int) -> float:
        """Return the factor on lr in a round, counted from 1 since the last start of the schedule."""
        ...


class Effort(Protocol):
    """How many local steps clients are asked for."""

    def steps(self, clients: Ids, view: View, per_epoch: Ids) -> Ids:
        """Return τ_i of each client; `per_epoch` is its number of steps per epoch."""
        ...


@rule("local")
class Solver:
    """The settings of every solver; each solver defines its own step."""

    lr: Positive  # local learning rate η_l, greater than 0; 0.01 to 0.1 is usual for SGD, 0.001 to 0.01 for Adam
    schedule: Schedule = field(
        default_factory=default_rule("schedule")
    )  # rule for the local learning rate over the rounds
    # mini-batch size B, 1 or more; 10 to 100 is usual, none is all local samples
    batch_size: Annotated[Count | None, When(batches=("shuffled", "replaced"))] = None
    # how mini-batches are drawn: "shuffled" splits a new permutation in every epoch, "replaced" draws with replacement,
    # "full" uses all local samples in every step
    batches: Batching = "shuffled"
    # number of local epochs E, 1 or more, or a range [least, most] to draw from per client and round; 1 to 5 is usual
    epochs: Work | None = None
    # number of local steps τ, 1 or more, or a range [least, most] to draw from per client and round; instead of epochs
    steps: Work | None = None
    effort: Effort | None = None  # rule for the number of local steps τ_i, instead of epochs or steps
    # largest allowed norm of a mini-batch gradient, greater than 0; none disables clipping, 1 to 10 is usual
    clip_norm: Positive | None = None

    def __post_init__(self) -> None:
        self._check_work()

    def _check_work(self) -> None:
        called = type(self).__name__
        if self.effort is not None:
            also = " and ".join(name for name in ("epochs", "steps") if getattr(self, name) is not None)
            if also:
                raise ConfigError(
                    f"{called} needs effort alone or epochs or steps alone; got effort and {also}. "
                    f'Set local.{also.split()[0]} = "none", or leave local.effort out.',
                    setting=f"local.{also.split()[0]}",
                )
            return
        if (self.epochs is None) == (self.steps is None):
            got = "both" if self.epochs is not None else "neither"
            raise ConfigError(
                f"{called} needs epochs or steps, one of the two; got {got}. "
                "Set local.epochs = 1, for example, or give local.effort a rule.",
                setting="local.epochs",
            )
        low, high = _range(self.epochs if self.steps is None else self.steps)
        if low > high:
            raise ConfigError(
                f"{called} needs a range of work that ascends; got [{low}, {high}]. "
                "Set local.epochs (or local.steps) to a whole number, or to [least, most].",
                setting="local.epochs",
            )

    def numbers(self) -> dict[str, float]:
        """Return the active numeric settings except the learning rate; a solver adds its own."""
        return {} if self.clip_norm is None else {"clip_norm": self.clip_norm}

    @property
    def keeps(self) -> tuple[str, ...]:
        """The entries of the solver's state that a client keeps between rounds: none."""
        return ()

    @property
    def cycle(self) -> tuple[int, ...]:
        """Which of the batches drawn for a cycle of steps each of its steps uses: a batch of its own."""
        return ONE_EACH

    @property
    def features(self) -> frozenset[str]:
        """The active features beyond the plain step."""
        return frozenset(self.numbers())

    def rate(self, view: View) -> float:
        """Return the round's η_l."""
        return self.lr * self.schedule.factor(view.round - view.restart)

    def asked(self, clients: Ids, view: View) -> Ids:
        """Return τ_i of each client."""
        batch_size = None if self.batches == "full" else self.batch_size
        per_epoch = steps_per_epoch(view.population.sizes[clients], batch_size)
        if self.effort is not None:
            return self.effort.steps(clients, view, per_epoch)
        low, high = _range(self.epochs if self.steps is None else self.steps)
        amount = np.full(len(clients), low, dtype=np.int64)
        if high > low:
            draw = view.streams.uniforms("work", view.round, clients)[:, 0]
            amount = low + (draw * (high - low + 1)).astype(np.int64)
        return amount if self.steps is not None else amount * per_epoch

    def settings(self, clients: Ids, view: View) -> dict[str, Floats]:
        """Return η_l and the active numeric settings, one value per client."""
        values = {"lr": self.rate(view), **self.numbers()}
        return {name: np.full(len(clients), values[name], dtype=np.float64) for name in sorted(values)}

    @property
    def observe(self) -> Callable[[Mapping[str, Any], View, float], Memory] | None:
        """How the memory follows from a round's training loss; None if the effort does not depend on it."""
        observe = traits_of(EffortTraits, self.effort).observe
        return None if observe is None else lambda memory, view, loss: observe(memory, view, loss, self.rate(view))

    @property
    def counts_steps(self) -> bool:
        """Whether work is asked for in local steps."""
        return self.steps is not None


def _range(work: Work | None) -> tuple[int, int]:
    assert work is not None
    return (work, work) if isinstance(work, int) else (int(work[0]), int(work[1]))
