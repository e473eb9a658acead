"""What the server answers, and what it does not."""

import json
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.report_journals import write
from tests.support.ui_serving import COMMAND, ask, linked, rows, serving, start, wait_for
from turnout.cli import main
from turnout.errors import ConfigError
from turnout.journal.schema import FILE
from turnout.report import write_report
from turnout.ui import Server
from turnout.ui.server import PAUSE_SECONDS

OPENED: list[str] = []
sys.addaudithook(lambda name, given: OPENED.append(str(given[0])) if name == "sqlite3.connect" else None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two studies, one of them a folder deeper, and things that are no study's."""
    root = tmp_path_factory.mktemp("runs")
    write(root / "small", study="small", rounds=3, seeds=2)
    write(root / "more" / "phones", study="phones", rounds=5, config={"seeds": 3, "arm": [{}, {}]})
    (root / "more" / "notes.txt").write_text("mine")
    (root / ".hidden").mkdir()
    write(root / ".hidden" / "phones")
    return root


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with serving(folder) as running:
        yield running


def test_golden_the_list_holds_every_study_below_the_folder(server: Server) -> None:
    found = rows(ask(server, "/"))
    assert set(found) == {"small", "more/phones"}
    phones = found["more/phones"]
    told = {key: phones[key] for key in ("study", "state", "arms", "seeds", "done", "rounds", "finished", "runs")}
    assert told == {
        "study": "phones",
        "state": "finished",
        "arms": 2,
        "seeds": 3,
        "done": 30,
        "rounds": 30,
        "finished": 6,
        "runs": 6,
    }
    assert found["small"]["rounds"] == 12


def test_golden_the_last_accuracy_is_the_mean_over_seeds_from_the_worst_arm_to_the_best(server: Server) -> None:
    query = "SELECT avg(accuracy) FROM round JOIN run ON run.id = round.run WHERE round = 3 GROUP BY arm ORDER BY 1"
    with closing(sqlite3.connect(server.cache.root / "small" / FILE)) as database:
        low, high = (accuracy for (accuracy,) in database.execute(query))
    shown = rows(ask(server, "/"))["small"]
    assert shown["accuracy"] == f"{100 * low:.1f}–{100 * high:.1f} %"
    assert shown["best"] == pytest.approx(high)


def test_identity_the_page_of_two_runs_is_the_report_of_two_runs(server: Server, tmp_path: Path) -> None:
    shown = ask(server, "/show?run=small&run=more/phones")
    folders = [server.cache.root / "small", server.cache.root / "more" / "phones"]
    written = write_report(folders, tmp_path / "page.html").read_text(encoding="utf-8")
    assert shown.text.count("<header><nav><a href=/>All runs</a></nav></header>\n") == 1
    same = shown.text.replace("<header><nav><a href=/>All runs</a></nav></header>\n", "")
    assert _but_for_the_time(same) == _but_for_the_time(written)
    assert shown.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'sha256-")


def _but_for_the_time(page: str) -> str:
    start, end = page.index("<footer>"), page.index("</footer>")
    return page[:start] + page[end:]


@pytest.mark.parametrize("path", ["/", "/show?run=small", "/show?run=nothing", "/nothing", "/events"])
def test_contract_every_answer_forbids_every_other_host(server: Server, path: str) -> None:
    headers = ask(server, path, "HEAD").headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-store"
    if path != "/events":
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert policy.endswith("frame-ancestors 'none'")
        assert "http" not in policy


def test_contract_head_is_get_without_a_body(server: Server) -> None:
    whole, head = ask(server, "/show?run=small"), ask(server, "/show?run=small", "HEAD")
    assert (head.status, head.text) == (200, "")
    assert head.headers["Content-Length"] == whole.headers["Content-Length"] == str(len(whole.text.encode()))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "WHATEVER"])
