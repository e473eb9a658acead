"""What a page is told of a study in progress, against the journal read another way."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.report_journals import CONFIG, FACTS, record
from tests.support.report_journals import ask as ask_journal
from tests.support.ui_serving import ask, serving
from turnout.errors import JournalError
from turnout.journal import Journal, RunInfo
from turnout.journal.schema import FILE
from turnout.ui import Server
from turnout.ui.live_study import LiveStudy, live_study


class Study:
    """A study that a test writes round by round."""

    def __init__(self, folder: Path, arms: tuple[str, ...] = ("FedAvg", "FedNova"), seeds: int = 2) -> None:
        config = {**CONFIG, "rounds": 9, "seeds": seeds, "arm": [{"name": arm} for arm in arms]}
        self.folder = folder
        self.journal = Journal.create(folder, study="phones", config=config, facts=FACTS)
        self._runs = [(arm, seed) for arm in arms for seed in range(seeds)]
        self.ids = {
            (arm, seed): self.journal.begin(RunInfo(arm=arm, seed=seed, rounds=9, config=config))
            for arm, seed in self._runs
        }
        self.last = dict.fromkeys(self.ids, -1)

    def go_on(self, *runs: tuple[str, int], **changes: Any) -> None:
        """Write one more round of these runs, or of all."""
        for arm, seed in runs or self._runs:
            self.last[arm, seed] += 1
            rng = np.random.default_rng([self.last[arm, seed], seed, len(arm)])
            self.journal.write([(self.ids[arm, seed], record(self.last[arm, seed], rng, 12, 4, **changes))])


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    made = Study(tmp_path / "phones")
    with made.journal:
        yield made


def compared(found: LiveStudy) -> str:
    return next((markup for anchor, _, markup, _ in found.sections if anchor == "comparison"), "")


def test_golden_before_any_run_ends_arms_are_compared_at_the_last_round_that_all_have(study: Study) -> None:
    for _ in range(4):
        study.go_on()
    study.go_on(("FedAvg", 0), ("FedAvg", 1), ("FedNova", 1))  # round 4, which one run has not reached
    means = ask_journal(
        study.folder,
        "SELECT arm, avg(accuracy) AS mean FROM round JOIN run ON run.id = round.run WHERE round = 3 GROUP BY arm",
    ).set_index("arm")["mean"]
    shown = compared(live_study(study.folder))
    assert ">round 3: accuracy</th>" in shown
    assert "final" not in shown
    assert "The study is still running. Values will change, and intervals and p-values are not valid yet." in shown
    for arm in ("FedAvg", "FedNova"):
        assert f"<td>{100 * means[arm]:.2f} ± " in shown
    assert "target" not in shown


def test_contract_nothing_is_compared_before_a_model_has_moved(study: Study) -> None:
    assert compared(live_study(study.folder)) == ""
    study.go_on()
    assert compared(live_study(study.folder)) == ""
    study.go_on()
    assert compared(live_study(study.folder)) != ""


def test_golden_once_runs_have_ended_those_are_compared(study: Study) -> None:
    for _ in range(4):
        study.go_on()
    for arm in ("FedAvg", "FedNova"):
        study.journal.finish(study.ids[arm, 0])
    shown = compared(live_study(study.folder))
    assert "final accuracy" in shown
    assert "unfinished runs left out: 2" in shown


def test_golden_the_curve_is_the_mean_of_the_seeds_that_have_the_round(study: Study) -> None:
    for _ in range(3):
        study.go_on()
    study.go_on(("FedAvg", 1))
    study.journal.finish(study.ids["FedAvg", 1])
    (metric,) = (each for each in live_study(study.folder).data["metrics"] if each["label"] == "accuracy")
    expected = ask_journal(
        study.folder,
        "SELECT avg(accuracy) AS mean FROM round JOIN run ON run.id = round.run WHERE arm = 'FedAvg' GROUP BY round "
        "ORDER BY round",
    )["mean"]
    assert metric["curves"][0]["mean"] == pytest.approx(expected.tolist(), rel=1e-5)
    assert metric["curves"][0]["x"][0] == [0, 1, 2, 3]


def test_contract_a_round_more_is_other_numbers_in_the_same_shape(study: Study) -> None:
    for _ in range(3):
        study.go_on()
    before = live_study(study.folder)
    study.go_on()
    after = live_study(study.folder)
    assert after.data != before.data
    assert after.shape == before.shape
    study.go_on(metrics={"loss": 1.0, "accuracy": 0.5, "server_lr": 2.0})  # a picture more
    assert live_study(study.folder).shape != before.shape


def events_of(server: Server, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for message in server.source.of_study(name):
        if message.startswith(b"event: "):
            kind, data = message.decode().removeprefix("event: ").rstrip().split("\ndata: ")
            yield kind, json.loads(data)


def test_contract_a_page_hears_each_round_and_the_end(study: Study) -> None:
    with serving(study.folder.parent) as server:
        server.cache.refresh()
        events = events_of(server, "phones")
        assert next(events)[1]["done"] == 0
        assert next(events)[0] == "look"
        seen: list[Any] = []
        for expected in (0, 4, 8):  # four runs advance together; round 0 trains nobody
            study.go_on()
            while not seen or seen[-1] != expected:
                kind, told = next(events)
                seen += [told["done"]] if kind == "progress" else []
                if kind == "look":
                    assert told["shape"]
        assert seen == sorted(seen)
        for run in study.ids.values():
            study.journal.finish(run)
        assert "ended" in [kind for kind, _ in events]


def test_error_a_study_in_progress_that_cannot_be_shown_is_one_message(study: Study) -> None:
    study.go_on()
    with serving(study.folder.parent) as server:
        server.cache.refresh()
        with closing(sqlite3.connect(study.folder / FILE)) as stranger, stranger:
            stranger.execute("UPDATE round SET num_clients = -1")
        assert [kind for kind, _ in events_of(server, "phones")] == ["progress", "ended"]
        answer = ask(server, "/show?run=phones")
        assert answer.status == 500
        assert "holds values that turnout did not write" in answer.text


def test_error_a_study_that_is_taken_away_is_one_message(study: Study) -> None:
    with serving(study.folder.parent) as server:
        server.cache.refresh()
        line = server.cache.lines()[1]["phones"]
        shutil.rmtree(study.folder)
        server.cache.refresh()
        with pytest.raises(JournalError, match="phones is no longer there"):
            server.source.live_study(line)


def test_contract_all_who_look_at_one_study_share_one_look(study: Study) -> None:
    study.go_on()
    with serving(study.folder.parent) as server:
        server.cache.refresh()
        line = server.cache.lines()[1]["phones"]
        assert server.source.live_study(line) is server.source.live_study(line)


def test_contract_a_study_whose_writer_is_gone_is_interrupted_and_one_that_failed_says_so(study: Study) -> None:
    study.go_on()
    with serving(study.folder.parent) as server:
        server.cache.refresh()
        assert server.cache.lines()[1]["phones"].state == "running"
        study.journal.close()
        server.cache.refresh()
        assert server.cache.lines()[1]["phones"].state == "interrupted"
    with Journal.create(study.folder, study="phones", config=_config(study), facts=FACTS) as again:
        again.finish(1, "failed")
    with serving(study.folder.parent) as server:
        server.cache.refresh()
        assert server.cache.lines()[1]["phones"].state == "failed"


def _config(study: Study) -> dict[str, Any]:
    (text,) = ask_journal(study.folder, "SELECT config FROM study")["config"]
    found: dict[str, Any] = json.loads(text)
    return found


def test_contract_nobody_is_watched_for_and_connections_are_let_go(study: Study) -> None:
    study.go_on()
    with serving(study.folder.parent) as server:
        server.cache.refresh()
        events = events_of(server, "phones")
        next(events)
        study.go_on()
        while next(events)[0] != "progress":
            pass
        assert len(server.watcher.connections) == 1
        events.close()  # type: ignore[attr-defined]
        while server.watcher.connections:
            pass
