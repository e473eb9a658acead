"""The command: what it prints, where it prints it, and how it exits."""

import json
import re
import time
import tomllib
from dataclasses import replace
from io import StringIO
from pathlib import Path
from textwrap import dedent

import pytest
import typer
from rich.console import Console

from tests.support.command import Turnout
from tests.support.study_texts import SMALL
from turnout.axes import TABLES
from turnout.cli import main
from turnout.cli.app import app
from turnout.cli.listing import found, shown_text
from turnout.cli.study_settings import EXAMPLES
from turnout.requests import Record
from turnout.study import Study, load_study, to_toml
from turnout.study.load import OWN
from turnout.study.progress import ProgressBoard, duration, live


@pytest.fixture
def turnout(turnout: Turnout) -> Turnout:
    """Run the command in a folder of its own that holds small.toml."""
    Path("small.toml").write_text(SMALL, encoding="utf-8")
    return turnout


GIVEN = ("--accept-changed-data", "--allow-code", "--allow-network", "--deterministic")


def test_contract_the_flags_are_frozen() -> None:
    """A new setting goes to a dataclass, not to a flag."""
    command = typer.main.get_command(app)
    commands = dict(command.commands)  # type: ignore[attr-defined]
    for group in ("trace", "deploy"):
        commands |= {f"{group} {name}": sub for name, sub in commands.pop(group).commands.items()}
    flags = {name: sorted(o for p in sub.params for o in p.opts) for name, sub in commands.items()}
    assert sorted(o for p in command.params for o in p.opts) == ["--version"]
    assert flags == {
        "run": [
            *("--accept-changed-data", "--address", "--allow-code", "--allow-network", "--deterministic"),
            *("--engine", "--most", "--out", "--seeds", "--set", "--track", "--until-clear", "study"),
        ],
        "resume": ["--accept-changed-data", "--address", *GIVEN[1:], "run"],
        "check": ["--allow-code", "--json", "study"],
        "diagnose": ["--allow-code", "--arm", "--json", "--seed", "--set", "study"],
        "ls": ["--json", "axis"],
        "show": ["--json", "name"],
        "power": ["--allow-code", "--delta", "--json", "--metric", "--pilot", "sources"],
        "compare": ["--baseline", "--json", "--metric", "--target", "runs"],
        "report": ["--figures", "--json", "--out", "--target", "-o", "runs"],
        "audit": ["--arm", "--json", "--repair", "--seed", "--since", "run"],
        "export": ["--arm", "--client", "--force", "--out", "--seed", "--which", "-o", "run"],
        "reproduce": ["--json", "--out", "--scale", "--seeds", "name"],
        "ui": ["--host", "--open", "--port", "folder"],
        "trace show": ["--json", "--out", "file"],
        "trace convert": ["--keep-artefact", "--out", "--states", "-o", "source"],
        "deploy init": ["--devices", "--host", "--port", "--study", "folder"],
        "deploy check": ["--trial", "folder"],
        "deploy run": ["folder"],
        "deploy status": ["--json", "folder"],
    }


def test_golden_a_run_prints_its_rounds_the_comparison_and_what_comes_next(turnout: Turnout) -> None:
    said = turnout("run", "small.toml", "--engine", "sequential")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == "small   2 arms x 2 seeds   3 rounds   sequential   runs/small"
    assert lines[1:5] == ["reading data", "round 0: evaluating", "round 1: training", "round 1: evaluating"]
    assert lines[5].split() == ["arm", "round", "up", "asked", "answered", "loss", "acc", "MB", "left"]
    assert [line.split()[:2] for line in lines[6:12]] == [
        [a, f"{r}/3"] for r in (1, 2, 3) for a in ("FedAvg", "FedProx")
    ]
    assert len({len(line) for line in lines[5:12]}) == 1  # aligned
    assert "points from FedAvg" in said.out
    assert re.fullmatch(r"done in \d+ s; next: turnout compare runs/small", lines[-1])
    assert Path("runs/small").is_dir()


def test_contract_a_finished_study_is_told_and_not_run_again(turnout: Turnout) -> None:
    turnout("run", "small.toml")
    said = turnout("run", "small.toml")
    assert said.code == 0
    assert (
        "\nruns/small already holds all results of this study. To run it again, choose another with --out." in said.out
    )
    assert "points from FedAvg" in said.out


