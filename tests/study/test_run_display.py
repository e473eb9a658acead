"""What a study, its data and its result look like in Python: while they run, when printed, and in a notebook."""

import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn

import turnout as to
from turnout.requests import Record
from turnout.study import Study
from turnout.study.progress import ProgressBoard, live
from turnout.study.run_display import LINE_SECONDS, QUIET_SECONDS, lines

ARMS = (to.arm("FedAvg"), to.arm("<b>bold</b>", aggregation=to.aggregation.FedAvg(weighting="mean")))


def study(**more: Any) -> Study:
    given = {"data": to.data.Digits(clients=6), "model": to.models.Softmax(), "rounds": 4, "seeds": 2, "arms": ARMS}
    return Study(**{**given, "local": to.local.SGD(lr=0.2, steps=1), **more})


class Clock:
    """A monotonic clock that moves when it is told to."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        patched.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def run_at(clock: Clock, seconds: float, **more: Any) -> None:
    """Run a study in which each round takes so many seconds."""

    def tick(arm: str, seed: int, record: Record) -> None:
        clock.now += seconds if (arm, seed) == ("FedAvg", 0) and record.round else 0

    study().run(on_progress=tick, **more)


def test_contract_a_quick_study_shows_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    run_at(clock, QUIET_SECONDS / 5)
    assert capsys.readouterr() == ("", "")


def test_contract_a_long_study_shows_how_far_it_is(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    run_at(clock, LINE_SECONDS)
    out, err = capsys.readouterr()
    assert out == ""
    title, *told, last = err.splitlines()
    assert title == "study   2 arms x 2 seeds   4 rounds   vectorised   in memory"
    assert 2 <= len(told) <= 4  # one every few seconds, and not two of one instant
    assert told[0].startswith("FedAvg 1/4 acc 0.")
    assert "; <b>bold</b> 1/4 acc 0." in told[0]
    assert " 4/4 acc 0." in last
    assert last.endswith("4 of 4 runs done   0 s left")


def test_contract_progress_can_be_switched_off(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    run_at(clock, LINE_SECONDS, progress=False)
    assert capsys.readouterr() == ("", "")


def test_contract_where_there_is_no_standard_error_nothing_is_shown(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    run_at(clock, LINE_SECONDS)


def test_contract_what_was_there_before_counts_as_done(
    tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(arm: str, seed: int, record: Record) -> None:
        if seed == 1 and record.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study().run(tmp_path, on_progress=stop, together=2)
    capsys.readouterr()
    clock.now += LINE_SECONDS

    def tick(arm: str, seed: int, record: Record) -> None:
        clock.now += LINE_SECONDS

    study().run(tmp_path, on_progress=tick)
    assert capsys.readouterr().err.splitlines()[-1].endswith("4 of 4 runs done   0 s left")


def test_contract_a_terminal_gets_a_table_after_a_while(clock: Clock) -> None:
    screen = StringIO()
    board = ProgressBoard(study(), "sequential   in memory")
    with live(board, Console(file=screen, force_terminal=True, width=120), 2000.0) as on_progress:

        def tell(arm: str, seed: int, record: Record) -> None:
            on_progress(arm, seed, record)
            if record.round == 2:
                assert screen.getvalue() == ""
            clock.now += 600.0 if (arm, seed) == ("FedAvg", 0) else 0

        study().run(engine="sequential", on_progress=tell, progress=False)
    shown = screen.getvalue()
    last = shown[shown.rindex("study   2 arms") :]
    assert [line.split()[:2] for line in last.splitlines()[2:4]] == [["FedAvg", "4/4"], ["<b>bold</b>", "4/4"]]


def test_contract_a_line_holds_a_few_arms_and_a_loss_where_nothing_else_is_measured(clock: Clock) -> None:
    pairs = [(torch.randn(6, 2), torch.randn(6, 1)) for _ in range(3)]
    arms = [to.arm(f"a{number}", local=to.local.SGD(lr=0.01 * number, steps=1)) for number in range(1, 9)]
    few = study(data=to.data.from_clients(pairs, test=pairs[0]), arms=arms, rounds=1, seeds=1)
    screen = StringIO()
    with lines(ProgressBoard(few, ""), Console(file=screen, width=80)) as on_progress:
        few.run(on_progress=on_progress, progress=False)
    last = screen.getvalue().splitlines()[-1]
    assert last.startswith("a1 1/1 loss ")
    assert "a6 1/1 loss " in last
    assert "; 2 more arms   8 of 8 runs done" in last


def test_contract_printing_shows_no_data_and_no_weights(tmp_path: Path) -> None:
    data = to.data.from_clients(
        [(torch.randn(50, 64), torch.arange(50) % 10)] * 3, test=(torch.randn(9, 64), torch.arange(9)), num_classes=10
    )
    given = study(data=data, model=nn.Linear(64, 10), name="mine")
    result = given.run(tmp_path / "out", progress=False)
    assert repr(data) == "Federation('clients': 3 clients, 150 training, 9 test samples of shape (64,), 10 classes)"
    assert repr(given) == "Study('mine': 2 arms x 2 seeds, 4 rounds)"
    assert repr(result) == f"Result(Study('mine': 2 arms x 2 seeds, 4 rounds), {tmp_path / 'out'})"
    assert repr(result.loaded) == f"Loaded('mine': 2 arms, 4 of 4 runs finished, 20 rounds, {tmp_path / 'out'})"
    assert repr(study(arms=[to.arm("a"), to.arm("b", rounds=9)], seeds=1)) == (
        "Study('study': 2 arms x 1 seed, 4 to 9 rounds)"
    )
    assert repr(given.run(progress=False)).endswith("4 rounds), in memory)")


def test_contract_a_notebook_shows_the_comparison() -> None:
    result = study().run()
    page = result._repr_html_()
    assert page.count("<tr>") == 3
    assert "<th>final accuracy</th>" in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "<b>" not in page
    shown = result.comparison().shown()
    assert all(f"<td>{cell}</td>" in page for row in shown.rows for cell in row[1:] if "&" not in cell)


def test_contract_a_notebook_says_why_there_is_nothing_to_compare() -> None:
    pairs = [(torch.randn(6, 2), torch.arange(6) % 2) for _ in range(3)]
    page = study(data=to.data.from_clients(pairs), rounds=1).run()._repr_html_()
    assert page.startswith("<p>Result(Study(&#x27;study&#x27;: 2 arms")
    assert "Nothing was measured" in page
