"""The rehearsal of rules: predictions by hand, the same draws for every rule, and rules that do not go with a study."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import turnout as to
from tests.support.audited_runs import PROBLEM
from turnout.analysis.diagnosis.rehearsal import Rehearsal, rehearsed_rounds
from turnout.array_types import Floats
from turnout.data.federation import Held
from turnout.engine import Sequential, Vectorised
from turnout.losses import quadratic
from turnout.streams import Streams
from turnout.study.rehearsal import CANDIDATES, rehearse, training_samples, with_candidates


def rehearsal(**errors: list[list[float]]) -> Rehearsal:
    made: dict[str, Floats] = {rule: np.array(rows) for rule, rows in errors.items()}
    return Rehearsal(rounds=(1, 2, 3, 4), error_name="loss", errors=made, left_out={})


def test_golden_the_error_goes_on_falling_half_as_fast() -> None:
    found = rehearsal(fedavg=[[4.0, 4.0, 2.0, 2.0]], fedexp=[[3.0, 3.0, 3.0, 5.0]])
    assert found.predicted("fedavg", 16) == pytest.approx(2 * 4**-0.5)  # halved from 2 to 4 rounds: the exponent is 1
    assert found.predicted("fedexp", 16) == 4  # it rose: no extrapolation
    assert found.ranked(16) == ["fedavg", "fedexp"]


def test_golden_a_rule_that_falls_faster_overtakes() -> None:
    found = rehearsal(fedavg=[[1.1, 1.1, 1.0, 1.0]], mifa=[[8.0, 8.0, 1.2, 1.2]])
    assert found.ranked(4) == ["fedavg", "mifa"]
    assert found.ranked(16) == ["mifa", "fedavg"]


def test_golden_gains_are_paired_over_the_seeds_that_both_have() -> None:
    found = rehearsal(
        fedavg=[[9, 9, 3.0, 3.0], [9, 9, 7.0, 7.0]], scaffold=[[9, 9, 2.0, 2.0], [9, 9, 4.0, 4.0]], mifa=[[9, 9, 1, 1]]
    )
    gain = found.gain("scaffold")
    assert [gain.value, gain.error] == pytest.approx([2, 1])  # 1 and 3
    assert found.gain("mifa").value == 2  # 3 − 1, of the first seed alone
    assert np.isnan(found.gain("mifa").error)
    assert found.error("fedavg").value == 5
    assert found.spent_rounds == 4 * 5


def test_golden_a_bad_second_seed_of_the_best_rules_moves_no_other_rule_before_them() -> None:
    best = {name: [[first] * 4, [9.0] * 4] for name, first in (("fedexp", 1.0), ("mifa", 2.0), ("scaffold", 3.0))}
    best["mifa"][1] = [8.5] * 4
    found = rehearsal(fedavg=[[4.0] * 4], fedprox=[[5.0] * 4], **best)
    assert found.ranked(8) == ["fedexp", "mifa", "scaffold", "fedavg", "fedprox"]
    best["mifa"][1] = [1.0] * 4
    assert rehearsal(fedavg=[[4.0] * 4], **best).ranked(8) == ["mifa", "fedexp", "scaffold", "fedavg"]


def test_property_a_rule_that_diverged_is_last() -> None:
    found = rehearsal(fedavgm=[[np.inf] * 4], fedavg=[[9.0] * 4])
    assert found.ranked(100) == ["fedavg", "fedavgm"]
    assert found.gain("fedavgm").value == -np.inf


@pytest.mark.parametrize("rounds", [1, 2, 3, 7, 60, 70, 1000])
def test_property_the_rehearsal_ends_at_60_percent_of_the_rounds(rounds: int) -> None:
    measured = rehearsed_rounds(rounds)
    last = max(1, round(0.6 * rounds))
    assert last - measured.step < measured[-1] <= last
    assert all(round % measured.step == 0 for round in measured)  # an evaluation is due in each
    assert 1 <= len(measured) <= 24


def study(**sections: Any) -> to.Study:
    parts: dict[str, Any] = {"local": to.local.SGD(lr=0.02, steps=4, batches="full"), "rounds": 12, **sections}
    return to.Study(data=PROBLEM, model=to.models.Point(dim=2, dtype="float64"), loss=quadratic, seeds=2, **parts)


def quietly(plan: to.Study, engine: Any = None) -> Rehearsal:
    return rehearse(plan, 0, engine or Vectorised(deterministic=True), lambda what: None)


@pytest.mark.parametrize("rounds", [12, 54])  # measured in every round, and in every second
def test_identity_a_rehearsal_is_the_beginning_of_the_run(rounds: int) -> None:
    local = to.local.SGD(lr=0.02, steps=(1, 4), batches="full")
    plan = study(selection=to.selection.Uniform(cohort_size=3), local=local, rounds=rounds)
    found = quietly(plan)
    samples = training_samples(PROBLEM.build(Streams(0)), Streams(0))
    federation = replace(PROBLEM.build(Streams(0)), test=samples)
    arms, _ = with_candidates(replace(plan, data=federation, seeds=(2,)))  # the first seed that the study has not
    table = arms.run(progress=False, engine=Vectorised(deterministic=True)).loaded.rounds
    for rule in CANDIDATES:
        own = table[(table["arm"] == rule) & table["round"].isin(found.rounds)]
        assert np.allclose(found.errors[rule][0], own["loss"], rtol=1e-9), rule


def test_contract_engines_agree() -> None:
    plan = study(selection=to.selection.Uniform(cohort_size=3))
    one, other = quietly(plan), quietly(plan, Sequential())
    assert one.ranked(12) == other.ranked(12)
    for rule, errors in one.errors.items():
        assert np.allclose(errors, other.errors[rule]), rule


def test_property_the_best_rules_and_fedavg_have_a_second_seed() -> None:
    found = quietly(study(selection=to.selection.Uniform(cohort_size=2)))
    seeds = {rule: len(errors) for rule, errors in found.errors.items()}
    assert seeds["fedavg"] == 2
    assert sum(count == 2 for count in seeds.values()) in (3, 4)
    assert sum(seeds.values()) == 8 + sum(count == 2 for count in seeds.values())


def test_identity_fedavg_is_plain_whatever_the_arm_is() -> None:
    local = to.local.SGD(lr=0.02, steps=4, batches="full", prox_strength=5.0)
    server = to.server.FedAdam(lr=1.0)
    plain, other = (quietly(each) for each in (study(), study(local=local, server=server)))
    for rule in CANDIDATES:
        assert np.array_equal(plain.errors[rule], other.errors[rule]), rule


def test_error_rules_that_do_not_go_with_the_study_are_left_out_with_the_reason() -> None:
    plan = study(asynchrony=to.asynchrony.FedBuff(), fleet=to.Fleet(clock=to.fleet.Deadline()))
    found = quietly(plan)
    assert found.left_out
    assert set(found.left_out).isdisjoint(found.errors)
    assert all(reason.strip() for reason in found.left_out.values())


def test_property_models_are_measured_on_training_samples_of_every_client() -> None:
    data = to.data.Digits(clients=5, partition=to.data.partition.Iid(), holdout=0.2)
    federation = data.build(Streams(3))
    samples = training_samples(federation, Streams(3))
    assert isinstance(federation.train, Held)
    own = [federation.train.of(client) for client in range(5)]
    assert len(samples.y) == sum(len(each.y) for each in own)
    assert samples.x.double().sum() == pytest.approx(sum(float(each.x.double().sum()) for each in own))
    assert sorted(samples.y.tolist()) == sorted(label for each in own for label in each.y.tolist())