def test_error_nothing_but_get_and_head_is_answered(server: Server, method: str) -> None:
    answer = ask(server, "/", method)
    assert (answer.status, answer.text) == (405, "405: Only GET and HEAD are allowed: this server is read-only\n")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "", "[", "127.0.0.1.nip.io"]
)
def test_error_a_name_of_another_host_is_refused(server: Server, host: str) -> None:
    for path in ("/", "/show?run=small", "/events"):
        answer = ask(server, path, host=host)
        assert (answer.status, answer.text) == (403, "403: This is not the host that was asked for\n")


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "LOCALHOST:8018", "127.0.0.1:9", "[::1]:9"])
def test_contract_this_machine_s_own_names_are_answered_through_any_port(server: Server, host: str) -> None:
    assert ask(server, "/", host=host).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../outside",
        "/more/notes.txt",
        "/show/../../outside",
        "/show?run=../outside",
        "/show?run=%2e%2e/outside",
        "/show?run=..%2foutside",
        "/show?run=small/../../outside",
        "/show?run=./small",
        "/show?run=/etc",
        "/show?run=linked",
        "/show?run=small/linked",
        "/show?run=.hidden/phones",
        "/show?run=more",
        "/show?run=small%00",
        "/show?run=",
    ],
)
def test_error_no_path_leads_out_of_the_folder(tmp_path: Path, path: str) -> None:
    write(tmp_path / "outside", study="secret")
    write(tmp_path / "runs" / "small")
    write(tmp_path / "runs" / ".hidden" / "phones")
    (tmp_path / "runs" / "linked").symlink_to(tmp_path / "outside")
    (tmp_path / "runs" / "half").mkdir()
    (tmp_path / "runs" / "half" / FILE).symlink_to(tmp_path / "outside" / FILE)
    with serving(tmp_path / "runs") as server:
        answer = ask(server, path)
        assert answer.status == 404
        assert "secret" not in answer.text
        assert set(rows(ask(server, "/"))) == {"small"}


def test_contract_the_folder_may_be_a_study_s_own(tmp_path: Path) -> None:
    with serving(write(tmp_path / "phones")) as server:
        assert set(rows(ask(server, "/"))) == {"."}
        assert ask(server, "/show?run=.").status == 200


def test_error_too_many_runs_or_none_are_not_put_on_one_page(tmp_path: Path) -> None:
    first = write(tmp_path / "0", arms=("A",), seeds=1, rounds=1)
    for place in range(1, 31):
        linked(first, tmp_path / str(place))
    with serving(tmp_path) as server:
        for names, got in ((range(31), 31), (range(0), 0)):
            answer = ask(server, "/show?" + "&".join(f"run={name}" for name in names))
            assert answer.status == 400
            assert f"A page shows 1 to 30 runs; got {got}. Select at least one and at most that many." in answer.text


def test_contract_a_thousand_studies_are_each_opened_once(tmp_path: Path) -> None:
    first = write(tmp_path / "0", arms=("A",), seeds=1, rounds=1)
    for place in range(1, 1000):
        linked(first, tmp_path / str(place))
    with serving(tmp_path) as server:
        assert _opened_by(server) == 1000
        assert _opened_by(server) == 0
        (tmp_path / "500" / FILE).unlink()
        write(tmp_path / "500", arms=("A",), seeds=1, rounds=2)
        assert _opened_by(server) == 1
        found = rows(ask(server, "/"))
        assert (len(found), found["500"]["done"], found["501"]["done"]) == (1000, 2, 1)
        (tmp_path / "7" / FILE).unlink()
        assert _opened_by(server) == 0
        assert len(rows(ask(server, "/"))) == 999


def _opened_by(server: Server) -> int:
    OPENED.clear()
    assert ask(server, "/").status == 200
    return sum(FILE in address for address in OPENED)


@pytest.mark.slow
def test_contract_looking_at_studies_changes_no_file(tmp_path: Path) -> None:
    write(tmp_path / "phones")
    killed = start(tmp_path, tmp_path / "killed", "rounds=100000")
    with killed:
        wait_for(lambda: (tmp_path / "killed" / f"{FILE}-wal").exists())
        with serving(tmp_path) as server:
            wait_for(lambda: rows(ask(server, "/"))["killed"]["done"] > 8)
            killed.kill()
            killed.wait()
            before = _files(tmp_path)
            assert f"killed/{FILE}-wal" in before
            found = rows(ask(server, "/"))
            assert found["killed"]["state"] == "interrupted"
            assert ask(server, "/show?run=phones").status == 200
            assert _files(tmp_path) == before
        assert _files(tmp_path) == before


