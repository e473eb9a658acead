"""The models that clients use after the last round: in memory, or in the file of a run's last models.

In a file there is one tensor for each parameter that differs from the shared model's, with one row per client, so that
one client's model is read without the others'.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from turnout.checkpoint.tensor_files import Piece, opened
from turnout.client_models import ClientModels
from turnout.errors import ConfigError
from turnout.number_format import plural
from turnout.untrusted_input import as_written, count_of

NUMBER, TRAINED, ARCHITECTURE = "number", "trained", "architecture"
MIB = 1 << 20


class OwnModels(Protocol):
    """The models of a run's clients."""

    def take(self, client: int, kind: str | None) -> tuple[int, dict[str, Tensor]]:
        """Return which of several models a client uses, and its own values of parameters, by name."""
        ...

    def has_trained(self, client: int) -> bool:
        """Whether a client ever trained what it keeps; True where clients keep nothing."""
        ...

    def architecture(self, client: int) -> int | None:
        """Return the number of a client's model in a family; None where all have the model of the study."""
        ...


@dataclass(frozen=True, slots=True)
class InMemory:
    """Models that were collected in this process."""

    models: ClientModels

    def take(self, client: int, kind: str | None) -> tuple[int, dict[str, Tensor]]:
        """Return which of several models a client uses, and its own values of parameters, by name."""
        models = self.models
        check_client(client, models.num_clients, models.too_large)
        if models.number is not None:
            return int(models.number[client]), {}
        stacks = models.kinds[chosen_kind(list(models.kinds), kind)]
        return 0, {name: stack[client].clone() for name, stack in stacks.items()}

    def has_trained(self, client: int) -> bool:
        """Whether a client ever trained what it keeps; True where clients keep nothing."""
        return self.models.trained is None or bool(self.models.trained[client])

    def architecture(self, client: int) -> int | None:
        """Return the number of a client's model in a family; None where all have the model of the study."""
        return None if self.models.architecture is None else int(self.models.architecture[client])


@dataclass(frozen=True, slots=True, kw_only=True)
class InFile:
    """Models in a file, which is untrusted."""

    folder: Path
    name: str
    run: int
    kinds: dict[str, list[str]]  # names of the parameters of each kind
    count: int  # of clients
    too_large: int
    has: tuple[str, ...]  # which of NUMBER, TRAINED and ARCHITECTURE the file has

    def take(self, client: int, kind: str | None) -> tuple[int, dict[str, Tensor]]:
        """Return which of several models a client uses, and its own values of parameters, by name."""
        check_client(client, self.count, self.too_large)
        if NUMBER in self.has:
            return int(self._row(NUMBER, client)), {}
        chosen = chosen_kind(list(self.kinds), kind)
        return 0, {name: self._row(f"{chosen}/{name}", client) for name in self.kinds[chosen]}

    def has_trained(self, client: int) -> bool:
        """Whether a client ever trained what it keeps; True where clients keep nothing."""
        return TRAINED not in self.has or bool(self._row(TRAINED, client))

    def architecture(self, client: int) -> int | None:
        """Return the number of a client's model in a family; None where all have the model of the study."""
        return int(self._row(ARCHITECTURE, client)) if ARCHITECTURE in self.has else None

    def _row(self, name: str, client: int) -> Tensor:
        with opened(self.folder, self.name) as file, as_written(str(self.folder / self.name)):
            rows = file.get_slice(f"{_prefix(self.run)}{name}")
            if rows.get_shape()[:1] != [self.count]:
                raise ValueError(f"{name} has not one row for each of {self.count} clients")
            row: Tensor = rows[client : client + 1][0].clone()
            return row


def check_client(client: int, count: int, too_large: int) -> None:
    """Raise unless there is such a client, and the run has stored what clients use."""
    if too_large:
        raise ConfigError(
            f"The own models of this run's clients take {-(-too_large // MIB):,} MiB, more than memory.own_models_mib, "
            "so they were not stored. Set it higher, and run the study again in another output folder.",
            setting="memory.own_models_mib",
        )
    if not 0 <= client < count:
        raise ConfigError(
            f"This run has {plural(count, 'client')}, numbered from 0; got client = {client}. Choose one of them."
        )


def chosen_kind(kinds: list[str], kind: str | None) -> str:
    """Return the kind of model to take: the last one, which is the mixture where there is one."""
    if kind is None:
        return kinds[-1]
    if kind not in kinds:
        raise ConfigError(f"Clients of this run have models of kind {' and '.join(kinds)}; got {kind!r}. Choose one.")
    return kind


def client_pieces(run: int, models: ClientModels) -> Iterator[Piece]:
    """Yield the tensors of a file that holds these models."""
    for name, values in _arrays(models).items():
        yield Piece.of(f"{_prefix(run)}{name}", torch.from_numpy(values))
    for kind, stacks in models.kinds.items():
        for name, stack in stacks.items():
            yield Piece.of(f"{_prefix(run)}{kind}/{name}", stack)


def describe_clients(models: ClientModels) -> dict[str, Any]:
    """Return the JSON value of these models."""
    return {
        "kinds": {kind: list(stacks) for kind, stacks in models.kinds.items()},
        "count": models.num_clients,
        "too_large": models.too_large,
        "has": list(_arrays(models)),
    }


def _arrays(models: ClientModels) -> dict[str, Any]:
    """Return what there is to store beside parameters: one value per client, by name."""
    every = {NUMBER: models.number, TRAINED: models.trained, ARCHITECTURE: models.architecture}
    return {name: values for name, values in every.items() if values is not None}


def stored_models(folder: Path, name: str, run: int, about: dict[str, Any] | None) -> InFile | None:
    """Return the models that a file describes; None if it has none of clients."""
    if about is None:
        return None
    kinds = {str(kind): [str(each) for each in names] for kind, names in about["kinds"].items()}
    return InFile(
        folder=folder,
        name=name,
        run=run,
        kinds=kinds,
        count=count_of(about["count"], "the number of clients"),
        too_large=count_of(about["too_large"], "the size of the clients' models"),
        has=tuple(str(each) for each in about["has"]),
    )


def _prefix(run: int) -> str:
    """Return what stands before the names of clients' tensors in a file."""
    return f"{run} clients/"
