import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.journal_records import add_run, info, journal, record
from turnout.checkpoint import CheckpointStore, LastModel
from turnout.coordinator import State
from turnout.errors import JournalError
from turnout.journal import Journal
from turnout.journal.open_database import open_unwritten
from turnout.journal.schema import FILE, VERSION


def test_contract_a_round_of_many_runs_is_one_transaction() -> None:
    with journal() as out:
        runs = [out.begin(info(seed=seed)) for seed in range(3)]
        out.write([(run, record(0)) for run in runs])
        with pytest.raises(JournalError, match="UNIQUE"):
            out.write([(runs[0], record(1)), (runs[1], record(1)), (runs[2], record(0))])
        assert out.read("SELECT round, count(*) FROM round GROUP BY round") == [(0, 3)]


def test_contract_the_database_is_in_wal_mode_with_normal_sync(tmp_path: Path) -> None:
    with journal(tmp_path) as out:
        assert out.read("PRAGMA journal_mode") == [("wal",)]
        assert out.read("PRAGMA synchronous") == [(1,)]
        assert out.read("PRAGMA user_version") == [(VERSION,)]


def test_contract_the_same_study_goes_on_with_finished_runs_kept(tmp_path: Path) -> None:
    with journal(tmp_path, lr=0.1) as out:
        add_run(out, "FedAvg", 0, [0.1, 0.2])
        half = out.begin(info(seed=1))
        out.write([(half, record(0))])
        failed = out.begin(info(seed=2))
        out.finish(failed, "failed")
    with journal(tmp_path, lr=0.1) as out:
        assert out.finished_runs() == {("FedAvg", 0)}
        assert out.read("SELECT count(*) FROM round") == [(2,)]
        assert out.begin(info(seed=1)) == half
        assert out.begin(info(seed=2)) == failed
        with pytest.raises(JournalError, match="already holds arm 'FedAvg' with seed 0"):
            out.begin(info(seed=0))


def test_contract_a_forgotten_run_can_be_started_again() -> None:
    with journal() as out:
        run = out.begin(info())
        out.write([(run, record(0))])
        out.forget(run)
        again = out.begin(info())
        out.write([(again, record(0))])
        assert out.read("SELECT run, round FROM round") == [(again, 0)]


def test_contract_facts_go_with_each_run() -> None:
    with journal() as out:
        first = out.begin(info())
        out.set_fact("block", 8)
        out.finish(first)
        second = out.begin(info(seed=1))
        facts = {run: json.loads(text) for run, text in out.read("SELECT id, facts FROM run")}
        assert facts == {run: {"machine": "a", "block": 8} for run in (first, second)}


def test_contract_only_a_round_with_a_checkpoint_is_synced(tmp_path: Path) -> None:
    said: list[Any]
    state, said = State(model=torch.zeros(2)), []
    with journal(tmp_path) as out:
        run, keeper = out.begin(info()), CheckpointStore(tmp_path, 0)
        out._database.set_trace_callback(said.append)
        out.write([(run, record(0))])
        assert not any("synchronous" in statement for statement in said)
        out.write([(run, record(1))], keeper.save(1, {run: state}, {}))
        synced = [s for s in said if s.startswith(("PRAGMA sync", "COMMIT"))][1:]
        assert synced == ["PRAGMA synchronous = FULL", "COMMIT", "PRAGMA synchronous = NORMAL"]


def test_contract_a_checkpoint_counts_from_its_round_on(tmp_path: Path) -> None:
    state = State(model=torch.zeros(2))
    with journal(tmp_path) as out:
        run, keeper = out.begin(info()), CheckpointStore(tmp_path, 0)
        for round in range(5):
            save = keeper.save(round, {run: state}, {}) if round in (1, 3) else None
            out.write([(run, record(round))], save)
            if save is not None:
                keeper.settle(save)
    with journal(tmp_path) as out:
        assert out.begin(info()) == run
        assert out.read("SELECT round FROM round") == [(0,), (1,), (2,), (3,)]
        assert [file.name for file in out.checkpoint(0)] == ["checkpoints/0-3.safetensors"]
        assert out.checkpoint(1) == ()
        last = keeper.save(4, {}, {run: LastModel(tensors={}, example_shape=(), num_outputs=1)})
        out.write([(run, record(4, finished=True))], last)
        assert out.checkpoint(0) == ()
        assert out.finished_runs() == {("FedAvg", 0)}
        assert out.read("SELECT name FROM file") == [("models/0-4.safetensors",)]


@pytest.mark.parametrize("table", ["study", "arm", "run", "round"])
def test_error_a_row_that_has_changed_is_seen(tmp_path: Path, table: str) -> None:
    with journal(tmp_path) as out:
        add_run(out, "FedAvg", 0, [0.1, float("nan"), -0.0, 1e300])
    column, value = {
        "study": ("facts", '{"machine": "b"}'),
        "arm": ("name", "FedAvh"),
        "round": ("sim_seconds", 2),
    }.get(table, ("seed", 1))
    database = sqlite3.connect(tmp_path / FILE)
    with database:
        database.execute(f"UPDATE {table} SET {column} = ?", (value,))
    database.close()
    with pytest.raises(
        JournalError, match=rf"is damaged \(\d rows? of its table {table} changed\); nothing was changed"
    ):
        journal(tmp_path)


