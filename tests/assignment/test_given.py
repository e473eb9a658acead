"""Given: models by list, by the groups of the data, and by lot."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch

import turnout as to
from tests.support.fleet_claims import view_of
from turnout.assignment import Given
from turnout.data.federation import from_clients
from turnout.errors import ConfigError
from turnout.protocols import Population

GROUPS = ("north", "south", "east", "north")
TWO = Given(groups=(("north",), ("east", "south")))


def model_of(rule: Given, clients: list[int], view: Any) -> list[int]:
    ids = np.array(clients, dtype=np.int64)
    found: list[int] = rule.assign(ids, torch.zeros(rule.num_models, 1), view, cast(Any, None)).model_of.tolist()
    return found


def test_golden_groups_name_the_model() -> None:
    view = view_of(4, 1)
    view = replace(view, population=replace(view.population, groups=GROUPS))
    assert TWO.num_models == 2
    assert model_of(TWO, [0, 1, 2, 3], view) == [0, 1, 1, 0]
    assert model_of(TWO, [2, 3], view) == [1, 0]


def test_shares_are_drawn_once_per_run() -> None:
    rule, clients = Given(shares=(3.0, 1.0)), list(range(2000))
    first = model_of(rule, clients, view_of(2000, 1))
    assert first == model_of(rule, clients, view_of(2000, 7))
    assert first[5:9] == model_of(rule, [5, 6, 7, 8], view_of(2000, 1))  # whoever else is asked
    assert 440 < sum(first) < 560
    assert set(first) == {0, 1}


def test_a_study_assigns_by_the_groups_of_its_data() -> None:
    pairs = [(torch.randn(6, 2), torch.tensor([0, 1] * 3)) for _ in GROUPS]
    data = from_clients(pairs, groups=GROUPS, num_classes=2)
    study = to.Study(
        name="by group",
        data=data,
        model=to.models.Softmax(),
        local=to.local.SGD(lr=0.1, steps=1),
        assignment=TWO,
        rounds=1,
    )
    ((_, assigned),) = study.run(progress=False).loaded.round_by_client("assignment", "by group", 0)
    assert assigned.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (None, "Given with groups needs data whose clients have groups; this federation's have none"),
        (("north", "south", "west", "east"), "these are in no list: 'west'. Change assignment.groups"),
        (("north", "south", "north", "south"), "these are not in the data: 'east'. Change assignment.groups"),
    ],
)
def test_error_groups_that_do_not_suit(groups: Any, message: str) -> None:
    people = replace(Population.of(np.ones(4, dtype=np.int64)), groups=groups)
    (problem,) = TWO.population_problems(people)
    assert message in problem.message


def test_error_settings_of_given() -> None:
    with pytest.raises(ConfigError, match="Given needs one of models, groups and shares; got none"):
        Given()
    with pytest.raises(ConfigError, match=r"got models and shares. Set assignment.models"):
        Given(models=(0, 1), shares=(1.0, 1.0))
    with pytest.raises(ConfigError, match=r"'a' is listed twice. Change assignment.groups"):
        Given(groups=(("a",), ("a", "b")))
