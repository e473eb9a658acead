"""`turnout power` and `turnout run --until-clear`: what they print, and how they refuse."""

import json
from pathlib import Path

import pytest

from tests.support.command import Turnout
from tests.support.reproduction_results import claim, result
from tests.support.study_texts import SMALL

RESULTS = Path(__file__).parents[2] / "docs" / "results"


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
        (
            ("power", "small.toml", "small.toml"),
            "power takes output folders of turnout run, results of turnout reproduce, or one study file; "
            "got 2 study files. Name one kind.",
        ),
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


@pytest.fixture
def results(turnout: Turnout) -> Turnout:
    """Run the command in a folder with results as a file and in the folder of a reproduction, and a run folder."""
    folder = Path("runs/reproduce/open-small")
    folder.mkdir(parents=True)
    Path("runs/empty").mkdir()
    held = claim(text="settled", verdict="held", seeds_needed=4)
    opens = [claim(text="open", unit="", spread=None), claim(text="a long claim " * 9, seeds_needed=300)]
    (folder / "result.json").write_text(json.dumps(result(held, *opens, name="open")), encoding="utf-8")
    Path("settled.json").write_text(json.dumps(result(held, name="settled")), encoding="utf-8")
    Path("damaged.json").write_text("{", encoding="utf-8")
    return turnout


def test_golden_power_of_a_result_prints_its_claims_and_what_would_settle_them(results: Turnout) -> None:
    said = results("power", "runs/reproduce/open-small")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == "open: 10 of at most 20 seeds, scale small, 2 minutes of processor time"
    assert lines[1].split("  ")[0] == "claim"
    assert lines[1].endswith("  verdict  seeds   effect ± spread     can tell  seeds needed")
    assert lines[2].split() == ["settled", "held", "10", "0.5", "±", "1.0", "points", "1.00", "points", "4"]
    assert lines[3].split() == ["open", "not", "settled", "10", "0.500", "1.00", "60"]
    assert lines[4].startswith("a long claim a long")
    assert lines[4].endswith("  300")
    assert "claim" in lines[5]  # the rest of the claim
    text = " ".join(said.out.split())
    assert (
        "1 of 3 claims is settled; about 300 seeds would settle the 2 open ones, 50 minutes of processor time; "
        "120 seeds fit into 20 minutes, and about 60 would settle 1 of the 2. more than 20 minutes: a long claim"
        in text
    )
    assert "within 20 minutes" not in text  # one study needs no summary


def test_golden_power_finds_the_result_in_a_folder_of_reproduce(results: Turnout) -> None:
    for name in ("runs/reproduce/open-small", "reproduce/open-small", "runs/reproduce/open-small/result.json"):
        said = results("power", name)
        assert said.code == 0
        assert said.out.startswith("open: ")


def test_golden_power_of_several_results_ends_with_a_summary(results: Turnout) -> None:
    said = results("power", "runs/reproduce/open-small", "settled.json")
    assert said.code == 0
    lines = said.out.splitlines()
    place = lines.index("study    seeds  most  settled  open  within 20 minutes  seeds needed  minutes")
    assert lines[place + 1].split() == ["open", "10", "20", "1", "2", "1", "60", "10"]
    assert lines[place + 2].split() == ["settled", "10", "20", "1", "0", "–", "–", "–"]
    assert lines[place + 4].startswith("2 studies: 2 of 4 claims are settled; runs of at most 20 minutes would settle ")


def test_golden_power_of_results_as_json_has_the_numbers(results: Turnout) -> None:
    found = json.loads(results("power", "runs/reproduce/open-small", "--json").out)
    assert (found["budget_minutes"], found["power"]) == (20, 0.8)
    (study,) = found["studies"]
    claims = study.pop("claims")
    assert study.pop("verdict").startswith("1 of 3 claims is settled; ")
    assert study == {
        **{"name": "open", "scale": "small", "seeds": 10, "most": 20, "seconds": 100.0, "settled": 1, "open": 2},
        **{"affordable": 1, "seeds_in_budget": 120, "seeds_for_all": 300, "minutes_for_all": 50.0},
        **{"seeds_for_affordable": 60, "minutes_for_affordable": 10.0},
    }
    assert [claim["seeds_to_settle"] for claim in claims] == [None, 60, 300]
    assert [claim["minutes"] for claim in claims] == [None, 10.0, 50.0]
    assert [claim["is_affordable"] for claim in claims] == [False, True, False]
    assert [claim["effect"] for claim in claims] == [0.5, 0.5, 0.5]


def test_golden_the_documentation_shows_what_power_prints_of_a_result(
    turnout: Turnout, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (RESULTS.parent / "report.md").read_text(encoding="utf-8")
    shown = page.partition("`turnout power docs/results/filfl-fig8.json`:\n\n```text\n")[2].partition("\n```")[0]
    monkeypatch.setenv("COLUMNS", "100")
    said = turnout("power", RESULTS / "filfl-fig8.json")
    assert shown
    assert said.out.startswith(f"{shown}\n\n")


@pytest.mark.parametrize("columns", ["60", "100", "300"])
def test_contract_power_prints_every_shipped_result_and_fits_the_terminal(
    turnout: Turnout, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    files = sorted(RESULTS.glob("*.json"))
    said = turnout("power", *files)
    assert (said.code, said.err) == (0, "")
    for file in files:
        assert sum(line.startswith(f"{file.stem}: ") for line in said.out.splitlines()) == 1
    assert max(map(len, said.out.splitlines())) <= min(max(int(columns), 104), 120)  # a claim has 24 columns or more


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("damaged.json",), "damaged.json is not JSON: JSONDecodeError"),
        (("nosuch.json",), "nosuch.json cannot be read: No such file or directory. Check the path."),
        (("settled.json", "runs/empty"), "or one study file; got 1 output folder and 1 result. Name one kind."),
        (("settled.json", "small.toml"), "or one study file; got 1 result and 1 study file. Name one kind."),
        (
            ("settled.json", "--delta", "2", "--metric", "loss"),
            "power judges results of turnout reproduce by their claims, which have measures and thresholds of their "
            "own; got --metric and --delta. Leave them out, or name output folders of turnout run or a study file.",
        ),
        (("settled.json", "--pilot", "5"), "got --pilot. Leave it out, or name"),
    ],
)
def test_error_results_that_power_cannot_plan_with_are_one_message(
    results: Turnout, arguments: tuple[str, ...], message: str
) -> None:
    said = results("power", *arguments)
    assert (said.code, said.out) == (2, "")
    assert message in said.err
    assert "Traceback" not in said.err


def test_contract_control_characters_of_a_result_do_not_reach_the_terminal(results: Turnout) -> None:
    text = Path("settled.json").read_text(encoding="utf-8").replace('"text": "settled"', '"text": "\\u001b[31mred"')
    Path("settled.json").write_text(text, encoding="utf-8")
    said = results("power", "settled.json")
    assert said.code == 0
    assert "\\x1b[31mred " in said.out
    assert "\x1b" not in said.out
