"""Files of tensors, written atomically: safetensors with a JSON value in the header.

Tensors are written in blocks, so a table of gigabytes is never in memory twice. Reading a file runs no code.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from turnout.errors import JournalError
from turnout.safe_files import is_own_file, is_own_folder, make_inner_folder, written

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
ABOUT = "turnout"  # the key of the JSON value
NAME = re.compile(r"(checkpoints|models)/\d+-\d+\.safetensors")  # no other file is ever opened or removed
READ_BYTES = 1 << 20


class Stored(NamedTuple):
    """A file as the journal records it: name, checksum, size."""

    name: str  # within the study's folder
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor to be written, in blocks along its first dimension."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    blocks: Iterable[Tensor]

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> "Piece":
        """Return a tensor as one piece."""
        return cls(name, tensor.dtype, tuple(tensor.shape), (tensor,))

    @property
    def bytes(self) -> int:
        """How many bytes it takes."""
        return self.dtype.itemsize * int(torch.Size(self.shape).numel())


def write(folder: Path, name: str, pieces: Sequence[Piece], about: dict[str, Any]) -> Stored:
    """Write a file, and return its name, checksum and size; the file is on disk when this returns."""
    path = folder / name
    try:
        make_inner_folder(path.parent)
        is_own_file(path)
        with written(path) as file:
            digest, size = _write_parts(file, pieces, about)
    except OSError as error:
        raise JournalError(
            f"{path} cannot be written: {error.strerror or error}. The last checkpoint is kept. "
            "Free some space or check the permissions of the folder, and go on with turnout resume."
        ) from error
    return Stored(name, digest, size)


def _write_parts(file: BinaryIO, pieces: Sequence[Piece], about: dict[str, Any]) -> tuple[str, int]:
    digest, size = sha256(), 0
    for part in _parts(pieces, about):
        file.write(part)
        digest.update(part)
        size += len(part)
    return digest.hexdigest(), size


def _parts(pieces: Sequence[Piece], about: dict[str, Any]) -> Iterator[bytes | memoryview]:
    header: dict[str, Any] = {"__metadata__": {ABOUT: json.dumps(about)}}
    at = 0
    for piece in pieces:
        offsets = [at, at + piece.bytes]
        header[piece.name] = {"dtype": DTYPES[piece.dtype], "shape": list(piece.shape), "data_offsets": offsets}
        at += piece.bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # data starts at a multiple of eight
    yield len(text).to_bytes(8, "little")
    yield text
    for piece in pieces:
        for block in piece.blocks:
            if block.numel():
                yield block.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data


def verify(folder: Path, stored: Stored) -> None:
    """Raise unless the file is there and is what the journal says it is."""
    path = located(folder, stored.name)
    if not path.is_file():
        raise JournalError(
            f"{folder} has lost {stored.name}, which its journal needs; nothing was changed. "
            "Bring the file back, or run the study again in another output folder."
        )
    digest = sha256()
    with open(path, "rb") as file:
        while part := file.read(READ_BYTES):
            digest.update(part)
    if path.stat().st_size != stored.bytes or digest.hexdigest() != stored.sha256:
        raise JournalError(
            f"{path} is not as it was written (its checksum differs); nothing was changed. "
            "Bring back a good copy, or run the study again in another output folder."
        )


def located(folder: Path, name: str) -> Path:
    """Return the path of a file; raise if the name is not one of turnout's or leads out of the folder."""
    path = folder / name
    if not NAME.fullmatch(name):
        raise JournalError(
            f"The journal in {folder} names a file {name!r} that turnout does not write; nothing was changed. "
            "Run the study again in another output folder."
        )
    is_own_folder(path.parent)
    is_own_file(path)
    return path


@contextmanager
def opened(folder: Path, name: str) -> Iterator[Any]:
    """Open a file, to read single tensors of it."""
    path = located(folder, name)
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise JournalError(f"{path} cannot be read: {error}. Bring back a good copy.") from error


def about_of(file: Any) -> dict[str, Any]:
    """Return the JSON value of an open file."""
    about: dict[str, Any] = json.loads((file.metadata() or {})[ABOUT])
    return about


def tensors_of(folder: Path, name: str, prefix: str) -> dict[str, Tensor]:
    """Return copies of the tensors whose names start with the prefix, by name without it."""
    with opened(folder, name) as file:
        names = [key for key in file.keys() if key.startswith(prefix)]  # noqa: SIM118
        return {key.removeprefix(prefix): file.get_tensor(key).clone() for key in names}
