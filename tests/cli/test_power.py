"""`turnout power` and `turnout run --until-clear`: what they print, and how they refuse."""

import json
from pathlib import Path

import pytest

from tests.support.command import Turnout
from tests.support.study_texts import SMALL


@pytest.fixture
def turnout(turnout: Turnout) -> Turnout:
    """Run the command in a folder of its own that holds small.toml."""
    Path("small.toml").write_text(SMALL, encoding="utf-8")
    return turnout


def test_golden_power_of_a_run_says_it_in_words_and_then_in_a_table(turnout: Turnout) -> None:
    turnout("run", "small.toml", "--seeds", "4")
    said = turnout("power", "runs/small", "--delta", "2")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert "seeds tell 2.00 points between any two arms; 4 seeds tell " in lines[0]
    assert lines[2].split()[:4] == ["arm", "other", "seeds", "difference"]
    assert lines[2].endswith("seeds for 2.00 points  seeds for the one seen")
    assert lines[3].split()[:3] == ["FedProx", "FedAvg", "4"]
    assert "a paired t-test with a power of 80 % at p < 0.05, corrected for 1 comparison with one baseline" in said.out
    assert "the spread of a few seeds is rough" in said.out


def test_golden_power_as_json_has_the_numbers(turnout: Turnout) -> None:
    turnout("run", "small.toml", "--seeds", "4")
    found = json.loads(turnout("power", "small", "--json", "--metric", "loss", "--delta", "0.1").out)
    assert (found["metric"], found["delta"], found["comparisons"], found["power"]) == ("loss", 0.1, 1, 0.8)
    (pair,) = found["pairs"]
    assert (pair["arm"], pair["other"], pair["seeds"]) == ("FedProx", "FedAvg", 4)
    assert pair["smallest"] > pair["std"] > 0
    assert pair["needed"] >= 2


def test_golden_power_of_a_file_runs_pilot_seeds_and_leaves_no_folder(turnout: Turnout) -> None:
    said = turnout("power", "small.toml", "--pilot", "3")
    assert said.code == 0
    assert said.out.startswith("small: running pilot seeds 1000 to 1002, which the study itself does not use\n")
    assert "3 seeds tell " in said.out
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("power", "nosuch"), "There is no file nosuch"),
        (("power", "small.toml", "small.toml"), "power takes output folders of turnout run, or one study file"),
        (("power", "small.toml", "--delta", "-1"), "The difference to tell must be a number above 0; got -1."),
        (("power", "small.toml", "--metric", "f1"), "There is no metric 'f1' that every arm has."),
        (("run", "small.toml", "--most", "9"), "--most is the largest number of seeds of --until-clear; got 9"),
        (
            ("run", "small.toml", "--until-clear"),
            "until_clear needs 3 to 40 seeds (until_clear.most) for its first look",
        ),
        (("run", "small.toml", "--until-clear", "--most", "2"), "--most"),
    ],
)
def test_error_bad_input_is_one_message_and_exit_code_2(
    turnout: Turnout, arguments: tuple[str, ...], message: str
) -> None:
    said = turnout(*arguments)
    assert said.code == 2
    assert message in said.err
    assert "Traceback" not in said.err + said.out


def test_golden_a_run_until_clear_adds_seeds_and_says_so(turnout: Turnout) -> None:
    said = turnout("run", "small.toml", "--seeds", "3", "--until-clear", "--most", "6")
    assert said.code == 0
    assert said.out.startswith("small   2 arms x 3 to 6 seeds   3 rounds   vectorised   runs/small\n")
    assert "seeds are added until every difference is clear, with looks at 3, 6 seeds (Pocock's boundary)" in said.out
    again = turnout("run", "small.toml", "--seeds", "3", "--until-clear", "--most", "6")
    assert "already holds all results of this study" in again.out
    compared = json.loads(turnout("compare", "runs/small", "--json").out)
    (difference,) = [row["difference"] for row in compared["rows"] if row["difference"] is not None]
    assert (difference["corrected_p"] < 0.05) or difference["seeds"] == 6


def test_contract_resume_goes_on_adding_seeds(turnout: Turnout) -> None:
    turnout("run", "small.toml", "--seeds", "3", "--until-clear", "--most", "6")
    said = turnout("resume", "runs/small")
    assert said.code == 0
    assert "already holds all results of this study" in said.out
