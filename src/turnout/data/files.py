"""Files of published data sets: finds or downloads them, unpacks them and verifies their bytes.

The search order is: the folder that the user names, the folder in the environment variable TURNOUT_DATA, and the cache
(TURNOUT_CACHE, or turnout's folder in the user's cache). A file in none of them is downloaded under a temporary name,
and renamed once its unpacked bytes have the published size and digest. No file is trusted: archives are read in memory
by member name and never unpacked to disk, and reading stops at the size that the file should have.
"""

import gzip
import hashlib
import io
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO, Protocol, TypeVar
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from turnout.errors import DataError

T = TypeVar("T")

CHUNK_BYTES = 1 << 18
TIMEOUT_SECONDS = 30.0
CORRUPT = (EOFError, zlib.error, gzip.BadGzipFile)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a data set."""

    name: str
    size: int  # number of unpacked bytes
    digest: str | None = None  # digest of the unpacked bytes: "sha256:…" or "md5:…"
    url: str | None = None  # address of this file alone, plain or as .gz


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """One archive that holds all the files of a data set."""

    url: str
    inner: str  # folder inside the archive
    max_bytes: int  # upper bound of the size of the archive, packed and unpacked
    digest: str | None = None  # digest of the archive, if the digests of its files are not published

    @property
    def name(self) -> str:
        """File name of the archive."""
        return PurePosixPath(self.url).name


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Title, folder names and download of a data set."""

    title: str
    folders: tuple[str, ...]  # possible names of its folder; the cache uses the first
    archive: Archive | None = None
    advice: str = ""  # how to obtain files that turnout does not download


class _BrokenError(Exception):
    """A file or a download is damaged or is another file; callers turn this into a DataError."""


def places(dataset: DataSet, folder: str | None) -> list[Path]:
    """Return the folders to search, in order: the user's folder, TURNOUT_DATA, the cache."""
    if folder is not None and not Path(folder).expanduser().is_dir():
        raise DataError(
            f"data.folder must be a folder that exists; {folder} is not one. "
            f"Correct it, or leave it out to look in TURNOUT_DATA and the cache."
        )
    roots = [Path(root).expanduser() for root in (folder, os.environ.get("TURNOUT_DATA")) if root]
    folders = [place for root in roots for place in (*(root / name for name in dataset.folders), root)]
    folders.append(cache_folder(dataset))
    return list(dict.fromkeys(folders))


