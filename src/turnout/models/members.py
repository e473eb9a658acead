"""The members of a family: where the model of each architecture lies in the family's vector, and its module.

A member is a submodel whose parameters are one run of the vector, so that training, bytes, costs and averages are those
of submodels. Its module has the parameter names of the family.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from turnout.errors import ConfigError
from turnout.models.family import FamilyModule
from turnout.models.layout import Layout, Slot
from turnout.submodels import FamilyParts, Submodel

SERVER = -1  # number of the server's model among the members


class Member(nn.Module):
    """One member of a family, with the parameter names that it has in the family."""

    def __init__(self, number: int, module: nn.Module) -> None:
        super().__init__()
        self.members = nn.ModuleDict({str(number): module})

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the member."""
        (module,) = self.members.values()
        out: Tensor = module(x)
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """The members of one family."""

    module: FamilyModule
    parts: FamilyParts
    layout: Layout
    _modules: dict[int, nn.Module] = field(default_factory=dict)

    @classmethod
    def of(cls, module: nn.Module, sample: Tensor) -> "Members":
        """Return the members of a family; raise ConfigError for a module that is none, or that clients cannot share."""
        if not isinstance(module, FamilyModule):
            raise ConfigError(
                f'Architectures needs a family of models; got {type(module).__name__}. Set model.use = "family", with '
                "the server's model and one for each architecture of the clients.",
                setting="model.use",
            )
        layout = Layout.of(module)
        if layout.buffers:
            raise ConfigError(
                f"A family cannot average running statistics, which clients of other architectures do not have; "
                f"{layout.buffers[0].name} are some. Use models without, with GroupNorm in place of BatchNorm.",
                setting="model",
            )
        _check_outputs(module, sample)
        whole = multiply_adds(module.server, sample)
        slots = [_slots(layout, number) for number in range(SERVER, len(module.members))]
        costs = [1.0, *(multiply_adds(member, sample) / whole for member in module.members)]
        server, *members = (
            Submodel((number,), torch.arange(own[0].start, own[-1].stop, device=sample.device), cost, is_whole=False)
            for number, own, cost in zip(range(SERVER, len(costs)), slots, costs, strict=False)
        )
        layers = tuple(torch.cat([_places(slot) for slot in last_layer(own)]).to(sample.device) for own in slots)
        return cls(module, FamilyParts(server=server, members=tuple(members), last_layers=layers), layout)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of parameters of each member."""
        return tuple(member.columns.numel() for member in self.parts.members)

    def cut(
        self, sizes: Sequence[int], scaled: bool = False, masked: bool = False, distil: tuple[int, ...] | None = None
    ) -> nn.Module:
        """Return the module of a member, or of the server alone, always the same; its parameters are of no use.

        What slices can do besides, members cannot: none of it is asked for.
        """
        assert not scaled
        assert not masked
        assert distil is None
        (number,) = sizes
        if number not in self._modules:
            alone = copy.deepcopy(self.module.server if number == SERVER else self.module.members[number])
            self._modules[number] = FamilyModule(alone, []) if number == SERVER else Member(number, alone)
        return self._modules[number]

    def check_last_layers(self) -> None:
        """Raise ConfigError unless the last layers of all models have parameters of the same shapes."""
        shapes = [[slot.shape for slot in last_layer(_slots(self.layout, n))] for n in range(SERVER, len(self.sizes))]
        if any(own != shapes[0] for own in shapes[1:]):
            texts = [" and ".join("×".join(map(str, shape)) for shape in own) for own in shapes]
            named = "; ".join(f"architecture {number} has {text}" for number, text in enumerate(texts[1:]))
            raise ConfigError(
                'representation = "last-layer" needs last layers of one shape in all models of the family; the '
                f"server's has {texts[0]}, {named}. Give all models the same last hidden width, or set "
                'aggregation.representation = "none".',
                setting="aggregation.representation",
            )


def member_module(family: nn.Module, number: int) -> nn.Module:
    """Return the module of one architecture of a family."""
    if not isinstance(family, FamilyModule) or not 0 <= number < len(family.members):
        raise ValueError(f"a model of architecture {number}, which this run's model does not have")
    return family.members[number]


def member_tensors(tensors: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    """Return the state dict of one architecture of a family, by the names of its own module."""
    prefix = _prefix(number)
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _prefix(number: int) -> str:
    """Return what begins the names of a member's parameters, or of the server's, in the family."""
    return "server." if number == SERVER else f"members.{number}."


def _slots(layout: Layout, number: int) -> list[Slot]:
    """Return the parameters of a member, or of the server's model; raise ConfigError if it has none to train."""
    found = [slot for slot in layout.slots if slot.name.startswith(_prefix(number))]
    if not found:
        name = "model.server" if number == SERVER else f"model.clients, number {number},"
        raise ConfigError(
            f"A family needs models with parameters that can change; {name} has none. Give it some.", setting="model"
        )
    return found


def last_layer(slots: Sequence[Slot]) -> list[Slot]:
    """Return the parameters of the last layer: those of the module that has the last of these parameters."""
    owner = slots[-1].name.rpartition(".")[0]
    return [slot for slot in slots if slot.name.rpartition(".")[0] == owner]


def _places(slot: Slot) -> Tensor:
    """Return the positions of a parameter in the vector, in the order of the module."""
    return slot.seen(torch.arange(slot.start, slot.stop).view(slot.stored_shape)).reshape(-1)


def _check_outputs(module: FamilyModule, sample: Tensor) -> None:
    """Raise ConfigError if a member fails on a sample, or has other outputs than the server's model."""
    shapes = []
    for number, model in enumerate([module.server, *module.members], start=SERVER):
        name = "model.server" if number == SERVER else f"model.clients, number {number},"
        try:
            shapes.append(tuple(_outputs(model, sample).shape[1:]))
        except Exception as error:  # modules raise any exception on a shape that they do not expect
            first = str(error).partition("\n")[0]
            raise ConfigError(
                f"{name} fails on a sample of shape {tuple(sample.shape[1:])}: {type(error).__name__}: {first}. "
                "Change the model or the data.",
                setting="model",
            ) from error
        if shapes[-1] != shapes[0]:
            raise ConfigError(
                f"All models of a family need the same outputs; model.server has outputs of shape {shapes[0]}, {name} "
                f"of shape {shapes[-1]}. Change one of them.",
                setting="model.clients",
            )


def _outputs(module: nn.Module, sample: Tensor) -> Tensor:
    was_training = module.training
    with torch.no_grad():
        out: Tensor = module.eval()(sample)
    module.train(was_training)
    return out


def multiply_adds(module: nn.Module, sample: Tensor) -> int:
    """Return the multiplications of a forward pass, 1 at least; a layer of unknown type counts its parameters."""
    total = 0

    def count(layer: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal total
        total += _products(layer, output)

    hooks = [each.register_forward_hook(count) for each in module.modules() if list(each.parameters(recurse=False))]
    try:
        _outputs(module, sample)
    finally:
        for hook in hooks:
            hook.remove()
    return max(total, 1)


def _products(layer: nn.Module, output: Any) -> int:
    """Return the multiplications of a layer that gave this output."""
    if isinstance(layer, nn.Linear):
        return int(output.numel() * layer.in_features)
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return int(output.numel() * layer.in_channels // layer.groups * prod(layer.kernel_size))
    weights = sum(parameter.numel() for parameter in layer.parameters(recurse=False) if parameter.dim() == 2)
    if isinstance(layer, nn.RNNBase):  # every weight is used at every position
        return int(output[0].numel() // output[0].shape[-1] * weights)
    return 0 if isinstance(layer, nn.Embedding) else weights
