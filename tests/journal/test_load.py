import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.journal_records import add_run, info, journal, record
from turnout.costs import Costs
from turnout.errors import JournalError
from turnout.journal import Journal, frames, load


def test_golden_the_frames_hold_what_was_written(tmp_path: Path) -> None:
    with journal(tmp_path) as out:
        run = out.begin(info("FedNova", 4))
        accuracy = np.array([0.5, np.nan, 1.0, 0.0, 0.25])
        out.write([(run, record(0, asked=(), costs=Costs()))])
        out.write([(run, record(1, rejected={3: "not finite"}, events=("odd",)))])
        out.write([(run, record(2, up=np.array([1, 3]), client_accuracy=accuracy))])
        out.finish(run)
    loaded = load(tmp_path)
    assert loaded.study["name"] == "phones"
    assert loaded.study["config"] == {"rounds": 3}
    assert loaded.study["facts"] == {"machine": "a"}
    assert loaded.metrics == ("loss", "accuracy")
    assert loaded.runs[["arm", "seed", "rounds", "status"]].values.tolist() == [["FedNova", 4, 3, "finished"]]
    assert loaded.runs["config"][0] == {"arm": "FedNova"}
    assert loaded.runs["started"][0] <= loaded.runs["ended"][0]
    rounds = loaded.rounds
    assert rounds["round"].tolist() == [0, 1, 2]
    assert rounds["loss"].tolist() == [2.0, 1.0, 2.0 / 3]
    assert rounds["up"].tolist() == [5, 5, 2]
    assert rounds["asked"].tolist() == [0, 2, 2]
    assert rounds["answered"].tolist() == [0, 1, 1]
    assert rounds["bytes"].tolist() == [0, 150, 150]
    assert rounds["events"].tolist() == [(), ("odd",), ()]
    assert rounds["rejected"].tolist() == [(), ({"client": 3, "reason": "not finite"},), ()]
    clients = loaded.clients[loaded.clients["round"] == 1]
    assert clients["client"].tolist() == [1, 3]
    assert clients["multiplicity"].tolist() == [1, 2]
    assert clients["answered"].tolist() == [True, False]
    assert clients["outcome"].tolist() == ["complete", "rejected"]
    assert clients["local_steps"].tolist() == [7, 0]
    assert clients["coefficient"].tolist() == [0.5, 0.0]
    np.testing.assert_array_equal(clients["loss"], [1.25, np.nan])
    assert loaded.up("FedNova", 4, 2).tolist() == [1, 3]
    assert loaded.up("FedNova", 4, 1).tolist() == [0, 1, 2, 3, 4]
    assert loaded.client_accuracy["client"].tolist() == [0, 1, 2, 3, 4]
    assert set(loaded.client_accuracy["round"]) == {2}
    np.testing.assert_array_equal(loaded.client_accuracy["accuracy"], accuracy)


@pytest.mark.parametrize("rejected", [{}, {3: "not finite", 1: "too long"}])
def test_contract_the_frames_can_be_written_as_parquet(tmp_path: Path, rejected: dict[int, str]) -> None:
    with journal() as out:
        run = out.begin(info("A", 0))
        out.write([(run, record(0, asked=(), costs=Costs()))])
        out.write([(run, record(1, rejected=rejected, client_accuracy=np.array([0.5, np.nan, 1.0, 0.0, 0.25])))])
        loaded = frames(out)
        for name in ("rounds", "runs", "clients", "client_accuracy"):
            frame, file = getattr(loaded, name), tmp_path / f"{name}.parquet"
            frame.to_parquet(file)
            assert len(pd.read_parquet(file)) == len(frame)
    kept = pd.read_parquet(tmp_path / "rounds.parquet")["rejected"]
    assert {each["client"]: each["reason"] for each in kept[1]} == rejected


def test_golden_costs_add_up_within_a_run_and_not_across() -> None:
    with journal() as out:
        for arm in ("A", "B"):
            add_run(out, arm, 0, [0.1, 0.2, 0.3])
        rounds = frames(out).rounds
        for arm in ("A", "B"):
            of_arm = rounds[rounds["arm"] == arm]
            assert of_arm["cumulative_bytes"].tolist() == [0, 150, 300]
            assert of_arm["cumulative_bytes_up"].tolist() == [0, 50, 100]
            assert of_arm["cumulative_gradient_evaluations"].tolist() == [0, 10, 20]
            assert of_arm["cumulative_sim_seconds"].tolist() == [0.0, 1.5, 3.0]


def test_contract_a_metric_of_ones_own_is_a_column_and_keeps_what_is_not_finite() -> None:
    with journal() as out:
        run = out.begin(info())
        out.write([(run, record(0, metrics={"loss": 1.0, "drift": float("inf")}))])
        out.write([(run, record(1, metrics={"server_lr": 0.5}))])
        out.write([(run, record(2, metrics={"loss": float("nan"), "drift": 2.0}))])
        loaded = frames(out)
        assert loaded.metrics == ("loss", "drift", "server_lr")
        np.testing.assert_array_equal(loaded.rounds["drift"], [np.inf, np.nan, 2.0])
        np.testing.assert_array_equal(loaded.rounds["server_lr"], [np.nan, 0.5, np.nan])
        np.testing.assert_array_equal(loaded.rounds["loss"], [1.0, np.nan, np.nan])
        assert loaded.rounds["evaluated"].tolist() == [True, False, True]  # the last diverged, the second was not due


def test_contract_arms_keep_their_order_when_the_first_runs_again(tmp_path: Path) -> None:
    with journal(tmp_path) as out:
        out.begin(info("first"))
        add_run(out, "second", 0, [0.1])
    with journal(tmp_path) as out:
        add_run(out, "first", 0, [0.1])
        loaded = frames(out)
        assert loaded.arms == ("first", "second")
        assert loaded.rounds["arm"].tolist() == ["first", "second"]


def test_contract_a_journal_without_rounds_gives_empty_frames() -> None:
    with journal() as out:
        loaded = frames(out)
        assert len(loaded.runs) == len(loaded.rounds) == len(loaded.clients) == len(loaded.client_accuracy) == 0
        assert {"arm", "client", "coefficient", "answered"} <= set(loaded.clients.columns)


def test_contract_a_snapshot_does_not_see_what_is_written_meanwhile(tmp_path: Path) -> None:
    with journal(tmp_path) as out, Journal.open(tmp_path) as reader:
        with reader.snapshot():
            assert reader.read("SELECT count(*) FROM run") == [(0,)]
            out.begin(info())
            assert reader.read("SELECT count(*) FROM run") == [(0,)]
        assert reader.read("SELECT count(*) FROM run") == [(1,)]


def test_contract_later_frames_show_the_moment_of_loading() -> None:
    with journal() as out:
        run = out.begin(info())
        out.write([(run, record(0))])
        loaded = frames(out)
        out.write([(run, record(1))])
        assert set(loaded.clients["round"]) == {0}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_contract_a_folder_that_cannot_be_written_can_be_read(tmp_path: Path) -> None:
    with journal(tmp_path) as out:
        add_run(out, "A", 0, [0.5])
    tmp_path.chmod(0o555)
    try:
        loaded = load(tmp_path)
        assert loaded.rounds["accuracy"].tolist() == [0.5]
        assert len(loaded.clients) == 2
    finally:
        tmp_path.chmod(0o755)


def test_error_a_round_that_is_not_there_names_what_is() -> None:
    with journal() as out:
        add_run(out, "A", 0, [0.5])
        with pytest.raises(JournalError, match=r"no round 9 of arm 'A' with seed 0. It has the arms A; see .runs"):
            frames(out).up("A", 0, 9)
