"""The last model of a run as a PyTorch state dict: names, shapes and order are those of the module."""

import copy
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from turnout.checkpoint.own_models import InMemory, OwnModels, client_pieces, describe_clients, stored_models
from turnout.checkpoint.tensor_files import DTYPES, Piece, about_of, opened, tensors_of
from turnout.client_models import ClientModels
from turnout.coordinator.plan import State
from turnout.errors import ConfigError, JournalError, StudyNote
from turnout.models.layout import Layout
from turnout.models.members import member_module, member_tensors
from turnout.number_format import plural
from turnout.untrusted_input import as_written, count_of

MOST_AXES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LastModel:
    """The model that was evaluated last, and the shapes that a model rule needs to build its module again."""

    tensors: Mapping[str, Tensor]  # the module's state dict, in its order
    example_shape: tuple[int, ...]  # of one sample
    num_outputs: int
    others: tuple[Mapping[str, Tensor], ...] = ()  # of a run with several models: those after the first
    own: OwnModels | None = None  # what clients use; None: all use the shared model
    member: int | None = None  # number of the architecture whose model this is; None: it is the study's model

    @classmethod
    def of(
        cls,
        module: nn.Module,
        state: State,
        shape: tuple[int, ...],
        num_outputs: int,
        clients: ClientModels | None = None,
    ) -> "LastModel":
        """Return the model that the state's last evaluation measured, and those that clients use.

        Parameters and running statistics come from the state, integer buffers and frozen parameters from the module.
        """
        if state.models is None:
            measured = [state.model if state.measured is None else state.measured]
        else:
            measured = list(state.models if state.measured_models is None else state.measured_models)
        first, *others = (_state_dict(module, model, state.buffers) for model in measured)
        own = None if clients is None else InMemory(clients)
        return cls(tensors=first, example_shape=shape, num_outputs=num_outputs, others=tuple(others), own=own)

    def number(self, model: int) -> "LastModel":
        """Return one of several models, from 0."""
        every = (self.tensors, *self.others)
        if not 0 <= model < len(every):
            raise ConfigError(
                f"This run has {plural(len(every), 'model')}, numbered from 0; got model = {model}. Choose one of them."
            )
        return replace(self, tensors=every[model], others=(), own=None)

    def chosen(self, model: int = 0, client: int | None = None, which: str | None = None) -> "LastModel":
        """Return one of several models or, with a client, the model that it uses; warn if that was never trained."""
        if client is None:
            return self.number(model)
        chosen = self.of_client(client, which)
        if (note := self.note(client)) is not None:
            warnings.warn(note, StudyNote, stacklevel=4)
        return chosen

    def of_client(self, client: int, kind: str | None = None) -> "LastModel":
        """Return the model that a client uses: its own, of this kind if there are several, or one of several models."""
        if self.own is None:
            raise ConfigError(
                "Clients of this run have no models of their own: all use the shared model. Leave the client out, or "
                "give the study a [personal] section or an [assignment]."
            )
        number, values = self.own.take(client, kind)
        chosen = self.number(number)
        tensors = {name: values.get(name, value) for name, value in chosen.tensors.items()}
        member = self.own.architecture(client)
        if member is not None:
            tensors = member_tensors(tensors, member)
            if member < 0 or not tensors:
                raise JournalError(
                    f"The stored models need an architecture of the family for every client; client {client} has "
                    f"{member}, which the family does not have. The file was changed: run the study again."
                )
        return replace(chosen, tensors=tensors, own=None, member=member)

    def note(self, client: int) -> str | None:
        """Return a remark on a client's own model; None if there is nothing to say."""
        if self.own is None or self.own.has_trained(client):
            return None
        return f"Client {client} never trained: its own model is still made from the initial one."

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of the state dict."""
        return {name: value.clone() for name, value in self.tensors.items()}

    def put_into(self, module: nn.Module) -> nn.Module:
        """Load the state dict into a module of the same architecture; return the module in evaluation mode.

        With a client of a family, it is loaded into the family's model of that client's architecture.
        Values that a file cannot hold (extra state, other dtypes) are not trained; the module keeps its own.
        """
        if self.member is not None:
            module = member_module(module, self.member)
        rest = {name: value for name, value in module.state_dict().items() if not _can_be_stored(value)}
        module.load_state_dict({**rest, **self.tensors}, strict=True)
        return module.eval()


def _state_dict(module: nn.Module, model: Tensor, buffers: Tensor | None) -> dict[str, Tensor]:
    """Return the state dict of a module with these parameters and running statistics, on the CPU."""
    loaded = copy.deepcopy(module)
    Layout.of(module).load(loaded, model, buffers)
    tensors = {name: value for name, value in loaded.state_dict().items() if isinstance(value, Tensor)}
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def _can_be_stored(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in DTYPES


def pieces_of(models: Mapping[int, LastModel]) -> Iterator[Piece]:
    """Yield the tensors of a file that holds these models, by the run's id."""
    for run, last in models.items():
        for number, tensors in enumerate((last.tensors, *last.others)):
            for name, value in tensors.items():
                if _can_be_stored(value):
                    yield Piece.of(f"{run}/{_prefix(number)}{name}", value)
        if isinstance(last.own, InMemory):
            yield from client_pieces(run, last.own.models)


def _prefix(number: int) -> str:
    """Return what stands before the names of a model's tensors in a file."""
    return f"model {number}/" if number else ""


def describe_models(models: Mapping[int, LastModel]) -> dict[str, Any]:
    """Return the JSON value of a file of models: the names in order, and the shapes they were built for."""
    return {
        str(run): {
            "names": [name for name, value in last.tensors.items() if _can_be_stored(value)],
            "example_shape": list(last.example_shape),
            "num_outputs": last.num_outputs,
            "num_models": 1 + len(last.others),
            "clients": describe_clients(last.own.models) if isinstance(last.own, InMemory) else None,
        }
        for run, last in models.items()
    }


def read_model(folder: Path, name: str, run: int) -> LastModel:
    """Return the model of one run; the file is untrusted, so malformed contents are refused."""
    with opened(folder, name) as file, as_written(str(folder / name)):
        about = about_of(file)["runs"][str(run)]
    tensors = tensors_of(folder, name, f"{run}/")
    with as_written(str(folder / name)):
        names, shape = about["names"], about["example_shape"]
        count = count_of(about["num_models"], "the number of models", len(tensors) or 1)
        every = {f"{_prefix(number)}{each}" for number in range(count) for each in names}
        if not isinstance(names, list) or len(names) * count != len(tensors) or every != set(tensors):
            raise ValueError("names that are not those of its tensors")
        if not isinstance(shape, list) or len(shape) > MOST_AXES:
            raise ValueError("a shape that no sample has")
        return LastModel(
            tensors={each: tensors[each] for each in names},
            others=tuple({each: tensors[_prefix(number) + each] for each in names} for number in range(1, count)),
            example_shape=tuple(count_of(size, "the shape of a sample") for size in shape),
            num_outputs=count_of(about["num_outputs"], "the number of outputs"),
            own=stored_models(folder, name, run, about["clients"]),
        )
