"""Functions that split sample positions, shared by the partition rules."""

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.errors import DataError


def check_enough(rule: str, num_samples: int, num_clients: int, each: int = 1) -> None:
    """Raise if there are no clients, or fewer than `each` samples per client."""
    if num_clients < 1:
        raise DataError(f"{rule} needs at least one client; got {num_clients}. Set data.clients to 1 or more.")
    if num_samples < num_clients * each:
        raise DataError(
            f"{rule} needs {num_clients * each} samples to give {num_clients} clients {each} each; got {num_samples}. "
            f"Set data.clients to {max(num_samples // each, 1)} or less{', or lower min_size' if each > 1 else ''}."
        )


def by_label(labels: NDArray[np.int64], rng: np.random.Generator) -> list[Ids]:
    """Return the shuffled positions of each label's samples, in ascending order of the labels that occur."""
    shuffled = rng.permutation(len(labels))
    sorted_ = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.unique(labels, return_counts=True)[1]
    return np.split(sorted_, np.cumsum(counts)[:-1])


def even_sizes(total: int, parts: int) -> Ids:
    """Return sizes that differ by at most one and sum to total; larger ones first."""
    return total // parts + (np.arange(parts) < total % parts).astype(np.int64)


def cut(positions: Ids, sizes: Ids) -> list[Ids]:
    """Return consecutive pieces of these sizes; the remaining positions are left out."""
    ends = np.cumsum(sizes)
    return np.split(positions[: int(ends[-1])], ends[:-1])


def counts_of(shares: Floats, total: int) -> Ids:
    """Return integer counts in proportion to the shares, which sum to one; the counts sum to total."""
    ends = np.floor(np.cumsum(shares) * total + 1e-9).astype(np.int64)
    ends[-1] = total
    return np.diff(np.minimum(ends, total), prepend=0)


def assign(by_class: list[Ids], counts: NDArray[np.int64]) -> list[Ids]:
    """Return the positions of each client: counts[c, i] positions of class c for client i."""
    clients = np.arange(counts.shape[1])
    owner = np.concatenate([np.repeat(clients, row) for row in counts])
    assigned = np.concatenate([pool[: int(row.sum())] for pool, row in zip(by_class, counts, strict=True)])
    order = np.argsort(owner, kind="stable")
    return cut(assigned[order], counts.sum(axis=0))
