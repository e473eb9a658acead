"""Saving the runs that advance together, and taking them up again.

One file holds the state of all of them. Of a table of rows only those that have changed since the last file are
written; the files before it then still count, oldest first. When all of them together would take twice what a whole
one takes, or a table has been replaced, a whole one is written and the others go.

Nothing that counts is ever overwritten: a new file is written, the journal is told, and only then do the old ones go.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Ids
from turnout.checkpoint.files import DTYPES, NAME, Piece, Stored, about_of, located, opened, write
from turnout.checkpoint.last_model import LastModel, described, pieces_of
from turnout.coordinator.plan import State
from turnout.coordinator.saving import restored, saved, tables_of
from turnout.row_table import RowTable
from turnout.safe_files import ASIDE, is_own_folder
from turnout.untrusted_input import as_written

FOLDER, MODELS = "checkpoints", "models"
BLOCK_BYTES = 64 << 20  # of a table, in memory at once
MOST_FILES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """What the journal is told of a save."""

    party: int
    round: int
    files: tuple[Stored, ...]  # what is needed to go on, oldest first; none when all runs have ended
    models: Stored | None = None  # the last models of the runs that have just ended
    ended: tuple[int, ...] = ()


class CheckpointStore:
    """Keeps one party of runs: those that advance together."""

    def __init__(self, folder: Path, party: int, files: Sequence[Stored] = ()) -> None:
        self.folder, self.party, self.files = folder, party, tuple(files)
        self._known: dict[str, weakref.ref[RowTable]] = {}  # the tables as the files have them
        self._written: dict[str, RowTable] = {}

    def save(self, round: int, going_on: Mapping[int, State], ended: Mapping[int, LastModel]) -> Save:
        """Write the states of the runs that go on, and the models of those that have ended; by the run's id."""
        models = None
        if ended:
            name, about = _name(MODELS, self.party, round), {"runs": described(ended)}
            models = write(self.folder, name, list(pieces_of(ended)), about)
        files: tuple[Stored, ...] = ()
        self._written = _all_tables(going_on)
        if going_on:
            files = self._write(round, going_on)
        return Save(party=self.party, round=round, files=files, models=models, ended=tuple(ended))

    def _write(self, round: int, states: Mapping[int, State]) -> tuple[Stored, ...]:
        pieces, about = [], {}
        for run, state in states.items():
            tensors, about[str(run)] = saved(state)
            pieces += [Piece.of(f"{run}/{name}", tensor) for name, tensor in tensors.items()]
        whole = [piece for name, table in self._written.items() for piece in _row_pieces(name, table, table.seen)]
        part = [piece for name, table in self._written.items() for piece in _row_pieces(name, table, table.changed)]
        small, name = sum(piece.bytes for piece in pieces), _name(FOLDER, self.party, round)
        before = self.files if self._can_add(small + _bytes(part), small + _bytes(whole)) else ()
        new = write(self.folder, name, [*pieces, *(part if before else whole)], {"round": round, "runs": about})
        return (*before, new)

    def _can_add(self, part: int, whole: int) -> bool:
        """Whether the changes can be added to the files there are."""
        same = all(name in self._known and self._known[name]() is table for name, table in self._written.items())
        room = len(self.files) < MOST_FILES and sum(file.bytes for file in self.files) + part < 2 * whole
        return bool(self.files and self._written) and same and room

    def settle(self, save: Save) -> None:
        """Let go of what the journal no longer needs; called once it has been told."""
        for table in self._written.values():
            table.changed[:] = False
        self._known = {name: weakref.ref(table) for name, table in self._written.items()}
        self._written = {}
        kept = {file.name for file in save.files}
        for file in self.files:
            if file.name not in kept:
                located(self.folder, file.name).unlink(missing_ok=True)
        self.files = save.files

    def restore(self, starts: Mapping[int, State]) -> dict[int, State]:
        """Return the states that were saved last, by the run's id; `starts` has what each run began with.

        A file may come from a stranger who has signed it in the journal: what could not follow that start is refused.
        """
        last = self.files[-1].name
        with as_written(str(self.folder / last)):
            states = self._states(last, starts)
            tables = _all_tables(states)
        for stored in self.files:
            with opened(self.folder, stored.name) as file, as_written(str(self.folder / stored.name)):
                _fill(tables, file)
        for table in tables.values():
            table.changed[:] = False
        self._known = {name: weakref.ref(table) for name, table in tables.items()}
        return states

    def _states(self, name: str, starts: Mapping[int, State]) -> dict[int, State]:
        with opened(self.folder, name) as file:
            rests = about_of(file)["runs"]
            tensors: dict[str, dict[str, Tensor]] = {str(run): {} for run in starts}
            for key in file.keys():  # noqa: SIM118
                run, _, part = key.partition("/")
                if not part.startswith("rows:"):
                    device = starts[int(run)].model.device
                    tensors[run][part] = file.get_tensor(key).clone().to(device)  # its own memory, aligned
        return {run: restored(tensors[str(run)], rests[str(run)], start) for run, start in starts.items()}


