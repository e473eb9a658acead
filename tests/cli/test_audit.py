"""`turnout audit` and `turnout diagnose`: what they print, as words and as JSON, and what they write."""

import json
from pathlib import Path

import pytest

from tests.support.command import Turnout
from tests.support.study_texts import SMALL
from turnout.study import load_study


@pytest.fixture
def turnout(turnout: Turnout) -> Turnout:
    """Run the command in a folder of its own that holds small.toml and its run."""
    Path("small.toml").write_text(SMALL, encoding="utf-8")
    assert turnout("run", "small.toml", "--engine", "sequential").code == 0
    return turnout


def test_golden_an_audit_prints_words_then_tables(turnout: Turnout) -> None:
    said = turnout("audit", "runs/small")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0].startswith(("FedAvg minimised ", "FedAvg did not minimise the mean loss over all samples: "))
    assert any(line.split()[:2] == ["arm", "mismatch"] for line in lines)
    one = turnout("audit", "small", "--arm", "FedAvg", "--seed", "1")
    assert "client  samples" in " ".join(one.out.split("\n")) or "minimised exactly" in one.out


def test_contract_json_has_every_number_and_the_causes_sum(turnout: Turnout) -> None:
    found = json.loads(turnout("audit", "runs/small", "--json").out)["audits"]
    assert {(each["arm"], each["seed"]) for each in found} == {(a, s) for a in ("FedAvg", "FedProx") for s in (0, 1)}
    for each in found:
        assert sum(cause["adds"] for cause in each["causes"]) == pytest.approx(each["total_variation"])
        assert sum(each["effective"]) == pytest.approx(1)


def test_contract_a_repair_writes_a_study_that_loads(turnout: Turnout) -> None:
    said = turnout("audit", "runs/small", "--arm", "FedAvg", "--repair")
    assert said.code == 0
    assert "wrote runs/small/repair.toml; next: turnout run runs/small/repair.toml" in said.out
    study = load_study("runs/small/repair.toml")
    assert list(study.versions()) == ["FedAvg", "FedAvg, repaired"]
    assert study.all_seeds == (0,)
    assert turnout("run", "runs/small/repair.toml", "--engine", "sequential").code == 0
    after = json.loads(turnout("audit", "runs/small-repair", "--arm", "FedAvg, repaired", "--json").out)
    before = json.loads(turnout("audit", "runs/small", "--arm", "FedAvg", "--repair", "--json").out)
    assert after["audits"][0]["total_variation"] == pytest.approx(before["repair"]["remaining"], abs=1e-4)


def test_error_a_repair_is_of_one_arm(turnout: Turnout) -> None:
    said = turnout("audit", "runs/small", "--repair")
    assert said.code == 2
    assert said.err == "A repair is of one arm; this study has FedAvg, FedProx. Choose one with --arm.\n"


def test_error_a_link_is_not_followed(turnout: Turnout, tmp_path: Path) -> None:
    Path("runs/small/repair.toml").symlink_to(tmp_path / "elsewhere")
    said = turnout("audit", "runs/small", "--arm", "FedAvg", "--repair")
    assert (said.code, (tmp_path / "elsewhere").exists()) == (2, False)
    assert "is a link to another place; nothing was written" in said.err


def test_golden_a_diagnosis_prints_words_then_tables(turnout: Turnout) -> None:
    said = turnout("diagnose", "small.toml")
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert said.err.startswith("small: diagnosing FedAvg\n")
    assert lines[0].startswith("Try ")
    assert lines[1].startswith("  1. ")
    assert any(line.startswith("What holds FedAvg back most, by theory, is ") for line in lines)
    assert any(line.startswith("Cost: ") for line in lines)
    assert any('aggregation = "scheme-c" would ' in line for line in lines)
    found = json.loads(turnout("diagnose", "small.toml", "--arm", "FedProx", "--json").out)
    assert len(found["rules"]) == 8
    assert found["dominant"] == max(found["terms"], key=found["terms"].get)
