"""A family of models: one for the server, and one for each architecture that clients have.

Intuition: a phone trains a small network and a laptop a larger one; the server wants a model of its own, larger than
both. The family's output is the server's: it is the model that is measured, saved and exported.

    z(x) = z_server(x);   the clients of architecture a have the model z_a, with the same outputs

The flat vector of a family holds the server's parameters, then those of each architecture. Every model starts as it
would alone with the same seed.

Reduces to: the server's model, for whoever looks at its outputs.
Reference: Cho, Manoel, Joshi, Sim, Dimitriadis (Fed-ET). IJCAI 2022. arXiv:2204.12703.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from turnout.errors import ConfigError
from turnout.models.model_rule import ModelRule
from turnout.models.user_modules import build_module
from turnout.settings import rule

Architecture = ModelRule | Callable  # type: ignore[type-arg]  # a rule, a module, or what makes one


class FamilyModule(nn.Module):
    """The models of a family; calling it calls the server's."""

    def __init__(self, server: nn.Module, members: list[nn.Module]) -> None:
        super().__init__()
        self.server, self.members = server, nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the server's model."""
        out: Tensor = self.server(x)
        return out


@rule("model")
class Family:
    """A model of the server, and one of each architecture that clients have."""

    server: Architecture  # model of the server, which is measured: a model, as the section model has it
    clients: tuple[Architecture, ...]  # model of each architecture that clients have, one or more

    def __post_init__(self) -> None:
        if not self.clients:
            raise ConfigError(
                "Family needs one architecture for clients, or more; got none. Set model.clients.",
                setting="model.clients",
            )

    @property
    def parts(self) -> tuple[Architecture, ...]:
        """All models, the server's first."""
        return (self.server, *self.clients)

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return all models for samples of this shape, each with a generator of the same seed."""
        seed, device = generator.initial_seed(), generator.device
        server, *members = (
            build_module(part, example_shape, num_outputs, torch.Generator(device).manual_seed(seed))
            for part in self.parts
        )
        return FamilyModule(server, members)
