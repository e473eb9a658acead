"""Layers that stay at the client: FedPer, FedRep, LG-FedAvg, FedBABU, by settings.

Intuition: clients agree on some layers, for example on how to see, and keep others for themselves, for example on what
to call what they see. x = (φ, h): φ is shared, and client i keeps its own h_i, which is x⁰'s at first.

    together      train (φ, h_i) jointly                                      FedPer; LG-FedAvg keeps the lower layers
    kept-first    train h_i with φ frozen, then φ with h_i frozen             FedRep
    shared-first  train φ with h_i frozen, then h_i with φ frozen
    kept-frozen   h stays x⁰'s for everyone and only φ is trained             FedBABU, with `fine_tune` at the end

Only Δφ_i is sent, so only φ counts as bytes. Every client is evaluated with (φ, h_i), never with x⁰'s h.

Reduces to: FedAvg when nothing is kept, and every client alone when everything is; both are refused, as they say
nothing of a shared and a kept part.
Differs from the paper: FedRep counts epochs of each phase; here `kept_steps` are steps, and the shared phase does the
work that `local` asks for.
Reference: Arivazhagan et al. (FedPer). 2019. arXiv:1912.00818; Collins et al. (FedRep). ICML 2021. arXiv:2102.07078;
Liang et al. (LG-FedAvg). 2020. arXiv:2001.01523; Oh et al. (FedBABU). ICLR 2022. arXiv:2106.06042.
"""

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from torch import Tensor

from turnout.errors import ConfigError
from turnout.learned import Learned
from turnout.models.layout import Layout
from turnout.personal.at_clients import AtClients
from turnout.requests import Fit, Steps, Trained
from turnout.row_table import Overlay, RowSource, TableExcerpt
from turnout.settings import Count, CountOrZero, When, rule


@rule("personal")
class Layers:
    """Some layers of the model stay at the client."""

    # names of the parameters that stay, as in the module, where * stands for anything: ["head.*"], for example
    keep: tuple[str, ...]
    order: Literal["together", "kept-first", "shared-first", "kept-frozen"] = "together"  # how the two are trained
    # number of steps in which only the kept layers are trained, 1 or more; 5 to 50 is usual
    kept_steps: Annotated[Count, When(order=("kept-first", "shared-first"))] = 10
    # number of steps that the kept layers are trained before every evaluation, 0 or more; 0 is usual but for FedBABU
    fine_tune: CountOrZero = 0

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
        kept = tuple(name for name in names if any(_matches(name, pattern) for pattern in self.keep))
        if len(kept) in (0, len(names)):
            raise ConfigError(
                f"Layers needs some parameters to stay and some to be shared; {list(self.keep)} keeps "
                f"{'all' if kept else 'none'} of {', '.join(names)}. Change personal.keep.",
                setting="personal.keep",
            )
        return kept

    def train(self, here: AtClients, fit: Fit) -> Steps[Learned]:
        """Train what is shared and what stays, in the given order."""
        kept = self.kept_names(here.layout)
        own = self._own(here, kept)
        together = replace(fit, starts=self._models(here, kept, own), private=kept)
        if self.order == "together":
            sent: Trained = yield replace(together, wants_ends=kept)
            return Learned(sent=sent, rows={"layers": _ends(sent)})
        shared = replace(together, frozen=kept)
        if self.order == "kept-frozen":
            return Learned(sent=(yield shared))
        if self.order == "kept-first":
            rows = yield from self._train_kept(here, kept, together.starts, self.kept_steps)
            sent = yield replace(shared, starts=self._models(here, kept, TableExcerpt(fit.clients, rows)))
        else:
            others = _others(here, kept)
            sent = yield replace(shared, wants_ends=others)
            models = here.model.repeat(len(fit.clients), 1)
            models[:, here.layout.columns(others)] = _ends(sent)
            models[:, here.layout.columns(kept)] = own.take(fit.clients)
            rows = yield from self._train_kept(here, kept, TableExcerpt(fit.clients, models), self.kept_steps)
        gradients = here.samples(here.solver(None)[0], here.steps(self.kept_steps))
        return Learned(sent=sent, rows={"layers": rows}, gradients=gradients)

    def models(self, here: AtClients) -> Steps[Mapping[str, Tensor]]:
        """Return the shared layers together with each client's own."""
        kept = self.kept_names(here.layout)
        own = self._own(here, kept)
        if self.fine_tune:
            starts = self._models(here, kept, own)
            own = TableExcerpt(here.clients, (yield from self._train_kept(here, kept, starts, self.fine_tune)))
        return {"personal": self._models(here, kept, own).take(here.clients)}

    def _own(self, here: AtClients, kept: tuple[str, ...]) -> RowSource:
        """Return the layers that each client keeps; those of x⁰ until it has trained."""
        return here.rows("layers", here.first_model[here.layout.columns(kept)])

    def _models(self, here: AtClients, kept: tuple[str, ...], own: RowSource) -> Overlay:
        return Overlay(here.model, here.layout.columns(kept), own)

    def _train_kept(
        self, here: AtClients, kept: tuple[str, ...], starts: RowSource | None, steps: int
    ) -> Steps[Tensor]:
        """Train the kept layers alone, and return them."""
        how = {"frozen": _others(here, kept), "wants_ends": kept, "purpose": "personal"}
        return _ends((yield here.training(here.solver(None), here.steps(steps), starts, **how)))


def _others(here: AtClients, kept: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in here.names if name not in kept)


def _ends(answer: Trained) -> Tensor:
    assert answer.ends is not None
    return answer.ends


def _matches(name: str, pattern: str) -> bool:
    """Whether a pattern names a parameter, or a layer that it belongs to."""
    return fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")