def clean(folder: Path, wanted: set[str]) -> None:
    """Remove what a killed process left behind: files of turnout's that the journal does not know, and links."""
    for inner in (FOLDER, MODELS):
        if not is_own_folder(folder / inner):
            continue
        for path in sorted((folder / inner).iterdir()):
            name = f"{inner}/{path.name}"
            is_ours = NAME.fullmatch(name.removesuffix(ASIDE)) is not None
            if is_ours and name not in wanted and (path.is_symlink() or path.is_file()):
                path.unlink()


def _name(folder: str, party: int, round: int) -> str:
    return f"{folder}/{party}-{round}.safetensors"


def _bytes(pieces: Sequence[Piece]) -> int:
    return sum(piece.bytes for piece in pieces)


def _all_tables(states: Mapping[int, State]) -> dict[str, RowTable]:
    return {f"{run}/rows:{name}": table for run, state in states.items() for name, table in tables_of(state).items()}


def _row_pieces(name: str, table: RowTable, which: Ids) -> Iterator[Piece]:
    ids = np.flatnonzero(which)
    yield Piece.of(f"{name}.ids", torch.from_numpy(ids))
    yield Piece(f"{name}.rows", table.dtype, (len(ids), table.size), Blocks(ids, table.size * 8, table.take))


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows, a block at a time; may be gone through more than once."""

    ids: Ids
    row_bytes: int
    take: Callable[[Ids], Tensor]

    def __iter__(self) -> Iterator[Tensor]:
        for some in _blocks(len(self.ids), self.row_bytes):
            yield self.take(self.ids[some])


def _fill(tables: Mapping[str, RowTable], file: Any) -> None:
    """Put the rows of a file into their tables, a block at a time."""
    for name, table in tables.items():
        if f"{name}.ids" in file.keys():  # noqa: SIM118
            ids, rows = file.get_tensor(f"{name}.ids").numpy().copy(), file.get_slice(f"{name}.rows")
            _check_rows(table, ids, rows)
            for some in _blocks(len(ids), table.size * 8):
                table.put(ids[some], rows[some].to(table.device))


def _check_rows(table: RowTable, ids: Ids, rows: Any) -> None:
    fit = ids.dtype == np.int64 and ids.ndim == 1 and (len(ids) == 0 or (ids.min() >= 0 and ids.max() < table.num_rows))
    if not fit or rows.get_shape() != [len(ids), table.size] or rows.get_dtype() != DTYPES[table.dtype]:
        raise ValueError(f"rows that do not fit a table of {table.num_rows} × {table.size}")


def _blocks(count: int, row_bytes: int) -> Iterator[slice]:
    size = max(1, BLOCK_BYTES // max(row_bytes, 1))
    return (slice(at, min(at + size, count)) for at in range(0, count, size))
