"""Layers that stay at the client: FedPer, FedRep, FedBN, LG-FedAvg, FedBABU, by settings.

Intuition: clients agree on some layers, for example on how to see, and keep others for themselves, for example on what
to call what they see. x = (φ, h): φ is shared, and client i keeps its own h_i, which is x⁰'s at first.

    together      train (φ, h_i) jointly                                      FedPer; LG-FedAvg keeps the lower layers,
                                                                              FedBN the normalisation layers
    kept-first    train h_i with φ frozen, then φ with h_i frozen             FedRep
    shared-first  train φ with h_i frozen, then h_i with φ frozen
    kept-frozen   h stays x⁰'s for everyone and only φ is trained             FedBABU, with `fine_tune` at the end

Only Δφ_i is sent, so only φ counts as bytes. Every client is evaluated with (φ, h_i), never with x⁰'s h. Running
statistics of kept layers are part of h_i: they start where the client left them and enter no average. Those of shared
layers are averaged. Both phases of a round move them.

Reduces to: FedAvg when nothing is kept, and every client alone when everything is; both are refused, as they say
nothing of a shared and a kept part.
Differs from the paper: FedRep counts epochs of each phase; here `kept_steps` are steps, and the shared phase does the
work that `local` asks for. Steps on the kept layers alone are plain SGD with the local learning rate and batch size,
whatever else the local solver does.
Reference: Arivazhagan et al. (FedPer). 2019. arXiv:1912.00818; Collins et al. (FedRep). ICML 2021. arXiv:2102.07078;
Li et al. (FedBN). ICLR 2021. arXiv:2102.07623; Liang et al. (LG-FedAvg). 2020. arXiv:2001.01523; Oh et al. (FedBABU).
ICLR 2022. arXiv:2106.06042.
"""

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from torch import Tensor

from turnout.errors import ConfigError
from turnout.learned import Learned, ModelRows
from turnout.models.layout import Layout
from turnout.personal.at_clients import AtClients, Used
from turnout.requests import Fit, Steps, Trained
from turnout.row_table import Overlay, RowSource, TableExcerpt
from turnout.settings import Count, CountOrZero, When, rule


