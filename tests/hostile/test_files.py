"""Traces, recordings, data files and archives from strangers: no code, no way out of the folder, bounded sizes."""

import gzip
import io
import json
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import Turnout
from tests.support.crafted_folders import study_text
from tests.support.untrusted_readers import (
    GOOD,
    PACKED,
    WANTED,
    read_archive,
    read_arrays,
    read_csv,
    read_leaf,
    read_phones,
)
from turnout.data.files import File, read
from turnout.data.hapt import read_raw
from turnout.data.idx import parse_idx
from turnout.data.shakespeare import read_roles
from turnout.errors import DataError
from turnout.fleet.devices import SCORES, SPEEDS, _read
from turnout.fleet.trace_files import MOST_LINE_BYTES, read_trace
from turnout.fleet.traces import MOST_CLIENTS
from turnout.limits import read_bounded, read_json

HEAD = b"client,start,end,state\n"

TRACES = {
    "a line without end": (HEAD + b"0" * 3 * MOST_LINE_BYTES, "lines of at most 65,536 bytes; one is longer"),
    "a heading without end": (b"client," * MOST_LINE_BYTES, "lines of at most 65,536 bytes; one is longer"),
    "a NUL": (HEAD + b"0,0,\0,up\n", r"line 2: end must be a number of seconds"),
    "another encoding": ("client,start,end,state\n0,0,1,up\n".encode("utf-16"), "not a text file in UTF-8"),
    "bytes that are no text": (HEAD + b"0,0,1,\xff\xfe\n", "not a text file in UTF-8"),
    "a compressed file": (gzip.compress(HEAD), "not a text file in UTF-8|no column client"),
    "an id beyond reason": (HEAD + b"%d,0,1,up\n" % 10**15, f"ids go from 0 to {MOST_CLIENTS - 1}"),
    "an id that overflows": (HEAD + b"9" * 400 + b",0,1,up\n", "client must be a whole number"),
    "a time beyond reason": (HEAD + b"0,0,1e308,up\n", "times must be at most 1e.10 seconds; got 1e.308"),
    "a time without end": (HEAD + b"0,0,inf,up\n", "must be finite"),
    "a quote that never closes": (HEAD + b'0,0,1,"up\n0,2,3,up\n', "quote that never closes|state must be one of"),
    "only line ends": (b"\n" * 5000, "no column client|is empty"),
}


@pytest.mark.parametrize(("data", "message"), TRACES.values(), ids=TRACES)
def test_error_a_hostile_trace_is_one_message(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_csv(data, tmp_path)
    assert len(str(caught.value).splitlines()) == 1


def test_error_no_line_of_a_file_that_is_no_trace_is_quoted(turnout: Turnout, tmp_path: Path) -> None:
    secret = tmp_path / "passwords"
    secret.write_text("root:x:0:0:secret\nuser:y:1:1:other\n")
    study = tmp_path / "theirs.toml"
    fleet = 'fleet = { availability = { use = "recorded", trace = "passwords", round_seconds = 60.0 } }'
    study.write_text(f"{study_text()}{fleet}\n")
    for command in (("check", study), ("run", study), ("trace", "show", secret)):
        said = turnout(*command)
        assert said.code == 2
        assert "has no column client; nor any other that a trace has. It needs the columns" in said.err
        assert "secret" not in said.out + said.err


@pytest.mark.parametrize("name", ["trace.csv.gz", "trace.zip", "trace.bz2", "trace.xz"])
def test_error_a_name_unpacks_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(HEAD + b"0,0,1,up\n"))
    with pytest.raises(DataError, match=r"UTF-8|no column client"):
        read_trace(tmp_path / name)


def test_contract_a_mark_and_line_ends_of_another_system_are_read(tmp_path: Path) -> None:
    trace = read_csv(b"\xef\xbb\xbf" + (HEAD + b"0,0,1,up\n").replace(b"\n", b"\r\n"), tmp_path)
    assert trace.num_clients == 1  # type: ignore[attr-defined]


def test_error_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path, tmp_path / "pipe.csv"):
        with pytest.raises(DataError, match="must be a CSV or Parquet file; it is something else"):
            read_trace(path)
        with pytest.raises(DataError, match="must be a regular file; it is not one"):
            read_bounded(path, 10)
    with pytest.raises(DataError, match="There is no trace"):
        read_trace("a\0b")


