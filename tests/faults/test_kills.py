"""A real process is killed at random points, sometimes with the power; resumed, it ends as if never touched."""

import random
import shutil
import signal
import sqlite3
import struct
from pathlib import Path

import pytest

from tests.support.fault_injection import COPIED, Turnout, contents, cut_power, differences, torture
from tests.support.fault_studies import STUDIES, write_study
from turnout.journal.schema import FILE


@pytest.mark.parametrize("name", STUDIES)
def test_identity_a_study_killed_at_random_points_ends_bit_for_bit_the_same(turnout: Turnout, name: str) -> None:
    found = torture(turnout, write_study(turnout.folder, name), kills=10, rng=random.Random(f"kills {name}"), power=0.8)
    assert found.lost == []
    assert found.kills == 10
    assert found.resumed > 0
    assert found.power_cuts > 0


@pytest.mark.parametrize("point", ["before fsync", "after fsync", "before replace", "after replace", "before unlink"])
def test_identity_a_kill_inside_the_second_checkpoint_loses_nothing(turnout: Turnout, point: str) -> None:
    study = write_study(turnout.folder, "clocks")
    whole, out = turnout.folder / "checkpoint-whole", turnout.folder / point.replace(" ", "-")
    if not whole.exists():
        assert turnout.run("run", study, "--out", whole).code == 0
    number = {"fsync": 6, "replace": 2, "unlink": 1}[point.split()[1]]  # fsync: a file and its folder each time
    assert turnout.run("run", study, "--out", out, die=(point, number)).code == -9
    left = contents(out)
    assert [row[:2] for row in left["checkpoint"]] == [(0, 4 if point == "before unlink" else 1)]
    ended = turnout.run("resume", out)
    assert ended.code == 0, ended.said
    assert differences(contents(out), contents(whole)) == []


def test_identity_a_cut_while_the_log_is_copied_into_the_database_loses_nothing(turnout: Turnout) -> None:
    whole, out, copied = (turnout.folder / name for name in ("copy-whole", "copying", "copied"))
    study = write_study(turnout.folder, "buffers")
    assert turnout.run("run", study, "--allow-code", "--out", whole).code == 0
    assert turnout.run("run", study, "--allow-code", "--out", out, die=("after unlink", 4)).code == -9
    shutil.copytree(out, copied)
    database = sqlite3.connect(copied / FILE)
    ((_, frames, _),) = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    shutil.copy(copied / FILE, out / FILE)  # every page is there, but SQLite has not yet said so in its index
    database.close()
    with open(out / f"{FILE}-shm", "r+b") as index:
        index.seek(COPIED)
        index.write(struct.pack("=I", frames))
    rng = random.Random(0)
    for place in range(5):
        torn = turnout.folder / f"torn-{place}"
        shutil.copytree(out, torn)
        cut_power(torn, rng)
        ended = turnout.run("resume", torn, "--allow-code")
        assert ended.code == 0, ended.said
        assert differences(contents(torn), contents(whole)) == []


@pytest.mark.parametrize("limit", [40_000, 120_000, 200_000])
def test_identity_a_full_disk_is_one_message_and_the_rest_is_run_later(turnout: Turnout, limit: int) -> None:
    study = write_study(turnout.folder, "memories")
    whole, out = turnout.folder / "disk-whole", turnout.folder / f"disk-{limit}"
    if not whole.exists():
        assert turnout.run("run", study, "--out", whole).code == 0
    ended = turnout.run("run", study, "--out", out, limit=limit)
    assert ended.code in (1, 2), ended.said
    assert ended.said.count("cannot be written") == 1
    assert "Traceback" not in ended.said
    again = turnout.run("run", study, "--out", out)  # the same command goes on, too
    assert again.code == 0, again.said
    assert differences(contents(out), contents(whole)) == []


@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "sigterm"])
def test_contract_a_signal_lets_the_round_end_saves_and_says_how_to_resume(
    turnout: Turnout, by: signal.Signals, code: int
) -> None:
    study = write_study(turnout.folder, "servers", every=1000)
    whole, out = turnout.folder / "stop-whole", turnout.folder / f"stopped-{code}"
    if not whole.exists():
        assert turnout.run("run", study, "--out", whole).code == 0
    ended = turnout.run("run", study, "--out", out, interrupt_at=out, interrupt_by=by)
    assert ended.code == code, ended.said
    (last,) = [line for line in ended.said.splitlines() if line.startswith("stopped: ")]
    ((_, saved, _, _),) = contents(out)["checkpoint"]
    assert last == f"stopped: round {saved} is saved in {out}. Resume with: turnout resume {out}"
    assert max(row[1] for row in contents(out)["round"]) == saved
    assert {row[6] for row in contents(out)["run"]} == {"interrupted"}
    assert turnout.run("resume", out).code == 0
    assert differences(contents(out), contents(whole)) == []


def test_error_what_cannot_be_resumed_is_said(turnout: Turnout, tmp_path: Path) -> None:
    ended = turnout.run("resume", tmp_path)
    assert ended.code == 2
    assert "holds no journal.sqlite. Name the folder that turnout run wrote to." in ended.said
    assert turnout.run("resume", tmp_path / "nowhere").said.startswith("There is no folder")
