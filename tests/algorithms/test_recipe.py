"""`recipe` in a study file: its settings, its place, and what it refuses."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

import turnout as to
from turnout.algorithms.algorithm import Weighting
from turnout.errors import ConfigError
from turnout.study import load_study, resolved_settings

STUDY = """\
rounds = 2
data   = { use = "digits", clients = 8 }
model  = "softmax"

[selection]
cohort_size = 4

[local]
lr         = 0.1
batch_size = 20
epochs     = 1
"""
ARM = STUDY + '[[arm]]\nname = "this one"\n'
Load = Callable[..., to.Study]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(text: str, *overrides: str) -> to.Study:
        file = tmp_path / "study.toml"
        file.write_text(text, encoding="utf-8")
        return load_study(file, overrides)

    return load


def complaint(load: Load, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as failure:
        load(text, *overrides)
    (line,) = str(failure.value).replace("\n", "\0").split("\0")
    return line[line.index("study.toml") :] if "study.toml" in line else line


def test_golden_settings_of_a_recipe(load: Load) -> None:
    (arm,) = load(ARM + 'recipe = { use = "local-adam", lr = 0.05, correction = "local" }\n').versions().values()
    assert arm.local == to.local.Adam(lr=0.05, batch_size=20, epochs=1, correction="local")
    assert arm.aggregation == to.aggregation.FedAvg()
    (arm,) = load(ARM + 'recipe = { use = "adacomm", start = 8 }\n').versions().values()
    effort = to.local.effort.AdaComm(start=8, every=10)
    assert arm.local == to.local.SGD(lr=0.1, batch_size=20, effort=effort)
    (arm,) = load(ARM + 'recipe = "fednova-vr"\n').versions().values()
    assert arm.local == to.local.SGD(lr=0.1, batch_size=20, epochs=1, control="average")


def test_contract_a_recipe_and_its_settings_can_be_set_by_a_flag(load: Load) -> None:
    text = ARM + 'recipe = "fedprox"\n'
    (arm,) = load(text, "arm.0.recipe.prox_strength=0.5").versions().values()
    assert arm.local == to.local.SGD(lr=0.1, batch_size=20, epochs=1, prox_strength=0.5)
    (arm,) = load(text, "arm.0.recipe=fednova").versions().values()
    assert arm.aggregation == to.aggregation.FedNova()


def test_contract_settings_and_what_a_recipe_leaves_open_can_be_changed_in_sections(load: Load) -> None:
    changes = ["local.lr=0.3", 'local.control="gradient"', 'aggregation.weighting="ratio"', "local.momentum=0.5"]
    study = load(ARM + 'recipe = "scaffold"\n', *(f"arm.0.{change}" for change in changes))
    (arm,) = study.versions().values()
    assert arm.local == to.local.SGD(lr=0.3, batch_size=20, epochs=1, control="gradient", momentum=0.5)
    assert arm.aggregation == to.aggregation.FedAvg(weighting="ratio")
    load((ARM + 'recipe = "fedavg"\n').replace("[local]", '[local]\nuse = "adam"'))  # the solver is left open


@pytest.mark.parametrize("weighting", get_args(Weighting))
def test_contract_fedavg_has_any_weighting_but_stays_a_weighted_average_with_plain_steps(
    load: Load, weighting: str
) -> None:
    (arm,) = load(ARM + f'recipe = {{ use = "fedavg", weighting = "{weighting}" }}\n').versions().values()
    (changed,) = load(ARM + 'recipe = "fedavg"\n', f"arm.0.aggregation.weighting={weighting}").versions().values()
    assert arm.aggregation == changed.aggregation == to.aggregation.FedAvg(weighting=weighting)  # type: ignore[arg-type]
    for change in ('aggregation = "fednova"\n', 'server = { use = "fedadam", lr = 0.1 }\n'):
        told = complaint(load, ARM + f'recipe = {{ use = "fedavg", weighting = "{weighting}" }}\n{change}')
        assert "The recipe fedavg needs " in told


def test_identity_a_recipe_at_the_top_is_the_recipe_of_the_only_arm(load: Load) -> None:
    recipe = 'recipe = { use = "scaffold", server_lr = 0.5 }\n'
    (arm,) = load(ARM + recipe).versions().values()
    assert resolved_settings(arm) == resolved_settings(load(recipe + STUDY))
    text = recipe + STUDY + '[[arm]]\nname = "small"\nlocal.lr = 0.01\n[[arm]]\nname = "large"\nlocal.lr = 0.2\n'
    arms = load(text).versions()
    assert {name: arm.local for name, arm in arms.items()} == {
        "small": to.local.SGD(lr=0.01, batch_size=20, epochs=1, control="average"),
        "large": to.local.SGD(lr=0.2, batch_size=20, epochs=1, control="average"),
    }


def test_error_an_arm_cannot_leave_the_recipe_of_the_study(load: Load) -> None:
    text = 'recipe = "scaffold"\n' + STUDY + '[[arm]]\nname = "x"\n'
    assert complaint(load, text + 'local.control = "none"\n') == (
        'study.toml:15: The recipe scaffold needs local.control to be one of "average", "gradient"; got "none". Change '
        "local.control, or leave the recipe out and write its sections (`turnout show scaffold`)."
    )
    assert complaint(load, text + 'recipe = "fedavg"\n') == (
        "study.toml:15: The study has a recipe, which applies to every arm. Write it at the top or in arms, not both."
    )


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ('"scafold"', "There is no recipe 'scafold'. Did you mean scaffold? There are fedavg, fedprox, scaffold, "),
        ("3", 'recipe needs the name of an algorithm, or a table with use = "fedavg", for example; got 3.'),
        ("{ lr = 0.1 }", "recipe needs the name of an algorithm, or a table with use"),
        ('{ use = "scaffold", contrl = 1 }', "scaffold has no setting contrl. Did you mean control?"),
        (
            '{ use = "fedprox", prox_strength = 0 }',
            "fedprox needs prox_strength > 0; got 0. Change recipe.prox_strength.",
        ),
        ('{ use = "rpow-d", cohort_size = 3 }', "rpow_d needs pool_size. Set recipe.pool_size."),
    ],
)
def test_error_a_wrong_recipe_is_one_line(load: Load, recipe: str, message: str) -> None:
    assert complaint(load, ARM + f"recipe = {recipe}\n").startswith(f"study.toml:14: {message}")


def test_error_a_value_that_another_setting_goes_with_is_refused(load: Load) -> None:
    told = complaint(load, ARM + 'recipe = "local-adam"\nlocal.correction = "local"\n')
    assert 'The recipe local-adam needs aggregation.use = "fedavg"; got "joint".' in told
    told = complaint(
        load,
        ARM + 'recipe = { use = "dp-fedavg", cohort_size = 4, clip_norm = 1, noise_multiplier = 1 }\n',
        "arm.0.aggregation.cohort_size=5",
    )
    assert "The recipe dp-fedavg needs selection.cohort_size = 5; got 4." in told


def test_error_a_shared_section_with_another_solver_leaves_the_recipe_incomplete(load: Load) -> None:
    text = (ARM + 'recipe = "scaffold"\n').replace("[local]", '[local]\nuse = "adam"')
    assert complaint(load, text).startswith("study.toml:15: SGD needs lr. Set local.lr.")
    load(text.replace('"scaffold"', '{ use = "scaffold", lr = 0.1, epochs = 1 }'))
