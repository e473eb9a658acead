"""Files of published data sets: find them, or download them; unpack them with care; verify what came out.

A file is looked for in the folder the user names, in the folder of the environment variable TURNOUT_DATA, and in the
cache (TURNOUT_CACHE, or turnout's folder in the user's cache). Only then is it downloaded, to a temporary name; it
gets its own name once its unpacked bytes are those that were published. Nothing from outside is trusted: archives
are read in memory by member name and never unpacked to disk, and no more bytes come out than the file should have.
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
    size: int  # of the unpacked bytes
    digest: str | None = None  # of the unpacked bytes: "sha256:…" or "md5:…"
    url: str | None = None  # where it is published by itself, plain or as .gz


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """One archive that holds all the files of a data set."""

    url: str
    inner: str  # the folder inside the archive
    max_bytes: int  # the archive, and what it unpacks to, are smaller than this
    digest: str | None = None  # of the archive itself; for files whose own digests are not known

    @property
    def name(self) -> str:
        """The archive's own file name."""
        return PurePosixPath(self.url).name


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Where a data set lies and what it is called."""

    title: str
    folders: tuple[str, ...]  # names its folder may have; the first is its name in the cache
    archive: Archive | None = None
    advice: str = ""  # how to get files that cannot be downloaded


class _BrokenError(Exception):
    """Why a file or a download is not what it should be; always turned into a DataError."""


def places(dataset: DataSet, folder: str | None) -> list[Path]:
    """Return every folder to look in, in order: the user's, that of TURNOUT_DATA, the cache."""
    if folder is not None and not Path(folder).expanduser().is_dir():
        raise DataError(
            f"data.folder must be a folder that exists; {folder} is not one. "
            f"Correct it, or leave it out to look in TURNOUT_DATA and the cache."
        )
    roots = [Path(root).expanduser() for root in (folder, os.environ.get("TURNOUT_DATA")) if root]
    found = [place for root in roots for place in (*(root / name for name in dataset.folders), root)]
    found.append(cache_folder(dataset))
    return list(dict.fromkeys(found))


