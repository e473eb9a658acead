"""Everything that reads a stranger's bytes, as functions of bytes: for the tests here and for benchmarks/fuzz.py.

A reader may succeed or raise a TurnoutError. Anything else is a finding.
"""

import io
import shutil
import sqlite3
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch

from tests.support.report_journals import held, write
from turnout.analysis.compare import compare
from turnout.checkpoint import CheckpointStore, LastModel, Stored, read_model
from turnout.coordinator import State
from turnout.data.cifar10 import parse_batch
from turnout.data.femnist import parse_leaf
from turnout.data.files import Archive, DataSet, File, read
from turnout.data.hapt import read_npz
from turnout.data.idx import parse_idx
from turnout.errors import TurnoutError
from turnout.fleet.recordings import read_recording
from turnout.fleet.trace_files import read_trace
from turnout.journal import load
from turnout.journal.codec import decode_clients, decode_counts, decode_floats, decode_ids, encode_ids
from turnout.journal.schema import FILE
from turnout.report import write_report
from turnout.row_table import RowTable
from turnout.study import load_study
from turnout.ui.events import event
from turnout.ui.live_study import live_study
from turnout.ui.pages import list_page, live_page, row
from turnout.ui.study_summary import StudySummary, summary_of

Reader = Callable[[bytes, Path], object]  # (bytes, an empty folder to write them to)

WANTED = (File(name="a.bin", size=5), File(name="b.bin", size=9, digest=f"sha256:{sha256(b'123456789').hexdigest()}"))
PACKED = DataSet(
    title="Packed", folders=("packed",), archive=Archive(url="https://x.invalid/packed", inner="in", max_bytes=50_000)
)


def _written(data: bytes, folder: Path, name: str) -> Path:
    file = folder / name
    file.write_bytes(data)
    return file


def read_study(data: bytes, folder: Path) -> object:
    """Read a study file."""
    return load_study(_written(data, folder, "study.toml"))


def read_csv(data: bytes, folder: Path) -> object:
    """Read a trace."""
    return read_trace(_written(data, folder, f"{sha256(data).hexdigest()[:16]}.csv"))


def read_phones(data: bytes, folder: Path) -> object:
    """Read a published recording."""
    return read_recording(_written(data, folder, "recording.json"))


def read_idx(data: bytes, folder: Path) -> object:
    """Read the images of MNIST and its relatives."""
    return parse_idx(data, "images")


def read_cifar(data: bytes, folder: Path) -> object:
    """Read a batch of CIFAR-10."""
    return parse_batch(data, "data_batch_1.bin")


def read_leaf(data: bytes, folder: Path) -> object:
    """Read a file of LEAF's."""
    return parse_leaf(data, "all_data_0.json")


def read_arrays(data: bytes, folder: Path) -> object:
    """Read packed arrays."""
    return read_npz(_written(data, folder, "hapt_raw.npz"))