def test_error_a_parquet_file_that_says_it_is_endless(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet  # type: ignore[import-untyped]

    column = arrow.array(np.zeros(1_000_000, dtype=np.int8))
    with parquet.ParquetWriter(tmp_path / "t.parquet", arrow.schema([("client", arrow.int8())])) as out:
        for _ in range(5):
            out.write_table(arrow.table({"client": column}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turnout.fleet.trace_files.MOST_ENTRIES", 4_000_000)
        with pytest.raises(DataError, match="it says it has 5,000,000 rows of 1 columns"):
            read_trace(tmp_path / "t.parquet")


@pytest.mark.parametrize("command", [("trace", "show"), ("trace", "convert", "-o", "x.csv")])
def test_error_the_command_says_it_in_one_line_and_writes_nothing(turnout: Turnout, command: tuple[str, ...]) -> None:
    Path("trace.csv").write_bytes(HEAD + b"0,0,1e300,up\n")
    said = turnout(*command[:2], "trace.csv", *command[2:])
    assert said.code == 2
    assert len(said.err.splitlines()) == 1
    assert os.listdir() == ["trace.csv"]


RECORDINGS = {
    "nested": (b"[" * 100_000 + b"]" * 100_000, "is not JSON: RecursionError"),
    "a long number": (b'{"horizon_s": ' + b"1" * 5000 + b"}", "is not JSON: ValueError"),
    "a number beyond floats": (b'{"horizon_s": 1' + b"0" * 400 + b', "devices": []}', "OverflowError"),
    "no devices": (b'{"horizon_s": 1, "devices": []}', "IndexError"),
    "a negative state": (b'{"horizon_s": 900, "devices": [{"two_state": [[0, -1]]}]}', "KeyError: -1"),
    "a text for devices": (b'{"horizon_s": 900, "devices": "unavailable"}', "not a recording"),
    "not a number": (b'{"horizon_s": NaN, "devices": [{"unavailable": [[0, NaN]]}]}', "must be finite|is empty"),
    "another encoding": ("{}".encode("utf-16"), "is not JSON: UnicodeDecodeError"),
}


@pytest.mark.parametrize(("data", "message"), RECORDINGS.values(), ids=RECORDINGS)
def test_error_a_hostile_recording_is_one_message(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_phones(data, tmp_path)


@pytest.mark.parametrize(
    ("scores", "speeds", "message"),
    [
        ([], {}, "there are no devices"),
        ([{"CPU_F_AI_Score": 0}], {"u": dict.fromkeys(("down_u", "down_sigma", "up_u", "up_sigma"), 1)}, "speeds > 0"),
        ([{"CPU_F_AI_Score": 1}], {"u": dict.fromkeys(("down_u", "down_sigma", "up_u", "up_sigma"), -1)}, "speeds > 0"),
        ([{"CPU_F_AI_Score": 10**400}], {}, "OverflowError"),
        ([{"CPU_F_AI_Score": 1}], [1], "AttributeError"),
        ({"a": 1}, {}, "TypeError"),
    ],
)
def test_error_hostile_devices_are_one_message(tmp_path: Path, scores: object, speeds: object, message: str) -> None:
    (tmp_path / SCORES).write_text(json.dumps(scores))
    (tmp_path / SPEEDS).write_text(json.dumps(speeds))
    with pytest.raises(DataError, match=message):
        _read(tmp_path)


def test_error_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"[" + b" " * 100 + b"]")
    assert read_json(tmp_path / "a.json", 102) == []
    with pytest.raises(DataError, match="at most 101 bytes; it has more"):
        read_json(tmp_path / "a.json", 101)


# ------------------------------------------------------------------------------------------------ archives


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as bundle:
        for member, content in members:
            member.size = len(content)
            bundle.addfile(member, io.BytesIO(content))
    return out.getvalue()


def zip_of(*members: tuple[str, bytes], level: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", level) as bundle:
        for name, content in members:
            bundle.writestr(name, content)
    return out.getvalue()


def link(name: str, target: str, kind: bytes) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


ARCHIVES = {
    "a link out of the folder": (tar_of(link("in/a.bin", "/etc/passwd", tarfile.SYMTYPE)), "has no a.bin, b.bin"),
    "a hard link": (tar_of(link("in/a.bin", "../../etc/passwd", tarfile.LNKTYPE)), "has no a.bin, b.bin"),
    "a device": (tar_of(link("in/a.bin", "", tarfile.CHRTYPE)), "has no a.bin, b.bin"),
    "a path out of the folder": (tar_of((tarfile.TarInfo("../x"), b"1")), "unsafe path '../x'"),
    "a path from the root": (zip_of(("/etc/x", b"1")), "unsafe path '/etc/x'"),
    "a path of another system": (zip_of(("in\\..\\..\\x", b"1"), ("C:\\x", b"1")), "unsafe path"),
    "a bomb": (zip_of(("in/a.bin", bytes(50_000_000))), "unpacks to more than"),
    "a bomb elsewhere in it": (tar_of((tarfile.TarInfo("in/c.bin"), bytes(50_000_000))), "more than 50,000 bytes"),
    "a bomb in a bomb": (zip_of(("in/a.bin", gzip.compress(bytes(500_000)))), "unpacks to more than 5 bytes"),
    "other bytes": (zip_of(("in/a.bin", b"12345"), ("in/b.bin", b"987654321")), "should have sha256"),
    "nothing": (b"", "corrupt|no a.bin"),
    "no archive": (b"hello" * 100, "corrupt|Not a gzipped file"),
}


@pytest.mark.parametrize(("data", "message"), ARCHIVES.values(), ids=ARCHIVES)
def test_error_a_hostile_archive_is_one_message(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_archive(data, tmp_path)
    assert os.listdir(tmp_path) == ["packed"]  # nothing is ever unpacked to the disk


@pytest.mark.parametrize("data", GOOD["archive"])
def test_contract_a_good_archive_is_read(tmp_path: Path, data: bytes) -> None:
    assert read_archive(data, tmp_path) == {"a.bin": b"12345", "b.bin": b"123456789"}


def test_error_a_gzipped_bomb_beside_the_archive(tmp_path: Path) -> None:
    (tmp_path / "a.bin.gz").write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(DataError, match="unpacks to more than 5 bytes"):
        read(PACKED, WANTED[:1], str(tmp_path))


# ------------------------------------------------------------------------------------------------ arrays, text


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self.place),)


def npz(**arrays: object) -> bytes:
    whole = np.arange(4)
    good = {"signal": np.ones((4, 6)), "scale": np.ones(6), "label": whole, "user": whole, "experiment": whole}
    out = io.BytesIO()
    np.savez(out, **{**good, **arrays})  # type: ignore[arg-type]
    return out.getvalue()


def test_error_a_pickled_array_is_not_unpickled(tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    with pytest.raises(DataError, match="damaged or is another file"):
        read_arrays(npz(signal=np.array([Trap(sprung)] * 4, dtype=object)), tmp_path)
    with pytest.raises(DataError, match="damaged or is another file"):
        read_arrays(pickle.dumps(Trap(sprung)), tmp_path)
    assert not sprung.exists()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"signal": np.array([["x"] * 6] * 4)}, "must hold rows of numbers"),
        ({"label": np.full(4, np.nan)}, "must hold rows of numbers"),
        ({"label": np.array(3)}, "labels of shape"),
        ({"user": np.zeros((4, 2), dtype=np.int64)}, "one label, user and experiment per sample"),
        ({"scale": np.ones(5)}, "one label, user and experiment per sample"),
    ],
)
def test_error_arrays_of_another_kind(tmp_path: Path, arrays: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_arrays(npz(**arrays), tmp_path)


def test_error_an_array_that_says_it_is_endless(tmp_path: Path) -> None:
    head = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 6), }"
    data = zip_of(("signal.npy", head.ljust(127) + b"\n"), *((f"{n}.npy", b"") for n in ("scale", "label")))
    with pytest.raises(DataError, match="damaged or is another file"):
        read_arrays(data, tmp_path)


