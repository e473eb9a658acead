"""Everything that reads a stranger's bytes, as functions of bytes: for the tests here and for benchmarks/fuzz.py.

A reader may succeed or raise a TurnoutError. Anything else is a finding.
"""

import io
import tarfile
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np

from turnout.data.cifar10 import parse_batch
from turnout.data.femnist import parse_leaf
from turnout.data.files import Archive, DataSet, File, read
from turnout.data.hapt import read_npz
from turnout.data.idx import parse_idx
from turnout.fleet.recordings import read_recording
from turnout.fleet.trace_files import read_trace
from turnout.journal.codec import decode_clients, decode_counts, decode_floats, decode_ids, encode_ids
from turnout.study import load_study

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
    for decode in (lambda b: decode_ids(b, count), lambda b: decode_clients(b, count), decode_counts, decode_floats):
        try:
            found.append(decode(blob))
        except Exception as error:
            found.append(error)
    errors = [each for each in found if isinstance(each, Exception)]
    for error in errors:
        if type(error).__name__ != "JournalError":
            raise error
    return found


def read_archive(data: bytes, folder: Path) -> object:
    """Unpack the files of a data set."""
    _written(data, folder, "packed")
    return read(PACKED, WANTED, str(folder))


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
target = 0.5
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
    "archive": (*map(_zip, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)), _tar()),
}
