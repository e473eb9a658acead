"""The device's side: it answers parcels with its own samples, trains until the deadline, and remembers its own state.

It sends a loss, a gradient or label counts only if its own configuration allows that kind. An update and the mean loss
of its mini-batches it always sends: they are what taking part means.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.engine.evaluation import Evaluator
from turnout.engine.module_probe import draws_globally
from turnout.engine.single_client import Worker
from turnout.engine.task import Task
from turnout.engine.watch import Watch
from turnout.errors import ConfigError, TurnoutError
from turnout.offset import Offset
from turnout.protocols import Local
from turnout.requests import Evaluate, Fit, Probe, Score
from turnout.row_table import RowTable
from turnout.rows import Facts, is_finite
from turnout.streams import Streams
from turnout.world.deployment.device_state import DeviceState
from turnout.world.deployment.parcel import BadParcelError, Parcel, as_array, refusal

KINDS = ("losses", "gradients", "labels")  # what a device may allow


def allowed(names: Iterable[str]) -> frozenset[str]:
    """Return what a device allows; raise ConfigError for a kind that there is not."""
    found = frozenset(names)
    if unknown := sorted(found - set(KINDS)):
        raise ConfigError(f"A device may allow {', '.join(KINDS)}; got {', '.join(unknown)}. Change allow.")
    return found


class Device:
    """One client with its samples, its local solver and a folder for what it remembers."""

    def __init__(
        self, task: Task, local: Local, folder: Path, allows: Iterable[str] = (), *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.task, self.local, self.folder, self.allows, self.clock = task, local, folder, allowed(allows), clock
        self.worker = Worker(task, draws=draws_globally(task))
        self.evaluator = Evaluator(task, Watch())
        self.like = task.layout.flatten(task.module)

    def answer(self, parcel: Parcel) -> Parcel:
        """Return the answer to a parcel; a refusal with its reason where there is none."""
        answering = ANSWERS.get(parcel.kind)
        if answering is None:
            return refusal(f"this device knows no message of kind {parcel.kind[:40]!r}")
        try:
            return answering(self, parcel)
        except (BadParcelError, TurnoutError) as error:
            return refusal(str(error))

    @property
    def num_examples(self) -> int:
        """The number of training samples n_i."""
        return int(self.task.federation.sizes[0])

    def hello(self, parcel: Parcel) -> Parcel:
        """Say what the server must know to count this device in."""
        data = self.task.federation
        slab = data.train.fetch(np.zeros(1, dtype=np.int64))
        values = {
            "num_examples": self.num_examples,
            "holdout": 0 if data.test is None else len(data.test),
            "shape": list(data.example_shape),
            "type": str(slab.x.dtype).removeprefix("torch."),
            "target_shape": list(slab.y.shape[1:]),
            "num_classes": 0 if data.num_classes is None else data.num_classes,
            "allows": sorted(self.allows),
        }
        counts = {}
        if "labels" in self.allows and data.num_classes is not None:
            counts["labels"] = data.label_counts(np.zeros(1, dtype=np.int64))[0].astype(np.int64)
        return Parcel("hello", values, counts)

    def train(self, parcel: Parcel) -> Parcel:
        """Train until all steps are done or the deadline has come, and return the update."""
        started, deadline = self.clock(), parcel.seconds("deadline_seconds")
        fit, row = self._order(parcel)
        done = self.worker.train(
            fit, 0, self.task.federation.train.fetch(fit.clients), lambda: self.clock() - started >= deadline
        )
        arrays = {"delta": as_array(done.delta)}
        arrays |= {} if done.extra is None else {"extra": as_array(done.extra)}
        arrays |= {} if done.buffers is None else {"buffers": as_array(done.buffers)}
        if row is not None:
            arrays |= self._remember(parcel, fit, row, done.delta, done.steps)
        self._keep_solver_state(parcel, fit, done.kept)
        values = {
            "round": fit.round,
            "client": int(fit.clients[0]),
            "steps": done.steps,
            "loss": done.loss,
            "seconds": self.clock() - started,
            "num_examples": self.num_examples,
        }
        return Parcel("train", values, arrays)

    def _order(self, parcel: Parcel) -> tuple[Fit, Tensor | None]:
        """Return the work that a parcel asks for, and what this device remembers."""
        kept, offset, row = self.local.client_state, None, None
        model, settings = self._model(parcel), parcel.values.get("settings")
        steps = parcel.whole("steps")
        if not isinstance(settings, dict) or not all(type(value) in (int, float) for value in settings.values()):
            raise BadParcelError("the order has no settings")
        if steps < 1:
            raise BadParcelError(f"the order asks for {steps} steps")
        if kept is not None:
            row = self._state(parcel).row(kept.name, parcel.whole("kept_round"), model)
            offset = Offset(shared=parcel.vector("shared", model), table=_OneRow(row))
        fit = Fit(
            round=parcel.whole("round"),
            streams=Streams(parcel.whole("seed")),
            model=model,
            buffers=self._buffers(parcel),
            clients=np.array([parcel.whole("client")]),
            steps=np.array([steps]),
            local=self.local,
            settings={name: np.array([float(value)]) for name, value in settings.items()},
            coefficients=None,
            buffer_weights=np.ones(1),
            offset=offset,
            kept={name: _OneRow(self._solver_state(parcel, name, model)) for name in self.local.keeps},
        )
        return fit, row

    def _solver_state(self, parcel: Parcel, name: str, model: Tensor) -> Tensor:
        return self._state(parcel).row(f"solver-{name}", parcel.whole("kept_round"), model)

    def _keep_solver_state(self, parcel: Parcel, fit: Fit, kept: Mapping[str, Tensor]) -> None:
        """Write the entries of the solver's state that outlive the round, pending."""
        for name, row in kept.items():
            if not is_finite(row):
                raise BadParcelError(f"the solver state {name!r} is not finite")
            before = self._solver_state(parcel, name, fit.model)
            self._state(parcel).put(f"solver-{name}", fit.round, row, parcel.whole("kept_round"), before)

    def _remember(self, parcel: Parcel, fit: Fit, row: Tensor, delta: Tensor, steps: int) -> dict[str, np.ndarray]:
        """Write the new row, pending; return its change where the server cannot work it out from the update."""
        kept = self.local.client_state
        assert kept is not None
        assert fit.offset is not None
        if kept.source == "update":
            scale = kept.scale(_facts(fit, self.num_examples, np.array([steps]), self.local))
            after, change = row - fit.offset.shared + delta * float(scale[0]), {}
        else:
            self._require("gradients")
            probe = Probe(round=fit.round, streams=fit.streams, model=fit.model, buffers=fit.buffers,
                          clients=fit.clients, what="gradient")  # fmt: skip
            gradient = self.evaluator.probe(self.task, probe).gradient
            assert gradient is not None
            after, change = gradient[0], {"change": as_array(gradient[0] - row)}
        self._state(parcel).put(kept.name, fit.round, after, parcel.whole("kept_round"), row)
        return change

    def recall(self, parcel: Parcel) -> Parcel:
        """Return what this device remembers."""
        kept = self.local.client_state
        if kept is None:
            raise BadParcelError("the local solver of this study remembers nothing")
        row = self._state(parcel).row(kept.name, parcel.whole("kept_round"), self.like)
        return Parcel("recall", {}, {"row": as_array(row)})

    def probe(self, parcel: Parcel) -> Parcel:
        """Return the loss or the gradient at a model."""
        what = parcel.said("what")
        self._require("gradients" if what == "gradient" else "losses")
        size = parcel.whole("batch_size")
        request = Probe(
            round=parcel.whole("round"),
            streams=Streams(parcel.whole("seed")),
            model=self._model(parcel),
            buffers=self._buffers(parcel),
            clients=np.array([parcel.whole("client")]),
            what=what,
            batch_size=size or None,
        )
        probed = self.evaluator.probe(self.task, request)
        values = {"samples": probed.samples}
        if probed.gradient is not None:
            return Parcel("probe", values, {"gradient": as_array(probed.gradient[0])})
        assert probed.loss is not None
        return Parcel("probe", {**values, "loss": float(probed.loss[0])})

    def score(self, parcel: Parcel) -> Parcel:
        """Return the loss of each of several models on the hold-out."""
        self._require("losses")
        models = parcel.arrays.get("models")
        count = 0 if models is None else len(models)
        rows = parcel.rows("models", (count, self.like.numel()), self.like)
        request = Score(round=parcel.whole("round"), models=rows, buffers=self._buffers(parcel))
        scored = self.evaluator.score(self.task, request)
        return Parcel("score", {"samples": scored.samples}, {"loss": np.asarray(scored.loss, dtype=np.float64)})

    def evaluate(self, parcel: Parcel) -> Parcel:
        """Return how a model does on the hold-out."""
        self._require("losses")
        test, metrics = self.task.federation.test, parcel.values.get("metrics")
        if test is None:
            raise BadParcelError("this device holds no samples out")
        if not isinstance(metrics, list):
            raise BadParcelError("the message names no metrics")
        request = Evaluate(
            round=parcel.whole("round"),
            model=self._model(parcel),
            buffers=self._buffers(parcel),
            metrics=tuple(map(str, metrics)),
        )
        measured = self.evaluator.evaluate([self.task], [request])[0].metrics
        return Parcel("evaluate", {"metrics": measured, "samples": len(test)})

    def _require(self, kind: str) -> None:
        if kind not in self.allows:
            raise ConfigError(f"this device does not send its {kind}; its own configuration must allow {kind}")

    def _model(self, parcel: Parcel) -> Tensor:
        return parcel.vector("model", self.like)

    def _buffers(self, parcel: Parcel) -> Tensor | None:
        layout = self.task.layout
        if not layout.buffer_size:
            return None
        return parcel.vector("buffers", layout.flatten_buffers(self.task.module))

    def _state(self, parcel: Parcel) -> DeviceState:
        return DeviceState(self.folder, parcel.said("run"))


ANSWERS: dict[str, Callable[[Device, Parcel], Parcel]] = {
    "hello": Device.hello,
    "train": Device.train,
    "recall": Device.recall,
    "probe": Device.probe,
    "score": Device.score,
    "evaluate": Device.evaluate,
}


class _OneRow(RowTable):
    """A table with the row of one client, whatever its number."""

    def __init__(self, row: Tensor) -> None:
        super().__init__(1, row)
        self.put(np.zeros(1, dtype=np.int64), row[None])

    def run_of(self, rows: Ids) -> Tensor | None:
        """Return the row."""
        return self.take(rows)

    def take(self, rows: Ids) -> Tensor:
        """Return the row."""
        return super().take(np.zeros(len(rows), dtype=np.int64))


def _facts(fit: Fit, num_examples: int, steps: Ids, local: Local) -> Facts:
    one: Floats = np.ones(1)
    return Facts(
        clients=fit.clients,
        weights=one,
        num_examples=np.array([num_examples]),
        asked_steps=fit.steps,
        local_steps=steps,
        local_work=local.local_work(steps, fit.settings),
        local_lr=fit.settings["lr"],
        multiplicity=np.ones(1, dtype=np.int64),
        inclusion_prob=None,
        num_clients=1,
    )