def test_contract_settings_seeds_and_folder_can_be_given(turnout: Turnout) -> None:
    said = turnout("run", "small.toml", "--set", "rounds=2", "--set", "name=other", "--seeds", "1", "--out", "here")
    assert said.out.startswith("other   2 arms x 1 seed   2 rounds   vectorised   here\n")
    assert Path("here").is_dir()
    assert not Path("runs").exists()


def test_error_a_folder_that_holds_another_study_is_left_alone(turnout: Turnout) -> None:
    turnout("run", "small.toml")
    said = turnout("run", "small.toml", "--set", "local.lr=0.3")
    assert said.code == 2
    assert "runs/small already holds the study 'small' with other settings" in said.err
    assert "--out" in said.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "nosuch.toml"), "There is no file nosuch.toml and no shipped study of that name."),
        (("run", "small.toml", "--set", "local.lr=fast"), "--set local.lr=fast: SGD needs lr to be a number; got"),
        (
            ("run", "small.toml", "--set", "selection.cohort_size=13"),
            "Uniform needs cohort_size <= the number of clients",
        ),
        (("run", "small.toml", "--set", "data.clients=9999"), "9999"),
        (
            ("run", "small.toml", "--engine", "fast"),
            "There is no engine 'fast'. There are vectorised, sequential and ray.",
        ),
        (
            ("run", "small.toml", "--address", "head:6379"),
            "Only the engine ray has an address; got 'head:6379'",
        ),
        (("run", "small.toml", "--seeds", "0"), "--seeds"),
        (("check", "bad.toml"), "bad.toml:2: This is not valid TOML"),
        (("ls", "selektion"), "There is no axis selektion. Did you mean selection?"),
        (("show", "unifrom"), "There is nothing called 'unifrom'. Did you mean uniform? See `turnout ls`."),
        (("compare", "nowhere"), "There is no folder nowhere. Name an output folder of turnout run"),
        (("compare", "."), "holds no"),
        (("fly",), "fly"),
    ],
)
def test_error_bad_input_is_one_message_and_exit_code_2(
    turnout: Turnout, arguments: tuple[str, ...], message: str
) -> None:
    Path("bad.toml").write_text("a = 1\nb = = 2\n")
    said = turnout(*arguments)
    assert said.code == 2
    assert message in said.err
    assert "Traceback" not in said.err + said.out
    assert said.out == "" or said.out.splitlines()[1:] == ["reading data"]
    assert not Path("runs").exists()


def test_error_a_fault_while_running_is_not_bad_input(
    turnout: Turnout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr("turnout.study.running.drive", fail)
    with pytest.raises(RuntimeError, match="a fault"):
        main(["run", "small.toml"])  # the interpreter prints the traceback and exits with 1
    assert "The run failed; the rounds before are in runs/small." in capsys.readouterr().err


def test_contract_ctrl_c_is_a_line_and_exit_code_130(turnout: Turnout, monkeypatch: pytest.MonkeyPatch) -> None:
    update = ProgressBoard.update

    def stop(board: ProgressBoard, arm: str, seed: int, record: Record) -> None:
        update(board, arm, seed, record)
        if record.round == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressBoard, "update", stop)
    said = turnout("run", "small.toml")
    assert said.code == 130
    assert said.err == ("stopped: the last checkpoint is in runs/small. Resume with: turnout resume runs/small\n")


def test_identity_what_check_prints_is_the_study(turnout: Turnout) -> None:
    said = turnout("check", "small.toml")
    assert said.out.startswith("# 2 arms x 2 seeds: no problems found\n")
    Path("again.toml").write_text(said.out, encoding="utf-8")
    assert load_study("again.toml") == load_study("small.toml")
    assert json.loads(turnout("check", "small.toml", "--json").out) == json.loads(
        turnout("check", "again.toml", "--json").out
    )