def cache_folder(dataset: DataSet) -> Path:
    """Return the folder for downloads of this data set."""
    own = os.environ.get("TURNOUT_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(own) if own else Path(shared) / "turnout").expanduser() / dataset.folders[0]


def locate(name: str, where: Sequence[Path]) -> Path | None:
    """Return the first file of this name, plain or as .gz."""
    candidates = (place / variant for place in where for variant in (name, f"{name}.gz"))
    return next((path for path in candidates if path.is_file()), None)


def find_folder(dataset: DataSet, folder: str | None, *, needs: str, holds: Callable[[Path], bool]) -> Path:
    """Return the first folder that satisfies `holds`, for data sets that are a folder of files."""
    where = places(dataset, folder)
    for place in where:
        if holds(place):
            return place
    raise missing(dataset, needs, where)


def missing(dataset: DataSet, needs: str, where: Sequence[Path], reason: str = "") -> DataError:
    """Return the error for a file that was not found in any folder."""
    looked = ", ".join(str(place) for place in where)
    unset = "" if os.environ.get("TURNOUT_DATA") else " (TURNOUT_DATA is not set)"
    advice = f" {dataset.advice}" if dataset.advice else ""
    return DataError(
        f"{dataset.title} needs {needs}; it was not found{reason}. Looked in: {looked}{unset}.{advice} "
        f"Put it in a folder named {dataset.folders[0]} and name that folder, or the one above it, in data.folder "
        f"or in TURNOUT_DATA."
    )


def read(dataset: DataSet, files: Sequence[File], folder: str | None = None) -> dict[str, bytes]:
    """Return the verified, unpacked bytes of each file by name; download files that are in none of the folders."""
    where = places(dataset, folder)
    content: dict[str, bytes] = {}
    lacking: list[File] = []
    for file in files:
        path = locate(file.name, where)
        if path is None:
            lacking.append(file)
        else:
            content[file.name] = _read_local(dataset, path, partial(_read_file, file=file))
    if not lacking:
        return content
    if dataset.archive is not None:
        return content | _from_archive(dataset, dataset.archive, lacking, where)
    return content | {file.name: _from_url(dataset, file, where) for file in lacking}


def _read_local(dataset: DataSet, path: Path, unpack: Callable[[Path], T]) -> T:
    try:
        return unpack(path)
    except (_BrokenError, OSError) as error:
        raise DataError(
            f"{dataset.title}: {path} is damaged or is another file: {error}. "
            "Replace it, or remove it to use another copy."
        ) from error


def _from_url(dataset: DataSet, file: File, where: Sequence[Path]) -> bytes:
    if file.url is None:
        raise missing(dataset, file.name, where)
    target = cache_folder(dataset) / PurePosixPath(file.url).name
    url, limit = file.url, _packed_limit(file)
    return _fetch(dataset, file.name, where, lambda: download(url, target, limit, partial(_read_file, file=file)))


def _from_archive(dataset: DataSet, archive: Archive, files: Sequence[File], where: Sequence[Path]) -> dict[str, bytes]:
    path = next((place / archive.name for place in where if (place / archive.name).is_file()), None)
    if path is not None:
        return _read_local(dataset, path, lambda local: _members(local, archive, files))
    target = cache_folder(dataset) / archive.name

    def check(downloaded: Path) -> dict[str, bytes]:
        if archive.digest is not None:
            _verify_file(downloaded, archive.digest)
        return _members(downloaded, archive, files)

    needs = ", ".join(file.name for file in files)
    return _fetch(dataset, needs, where, lambda: download(archive.url, target, archive.max_bytes, check))


def _fetch(dataset: DataSet, needs: str, where: Sequence[Path], fetch: Callable[[], T]) -> T:
    try:
        return fetch()
    except (_BrokenError, OSError, HTTPException) as error:
        raise missing(dataset, needs, where, reason=f" and the download failed ({error})") from error


# ------------------------------------------------------------------------------------------------ download


def download(url: str, target: Path, limit: int, check: Callable[[Path], T]) -> T:
    """Download to a temporary name, run `check`, rename the file to `target`, and return the result of `check`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            _stream(url, out, limit)
            out.flush()
            os.fsync(out.fileno())
        try:
            result = check(temporary)
        except _BrokenError as error:
            raise _BrokenError(f"{url} sent another file: {error}; it was discarded") from error
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return result


def _stream(url: str, out: BinaryIO, limit: int) -> None:
    """Download to a file, with a progress bar on a terminal and one line of output elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    if not console.is_terminal:
        console.print(f"Downloading {url}", highlight=False, soft_wrap=True)
    request = Request(url, headers={"User-Agent": "turnout"})
    with (
        urlopen(request, timeout=TIMEOUT_SECONDS) as answer,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        length = answer.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
        bar = progress.add_task(PurePosixPath(url).name, total=total)
        received = 0
        while chunk := answer.read(CHUNK_BYTES):
            received += len(chunk)
            if received > limit:
                raise _BrokenError(f"{url} sent more than the limit of {limit:,} bytes; the download was discarded")
            out.write(chunk)
            progress.update(bar, completed=received)
    if total is not None and received != total:
        raise _BrokenError(f"{url} ended after {received:,} of {total:,} bytes; the download was discarded")


# ------------------------------------------------------------------------------------------------ unpack, verify


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _Bounded:
    """A reader that raises _BrokenError beyond its limit of bytes, against decompression bombs."""

    def __init__(self, stream: _Readable, limit: int) -> None:
        self.stream, self.limit, self.left = stream, limit, limit

    def read(self, size: int = -1, /) -> bytes:
        data = self.stream.read(self.left + 1 if size < 0 else min(size, self.left + 1))
        self.left -= len(data)
        if self.left < 0:
            raise _BrokenError(f"it unpacks to more than {self.limit:,} bytes")
        return data


def _read_file(path: Path, file: File) -> bytes:
    """Return the verified bytes of a file that may be gzipped."""
    with path.open("rb") as stream:
        return _verified(_unzipped(stream, file.size), file)


def _unzipped(stream: BinaryIO, limit: int) -> bytes:
    """Return all bytes of a stream, unpacked if it starts with the magic bytes of gzip."""
    packed = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    if not packed:
        return _Bounded(stream, limit).read()
    try:
        with gzip.open(stream) as unpacked:
            return _Bounded(unpacked, limit).read()
    except CORRUPT as error:
        raise _BrokenError(f"its compressed data is truncated or corrupt ({error})") from error


def _verified(data: bytes, file: File) -> bytes:
    if len(data) != file.size:
        raise _BrokenError(f"{file.name} should have {file.size:,} bytes unpacked but has {len(data):,}")
    if file.digest is not None:
        kind, _, expected = file.digest.partition(":")
        actual = hashlib.new(kind, data, usedforsecurity=False).hexdigest()
        if actual != expected:
            raise _BrokenError(f"{file.name} should have {kind} {expected} unpacked but has {actual}")
    return data


def _verify_file(path: Path, digest: str) -> None:
    kind, _, expected = digest.partition(":")
    with path.open("rb") as stream:
        actual = hashlib.file_digest(stream, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
    if actual != expected:
        raise _BrokenError(f"the archive should have {kind} {expected} but has {actual}")


def _members(path: Path, archive: Archive, files: Sequence[File]) -> dict[str, bytes]:
    """Return the verified bytes of the archive's members; each member may be gzipped."""
    wanted = {f"{archive.inner}/{file.name}{end}": file for file in files for end in ("", ".gz")}
    try:
        zipped = zipfile.is_zipfile(path)
        packed = _from_zip(path, wanted) if zipped else _from_tar(path, wanted, archive.max_bytes)
    except _BrokenError:
        raise
    except Exception as error:  # zipfile, tarfile and zlib each raise their own errors
        if isinstance(error, OSError) and not isinstance(error, CORRUPT):
            raise  # an error of the disk, not of the archive
        raise _BrokenError(f"the archive is corrupt ({type(error).__name__}: {error})") from error
    lacking = [file.name for file in files if file.name not in packed]
    if lacking:
        raise _BrokenError(f"the archive has no {', '.join(lacking)} in {archive.inner}/")
    return packed


def _from_zip(path: Path, wanted: dict[str, File]) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    with zipfile.ZipFile(path) as bundle:
        for member in bundle.infolist():
            _check_name(member.filename)
            file = wanted.get(member.filename)
            if file is not None:
                with bundle.open(member) as stream:
                    members[file.name] = _member(stream, file)
    return members


def _from_tar(path: Path, wanted: dict[str, File], limit: int) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    with path.open("rb") as raw, gzip.open(raw) as unpacked:
        stream = _Bounded(unpacked, limit)
        with tarfile.open(fileobj=stream, mode="r|") as bundle:  # type: ignore[call-overload]
            for member in bundle:
                _check_name(member.name)
                file = wanted.get(member.name)
                content = bundle.extractfile(member) if file is not None and member.isreg() else None
                if file is not None and content is not None:
                    members[file.name] = _member(content, file)
    return members


def _member(stream: _Readable, file: File) -> bytes:
    """Return the verified bytes of one member, which may be gzipped inside the archive."""
    packed = _Bounded(stream, _packed_limit(file)).read()
    return _verified(_unzipped(io.BytesIO(packed), file.size), file)


def _packed_limit(file: File) -> int:
    return file.size + file.size // 8 + 1024  # gzip makes incompressible data slightly larger


def _check_name(name: str) -> None:
    """Raise if the name of a member would lead outside the folder that the archive is unpacked in."""
    path = PureWindowsPath(name)  # understands both slashes, and drive letters
    if path.anchor or ".." in path.parts:
        raise _BrokenError(f"the archive holds the unsafe path {name!r}, so it is not the published archive")
