"""Finding, downloading, unpacking and verifying files, against a real HTTP server on this machine."""

import gzip
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.data import files
from turnout.data.files import Archive, DataSet, File, cache_folder, find_folder, places, read
from turnout.data.idx import parse_idx
from turnout.errors import DataError

BODY = bytes(range(256)) * 40
DIGEST = f"sha256:{hashlib.sha256(BODY).hexdigest()}"
SET = DataSet(title="Toys", folders=("toys", "toys/raw"))
PLAIN = File(name="toys.bin", size=len(BODY), digest=DIGEST)


class Server(BaseHTTPRequestHandler):
    """Serves `pages`; a page under /short/ breaks off half-way."""

    pages: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        body = self.pages.get(self.path)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.path.startswith("/short/") else body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Server.pages, Server.asked = {}, []
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TURNOUT_DATA", "XDG_CACHE_HOME", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TURNOUT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def at(url: str, *, size: int = len(BODY), digest: str | None = DIGEST) -> File:
    return File(name="toys.bin", size=size, digest=digest, url=url)


def leftovers(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


def zipped(members: dict[str, bytes]) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, body in members.items():
            bundle.writestr(name, body)
    return memory.getvalue()


def tarred(members: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w:gz") as bundle:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            bundle.addfile(info, io.BytesIO(body))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            bundle.addfile(info)
    return memory.getvalue()


def in_archive(name: str, *, max_bytes: int = 100_000, digest: str | None = None, url: str = "http://x") -> DataSet:
    archive = Archive(url=f"{url}/{name}", inner="toys", max_bytes=max_bytes, digest=digest)
    return DataSet(title="Toys", folders=("toys",), archive=archive)


# ------------------------------------------------------------------------------------------------ finding


def test_contract_a_sub_folder_named_like_the_set_is_looked_in_before_the_folder_itself(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    root = tmp_path / "mine"
    expected = [root / "toys", root / "toys" / "raw", root, tmp_path / "cache" / "toys"]
    assert places(SET, str(root)) == expected


def test_contract_the_users_folder_comes_before_turnout_data_and_the_cache_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("TURNOUT_DATA", str(tmp_path / "everyone"))
    order = [place for place in places(SET, str(tmp_path / "mine")) if place.name == "toys"]
    assert order == [tmp_path / "mine" / "toys", tmp_path / "everyone" / "toys", tmp_path / "cache" / "toys"]


def test_contract_the_cache_follows_turnout_cache_then_xdg_then_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_folder(SET) == tmp_path / "cache" / "toys"
    monkeypatch.delenv("TURNOUT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder(SET) == tmp_path / "xdg" / "turnout" / "toys"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder(SET) == tmp_path / "home" / ".cache" / "turnout" / "toys"


@pytest.mark.parametrize("name", ["toys.bin", "toys.bin.gz"])
def test_contract_plain_and_gzipped_files_read_alike(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(BODY) if name.endswith(".gz") else BODY)
    assert read(SET, [PLAIN], str(tmp_path)) == {"toys.bin": BODY}


def test_error_a_missing_file_names_the_file_every_place_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError) as without:
        read(SET, [PLAIN])
    assert "(TURNOUT_DATA is not set)" in str(without.value)
    monkeypatch.setenv("TURNOUT_DATA", str(tmp_path / "everyone"))
    with pytest.raises(DataError) as caught:
        read(SET, [PLAIN], str(tmp_path))
    message = str(caught.value)
    assert message.startswith("Toys needs toys.bin; it was not found. Looked in: ")
    for place in places(SET, str(tmp_path)):
        assert str(place) in message
    assert message.endswith("name that folder, or the one above it, in data.folder or in TURNOUT_DATA.")


def test_error_a_missing_folder_of_files_gives_the_advice_of_its_set() -> None:
    dataset = DataSet(title="Toys", folders=("toys",), advice="Make it with a lathe.")
    with pytest.raises(DataError, match=r"Toys needs \*\.toy files; it was not found.*Make it with a lathe\. Put it"):
        find_folder(dataset, None, needs="*.toy files", holds=lambda place: any(place.glob("*.toy")))


def test_error_a_folder_that_does_not_exist_is_named_before_anything_is_downloaded(server: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.folder must be a folder that exists; .*nowhere is not one"):
        read(SET, [at(f"{server}/toys.bin")], str(tmp_path / "nowhere"))
    assert Server.asked == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (BODY[:-1], r"should have 10,240 bytes unpacked but has 10,239"),
        (BODY + b"x", r"it unpacks to more than 10,240 bytes"),
        (b"X" + BODY[1:], r"should have sha256 [0-9a-f]{64} unpacked but has [0-9a-f]{64}"),
        (gzip.compress(BODY)[:-20], r"its compressed data is truncated or corrupt"),
        (b"\x1f\x8bnonsense", r"its compressed data is truncated or corrupt"),
        (gzip.compress(bytes(50_000_000)), r"it unpacks to more than 10,240 bytes"),
    ],
    ids=["short", "long", "changed", "cut gzip", "no gzip", "bomb"],
)
def test_error_a_damaged_file_is_named_with_the_reason_and_the_remedy(tmp_path: Path, body: bytes, reason: str) -> None:
    (tmp_path / "toys.bin").write_bytes(body)
    with pytest.raises(DataError, match=rf"Toys: .*toys\.bin is damaged or is another file: .*{reason}.*Replace it"):
        read(SET, [PLAIN], str(tmp_path))


def test_property_a_bomb_is_never_unpacked_beyond_its_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given_out: list[int] = []
    original = gzip.GzipFile.read

    def counted(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        data = original(self, size)
        given_out.append(len(data))
        return data

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    (tmp_path / "toys.bin.gz").write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(DataError, match="more than 10,240 bytes"):
        read(SET, [PLAIN], str(tmp_path))
    assert 0 < sum(given_out) <= len(BODY) + 1


# ------------------------------------------------------------------------------------------------ downloading


@pytest.mark.parametrize("packed", [False, True])
def test_contract_a_download_is_kept_under_its_name_and_not_asked_for_again(
    server: str, own_cache: Path, packed: bool
) -> None:
    name = "toys.bin.gz" if packed else "toys.bin"
    Server.pages[f"/{name}"] = gzip.compress(BODY) if packed else BODY
    file = at(f"{server}/{name}")
    assert read(SET, [file]) == {"toys.bin": BODY}
    assert leftovers(own_cache) == [own_cache / "toys" / name]
    assert read(SET, [file]) == {"toys.bin": BODY}
    assert Server.asked == [f"/{name}"]


def test_contract_a_download_says_on_stderr_where_it_comes_from(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Server.pages["/toys.bin"] = BODY
    read(SET, [at(f"{server}/toys.bin")])
    captured = capsys.readouterr()
    assert captured.err == f"Downloading {server}/toys.bin\n"
    assert captured.out == ""


@pytest.mark.parametrize(
    ("path", "page", "reason"),
    [
        ("/toys.bin", b"X" + BODY[1:], r"sent another file: toys\.bin should have sha256 .*; it was discarded"),
        ("/toys.bin.gz", gzip.compress(BODY)[:-9], r"sent another file: its compressed data is truncated"),
        ("/short/toys.bin", BODY, r"(ended after 5,120 of 10,240 bytes|IncompleteRead)"),
        ("/toys.bin", BODY * 2, r"sent more than the limit of 12,544 bytes; the download was discarded"),
        ("/toys.bin", None, r"HTTP Error 404"),
    ],
    ids=["wrong hash", "truncated gzip", "broken connection", "too long", "not found"],
)
def test_error_a_bad_download_is_reported_once_and_leaves_nothing(
    server: str, own_cache: Path, path: str, page: bytes | None, reason: str
) -> None:
    if page is not None:
        Server.pages[path] = page
    pattern = rf"Toys needs toys\.bin; it was not found and the download failed \(.*{reason}.*\)\. Looked in: .*Put it"
    with pytest.raises(DataError, match=pattern):
        read(SET, [at(server + path)])
    assert leftovers(own_cache) == []


def test_error_a_server_that_is_not_there_is_reported(server: str, own_cache: Path) -> None:
    with pytest.raises(DataError, match=r"Toys needs toys\.bin; it was not found and the download failed \(.*refused"):
        read(SET, [at("http://127.0.0.1:1/toys.bin")])
    assert leftovers(own_cache) == []


def test_error_a_cache_that_cannot_be_written_is_reported(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TURNOUT_CACHE", str(tmp_path / "file"))
    Server.pages["/toys.bin"] = BODY
    with pytest.raises(DataError, match=r"the download failed \(.*Not a directory"):
        read(SET, [at(f"{server}/toys.bin")])


def test_contract_an_interrupted_download_leaves_nothing(
    server: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Server.pages["/toys.bin"] = BODY
    seen: list[Path] = []

    def interrupted(path: Path, file: File) -> bytes:
        seen.extend(leftovers(own_cache))
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "_read_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read(SET, [at(f"{server}/toys.bin")])
    assert [path.suffix for path in seen] == [".part"]  # it was there, under another name
    assert leftovers(own_cache) == []


# ------------------------------------------------------------------------------------------------ archives


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize("inner", ["toys/toys.bin", "toys/toys.bin.gz"])
def test_contract_members_are_read_from_an_archive_in_the_folder(tmp_path: Path, pack: object, inner: str) -> None:
    body = gzip.compress(BODY) if inner.endswith(".gz") else BODY
    (tmp_path / "toys.pack").write_bytes(pack({"toys/other.txt": b"other", inner: body}))  # type: ignore[operator]
    assert read(in_archive("toys.pack"), [PLAIN], str(tmp_path)) == {"toys.bin": BODY}


def test_contract_an_archive_is_downloaded_once_for_all_its_files(server: str, own_cache: Path) -> None:
    Server.pages["/toys.zip"] = zipped({"toys/toys.bin": BODY, "toys/more.bin": BODY})
    wanted = [PLAIN, File(name="more.bin", size=len(BODY))]
    dataset = in_archive("toys.zip", url=server, digest=f"md5:{hashlib.md5(Server.pages['/toys.zip']).hexdigest()}")
    assert read(dataset, wanted) == {"toys.bin": BODY, "more.bin": BODY}
    assert read(dataset, wanted[1:]) == {"more.bin": BODY}
    assert Server.asked == ["/toys.zip"]
    assert leftovers(own_cache) == [own_cache / "toys" / "toys.zip"]


def test_error_a_downloaded_archive_with_another_digest_is_refused(server: str, own_cache: Path) -> None:
    Server.pages["/toys.zip"] = zipped({"toys/toys.bin": BODY})
    dataset = in_archive("toys.zip", url=server, digest="md5:" + "0" * 32)
    with pytest.raises(DataError, match=r"sent another file: the archive should have md5 0{32} but has [0-9a-f]{32}"):
        read(dataset, [PLAIN])
    assert leftovers(own_cache) == []


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "toys/../../evil", "..\\evil", "C:\\evil"])
def test_error_a_member_that_would_land_outside_is_refused(tmp_path: Path, pack: object, name: str) -> None:
    (tmp_path / "toys.pack").write_bytes(pack({name: b"evil", "toys/toys.bin": BODY}))  # type: ignore[operator]
    with pytest.raises(DataError, match="the archive holds the unsafe path"):
        read(in_archive("toys.pack"), [PLAIN], str(tmp_path))
    assert not list(tmp_path.rglob("evil"))
    assert not (tmp_path.parent / "evil").exists()


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_error_a_member_larger_than_its_file_is_refused(tmp_path: Path, pack: object) -> None:
    (tmp_path / "toys.pack").write_bytes(pack({"toys/toys.bin": bytes(90_000)}))  # type: ignore[operator]
    with pytest.raises(DataError, match=r"it unpacks to more than 12,544 bytes"):
        read(in_archive("toys.pack"), [PLAIN], str(tmp_path))


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_error_a_bomb_inside_a_member_is_refused(tmp_path: Path, pack: object) -> None:
    bomb = gzip.compress(bytes(5_000_000))
    (tmp_path / "toys.pack").write_bytes(pack({"toys/toys.bin.gz": bomb}))  # type: ignore[operator]
    with pytest.raises(DataError, match=r"it unpacks to more than 10,240 bytes"):
        read(in_archive("toys.pack"), [PLAIN], str(tmp_path))


def test_error_a_tar_that_unpacks_to_too_much_in_all_is_refused(tmp_path: Path) -> None:
    (tmp_path / "toys.pack").write_bytes(tarred({"filler": bytes(5_000_000), "toys/toys.bin": BODY}))
    with pytest.raises(DataError, match=r"it unpacks to more than 100,000 bytes"):
        read(in_archive("toys.pack"), [PLAIN], str(tmp_path))


def test_error_a_link_in_the_place_of_a_member_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "toys.pack").write_bytes(tarred({}, links={"toys/toys.bin": "/etc/hostname"}))
    with pytest.raises(DataError, match=r"the archive has no toys\.bin in toys/"):
        read(in_archive("toys.pack"), [PLAIN], str(tmp_path))


@pytest.mark.parametrize(
    "body", [zipped({"toys/toys.bin": BODY})[:-30], tarred({"toys/toys.bin": BODY})[:-60], b"neither", b""]
)
def test_error_a_corrupt_archive_is_refused(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "toys.pack").write_bytes(body)
    with pytest.raises(DataError, match=r"toys\.pack is damaged or is another file: the archive (is corrupt|has no)"):
        read(in_archive("toys.pack"), [PLAIN], str(tmp_path))


# ------------------------------------------------------------------------------------------------ IDX


def test_golden_an_idx_file_worked_by_hand() -> None:
    data = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255])
    assert parse_idx(data, "toys").tolist() == [[1, 2, 3], [4, 5, 255]]
    integers = bytes([0, 0, 12, 1, 0, 0, 0, 2, 0, 0, 1, 0, 255, 255, 255, 255])
    assert parse_idx(integers, "toys").tolist() == [256, -1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"toys must start with an IDX magic number; got \."),
        (b"\x1f\x8b\x08\x00", r"toys must start with an IDX magic number; got 1f8b0800"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2]), r"toys must have 11 bytes for its shape \[3\]; got 10"),
        (bytes([0, 0, 8, 2, 0, 0]), r"toys must have .* bytes for its shape"),
        (bytes([0, 0, 8, 4, *[255] * 16]), r"toys must have [\d,]{20,} bytes for its shape"),
    ],
)
def test_error_a_malformed_idx_file_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_idx(data, "toys")


@given(st.binary(max_size=64))
def test_property_no_bytes_make_the_idx_parser_fail_in_another_way(data: bytes) -> None:
    try:
        values = parse_idx(data, "toys")
    except DataError:
        return
    assert values.nbytes == len(data) - 4 - 4 * data[3]