def _files(root: Path) -> dict[str, bytes]:
    """Return every file; SQLite's index of its log is memory that all who read share."""
    found = (path for path in root.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


STRANGE = {
    "timeless": "UPDATE run SET started = 'yesterday'",
    "of bytes": "UPDATE run SET started = x''",
    "endless": """ALTER TABLE run RENAME TO other; CREATE VIEW run AS WITH RECURSIVE n(i) AS
        (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT other.*, i FROM n, other""",
    "beyond measure": "UPDATE round SET accuracy = 9e999",
    "negative": "UPDATE run SET rounds = -5",
    "huge": "UPDATE round SET round = 9e18 WHERE round = 2",
    "odd": "UPDATE study SET config = '[]'",
    "without end": "UPDATE study SET config = '{\"rounds\": 1e999}'",
    "clears the screen": "UPDATE study SET name = char(27) || '[2J'",
}


def test_contract_what_cannot_be_read_is_a_line_and_no_obstacle(tmp_path: Path) -> None:
    write(tmp_path / "good")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / FILE).write_bytes(b"not a database, but long enough to look like one" * 100)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / FILE).touch()
    write(tmp_path / "later")
    with closing(sqlite3.connect(tmp_path / "later" / FILE)) as database:
        database.execute("PRAGMA user_version = 99")
    for name, statements in STRANGE.items():
        write(tmp_path / name)
        with closing(sqlite3.connect(tmp_path / name / FILE)) as database, database:
            database.executescript(statements)
    with serving(tmp_path) as server:
        found = rows(ask(server, "/"))
        assert {name: row["state"] for name, row in found.items()} == {
            "good": "finished",
            "torn": "unreadable",
            "empty": "unreadable",
            "later": "unreadable",
            **dict.fromkeys(STRANGE, "unreadable"),
        }
        assert "values that turnout did not write (ValueError: Invalid isoformat string" in found["timeless"]["problem"]
        problems = {name: row["problem"] for name, row in found.items()}
        assert f"{FILE} has other tables than turnout makes; nothing was changed" in problems["endless"]
        assert f"{FILE} cannot be read as a journal (file is not a database)" in problems["torn"]
        assert f"{FILE} cannot be read as a journal (it is empty)" in problems["empty"]
        assert "was written by a later turnout: its format is 99" in problems["later"]
        answer = ask(server, "/show?run=later")
        assert answer.status == 500
        assert "was written by a later turnout: its format is 99" in answer.text


@pytest.mark.slow
def test_contract_ctrl_c_ends_it_with_one_line(folder: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "ui", str(folder), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = line.partition(" at ")[2].partition(";")[0]
        if line != f"serving {folder} at {url}; press Ctrl-C to stop\n":
            process.kill()
        assert line == f"serving {folder} at {url}; press Ctrl-C to stop\n"
        with urlopen(url) as page, urlopen(f"{url}events?since=another") as events:  # somebody is listening
            assert b"Studies in" in page.read()
            assert events.readline() == b"event: all\n"
            assert set(json.loads(events.readline().removeprefix(b"data: "))) == {"rows"}
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "stopped\n")


def _says(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(["ui", *arguments])
    said = capsys.readouterr()
    assert said.out == ""
    return int(left.value.code or 0), said.err


def test_error_a_folder_that_is_not_there_is_one_message_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "nowhere"
    told = f"There is no folder {missing}. Name a folder that holds runs, such as runs.\n"
    assert _says(capsys, str(missing)) == (2, told)


def test_error_a_port_that_is_taken_names_the_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        code, told = _says(capsys, str(tmp_path), "--port", str(port))
    assert code == 2
    assert told.startswith(f"Nothing can be served at 127.0.0.1, port {port}: ")
    assert told.endswith("Choose another with --host or --port; --port 0 finds a free one.\n")


def test_error_a_host_that_is_not_ours_names_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"Nothing can be served at 203.0.113.1, port 0: .* Choose another with --host"
    ):
        Server(tmp_path, "203.0.113.1")


def test_contract_only_this_machine_is_listened_to(server: Server) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_contract_out_of_handles_it_waits_instead_of_trying_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    with Server(tmp_path) as server, socket.create_connection(("127.0.0.1", server.server_port)):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        monkeypatch.setattr("turnout.ui.server.time.sleep", slept.append)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                server.get_request()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert slept == [PAUSE_SECONDS]
        request, _ = server.get_request()  # the browser is still there
        request.close()
