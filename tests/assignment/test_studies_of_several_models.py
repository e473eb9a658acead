"""Studies with several models, in a folder: exact resume, all models kept, the journal, the report and refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import turnout as to
from turnout.analysis.audit import audit
from turnout.errors import ConfigError, JournalError
from turnout.report import write_report
from turnout.study.run_factory import RunFactory, RunKey

TWO_LABELS = {"use": "k-labels", "labels_per_client": 2}


def study(**changes: Any) -> to.Study:
    """Return IFCA with three models on clients of a few digits each."""
    sections: dict[str, Any] = {
        "name": "several",
        "data": {
            "use": "digits",
            "clients": 6,
            "samples": 240,
            "holdout": 0.2,
            "partition": TWO_LABELS,
        },
        "model": {"use": "softmax", "zero_init": False},  # else all models start at zero
        "local": {"use": "sgd", "lr": 0.1, "batch_size": 10, "epochs": 1},
        "assignment": {"use": "lowest-loss", "num_models": 3},
        "rounds": 4,
        "seeds": 1,
    }
    return to.Study(**(sections | changes))


def test_models_start_independently_and_the_first_as_without_an_assignment() -> None:
    several, plain = (RunFactory(each, torch.device("cpu")) for each in (study(), study(assignment=None)))
    state = several.run(0, RunKey("several", 0)).state
    assert state.models is not None
    assert torch.equal(state.models[0], plain.run(0, RunKey("several", 0)).state.model)
    assert len({tuple(row.tolist()) for row in state.models}) == 3
    again = RunFactory(study(), torch.device("cpu")).run(0, RunKey("several", 0)).state.models
    assert again is not None
    assert torch.equal(state.models, again)


def test_a_folder_keeps_every_model_and_the_assignment_of_each_round(tmp_path: Path) -> None:
    result = study().run(tmp_path / "out")
    loaded = to.load(tmp_path / "out")
    models = [result.state_dict("several", 0, number)["1.weight"] for number in range(3)]
    assert not torch.equal(models[0], models[1])
    for number in range(3):
        assert torch.equal(loaded.state_dict("several", 0, number)["1.weight"], models[number])
        assert torch.equal(dict(result.module("several", 0, number).named_parameters())["1.weight"], models[number])
    assert torch.equal(loaded.state_dict("several", 0)["1.weight"], models[0])
    assigned = dict(loaded.round_by_client("assignment", "several", 0))
    assert sorted(assigned) == [1, 2, 3, 4]
    assert all(set(values) <= {0.0, 1.0, 2.0} for values in assigned.values())
    with pytest.raises(ConfigError, match="This run has 3 models, numbered from 0; got model = 3"):
        loaded.state_dict("several", 0, 3)


def test_the_report_maps_which_model_each_client_trained(tmp_path: Path) -> None:
    study().run(tmp_path / "out")
    page = write_report([tmp_path / "out"], tmp_path / "report.html").read_text()
    plain = study(assignment=None, name="plain")
    plain.run(tmp_path / "plain")
    assert "Models used by clients" in page
    assert "models in use in the last round" in page
    assert "Models used by clients" not in write_report([tmp_path / "plain"], tmp_path / "plain.html").read_text()


def test_clients_are_measured_with_their_own_models() -> None:
    loaded = study().run().loaded
    last = loaded.rounds.iloc[-1]
    clients = loaded.client_accuracy
    sizes = loaded.holdings("several", 0)
    assert sizes is not None
    assert 0 <= last["own_accuracy"] <= 1
    assert np.isfinite(clients["accuracy"]).all()
    assert clients["accuracy"].min() <= last["own_accuracy"] <= clients["accuracy"].max()


def test_error_an_audit_of_several_models() -> None:
    with pytest.raises(JournalError, match="has several models, and each has an objective of its own"):
        audit(study().run().loaded, "several", 0)