@rule("personal")
class Layers:
    """Some layers of the model stay at the client."""

    # names of the parameters that stay, as in the module, where * stands for anything: ["head.*"], for example
    keep: tuple[str, ...] = ()
    keep_norms: bool = False  # whether all normalisation layers stay, too: batch, group, layer, instance and RMS norms
    order: Literal["together", "kept-first", "shared-first", "kept-frozen"] = "together"  # how the two are trained
    # number of steps in which only the kept layers are trained, 1 or more; 5 to 50 is usual
    kept_steps: Annotated[Count, When(order=("kept-first", "shared-first"))] = 10
    # number of steps that the kept layers are trained before every evaluation, 0 or more; 0 is usual but for FedBABU
    fine_tune: CountOrZero = 0

    keeps_statistics = True

    def __post_init__(self) -> None:
        if not self.keep and not self.keep_norms:
            raise ConfigError(
                "Layers needs layers that stay at the client; personal.keep is empty. Set personal.keep to names of "
                "parameters, or personal.keep_norms to true.",
                setting="personal.keep",
            )

    @property
    def shares_whole_model(self) -> bool:
        """Whether clients train the shared model as it is: its kept layers are x⁰'s, with which only FedBABU trains."""
        return self.order == "kept-frozen"

    def kept_names(self, layout: Layout) -> tuple[str, ...]:
        """Return the names of the parameters that stay; raise if a pattern matches none of them, or all match."""
        names = [slot.name for slot in layout.slots]
        for pattern in self.keep:
            if not any(_matches(name, pattern) for name in names):
                raise ConfigError(
                    f"Layers needs patterns that match a parameter; {pattern!r} matches none of {', '.join(names)}. "
                    "Change personal.keep.",
                    setting="personal.keep",
                )
        kept = tuple(name for name in names if self._stays(name, layout))
        if len(kept) in (0, len(names)):
            asked = f"{list(self.keep)}{' and the normalisation layers' if self.keep_norms else ''}"
            raise ConfigError(
                f"Layers needs some parameters to stay and some to be shared; {asked} keeps "
                f"{'all' if kept else 'none'} of {', '.join(names)}. Change personal.keep.",
                setting="personal.keep",
            )
        return kept

    def kept_buffers(self, layout: Layout) -> Tensor:
        """Return the positions of the running statistics that stay."""
        return layout.buffer_columns([slot.name for slot in layout.buffers if self._stays(slot.name, layout)])

    def train(self, here: AtClients, fit: Fit) -> Steps[Learned]:
        """Train what is shared and what stays, in the given order."""
        kept = self.kept_names(here.layout)
        own = self._own(here, kept)
        statistics = self._statistics(here)
        together = replace(fit, starts=self._models(here, kept, own), private=kept, **statistics)
        if self.order == "together":
            sent: Trained = yield replace(together, wants_ends=kept)
            return self._learned(here, sent, sent, {"layers": _ends(sent)})
        shared = replace(together, frozen=kept)
        if self.order == "kept-frozen":
            sent = yield shared
            return self._learned(here, sent, sent, {})
        if self.order == "kept-first":
            phase: Trained = yield self._kept_phase(here, kept, together.starts, self.kept_steps, statistics)
            starts = self._models(here, kept, TableExcerpt(fit.clients, _ends(phase)))
            last = sent = yield replace(shared, starts=starts, **_continued(phase, statistics))
        else:
            others = _others(here, kept)
            sent = yield replace(shared, wants_ends=others)
            models = here.model.repeat(len(fit.clients), 1)
            models[:, here.layout.columns(others)] = _ends(sent)
            models[:, here.layout.columns(kept)] = own.take(fit.clients)
            own, how = TableExcerpt(fit.clients, models), _continued(sent, statistics)
            last = phase = yield self._kept_phase(here, kept, own, self.kept_steps, how)
        learned = self._learned(here, sent, last, {"layers": _ends(phase)})
        return replace(learned, gradients=here.samples(here.solver(None)[0], here.steps(self.kept_steps)))

    def models(self, here: AtClients) -> Steps[Used]:
        """Return the shared layers together with each client's own."""
        kept = self.kept_names(here.layout)
        own, statistics = self._own(here, kept), self._statistics(here)
        starts: RowSource | None = statistics.get("buffer_starts")
        buffers = None if starts is None else starts.take(here.clients)
        if self.fine_tune:
            models = self._models(here, kept, own)
            tuned: Trained = yield self._kept_phase(here, kept, models, self.fine_tune, statistics)
            own, buffers = TableExcerpt(here.clients, _ends(tuned)), tuned.buffer_ends
        return {"personal": ModelRows(parameters=self._models(here, kept, own).take(here.clients), buffers=buffers)}

    def _stays(self, name: str, layout: Layout) -> bool:
        """Whether a parameter or a buffer belongs to what stays."""
        norms = layout.norms if self.keep_norms else ()
        return any(_matches(name, each) for each in self.keep) or name.rpartition(".")[0] in norms

    def _own(self, here: AtClients, kept: tuple[str, ...]) -> RowSource:
        """Return the layers that each client keeps; those of x⁰ until it has trained."""
        return here.rows("layers", here.first_model[here.layout.columns(kept)])

    def _models(self, here: AtClients, kept: tuple[str, ...], own: RowSource) -> Overlay:
        return Overlay(here.model, here.layout.columns(kept), own)

    def _statistics(self, here: AtClients) -> dict[str, Any]:
        """Return, in Fit's words, which running statistics clients start from: the shared ones with their own."""
        if here.buffers is None or here.first_buffers is None:
            return {}
        columns = self.kept_buffers(here.layout)
        if not len(columns):
            return {"wants_buffers": True}
        own = here.rows("buffers", here.first_buffers[columns])
        return {"buffer_starts": Overlay(here.buffers, columns, own), "wants_buffers": True}

    def _kept_phase(
        self,
        here: AtClients,
        kept: tuple[str, ...],
        starts: RowSource | None,
        steps: int,
        statistics: Mapping[str, Any],
    ) -> Fit:
        """Return a request that trains the kept layers alone, and returns them."""
        how = {"frozen": _others(here, kept), "wants_ends": kept, "purpose": "personal", **statistics}
        return here.training(here.solver(None), here.steps(steps), starts, **how)

    def _learned(self, here: AtClients, sent: Trained, last: Trained, rows: dict[str, Tensor]) -> Learned:
        """Return what is sent, without the running statistics that stay, and what stays after the last phase."""
        columns = self.kept_buffers(here.layout)
        if here.buffers is None or sent.buffers is None or last.buffer_ends is None or not len(columns):
            return Learned(sent=sent, rows=rows)
        averaged = sent.buffers.clone()
        averaged[columns] = here.buffers[columns]  # as the kept columns of the model: x⁰'s
        return Learned(sent=replace(sent, buffers=averaged), rows={**rows, "buffers": last.buffer_ends[:, columns]})


def _continued(phase: Trained, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """Return, in Fit's words, that running statistics go on from where a phase left them."""
    if phase.buffer_ends is None:
        return {}
    return {**statistics, "buffer_starts": TableExcerpt(phase.clients, phase.buffer_ends)}


def _others(here: AtClients, kept: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in here.names if name not in kept)


def _ends(answer: Trained) -> Tensor:
    assert answer.ends is not None
    return answer.ends


def _matches(name: str, pattern: str) -> bool:
    """Whether a pattern names a parameter, or a layer that it belongs to."""
    return fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")
