"""Every shipped study at smoke scale: it runs, and what has to hold exactly does."""

import os
from pathlib import Path

import pytest

from turnout.reproduce import reproduce, shipped
from turnout.reproduce.claims import MOST_PRIMARY

STUDIES = shipped()
EXACT = {  # how many identities each study holds to
    "client-drift": 5,
    "cyclic": 6,  # K̄ = 1 is plain: the same cohorts and the same losses, for three solvers
    "feddrift": 3,  # without a drift it is one model on all samples so far
    "fedexp": 1,  # η_g is never below 1
    "fedexp-images": 2,  # the same, at two rates
    "fedvarp": 12,
    "filfl-fig7": 2,
    "filfl-fig11": 2,
    "personal": 9,  # the shared model of fine-tuning, Ditto and APFL is FedAvg's, in three cells
    "phones": 1,  # weighing alone changes no hour
    "power-of-choice-fashion": 4,  # rpow-d sends no extra byte
    "ruan-table3": 1,  # with one trace the three schemes agree
    "safari-fig3": 1,  # with q = 1 it is FedAvg
    "safari-table1": 1,
    "widths": 1,  # every rate 1 is FedAvg
}


@pytest.mark.parametrize("name", list(STUDIES))
def test_contract_a_study_runs_at_smoke_scale_and_its_identities_hold(name: str, tmp_path: Path) -> None:
    study = STUDIES[name]
    if study.about.needs and not os.environ.get("TURNOUT_DATA"):
        pytest.skip(f"{name} needs {', '.join(study.about.needs)}: set TURNOUT_DATA to the folder that holds it")
    result = reproduce(study, "smoke", tmp_path / name)
    ids = [claim.statement.id for claim in result.claims]
    assert len(set(ids)) == len(ids)
    texts = [claim.statement.text for claim in result.claims]
    assert sorted(text for text in set(texts) if texts.count(text) > 1) == []
    assert 1 <= sum(claim.is_primary for claim in result.claims) <= MOST_PRIMARY
    assert all((claim.verdict is not None) == claim.is_primary for claim in result.claims)
    assert not any(claim.verdict == "held" and claim.p is None for claim in result.claims)
    exact = [claim for claim in result.claims if claim.kind == "identity"]
    assert [claim.statement.id for claim in exact if not claim.is_exact] == []
    assert len(exact) >= EXACT.get(name, 0)
    assert (tmp_path / name / "result.json").is_file()
