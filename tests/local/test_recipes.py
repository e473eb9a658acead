"""Every recipe, in a tiny study, for three rounds."""

from pathlib import Path

import numpy as np
import pytest

from turnout.aggregation import FedNova, Joint
from turnout.local import SGD, Adam
from turnout.local.effort import AdaComm
from turnout.study import load_study, resolved, to_toml
from turnout.study.recipes import RECIPES

STUDY = """\
rounds = 3
seeds  = 1

[data]
use            = "digits"
clients        = 8
server_samples = 40

[model]
use = "softmax"

[selection]
cohort_size = 4

[local]
lr         = 0.1
batch_size = 20
epochs     = 1

[[arm]]
name   = "this one"
recipe = "{}"
"""

SEARCHED_FOR = {
    "fedavg",
    "fedprox",
    "scaffold",
    "fednova",
    "fednova-vr",
    "fedexp",
    "fedavgm",
    "fedadagrad",
    "fedadam",
    "fedyogi",
    "fedvarp",
    "cluster-fedvarp",
    "mifa",
    "adacomm",
    "local-adagrad-joint",
    "local-adam-joint",
    "scheme-a",
    "scheme-b",
    "scheme-c",
}


def study_of(recipe: str, folder: Path):
    file = folder / "study.toml"
    file.write_text(STUDY.format(recipe), encoding="utf-8")
    return load_study(file)


@pytest.mark.parametrize("name", RECIPES)
def test_contract_a_recipe_runs(name, tmp_path):
    study = study_of(name, tmp_path)
    again = tmp_path / "again.toml"
    again.write_text(to_toml(resolved(study)), encoding="utf-8")
    assert resolved(load_study(again)) == resolved(study)  # it can be written out in full
    result = study.run(engine="sequential")
    (model,) = result.models.values()
    losses = result.loaded.rounds["loss"].to_numpy()
    assert len(losses) == 4  # the start and three rounds
    assert np.isfinite(losses).all()
    assert np.isfinite(model.numpy()).all()
    assert losses[-1] < losses[0]


def test_contract_the_names_people_search_for_are_there():
    assert RECIPES.keys() >= SEARCHED_FOR


def test_golden_what_some_recipes_come_to(tmp_path):
    (arm,) = study_of("fednova-vr", tmp_path).versions().values()
    assert arm.local == SGD(lr=0.1, batch_size=20, epochs=1, control="average")
    assert arm.aggregation == FedNova()
    (arm,) = study_of("adacomm", tmp_path).versions().values()
    assert arm.local == SGD(lr=0.1, batch_size=20, effort=AdaComm(start=20, every=10))
    (arm,) = study_of("local-adam-joint", tmp_path).versions().values()
    assert arm.local == Adam(lr=0.01, batch_size=20, epochs=1, correction="joint")
    assert arm.aggregation == Joint()
