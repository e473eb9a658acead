"""Save and restore the checkpoint of a run group: runs that advance together.

One file holds the state of all runs of the group. Of a table of rows, a new file holds only the rows that changed since
the last file; the earlier files are then still needed, oldest first. A full file replaces them when all of them
together would take twice the bytes of a full file, or when a table has been replaced.

A file that is needed is never overwritten: the new file is written, the journal records it, and only then are the old
files deleted.
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
from turnout.checkpoint.last_model import LastModel, describe_models, pieces_of
from turnout.checkpoint.tensor_files import DTYPES, NAME, Piece, Stored, about_of, located, opened, write
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
    """What the journal records of a checkpoint."""

    run_group: int
    round: int
    files: tuple[Stored, ...]  # that are needed to resume, oldest first; empty if all runs have ended
    models: Stored | None = None  # the file with the last models of the runs that have just ended
    ended: tuple[int, ...] = ()  # ids of those runs


class CheckpointStore:
    """Saves and restores one run group."""

    def __init__(self, folder: Path, run_group: int, files: Sequence[Stored] = ()) -> None:
        self.folder, self.run_group, self.files = folder, run_group, tuple(files)
        self._known: dict[str, weakref.ref[RowTable]] = {}  # the tables whose rows the files hold
        self._written: dict[str, RowTable] = {}  # the tables of the save that the journal has yet to record

    def save(self, round: int, going_on: Mapping[int, State], ended: Mapping[int, LastModel]) -> Save:
        """Write the states of the runs that continue and the models of those that ended, both by run id."""
        models = None
        if ended:
            name, about = _name(MODELS, self.run_group, round), {"runs": describe_models(ended)}
            models = write(self.folder, name, list(pieces_of(ended)), about)
        files: tuple[Stored, ...] = ()
        self._written = _all_tables(going_on)
        if going_on:
            files = self._write(round, going_on)
        return Save(run_group=self.run_group, round=round, files=files, models=models, ended=tuple(ended))

    def _write(self, round: int, states: Mapping[int, State]) -> tuple[Stored, ...]:
        pieces, about = [], {}
        for run, state in states.items():
            tensors, about[str(run)] = saved(state)
            pieces += [Piece.of(f"{run}/{name}", tensor) for name, tensor in tensors.items()]
        whole = [piece for name, table in self._written.items() for piece in _row_pieces(name, table, table.seen)]
        part = [piece for name, table in self._written.items() for piece in _row_pieces(name, table, table.changed)]
        small, name = sum(piece.bytes for piece in pieces), _name(FOLDER, self.run_group, round)
        before = self.files if self._can_add(small + _bytes(part), small + _bytes(whole)) else ()
        new = write(self.folder, name, [*pieces, *(part if before else whole)], {"round": round, "runs": about})
        return (*before, new)

    def _can_add(self, part: int, whole: int) -> bool:
        """Return whether a file of changed rows can be added to the existing files."""
        same = all(name in self._known and self._known[name]() is table for name, table in self._written.items())
        room = len(self.files) < MOST_FILES and sum(file.bytes for file in self.files) + part < 2 * whole
        return bool(self.files and self._written) and same and room

    def settle(self, save: Save) -> None:
        """Delete the files that are no longer needed; called once the journal has recorded the save."""
        for table in self._written.values():
            table.changed[:] = False
        self._known = {name: weakref.ref(table) for name, table in self._written.items()}
        self._written = {}
        needed = {file.name for file in save.files}
        for file in self.files:
            if file.name not in needed:
                located(self.folder, file.name).unlink(missing_ok=True)
        self.files = save.files

    def restore(self, starts: Mapping[int, State]) -> dict[int, State]:
        """Return the states that were saved last, by run id; `starts` has the initial state of each run.

        Files and journal may both be untrusted, so a state that does not fit the initial state is refused.
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
    """Remove what a killed process left behind: checkpoint files and links that the journal does not refer to."""
    for inner in (FOLDER, MODELS):
        if not is_own_folder(folder / inner):
            continue
        for path in sorted((folder / inner).iterdir()):
            name = f"{inner}/{path.name}"
            is_ours = NAME.fullmatch(name.removesuffix(ASIDE)) is not None
            if is_ours and name not in wanted and (path.is_symlink() or path.is_file()):
                path.unlink()


def _name(folder: str, run_group: int, round: int) -> str:
    return f"{folder}/{run_group}-{round}.safetensors"


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
    """Rows of a table, one block at a time; can be iterated more than once."""

    ids: Ids
    row_bytes: int
    take: Callable[[Ids], Tensor]

    def __iter__(self) -> Iterator[Tensor]:
        for some in _blocks(len(self.ids), self.row_bytes):
            yield self.take(self.ids[some])


def _fill(tables: Mapping[str, RowTable], file: Any) -> None:
    """Copy the rows of a file into their tables, one block at a time."""
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