def cache_folder(dataset: DataSet) -> Path:
    """Return the folder that downloads of this data set go to."""
    own = os.environ.get("TURNOUT_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(own) if own else Path(shared) / "turnout").expanduser() / dataset.folders[0]


def locate(name: str, where: Sequence[Path]) -> Path | None:
    """Return the first file of this name, plain or as .gz."""
    candidates = (place / variant for place in where for variant in (name, f"{name}.gz"))
    return next((path for path in candidates if path.is_file()), None)


def find_folder(dataset: DataSet, folder: str | None, *, needs: str, holds: Callable[[Path], bool]) -> Path:
    """Return the first folder that holds what is needed, for data sets that are a folder of files."""
    where = places(dataset, folder)
    for place in where:
        if holds(place):
            return place
    raise missing(dataset, needs, where)


def missing(dataset: DataSet, needs: str, where: Sequence[Path], reason: str = "") -> DataError:
    """Return the one message about a file that is nowhere."""
    looked = ", ".join(str(place) for place in where)
    unset = "" if os.environ.get("TURNOUT_DATA") else " (TURNOUT_DATA is not set)"
    advice = f" {dataset.advice}" if dataset.advice else ""
    return DataError(
        f"{dataset.title} needs {needs}; it was not found{reason}. Looked in: {looked}{unset}.{advice} "
        f"Put it in a folder named {dataset.folders[0]} and name that folder, or the one above it, in data.folder "
        f"or in TURNOUT_DATA."
    )


def read(dataset: DataSet, files: Sequence[File], folder: str | None = None) -> dict[str, bytes]:
    """Return the verified, unpacked bytes of each file, by name; download what is in none of the places."""
    where = places(dataset, folder)
    content: dict[str, bytes] = {}
    lacking: list[File] = []
    for file in files:
        path = locate(file.name, where)
        if path is None:
            lacking.append(file)
        else:
            content[file.name] = _local(dataset, path, partial(_plain, file=file))
    if not lacking:
        return content
    if dataset.archive is not None:
        return content | _from_archive(dataset, dataset.archive, lacking, where)
    return content | {file.name: _from_address(dataset, file, where) for file in lacking}


def _local(dataset: DataSet, path: Path, unpack: Callable[[Path], T]) -> T:
    try:
        return unpack(path)
    except (_BrokenError, OSError) as error:
        raise DataError(
            f"{dataset.title}: {path} is damaged or is another file: {error}. "
            "Replace it, or move it away to have it looked for elsewhere."
        ) from error


def _from_address(dataset: DataSet, file: File, where: Sequence[Path]) -> bytes:
    if file.url is None:
        raise missing(dataset, file.name, where)
    target = cache_folder(dataset) / PurePosixPath(file.url).name
    address, limit = file.url, _packed_limit(file)
    return _fetched(dataset, file.name, where, lambda: download(address, target, limit, partial(_plain, file=file)))


def _from_archive(dataset: DataSet, archive: Archive, files: Sequence[File], where: Sequence[Path]) -> dict[str, bytes]:
    path = next((place / archive.name for place in where if (place / archive.name).is_file()), None)
    if path is not None:
        return _local(dataset, path, lambda found: _members(found, archive, files))
    target = cache_folder(dataset) / archive.name

    def check(downloaded: Path) -> dict[str, bytes]:
        if archive.digest is not None:
            _verify_file(downloaded, archive.digest)
        return _members(downloaded, archive, files)

    needs = ", ".join(file.name for file in files)
    return _fetched(dataset, needs, where, lambda: download(archive.url, target, archive.max_bytes, check))


def _fetched(dataset: DataSet, needs: str, where: Sequence[Path], fetch: Callable[[], T]) -> T:
    try:
        return fetch()
    except (_BrokenError, OSError, HTTPException) as error:
        raise missing(dataset, needs, where, reason=f" and the download failed ({error})") from error


# ------------------------------------------------------------------------------------------------ download


def download(url: str, target: Path, limit: int, check: Callable[[Path], T]) -> T:
    """Download to a temporary name, check, and only then give the file its name; return what check returned."""
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
            raise _BrokenError(f"{url} sent something else: {error}; nothing was kept") from error
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return result


def _stream(url: str, out: BinaryIO, limit: int) -> None:
    """Copy an address to a file, with a bar on a terminal and one line elsewhere."""
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
        came = 0
        while chunk := answer.read(CHUNK_BYTES):
            came += len(chunk)
            if came > limit:
                raise _BrokenError(f"{url} sends more than the {limit:,} bytes it may have; nothing was kept")
            out.write(chunk)
            progress.update(bar, completed=came)
    if total is not None and came != total:
        raise _BrokenError(f"{url} ended after {came:,} of {total:,} bytes; nothing was kept")


# ------------------------------------------------------------------------------------------------ unpack, verify


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _Bounded:
    """A reader that refuses to give more bytes than its limit, whatever is packed inside."""

    def __init__(self, stream: _Readable, limit: int) -> None:
        self.stream, self.limit, self.left = stream, limit, limit

    def read(self, size: int = -1, /) -> bytes:
        data = self.stream.read(self.left + 1 if size < 0 else min(size, self.left + 1))
        self.left -= len(data)
        if self.left < 0:
            raise _BrokenError(f"it unpacks to more than {self.limit:,} bytes")
        return data


def _plain(path: Path, file: File) -> bytes:
    """Return the verified bytes of a file that may be gzipped."""
    with path.open("rb") as stream:
        return _verified(_unzipped(stream, file.size), file)


def _unzipped(stream: BinaryIO, limit: int) -> bytes:
    """Return all bytes of a stream, through gzip if it starts as gzip does."""
    packed = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    if not packed:
        return _Bounded(stream, limit).read()
    try:
        with gzip.open(stream) as unpacked:
            return _Bounded(unpacked, limit).read()
    except CORRUPT as error:
        raise _BrokenError(f"its compressed data breaks off or is corrupt ({error})") from error


def _verified(data: bytes, file: File) -> bytes:
    if len(data) != file.size:
        raise _BrokenError(f"{file.name} should have {file.size:,} bytes unpacked but has {len(data):,}")
    if file.digest is not None:
        kind, _, expected = file.digest.partition(":")
        came = hashlib.new(kind, data, usedforsecurity=False).hexdigest()
        if came != expected:
            raise _BrokenError(f"{file.name} should have {kind} {expected} unpacked but has {came}")
    return data


def _verify_file(path: Path, digest: str) -> None:
    kind, _, expected = digest.partition(":")
    with path.open("rb") as stream:
        came = hashlib.file_digest(stream, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
    if came != expected:
        raise _BrokenError(f"the archive should have {kind} {expected} but has {came}")


def _members(path: Path, archive: Archive, files: Sequence[File]) -> dict[str, bytes]:
    """Return the verified bytes of the archive's members; each may itself be gzipped."""
    wanted = {f"{archive.inner}/{file.name}{end}": file for file in files for end in ("", ".gz")}
    try:
        zipped = zipfile.is_zipfile(path)
        packed = _from_zip(path, wanted) if zipped else _from_tar(path, wanted, archive.max_bytes)
    except _BrokenError:
        raise
    except Exception as error:  # each kind of packing has errors of its own
        if isinstance(error, OSError) and not isinstance(error, CORRUPT):
            raise  # not the archive's fault
        raise _BrokenError(f"the archive is corrupt ({type(error).__name__}: {error})") from error
    lacking = [file.name for file in files if file.name not in packed]
    if lacking:
        raise _BrokenError(f"the archive has no {', '.join(lacking)} in {archive.inner}/")
    return packed


def _from_zip(path: Path, wanted: dict[str, File]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(path) as bundle:
        for member in bundle.infolist():
            _check_name(member.filename)
            file = wanted.get(member.filename)
            if file is not None:
                with bundle.open(member) as stream:
                    found[file.name] = _member(stream, file)
    return found


def _from_tar(path: Path, wanted: dict[str, File], limit: int) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with path.open("rb") as raw, gzip.open(raw) as unpacked:
        stream = _Bounded(unpacked, limit)
        with tarfile.open(fileobj=stream, mode="r|") as bundle:  # type: ignore[call-overload]
            for member in bundle:
                _check_name(member.name)
                file = wanted.get(member.name)
                content = bundle.extractfile(member) if file is not None and member.isreg() else None
                if file is not None and content is not None:
                    found[file.name] = _member(content, file)
    return found


def _member(stream: _Readable, file: File) -> bytes:
    """Return the verified bytes of one member, which may be gzipped inside the archive."""
    packed = _Bounded(stream, _packed_limit(file)).read()
    return _verified(_unzipped(io.BytesIO(packed), file.size), file)


def _packed_limit(file: File) -> int:
    return file.size + file.size // 8 + 1024  # what cannot be compressed grows a little


def _check_name(name: str) -> None:
    """Refuse an archive with a member that would land outside the folder it is unpacked in."""
    path = PureWindowsPath(name)  # knows both kinds of slash, and drives
    if path.anchor or ".." in path.parts:
        raise _BrokenError(f"the archive holds the unsafe path {name!r}, so it is not what was published")
