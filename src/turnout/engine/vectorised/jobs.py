"""Rows to train: clients of one or several runs, in the order that wastes least, and where blocks of them end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Bits, Floats, Ids
from turnout.data.federation import Slab
from turnout.engine.dropout import mask_keys
from turnout.requests import Fit
from turnout.row_table import RowSource

LITTLE = 4096  # samples of padding that cost less than another block


@dataclass(slots=True, kw_only=True)
class Jobs:
    """Rows to train, of one or more Fit requests; one entry per row."""

    requests: Sequence[Fit]
    owner: Ids  # which request
    place: Ids  # which of its clients
    keys: Bits
    steps: Ids
    sizes: Ids
    starts: Ids
    slabs: Sequence[Slab]  # one per request
    settings: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.owner)

    def widths(self) -> Ids:
        """Return how many samples a full batch of each row has."""
        batch_size = self.requests[0].local.batch_size
        return self.sizes if batch_size is None else np.minimum(self.sizes, batch_size)

    def mask_keys(self) -> Bits:
        """Return the key of each row's dropout masks."""
        of_requests = [mask_keys(request, request.clients) for request in self.requests]
        keys = np.zeros(len(self), dtype=np.uint64)
        for owner in np.unique(self.owner):
            mine = self.owner == owner
            keys[mine] = of_requests[owner][self.place[mine]]
        return keys

    def rows_of(self, tables: Sequence[RowSource | None]) -> Tensor:
        """Return each client's row in the table of its request; nobody may write to them. One table per request."""
        return self._of_clients(tables, lambda table, clients: [table.read(clients)])[0]

    def parts_of(self, tables: Sequence[RowSource | None], columns: Sequence[slice]) -> Sequence[Tensor]:
        """Return runs of columns of each client's row, which nobody may write to; one row where all have the same."""
        return self._of_clients(tables, lambda table, clients: table.parts(clients, columns))

    def _of_clients(
        self, tables: Sequence[RowSource | None], read: Callable[[RowSource, Ids], Sequence[Tensor]]
    ) -> Sequence[Tensor]:
        """Return what is read for each client from the table of its request, in the order of the rows."""
        owners = np.unique(self.owner)
        by_owner: list[Sequence[Tensor]] = []
        for owner in owners:
            table, places = tables[owner], self.place[self.owner == owner]
            assert table is not None
            by_owner.append(read(table, self.requests[owner].clients[places]))
        if len(by_owner) == 1:
            return by_owner[0]
        where = [torch.from_numpy(np.flatnonzero(self.owner == owner)) for owner in owners]
        found = []
        for parts in zip(*by_owner, strict=True):
            rows = parts[0].new_empty(len(self), parts[0].shape[1])
            for mine, part in zip(where, parts, strict=True):
                rows[mine] = part
            found.append(rows)
        return found

    def take(self, rows: Ids) -> "Jobs":
        """Return some of the rows."""
        return Jobs(
            requests=self.requests,
            owner=self.owner[rows],
            place=self.place[rows],
            keys=self.keys[rows],
            steps=self.steps[rows],
            sizes=self.sizes[rows],
            starts=self.starts[rows],
            slabs=self.slabs,
            settings={name: values[rows] for name, values in self.settings.items()},
        )


def collect_jobs(requests: Sequence[Fit], slabs: Sequence[Slab]) -> Jobs:
    """Return the rows of several requests, longest first and then widest; `slabs` has one entry per request."""
    counts = [len(r.clients) for r in requests]
    owner = np.repeat(np.arange(len(requests)), counts)
    jobs = Jobs(
        requests=requests,
        owner=owner,
        place=np.concatenate([np.arange(c) for c in counts]),
        keys=np.concatenate([r.streams.keys(r.purpose, r.round, r.clients) for r in requests]),
        steps=np.concatenate([r.steps for r in requests]),
        sizes=np.concatenate([s.sizes for s in slabs]),
        starts=np.concatenate([s.starts for s in slabs]),
        slabs=slabs,
        settings={name: np.concatenate([r.settings[name] for r in requests]) for name in requests[0].settings},
    )
    widths = jobs.widths()
    if (jobs.steps == jobs.steps[0]).all() and (widths == widths[0]).all():
        return jobs
    return jobs.take(np.lexsort((-widths, -jobs.steps)))


def block_bounds(jobs: Jobs, block: int) -> list[tuple[int, int]]:
    """Return where blocks begin and end: so many rows at most, and half as much padding as samples, but for a little.

    A batch is as wide as its widest row. Where clients step on all they hold, one with a thousand times the data of
    the others would make each of them pay for its width.
    """
    widths = jobs.widths()
    if (widths == widths[0]).all():
        return [(low, min(low + block, len(jobs))) for low in range(0, len(jobs), block)]
    bounds: list[tuple[int, int]] = []
    low = samples = widest = 0
    for row, width in enumerate(widths.tolist()):
        samples, widest = samples + width, max(widest, width)
        if row - low == block or (row + 1 - low) * widest > 1.5 * samples + LITTLE:
            bounds.append((low, row))
            low, samples, widest = row, width, width
    return [*bounds, (low, len(jobs))]
