"""Every shipped study at smoke scale: it runs, and what has to hold exactly does."""

import os
from pathlib import Path

import pytest

from turnout.engine.vectorised import autotune
from turnout.reproduce import reproduce, shipped

STUDIES = shipped()
EXACT = {  # how many identities each study holds to
    "client-drift": 6,
    "cyclic": 6,  # K̄ = 1 is plain: the same cohorts and the same losses, for three solvers
    "fedexp": 1,  # η_g is never below 1
    "fedexp-images": 2,  # the same, at two rates
    "fedvarp": 12,
    "filfl-fig7": 2,
    "filfl-fig11": 2,
    "phones": 1,  # weighing alone changes no hour
    "power-of-choice-fashion": 4,  # rpow-d sends no extra byte
    "ruan-table3": 1,  # with one trace the three schemes agree
    "safari-fig3": 1,  # with q = 1 it is FedAvg
    "safari-table1": 1,
}


@pytest.mark.parametrize("name", list(STUDIES))
def test_contract_a_study_runs_at_smoke_scale_and_its_identities_hold(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autotune, "BUDGET_SECONDS", 0.2)  # for a few rounds the best way to run is not worth seconds
    study = STUDIES[name]
    if study.about.needs and not os.environ.get("TURNOUT_DATA"):
        pytest.skip(f"{name} needs {', '.join(study.about.needs)}: set TURNOUT_DATA to the folder that holds it")
    verdict = reproduce(study, "smoke", tmp_path / name)
    ids = [claim.statement.id for claim in verdict.claims]
    assert len(set(ids)) == len(ids)
    assert any(claim.held is not None for claim in verdict.claims)
    exact = [claim for claim in verdict.claims if claim.is_exact]
    assert [claim.statement.id for claim in exact if not claim.held] == []
    assert len(exact) >= EXACT.get(name, 0)
    assert (tmp_path / name / "result.json").is_file()
