"""Drift: clients whose new samples no model fits get a model of their own, and models that agree are merged.

Intuition: what is to be learned changes, at different times at different clients. A client that suddenly does worse
with every model has a new concept. It starts a model of its own, and if others have found the same concept, their
models soon do equally well on each other's data, and become one.

    at the start of each time step, for each client c of the cohort, with its new samples:
        a_c ← max_m a(m, c)                  accuracy, over the models m in use
        drift  ⇔  b_c − a_c > δ              b_c: the accuracy that c is used to
        drift: c trains a copy of the best model, alone for W time steps;  no drift: c trains the best model
    D_ij = max( a_ii − a_ij, a_jj − a_ji, 0 )        a_ij: accuracy of model i on the samples that trained model j
    models whose D is at most δ′ are merged, by agglomerative clustering: θ = Σ_i k_i θ_i / Σ_i k_i

k_i is the number of (client, time step) blocks that trained model i. A client trains its model on all samples that it
received since the start of the run in time steps in which it was assigned that model; a merged model has the blocks of
all its parts. compare = "before": b_c is a_c of the last time step, before training; in the second time step that is
the accuracy of the initial model. "after": b_c is the accuracy of c's model on its last samples, after training on
them. eager = true: all clients that drift in a time step share one new model, and nothing is merged.

Reduces to: one model, trained on all samples so far, when δ ≥ 1 and num_models = 1 or nobody drifts.
Differs from the paper: a client trains only the model that it uses now, and not at the same time those that it used
before. A client that is not in the cohort when a time step begins stays with its model, and models are merged only if
somebody in the cohort has samples that trained them. With no model free, the one that was used least recently is
replaced, the first of several; if all are in use, the client takes the best one.
Reference: Jothimurugesan, Hsieh, Wang, Joshi, Gibbons. AISTATS 2023. arXiv:2206.00799.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.assignment.assigned import Assigned
from turnout.assignment.linkage import clusters
from turnout.errors import ConfigError, Problem
from turnout.protocols import Ask, Population, View
from turnout.requests import Probed, Steps
from turnout.settings import Count, NonNegative, When, rule

NOBODY_USES = -1


def distances(scores: Floats, swapped: bool = False) -> Floats:
    """Return D_ij = max(a_ii − a_ij, a_jj − a_ji, 0); swapped: max(a_ii − a_ji, a_jj − a_ij, 0)."""
    loss = np.diag(scores)[:, None] - (scores.T if swapped else scores)  # a_ii − a_ij
    apart: Floats = np.maximum(np.maximum(loss, loss.T), 0.0)
    return apart


@dataclass(slots=True)
class Found:
    """The models and who uses them, while a time step begins."""

    models: Tensor
    blocks: Ids  # (clients, time steps): the model of each block, −1 for none
    step: int
    fresh: list[int] = field(default_factory=list)  # models that begin anew
    events: list[str] = field(default_factory=list)

    def candidates(self, alone: Ids) -> Ids:
        """Return the models that were used before, without those of the clients that train alone."""
        used = np.unique(self.blocks[:, : self.step])
        return np.setdiff1d(used[used >= 0], self.blocks[alone, self.step - 1])

    def free_slot(self, kept: Ids) -> int | None:
        """Return a model that no block uses, or else the one used least recently; None if all are in use now."""
        in_use = np.union1d(self.blocks[:, self.step], kept)
        last_used = [max((-1, *np.flatnonzero((self.blocks == m).any(0)))) for m in range(len(self.models))]
        open_slots = [m for m in range(len(self.models)) if m not in in_use]
        return min(open_slots, key=lambda m: last_used[m], default=None)

    def start(self, slot: int, like: int) -> None:
        """Start a model as a copy of another one; what was there before is forgotten."""
        self.models = self.models.clone()
        self.models[slot] = self.models[like]
        self.blocks[self.blocks == slot] = NOBODY_USES
        self.fresh.append(slot)

    def merge(self, group: list[int]) -> None:
        """Merge models into the first of them, weighted by the blocks that trained each."""
        first, trained = group[0], self.blocks[:, : self.step]
        weights = self.models.new_tensor([int((trained == m).sum()) for m in group])
        self.models = self.models.clone()
        self.models[first] = (weights / weights.sum()) @ self.models[group]
        self.blocks[np.isin(self.blocks, group)] = first
        self.fresh.append(first)
        self.events.append(f"models {', '.join(map(str, group[1:]))} merged into model {first}")


@rule("assignment")
class Drift:
    """A new model where no model fits, and one model where several agree."""

    num_models: Count = 10  # largest number of models at the same time, 1 or more; the number of clients is enough
    # fall δ of the accuracy that is a drift, 0 or more; 0.04 to 0.2 is usual, 1 or more is never
    threshold: NonNegative = 0.1
    # distance δ′ up to which models are merged, 0 or more; none is the threshold (usual)
    merge_threshold: Annotated[NonNegative | None, When(eager=False)] = None
    # number W of time steps in which a new model is trained by its first client alone, 1 or more; 1 is usual
    wait: Annotated[Count, When(eager=False)] = 1
    # which accuracies make the distance: "own" compares a model's accuracy on its own samples and on the other's, as
    # above; "theirs" compares two models on the same samples: max(a_ii − a_ji, a_jj − a_ij, 0)
    distance: Annotated[Literal["own", "theirs"], When(eager=False)] = "own"
    # distance of two groups of models: "complete" is the largest between members (usual), "average" is the mean
    linkage: Annotated[Literal["complete", "average"], When(eager=False)] = "complete"
    # what a fall is measured from: "before" the last time step's training, as in the authors' code, or "after" it
    compare: Literal["before", "after"] = "before"
    eager: bool = False  # all clients that drift in a time step share one new model, and no models are merged

    @property
    def initial(self) -> Literal["equal"]:
        """Models are copies of others when they are first used."""
        return "equal"

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the data do not suit."""
        if population.drift is None:
            yield Problem(
                "Drift on assignment needs data that change with time; this federation's do not. Set data.use to "
                "concept-drift, or assignment.use to lowest-loss.",
                "assignment.use",
            )

    def assign(self, clients: Ids, models: Tensor, view: View, ask: Ask) -> Steps[Assigned]:
        """Return each client's model; at the start of a time step, look for drift and merge models first."""
        drift = view.population.drift
        step, memory = drift.time_step(view.round), view.memory
        if view.round == 0:
            return Assigned(model_of=np.zeros(len(clients), dtype=np.int64))
        if memory.get("step") == step:
            return self._now(clients, memory["blocks"], step)
        if step == 0:
            blocks = np.full((len(drift.sizes), drift.num_steps), NOBODY_USES)
            blocks[:, 0] = 0
            first, level = Found(models, blocks, 0), np.zeros(len(drift.sizes))
            level[clients] = (yield from _accuracies(models[:1], clients, ask, drift.only(0, clients)))[0]
            return self._remembered(clients, first, {"level": level, "release": np.zeros_like(level, dtype=np.int64)})
        blocks = memory["blocks"].copy()
        blocks[:, step] = blocks[:, step - 1]
        found, level = Found(models, blocks, step), memory["level"].copy()
        if self.compare == "after":
            level[clients] = yield from self._after(found, clients, ask, drift)
        release = yield from self._look(found, clients, (level, memory["release"].copy()), ask, drift)
        return self._remembered(clients, found, {"level": level, "release": release})

    def _after(self, found: Found, clients: Ids, ask: Ask, drift: Any) -> Steps[Floats]:
        """Return the accuracy of each client's own model on its last samples."""
        own, accuracy = found.blocks[clients, found.step - 1], np.zeros(len(clients))
        for model in np.unique(own).tolist():
            users, last = clients[own == model], drift.only(found.step - 1, clients[own == model])
            accuracy[own == model] = (yield from _accuracies(found.models[[model]], users, ask, last))[0]
        return accuracy

    def _look(self, found: Found, clients: Ids, levels: tuple[Floats, Ids], ask: Ask, drift: Any) -> Steps[Ids]:
        """Look for drift among the clients, then merge; return until when each client trains alone."""
        (level, release), step = levels, found.step
        alone = np.flatnonzero(release > step)
        candidates = found.candidates(alone)
        asked = np.setdiff1d(clients, alone)
        new = drift.only(step, asked)
        scores = yield from _accuracies(found.models[torch.from_numpy(candidates)], asked, ask, new)
        best, accuracy = candidates[np.argmax(scores, axis=0)], scores.max(axis=0)
        drifted = level[asked] - accuracy > self.threshold
        level[asked] = accuracy
        found.blocks[asked, step] = best
        shared: int | None = None
        for client, like in zip(asked[drifted].tolist(), best[drifted].tolist(), strict=True):
            slot = shared if shared is not None else found.free_slot(best)
            if slot is None:
                found.events.append(f"client {client} drifted, and stays with model {like}: no model is free")
                continue
            if slot != shared:
                found.start(slot, like)
            found.blocks[client, step] = slot
            found.events.append(f"client {client} drifted, and starts model {slot} as a copy of model {like}")
            shared = slot if self.eager else None
            release[client] = step if self.eager else step + self.wait
        if not self.eager:
            yield from self._merge(found, np.setdiff1d(candidates, found.fresh), clients, ask)
        return release

    def _merge(self, found: Found, candidates: Ids, clients: Ids, ask: Ask) -> Steps[None]:
        """Merge the candidates that do equally well on each other's samples, of those whose samples are here."""
        trained = found.blocks[clients, : found.step]
        candidates = np.intersect1d(candidates, trained)
        if len(candidates) < 2:
            return
        rows, scores = found.models[torch.from_numpy(candidates)], np.zeros((len(candidates), len(candidates)))
        for column, owner in enumerate(candidates):
            blocks = np.zeros((len(clients), found.blocks.shape[1] + 1), dtype=bool)
            blocks[:, : found.step] = trained == owner
            here = blocks.any(1)
            by_client = yield from _accuracies(rows, clients[here], ask, blocks[here])
            weights = blocks[here].sum(1)
            scores[:, column] = by_client @ weights / weights.sum()
        bound = self.threshold if self.merge_threshold is None else self.merge_threshold
        apart = distances(scores, swapped=self.distance == "theirs")
        for group in clusters(apart, bound, self.linkage):
            if len(group) > 1:
                found.merge([int(candidates[member]) for member in group])

    def _remembered(self, clients: Ids, found: Found, memory: dict[str, Any]) -> Assigned:
        """Return the assignment of a time step that begins."""
        kept = {"step": found.step, "blocks": found.blocks, **memory}
        now = self._now(clients, found.blocks, found.step)
        return Assigned(
            model_of=now.model_of,
            models=found.models if found.fresh else None,
            fresh=tuple(found.fresh),
            blocks=now.blocks,
            memory=kept,
            metrics={"models_in_use": float(len(np.unique(found.blocks[:, found.step])))},
            events=tuple(found.events),
        )

    def _now(self, clients: Ids, blocks: Ids, step: int) -> Assigned:
        """Return each client's model, and the blocks that it trains it on."""
        model_of = blocks[clients, step]
        trained = np.zeros((len(clients), blocks.shape[1] + 1), dtype=bool)
        trained[:, : step + 1] = blocks[clients, : step + 1] == model_of[:, None]
        return Assigned(model_of=model_of, blocks=trained)


def _accuracies(models: Tensor, clients: Ids, ask: Ask, blocks: Any) -> Steps[Floats]:
    """Return the accuracy of each model on these blocks of each client, one row per model; without clients, no columns.

    Nobody is asked where there are no clients: nobody was up, or all of them train alone.
    """
    if not len(clients):
        return np.zeros((len(models), 0))
    rows = []
    for model in models:
        probed: Probed = yield replace(ask.losses(clients, model=model), blocks=blocks)
        if probed.accuracy is None:
            raise ConfigError(
                "Drift on assignment compares accuracies, and this data and model have none: accuracy needs one class "
                "index per sample as its label, and a model with one output per class. Change data or model.",
                setting="assignment.use",
            )
        rows.append(probed.accuracy)
    return np.stack(rows)
