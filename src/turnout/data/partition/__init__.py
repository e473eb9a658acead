"""Partition rules. To add one: one file here, one line below, one test.

A partition rule is a pure function of the labels, the number of clients and a generator. It returns one array of sample
positions per client; the arrays are disjoint. Its docstring says under `Left out:` which samples no client gets.
"""

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.data.partition.dirichlet import Dirichlet
from turnout.data.partition.dirichlet_client import DirichletClient
from turnout.data.partition.iid import Iid
from turnout.data.partition.k_labels import KLabels
from turnout.data.partition.one_label import OneLabel
from turnout.data.partition.pareto import Pareto
from turnout.data.partition.shards import Shards

__all__ = ["Dirichlet", "DirichletClient", "Iid", "KLabels", "OneLabel", "Pareto", "Shards"]


@runtime_checkable
class Partition(Protocol):
    """A rule that splits samples across clients."""

    def split(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[Ids]:
        """Return the positions of each client's samples, one array per client."""
        ...