@pytest.mark.parametrize("labels", ["", "nan 1 1 1 1", "1e300 1 1 1 1", "1 1 1 1", "a b c d e", "1 1 1 1 99"])
def test_error_labels_in_text_that_are_none(tmp_path: Path, labels: str) -> None:
    (tmp_path / "labels.txt").write_text(labels)
    for sensor in ("acc", "gyro"):
        (tmp_path / f"{sensor}_exp01_user01.txt").write_text("1 2 3\n" * 5)
    with pytest.raises(DataError, match=r"must (hold|name)"):
        read_raw(tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"users": ["a"], "num_samples": [1e400], "user_data": {"a": {}}}',
        b'{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[1]], "y": [1' + b"0" * 400 + b"]}}}",
        b'{"users": [[]], "num_samples": [1], "user_data": {}}',
        b'{"users": 3, "num_samples": 3, "user_data": 3}',
        b"null",
        b"\xff\xfe",
    ],
)
def test_error_a_hostile_file_of_leaf(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DataError, match="must be LEAF's JSON"):
        read_leaf(data, tmp_path)


@pytest.mark.parametrize("shape", [(2**32 - 1,) * 4, (0, 2**32 - 1), (5,)])
def test_error_a_shape_that_the_bytes_do_not_fill(shape: tuple[int, ...]) -> None:
    data = bytes((0, 0, 8, len(shape))) + b"".join(n.to_bytes(4, "big") for n in shape) + b"1"
    with pytest.raises(DataError, match=r"must have .* bytes for its shape"):
        parse_idx(data, "images")


def test_error_a_play_that_is_a_library(tmp_path: Path) -> None:
    folder = tmp_path / "shakespeare-plays"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"A:\nto be\n" * 1_000_000)
    with pytest.raises(DataError, match="at most 4,000,000 bytes"):
        read_roles("plays", str(tmp_path))


def test_error_a_name_in_a_data_set_cannot_leave_its_folder(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "secret").write_bytes(b"12345")
    held = zip_of(("in/../../secret", b"12345"))
    (tmp_path / "inner" / "packed").write_bytes(held)
    with pytest.raises(DataError, match="unsafe path"):
        read(PACKED, (File(name="../../secret", size=5),), str(tmp_path / "inner"))
