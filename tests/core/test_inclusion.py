"""Weighting "ht" needs inclusion probabilities: a selection without them is refused before the first round."""

import re
from typing import Any

import numpy as np
import pytest

from tests.support.runs import run
from tests.support.selection_rules import RULES
from tests.support.tasks import blob_task
from turnout.aggregation import ClusterFedVARP, FedAvg, FedNova, FedVARP, Joint, NormClipping
from turnout.array_types import Floats
from turnout.coordinator import Plan, check
from turnout.coordinator.compatibility import problems
from turnout.errors import ConfigError
from turnout.fleet import Deadline, Fleet
from turnout.local import SGD, Adagrad
from turnout.protocols import Population
from turnout.rows import Facts
from turnout.traits import SelectionTraits, traits_of

AGGREGATIONS = {
    "fedavg": FedAvg(weighting="ht"),
    "fednova": FedNova(weighting="ht"),
    "fedvarp": FedVARP(weighting="ht"),
    "cluster-fedvarp": ClusterFedVARP(num_clusters=2, weighting="ht"),
    "joint": Joint(weighting="ht"),
    "norm-clipping": NormClipping(weighting="ht"),
}
CLOCKED = Fleet(clock=Deadline())  # for selections by speed
MESSAGE = 'weighting = "ht" needs inclusion probabilities; {} does not know them. Set aggregation.weighting to'


def plan_of(selection: Any, aggregation: Any) -> Plan:
    local = Adagrad(lr=0.1, steps=1, correction="joint") if isinstance(aggregation, Joint) else SGD(lr=0.1, steps=1)
    return Plan(local=local, rounds=3, fleet=CLOCKED, selection=selection, aggregation=aggregation)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("name", RULES)
def test_contract_a_selection_goes_with_ht_if_it_knows_inclusion_probabilities(name: str, aggregation: str) -> None:
    plan = plan_of(RULES[name], AGGREGATIONS[aggregation])
    if not traits_of(SelectionTraits, plan.selection).knows_inclusion_prob:
        with pytest.raises(ConfigError, match=re.escape(MESSAGE.format(type(plan.selection).__name__))):
            check(plan, Population.of(np.ones(9, dtype=np.int64)))
    elif not list(problems(plan)):
        _, records = run(blob_task(9), plan)
        assert all(len(record.answered) for record in records[1:])


def test_contract_both_kinds_of_selection_are_tried() -> None:
    assert {traits_of(SelectionTraits, rule).knows_inclusion_prob for rule in RULES.values()} == {True, False}


@pytest.mark.parametrize("name", RULES)
def test_contract_a_selection_says_truly_whether_it_knows_them(name: str) -> None:
    seen = []

    class Watching(FedAvg):
        """FedAvg, with a note of what it was told."""

        def coefficients(self, facts: Facts) -> Floats:
            seen.append(facts.inclusion_prob is not None)
            return super().coefficients(facts)

    rule = RULES[name]
    weighting = "ht" if type(rule).__name__ == "Optimal" else "mean"
    run(blob_task(9), plan_of(rule, Watching(weighting=weighting)))  # type: ignore[arg-type]
    assert all(seen) == traits_of(SelectionTraits, rule).knows_inclusion_prob