def test_contract_check_loads_no_data(turnout: Turnout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNOUT_DATA", raising=False)
    assert turnout("run", "small.toml", "--set", "data.use=nothing").code == 2
    text = Path("small.toml").read_text().replace("digits", "mnist")
    Path("mnist.toml").write_text(text)
    assert turnout("check", "mnist.toml").code == 0


def test_golden_ls_lists_every_axis_with_a_line_each(turnout: Turnout) -> None:
    said = turnout("ls")
    assert re.search(r"\nselection: which clients form the cohort\n(  .+\n)*  uniform +Uniform selection: ", said.out)
    for heading in ("data:", "partition:", "models:", "availability:", "work:", "algorithms:", "losses:", "studies:"):
        assert f"\n{heading}" in f"\n{said.out}"
    only = turnout("ls", "selection")
    assert only.out.startswith("selection: which clients form the cohort\n")
    assert "server:" not in only.out
    assert turnout("ls", "model").out == turnout("ls", "models").out
    algorithms = json.loads(turnout("ls", "algorithms", "--json").out)["algorithms"]["rules"]
    assert algorithms["fedprox"].startswith("FedProx: FedAvg in which every local step also pulls")
    assert "demo  " in turnout("ls", "studies").out


def test_golden_show_tells_intuition_formula_settings_and_reference(turnout: Turnout) -> None:
    out = turnout("show", "FedAvg").out
    assert out.startswith("aggregation/fedavg\nFedAvg: a weighted average of the client updates.\n\nIntuition: ")
    assert "\n    ratio     u = Σ_{i∈S} p_i Δ_i / Σ_{i∈S} p_i" in out
    assert '\n  weighting: "mean" | "ht" | "ht-fleet" | "ratio" | "measured"; default "ratio"\n      how ' in out
    assert max(len(line) for line in out.split("Settings:")[1].split("in Python:")[0].splitlines()) <= 100
    assert "\nReference: McMahan" in out
    assert "\nalgorithms/fedavg\n" in out
    assert "\n\nin Python: turnout.aggregation.FedAvg\n" in out


def test_contract_every_setting_of_a_study_file_can_be_shown_with_an_example_that_loads(turnout: Turnout) -> None:
    assert {*OWN, *TABLES, "rounds", "loss", "data_seed"} == set(EXAMPLES)
    plain = tomllib.loads(Path("small.toml").read_text())
    for name, example in EXAMPLES.items():
        (shown,) = json.loads(turnout("show", f"settings/{name}", "--json").out)
        assert shown["summary"]
        whole = {
            key: value | example.get(key, {}) if isinstance(value, dict) else value for key, value in plain.items()
        }
        Path("one.toml").write_text(to_toml({**whole, **{k: v for k, v in example.items() if k != "data"}}))
        said = turnout("check", "one.toml")
        assert (said.code, said.err) == (0, ""), name
    out = turnout("show", "trust").out
    assert out.startswith("settings/trust\nWhat happens to answers that cannot be used")
    assert re.search(r'\n  policy: "reject" \| "clip" \| "stop"; default "reject"\n      leave such', out)
    assert "\n\nin Python: turnout.Study(trust=turnout.Trust(…))\n\nin a study file:\n\n    [trust]\n" in out
    assert turnout("show", "data_seed").out == turnout("show", "data-seed").out


def test_contract_whatever_is_listed_can_be_shown_and_every_setting_says_what_it_is(turnout: Turnout) -> None:
    for axis, facts in json.loads(turnout("ls", "--json").out).items():
        for name in facts["rules"]:
            (shown,) = found(f"{axis}/{name}")
            assert shown["summary"]
            assert shown_text(shown).startswith(f"{axis}/{name}\n")
            assert not [setting["name"] for setting in shown.get("settings", ()) if not setting["meaning"]], name
    assert "    [server]\n" in turnout("show", "scaffold").out
    assert turnout("show", "squared-error").out.endswith('in a study file:\n\n    loss = "squared-error"\n')
    assert turnout("show", "demo").out.endswith("to run it: turnout run demo\n")


def test_contract_a_name_on_two_axes_shows_both_and_one_can_be_chosen(turnout: Turnout) -> None:
    both = json.loads(turnout("show", "sgd", "--json").out)
    assert [entry["axis"] for entry in both] == ["local", "server"]
    (one,) = json.loads(turnout("show", "server/sgd", "--json").out)
    assert (one["axis"], one["settings"][0]["name"]) == ("server", "lr")
    assert turnout("show", "turnout.selection:Uniform").out.startswith("turnout.selection:Uniform\nUniform selection")


def test_contract_compare_reads_a_folder_or_a_name(turnout: Turnout) -> None:
    turnout("run", "small.toml")
    said = turnout("compare", "runs/small")
    assert said.code == 0
    assert "points from FedAvg" in said.out
    assert turnout("compare", "small").out == said.out
    found = json.loads(turnout("compare", "small", "--json", "--baseline", "FedProx", "--metric", "loss").out)
    assert (found["metric"], found["baseline"], found["verdict"] != "") == ("loss", "FedProx", True)


def test_contract_a_rule_beside_the_study_can_be_used(turnout: Turnout) -> None:
    Path("my_rules_for_test.py").write_text(
        dedent("""\
        from dataclasses import dataclass
        from turnout.selection import Uniform

        @dataclass(frozen=True, slots=True, kw_only=True)
        class Pairs(Uniform):
            cohort_size: int = 2
        """)
    )
    said = turnout(
        "run", "small.toml", "--set", 'selection={use="my_rules_for_test:Pairs", cohort_size=2}', "--seeds", "1",
        "--allow-code",
    )  # fmt: skip
    assert said.code == 0
    (asked,) = {line.split()[3] for line in said.out.splitlines() if "/3 " in line}
    assert asked == "2"


def test_golden_version(turnout: Turnout) -> None:
    assert re.fullmatch(r"turnout \d+\.\d+\.\d+\n", turnout("--version").out)


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (192, "3m 12s"), (3720, "1h 02m")])
def test_golden_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_contract_a_long_run_prints_about_twenty_lines(turnout: Turnout) -> None:
    study: Study = load_study("small.toml", ["rounds=500"])
    board = ProgressBoard(study, "")
    due = [(arm, r) for arm in board.rounds for r in range(501) if board.is_due(arm, r)]
    assert 20 <= len(due) <= 22
    assert ("FedAvg", 1) in due
    assert ("FedAvg", 500) in due