def read_blob(data: bytes, folder: Path) -> object:
    """Read each kind of bytes that a journal holds."""
    count, blob = int.from_bytes(data[:2], "big"), data[2:]
    found: list[object] = []
    decoders: tuple[Callable[[bytes], object], ...] = (
        lambda b: decode_ids(b, count),
        lambda b: decode_clients(b, count, len(b) // 21),
        decode_counts,
        lambda b: decode_floats(b, len(b) // 8),
    )
    for decode in decoders:
        try:
            found.append(decode(blob))
        except Exception as error:
            found.append(error)
    errors = [each for each in found if isinstance(each, Exception)]
    for error in errors:  # type: ignore[misc]
        if type(error).__name__ != "JournalError":  # type: ignore[misc]
            raise error  # type: ignore[misc]
    return found


def read_archive(data: bytes, folder: Path) -> object:
    """Unpack the files of a data set."""
    _written(data, folder, "packed")
    return read(PACKED, WANTED, str(folder))


COLUMNS = {
    "study": ("name", "config", "facts"),
    "arm": ("name", "position"),
    "run": ("arm", "seed", "rounds", "config", "facts", "status", "started", "ended", "sizes", "model"),
    "round": ("round", "evaluated", "loss", "accuracy", "metrics", "num_clients", "up_count", "asked_count",
              "answered_count", "bytes_down", "sim_seconds", "wall_seconds", "events", "rejected", "up", "clients",
              "counted", "kept", "reused", "client_accuracy", "client_loss"),
}  # fmt: skip
PLACES = [(table, column) for table, columns in COLUMNS.items() for column in columns]
KINDS = 5
PAGE = Path(mkdtemp()) / "page.html"


@lru_cache(maxsize=2)
def journal_folder(finished: bool) -> Path:
    """Return a small study's folder, as turnout writes it."""
    return write(Path(mkdtemp()) / "phones", seeds=2, rounds=2, finished=finished, holdings=held())


def change_cells(folder: Path, changes: Iterable[tuple[tuple[str, str], Any, bool]]) -> None:
    """Put values into a journal: in one row of a table, or in all of them."""
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        for (table, column), value, all_rows in changes:
            where = "1" if all_rows else f"rowid = (SELECT max(rowid) FROM {table})"
            with suppress(sqlite3.IntegrityError, OverflowError):
                database.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {where}", (value,))


def _changes(data: bytes) -> Iterator[tuple[tuple[str, str], Any, bool]]:
    """Read bytes as a list of: a place, a kind of value and whether for all rows, a length, the value."""
    while len(data) >= 3:
        place, kind, length = data[:3]
        value, data = data[3 : 3 + length], data[3 + length :]
        number = value[:8].ljust(8, b"\0")
        made: tuple[Any, ...] = (
            None,
            int.from_bytes(number, "big", signed=True),
            struct.unpack(">d", number)[0],
            value.decode(errors="replace"),
            value,
        )
        yield PLACES[place % len(PLACES)], made[kind % KINDS], kind >= 128


def changed(place: tuple[str, str], value: float | str, *, all_rows: bool = False) -> bytes:
    """Return the bytes that put a number or a text into a journal."""
    kind, packed = (3, value.encode()) if isinstance(value, str) else (2, struct.pack(">d", value))
    return bytes((PLACES.index(place), kind + (130 if all_rows else 0), len(packed))) + packed


def read_line(data: bytes, folder: Path) -> object:
    """Show a journal with some cells changed in the list of `turnout ui`; the first byte says whether it is over."""
    return _with_changes(data, folder, _line)


def read_pages(data: bytes, folder: Path) -> object:
    """Show such a journal on every page."""
    return _with_changes(data, folder, pages_of)


def read_database(data: bytes, folder: Path) -> object:
    """Show a journal whose file has these bytes on every page."""
    mine = folder / "theirs"
    mine.mkdir()
    try:
        _written(data, mine, FILE)
        return pages_of(mine)
    finally:
        shutil.rmtree(mine)


def _with_changes(data: bytes, folder: Path, show: Callable[[Path], object]) -> object:
    mine = folder / "theirs"
    shutil.copytree(journal_folder(data[:1] != b"r"), mine)
    try:
        change_cells(mine, _changes(data[1:]))
        return show(mine)
    finally:
        shutil.rmtree(mine)


def _line(folder: Path) -> StudySummary:
    line = summary_of("theirs", folder)
    list_page(folder, "0", [line])
    event("all", {"rows": [row(line)]})
    return line


def _live(folder: Path) -> None:
    found = live_study(folder)
    live_page(summary_of("theirs", folder), found)
    event("look", {"data": found.data})


def pages_of(folder: Path) -> StudySummary:
    """Show a journal on every page of `turnout ui`, in a comparison and in a report, or refuse to."""
    line = _line(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of losses of 1e300 is a note, not a failure
        for show in (_live, lambda folder: compare(load(folder)), lambda folder: write_report([folder], PAGE)):
            with suppress(TurnoutError):
                show(folder)
    return line


def _small_file() -> bytes:
    """Return the file of a journal in the smallest pages that SQLite has."""
    file = Path(mkdtemp()) / FILE
    with closing(sqlite3.connect(journal_folder(False) / FILE)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("PRAGMA page_size = 512")
        database.execute("VACUUM INTO ?", (str(file),))
    return file.read_bytes()


def _state() -> State:
    """Return a state with every kind of thing that a rule may remember."""
    like = torch.arange(3.0)
    table = RowTable(4, like)
    table.put(np.array([1, 3]), torch.ones(2, 3))
    kinds = {"tensor": like, "array": np.arange(3), "number": np.float64(0.5), "table": table, "value": {"a": [1, "b"]}}
    return State(model=like, buffers=torch.zeros(2), measured=like, last_losses=np.zeros(4), aggregation=kinds)


def read_checkpoint(data: bytes, folder: Path) -> object:
    """Take a run up from a file."""
    kept = folder / "checkpoints"
    kept.mkdir()
    try:
        stored = Stored(f"checkpoints/{_written(data, kept, '0-1.safetensors').name}", "", len(data))
        return CheckpointStore(folder, 0, [stored]).restore({1: _state()})
    finally:
        shutil.rmtree(kept)


def _checkpoint() -> bytes:
    folder = Path(mkdtemp())
    return (folder / CheckpointStore(folder, 0).save(1, {1: _state()}, {}).files[0].name).read_bytes()


def read_last_model(data: bytes, folder: Path) -> object:
    """Read the last model of a run from a file."""
    kept = folder / "models"
    kept.mkdir()
    try:
        return read_model(folder, f"models/{_written(data, kept, '0-1.safetensors').name}", 1)
    finally:
        shutil.rmtree(kept)


def _last_model() -> bytes:
    tensors = {"0.weight": torch.ones(2, 3), "0.bias": torch.zeros(2), "count": torch.tensor(4)}
    folder, last = Path(mkdtemp()), LastModel(tensors=tensors, example_shape=(3,), num_outputs=2)
    stored = CheckpointStore(folder, 0).save(1, {}, {1: last}).models
    assert stored is not None
    return (folder / stored.name).read_bytes()


READERS: dict[str, Reader] = {
    "study": read_study,
    "trace": read_csv,
    "recording": read_phones,
    "idx": read_idx,
    "cifar": read_cifar,
    "leaf": read_leaf,
    "arrays": read_arrays,
    "journal": read_blob,
    "archive": read_archive,
    "checkpoint": read_checkpoint,
    "model": read_last_model,
    "line": read_line,
    "pages": read_pages,
    "database": read_database,
}


def _zip(compression: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as bundle:
        bundle.writestr("in/a.bin", b"12345")
        bundle.writestr("in/b.bin", b"123456789")
    return out.getvalue()


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as bundle:
        for name, content in (("in/a.bin", b"12345"), ("in/b.bin", b"123456789")):
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = len(content), {"comment": "é"}
            bundle.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _npz() -> bytes:
    out = io.BytesIO()
    whole = np.arange(4)
    signal = np.ones((4, 6), dtype=np.int16)
    np.savez_compressed(out, signal=signal, scale=np.ones(6), label=whole, user=whole, experiment=whole)
    return out.getvalue()


STUDY = b"""name = "small"
rounds = 3
seeds = [1, 2]
target = { accuracy = 0.5 }
data = { use = "digits", clients = 12, partition = { use = "dirichlet", concentration = 0.1 } }
model = { use = "mlp", hidden = [8] }
[local]
lr = 0.1
epochs = [1, 2]
[selection]
use = "power-of-choice"
cohort_size = 2
pool_size = 4
[[arm]]
name = "FedNova"
recipe = "fednova"
[[arm]]
name = 'own'
server = "turnout.server:SGD"
fleet.availability.prob = 5e-1
fleet.availability.use = "bernoulli"
"""

CHANGES = (
    b"f",
    b"r" + changed(("round", "accuracy"), 0.5) + changed(("run", "started"), "2024-01-01", all_rows=True),
    b"f" + changed(("study", "config"), '{"seeds": [1, 2], "arm": [{"rounds": 3}]}'),
)

GOOD: dict[str, tuple[bytes, ...]] = {
    "study": (STUDY,),
    "trace": (b"client,start,end,state\n0,0,1800,up\n0,1800,9e3,down\n1,600,4200,evaluate\n",),
    "recording": (
        b'{"horizon_s": 900, "devices": [{"two_state": [[0, 1], [400, 0], [500, 1]]}, {"two_state": [[310.5, 1]]}]}',
        b'{"horizon_s": 900, "devices": [{"unavailable": [[0, 10], [5, 20]]}, {"unavailable": []}]}',
    ),
    "idx": (
        b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (1, 2, 2)) + b"abcd",
        b"\0\0\x0c\x01\0\0\0\x01" + b"\xff\0\0\1",
    ),
    "cifar": (b"\x01" + bytes(3072),),
    "leaf": (
        b'{"users": ["f0"], "num_samples": [1], "user_data": {"f0": {"x": [[' + b"0.5, " * 783 + b'1]], "y": [61]}}}',
    ),
    "arrays": (_npz(),),
    "journal": tuple(
        (300).to_bytes(2, "big") + blob
        for blob in (
            encode_ids(np.arange(300), 300),
            encode_ids(np.arange(0, 300, 2), 300),
            encode_ids(np.array([7, 299]), 300),
            encode_ids(np.arange(1, 300), 300),
            bytes((0, 3, 1, 5, 4, 1)) + np.array([0.5, 1.0]).tobytes(),
        )
    ),
    "checkpoint": (_checkpoint(),),
    "model": (_last_model(),),
    "line": CHANGES,
    "pages": CHANGES,
    "database": (_small_file(),),
    "archive": (*map(_zip, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)), _tar()),
}
