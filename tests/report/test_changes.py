"""Accuracy around changes of concept: by hand, and on the page of a study whose data drift."""

from pathlib import Path

import numpy as np

import turnout as to
from turnout.drift import Drift
from turnout.report import write_report
from turnout.report.changes import around


def test_golden_around_a_change_by_hand() -> None:
    # client 0 changes at time step 2 and stays, client 1 changes and changes back at 3, client 2 never changes
    concepts = np.array([[0, 0, 1, 1, 1], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]])
    drift = Drift(np.ones_like(concepts), concepts, rounds_per_step=2)
    rounds = [1, 2, 3, 4, 5, 6, 7, 8]
    steps = np.array([drift.measured_step(round) for round in rounds])
    values = np.array([[0.1 * round, 0.01 * round, 0.5] for round in rounds])
    found = around(drift, 2, steps, values)

    assert steps.tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
    expected = [[0.2, 0.3, 0.6, 0.8, np.nan], [0.02, 0.03, np.nan, np.nan, np.nan]]
    np.testing.assert_allclose(found, expected)  # round 2 is before, 3 at the change, 6 and 8 after 1 and 2


def test_the_report_shows_accuracy_around_changes_where_data_drift(tmp_path: Path) -> None:
    study = to.Study(
        name="drifting",
        data=to.data.ConceptDrift(rounds_per_step=1, samples=20),
        model=to.models.Softmax(),
        local=to.local.SGD(lr=0.5, steps=2),
        arms=(to.arm("one model"), to.arm("oracle", assignment=to.assignment.Concept(num_models=2))),
        rounds=10,
        evaluate=to.Cadence(clients_every=1),
    )
    study.run(tmp_path / "out", progress=False)
    facts = to.load(tmp_path / "out").holdings("oracle", 0)
    assert facts is not None
    assert facts.drift is not None
    assert facts.drift.rounds_per_step == 1
    assert np.array_equal(facts.drift.concepts, study.data.concepts())  # type: ignore[union-attr]
    page = write_report([tmp_path / "out"], tmp_path / "report.html").read_text()
    assert "Accuracy around changes of concept" in page
    assert "trained on from round" in page
