"""Where submodels of one size lie in the whole model's vector, parameter by parameter.

A submodel keeps some units of a layer, so of a matrix it keeps rows, columns or both. A parameter lies in the vector as
(before, cut, behind): only the dimension in the middle is cut, and a short list says which of its entries a submodel
keeps. So submodels read their values from the vector, and add to it, without a position for every parameter. The cut
dimension comes last in all views, where gather and scatter are fastest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids

WHOLE_BYTES = 8 << 20  # of whole vectors that rows are written to before they are added up: they stay in cache


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Which entries of one parameter each of several submodels keeps."""

    start: int  # position of the parameter's first entry in the whole vector
    shape: tuple[int, int, int]  # (before, behind, cut) of the whole parameter
    strides: tuple[int, int, int]  # from one entry to the next along each of the three, in the whole vector
    own: slice  # positions of the kept entries in a submodel's own vector
    kept: Tensor  # (submodels, count): which entries of the cut dimension each submodel keeps

    def of_whole(self, flats: Tensor) -> Tensor:
        """Return the parameter as (rows, before, behind, cut), a view of whole vectors, one per row."""
        strides = (flats.stride(0), *self.strides)
        return flats.as_strided((len(flats), *self.shape), strides, flats.storage_offset() + self.start)

    def of_rows(self, rows: Tensor, first: int = 0) -> Tensor:
        """Return the kept entries as (rows, before, behind, kept), a view of submodels' own vectors from `first` on."""
        before, behind, _ = self.shape
        return (
            rows[:, self.own.start - first : self.own.stop - first]
            .view(len(rows), before, self.kept.shape[1], behind)
            .transpose(2, 3)
        )

    def index(self, numbers: Tensor) -> Tensor:
        """Return which entries these submodels keep, as (submodels, before, behind, kept) without a copy of each."""
        before, behind, _ = self.shape
        return self.kept[numbers][:, None, None].expand(-1, before, behind, -1)

    def columns(self, number: int) -> Tensor:
        """Return the positions of one submodel's entries in the whole vector."""
        before, behind = (torch.arange(size, device=self.kept.device) for size in self.shape[:2])
        strides, kept = self.strides, self.kept[number]
        places = before[:, None, None] * strides[0] + kept[:, None] * strides[2] + behind * strides[1]
        return places.flatten() + self.start


@dataclass(frozen=True, slots=True, eq=False)
class Grids:
    """Which entries of every parameter submodels of one size keep."""

    size: int  # number of parameters of each submodel
    grids: tuple[Grid, ...]

    def columns(self, number: int) -> Tensor:
        """Return the positions of one submodel's parameters in the whole vector, in the order of its own vector."""
        return torch.cat([grid.columns(number) for grid in self.grids])

    def read(self, flat: Tensor, numbers: Ids) -> Tensor:
        """Return the values of these submodels in the whole vector, one row each."""
        rows, index = flat.new_empty(len(numbers), self.size), torch.from_numpy(numbers).to(flat.device)
        for grid in self.grids:
            torch.gather(grid.of_whole(flat.expand(len(rows), -1)), 3, grid.index(index), out=grid.of_rows(rows))
        return rows

    def write(self, flats: Tensor, numbers: Ids, rows: Tensor) -> None:
        """Write the row of each of these submodels to where it lies, in a whole vector of its own."""
        index = torch.from_numpy(numbers).to(flats.device)
        for grid in self.grids:
            grid.of_whole(flats).scatter_(3, grid.index(index), grid.of_rows(rows))

    def add(self, flat: Tensor, numbers: Ids, rows: Tensor, weights: Floats) -> None:
        """Add Σ_i w_i row_i to the whole vector, each row where its submodel lies."""
        scales, count = rows.new_tensor(weights), max(1, WHOLE_BYTES // (flat.numel() * flat.element_size()))
        room = flat.new_empty(min(count, len(rows)), flat.numel())
        for low in range(0, len(rows), count):
            some = slice(low, min(low + count, len(rows)))
            wholes = room[: some.stop - low].zero_()
            self.write(wholes, numbers[some], rows[some])
            flat.addmv_(wholes.t(), scales[some])

    def add_coverage(self, flat: Tensor, numbers: Ids, weights: Floats) -> None:
        """Add to each parameter of the whole vector the weights of those of these submodels that keep it."""
        index, scales = torch.from_numpy(numbers), flat.new_tensor(weights)
        for grid in self.grids:
            kept, sums = grid.kept.cpu()[index], flat.new_zeros(grid.shape[2])
            sums.scatter_add_(0, kept.flatten(), scales.repeat_interleave(kept.shape[1]))
            grid.of_whole(flat[None]).add_(sums)


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where one submodel lies, of several that were cut together."""

    grids: Grids
    number: int  # of the submodel


@dataclass(frozen=True, slots=True, eq=False)
class PlaceRows:
    """The parameters that clients start from, read from the model when they are asked for: one row per client."""

    clients: Ids
    model: Tensor
    grids: Grids
    numbers: Ids  # of each client's submodel

    def take(self, rows: Ids) -> Tensor:
        """Return the parameters of these clients' submodels."""
        return self.grids.read(self.model, self.numbers[np.searchsorted(self.clients, rows)])

    def read(self, rows: Ids) -> Tensor:
        """Return the parameters of these clients' submodels."""
        return self.take(rows)

    def parts(self, rows: Ids, columns: Sequence[slice]) -> list[Tensor]:
        """Return runs of columns of these clients' submodels."""
        values = self.take(rows)
        return [values[:, run] for run in columns]
