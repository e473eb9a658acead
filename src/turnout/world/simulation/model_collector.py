"""Collect the models that clients use, of each parameter only if it differs from the shared model's."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from turnout.array_types import Bools, Ids
from turnout.client_models import ClientModels
from turnout.learned import ModelRows
from turnout.models.layout import Layout, Slot


@dataclass(slots=True, kw_only=True)
class ModelCollector:
    """Collects clients' models block by block, and keeps only the parameters that differ from the shared model's."""

    layout: Layout
    model: Tensor  # the shared model
    buffers: Tensor | None
    num_clients: int
    limit: int  # most bytes that all of them may take
    kinds: dict[str, dict[str, list[tuple[Ids, Tensor]]]] = field(default_factory=dict)
    seen: int = 0  # clients so far
    too_large: int = 0

    def add(self, clients: Ids, models: Mapping[str, ModelRows]) -> None:
        """Take in the models of some clients, of every kind; none is kept where all would take too much room."""
        if self.too_large:
            return
        self.seen += len(clients)
        for kind, rows in models.items():
            parts = self.kinds.setdefault(kind, {})
            for slots, values, shared in (
                (self.layout.slots, rows.parameters, self.model),
                (self.layout.buffers, rows.buffers, self.buffers),
            ):
                if values is None or shared is None:
                    continue
                for slot in slots:
                    own = values[:, slot.start : slot.stop]
                    if slot.name in parts or (own != shared[slot.start : slot.stop]).any():
                        parts.setdefault(slot.name, []).append((clients, own.detach().cpu().clone()))
        held = (own for parts in self.kinds.values() for each in parts.values() for _, own in each)
        whole = sum(own.numel() * own.element_size() for own in held) * self.num_clients // self.seen
        if whole > self.limit:
            self.too_large, self.kinds = whole, {}

    def collected(self, trained: Bools | None) -> ClientModels:
        """Return the models of all clients, in the module's shapes."""
        slots = {slot.name: (slot, self.model) for slot in self.layout.slots}
        if self.buffers is not None:
            slots |= {slot.name: (slot, self.buffers) for slot in self.layout.buffers}
        kinds = {
            kind: {name: self._stack(*slots[name], parts[name]) for name in slots if name in parts}
            for kind, parts in self.kinds.items()
        }
        return ClientModels(num_clients=self.num_clients, kinds=kinds, trained=trained, too_large=self.too_large)

    def _stack(self, slot: Slot, shared: Tensor, parts: list[tuple[Ids, Tensor]]) -> Tensor:
        rows = shared[slot.start : slot.stop].cpu().repeat(self.num_clients, 1)
        for clients, own in parts:
            rows[torch.from_numpy(clients)] = own
        stack = rows.view(self.num_clients, *slot.stored_shape)
        return (stack.transpose(1, 2) if slot.transposed else stack.view(self.num_clients, *slot.shape)).contiguous()
