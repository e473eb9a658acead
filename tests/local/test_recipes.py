"""Every recipe, in a tiny study, for three rounds."""

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import models_of
from turnout.aggregation import FedNova, Joint
from turnout.errors import ConfigError
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
    (model,) = models_of(result).values()
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


OTHER_RULE = {
    "local": "yogi",
    "aggregation": "median",
    "server": "fedadagrad",
    "selection": "poisson",
    "effort": "by-trace",
}
INSTEAD = {"yogi": "adagrad", "fedadagrad": "fedyogi"}  # where the recipe is that other rule itself
OTHER_VALUE = {"local.control": "none", "local.correction": "local", "selection.cohort_size": 3}
CHOICES = [(name, path) for name, recipe in RECIPES.items() for path in recipe.defined_by()]


def contradiction(name: str, path: str) -> str:
    """Return another value for a choice that defines a recipe, as --set writes it."""
    if not path.endswith(".use"):
        return str(OTHER_VALUE.get(path, 0))
    other = OTHER_RULE[path.split(".")[-2]]
    return INSTEAD[other] if RECIPES[name].defined_by()[path] == (other,) else other


@pytest.mark.parametrize(("name", "path"), CHOICES, ids="-".join)
def test_error_an_arm_cannot_override_what_defines_its_recipe(name, path, tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(STUDY.format(name), encoding="utf-8")
    value = contradiction(name, path)
    with pytest.raises(ConfigError) as failure:
        load_study(file, [f"arm.0.{path}={value}"])
    (told,) = [line for line in str(failure.value).splitlines() if "stands for" in line]
    about = RECIPES[name].about
    assert told.startswith(f"--set arm.0.{path}={value}: The recipe {name} stands for {about}. It needs {path} ")
    assert told.endswith(f"Change {path}, or leave the recipe out and write its sections in the arm.")


def test_error_a_recipe_says_what_it_needs_and_what_the_arm_has(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(STUDY.format("scaffold") + 'local = { use = "adam", lr = 0.1, epochs = 1 }\n', encoding="utf-8")
    with pytest.raises(ConfigError) as failure:
        load_study(file)
    assert str(failure.value) == (
        f"{file}:23: The recipe scaffold stands for local SGD with control variates that cancel each client's drift. "
        'It needs local.use = "sgd"; this arm has "adam". Change local.use, or leave the recipe out and write its '
        "sections in the arm."
    )


@pytest.mark.parametrize("name", ["scaffold", "fedprox", "fednova-hybrid"])
def test_error_the_shared_section_cannot_override_what_defines_a_recipe(name, tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(STUDY.format(name).replace("[local]", '[local]\nuse = "adam"'), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf'study.toml:16: The recipe {name} .* needs local.use = "sgd".* has "adam"'):
        load_study(file)


def test_contract_what_does_not_define_a_recipe_can_be_changed(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(STUDY.format("scaffold"), encoding="utf-8")
    changes = ["local.lr=0.3", 'local.control="gradient"', 'aggregation.weighting="ratio"', "server.lr=0.5"]
    (arm,) = load_study(file, [f"arm.0.{change}" for change in changes]).versions().values()
    assert (arm.local.lr, arm.local.control, arm.aggregation.weighting, arm.server.lr) == (
        0.3,
        "gradient",
        "ratio",
        0.5,
    )
    file.write_text(STUDY.format("fedavg").replace("[local]", '[local]\nuse = "adam"'), encoding="utf-8")
    load_study(file)  # the recipe leaves the solver open