def test_contract_the_time_left_leaves_out_what_was_there_before(turnout: Turnout) -> None:
    board = ProgressBoard(load_study("small.toml", ["rounds=500"]), "")
    board.skipped = 1000  # two of four runs had ended
    told: list[Record] = []
    two = load_study("small.toml", ["rounds=2"])
    two.run(engine="sequential", on_progress=lambda arm, seed, record: told.append(record))
    board.update("FedAvg", 1, replace(told[-1], round=499, finished=False))
    board.update("FedProx", 1, replace(told[-1], round=499, finished=False))
    assert board.skipped == 1000 + 2 * 498
    assert board.time_left == "0 s"


def test_contract_a_stopped_study_is_resumed_from_its_folder(turnout: Turnout, monkeypatch: pytest.MonkeyPatch) -> None:
    update = ProgressBoard.update

    def stop(board: ProgressBoard, arm: str, seed: int, record: Record) -> None:
        update(board, arm, seed, record)
        if record.round == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ProgressBoard, "update", stop)
        assert turnout("run", "small.toml", "--engine", "sequential", "--set", "checkpoint.rounds=1").code == 130
    said = turnout("resume", "small")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == "small   2 arms x 2 seeds   3 rounds   sequential   runs/small"
    assert [line.split()[1] for line in lines if " 3/3 " in line] == ["3/3", "3/3"]
    assert re.fullmatch(r"done in \d+ s; next: turnout compare runs/small", lines[-1])
    assert "\nruns/small already holds all results of this study." in turnout("resume", "small").out


def test_contract_a_terminal_gets_one_live_line_per_arm(turnout: Turnout) -> None:
    screen = StringIO()
    board = ProgressBoard(load_study("small.toml"), "sequential   runs/small")
    with live(board, Console(file=screen, force_terminal=True, width=120)) as on_progress:
        assert "small   2 arms x 2 seeds   3 rounds   sequential   runs/small" in screen.getvalue()  # at once
        board.tell("reading data")
        while "reading data" not in screen.getvalue():  # drawn by a thread of its own
            time.sleep(0.01)
        load_study("small.toml").run(engine="sequential", on_progress=on_progress)
    shown = screen.getvalue()
    last = shown[shown.rindex("small   2 arms") :]
    assert [line.split()[:2] for line in last.splitlines()[2:4]] == [["FedAvg", "3/3"], ["FedProx", "3/3"]]