def test_contract_hidden_files_do_not_make_a_folder_full(tmp_path: Path) -> None:
    (tmp_path / ".DS_Store").write_text("")
    journal(tmp_path).close()
    assert (tmp_path / FILE).exists()


def test_contract_a_study_killed_before_its_journal_is_whole_is_started_afresh(tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.part").write_bytes(b"SQLite format 3")
    with journal(tmp_path) as out:
        assert out.finished_runs() == set()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", FILE]


def test_contract_closing_twice_is_fine_and_frees_the_folder(tmp_path: Path) -> None:
    out = journal(tmp_path)
    out.close()
    out.close()
    journal(tmp_path).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", FILE]


def test_contract_a_reader_cannot_write(tmp_path: Path) -> None:
    journal(tmp_path).close()
    with Journal.open(tmp_path) as reader, pytest.raises(JournalError, match="readonly"):
        reader.begin(info())


def test_contract_a_round_in_which_nobody_is_up_is_written() -> None:
    nobody = np.zeros(0, dtype=np.int64)
    with journal() as out:
        run = out.begin(info())
        out.write([(run, record(1, asked=(), up=nobody, metrics={}, events=("nobody was up",)))])
        row = out.read("SELECT up_count, asked_count, clients, loss, evaluated, events FROM round")
        assert row == [(0, 0, None, None, 0, '["nobody was up"]')]


def test_error_a_second_journal_in_one_process_is_refused(tmp_path: Path) -> None:
    with journal(tmp_path), pytest.raises(JournalError, match="choose another output folder"):
        journal(tmp_path)


@pytest.mark.parametrize(
    ("study", "lr", "message"),
    [
        (
            "watches",
            0.1,
            "already holds another study, 'phones'; nothing was changed. Choose another output folder",
        ),
        ("phones", 0.2, r"already holds the study 'phones' with other settings \(lr\); nothing was changed"),
    ],
)
def test_error_a_folder_with_another_study_is_left_alone(tmp_path: Path, study: str, lr: float, message: str) -> None:
    with journal(tmp_path, lr=0.1) as out:
        out.begin(info())
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(JournalError, match=message):
        journal(tmp_path, study=study, lr=lr)
    assert (tmp_path / FILE).read_bytes() == before


def test_error_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).write_text("")
    with pytest.raises(JournalError, match=r"holds other files \(a, b, c …\) and no journal; nothing was changed"):
        journal(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == list("abcd")


def test_error_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(JournalError, match="out is a file; nothing was changed"):
        journal(tmp_path / "out")
    with pytest.raises(JournalError, match=r"cannot be written: .* Check the disk"):
        journal(tmp_path / "out" / "deeper")


def test_error_a_journal_of_a_later_version(tmp_path: Path) -> None:
    journal(tmp_path).close()
    database = sqlite3.connect(tmp_path / FILE)
    database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()
    message = f"written by a later turnout: its format is {VERSION + 1}, this turnout reads up to {VERSION}"
    with pytest.raises(JournalError, match=message):
        journal(tmp_path)
    with pytest.raises(JournalError, match=message):
        Journal.open(tmp_path)


def test_error_a_file_that_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("not a database, but long enough to look at: " * 40)
    with pytest.raises(JournalError, match="cannot be read as a journal"):
        journal(tmp_path)
    with pytest.raises(JournalError, match="cannot be read"):
        Journal.open(tmp_path)
    (tmp_path / FILE).unlink()
    database = sqlite3.connect(tmp_path / FILE)
    database.execute("CREATE TABLE accounts (name)")
    database.close()
    with pytest.raises(JournalError, match="is a database but not a journal; nothing was changed"):
        journal(tmp_path)


def test_error_nothing_to_open(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"holds no journal.sqlite. Name the folder that turnout run wrote to"):
        Journal.open(tmp_path)
    (tmp_path / FILE).write_bytes(b"")
    for use in (Journal.open, journal):
        with pytest.raises(JournalError, match=r"cannot be read as a journal \(it is empty\); nothing was changed"):
            use(tmp_path)


def test_error_one_arm_and_seed_twice() -> None:
    with journal() as out:
        out.begin(info())
        with pytest.raises(
            JournalError, match=r"already holds arm 'FedAvg' with seed 0. Give each arm a name of its own"
        ):
            out.begin(info())


def test_contract_a_damaged_journal_is_closed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with journal(tmp_path) as out:
        add_run(out, "FedAvg", 0, [0.1])
    database = sqlite3.connect(tmp_path / FILE)
    with database:
        database.execute("UPDATE study SET facts = 'null'")
    database.close()
    opened: list[sqlite3.Connection] = []
    monkeypatch.setattr(
        "turnout.journal.open_database.open_unwritten",
        lambda folder: opened.append(open_unwritten(folder)) or opened[-1],  # type: ignore[func-returns-value]
    )
    with pytest.raises(JournalError, match="turnout did not write") as held:
        Journal.open(tmp_path)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")
    assert held.tb is not None  # and with it all that its frames hold
