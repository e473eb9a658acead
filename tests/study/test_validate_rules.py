"""What is given in Python is held against the axis it is given for, before anything runs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import turnout as to
from tests.support.tasks import train_of
from turnout import Study
from turnout.errors import ConfigError, DataError
from turnout.study import resolved_settings


def study(**changes: Any) -> Study:
    pairs = [(torch.randn(6, 4), torch.arange(6) % 3) for _ in range(3)]
    given = {"data": to.data.from_clients(pairs), "model": nn.Linear(4, 3), "local": to.local.SGD(lr=0.1, steps=1)}
    return to.Study(**{**given, "rounds": 1, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"model": nn.Linear},
            r"without arguments; Linear needs in_features, out_features. Write model=lambda: Linear\(…\).",
        ),
        ({"model": to.models.MLP}, r"model needs a rule, not its class; got MLP. Write MLP\(…\)."),
        ({"selection": to.selection.Uniform}, r"selection needs a rule, not its class; got Uniform. Write Uniform"),
        (
            {"model": lambda x: x},
            r"model needs a class or function that can be called without arguments; <lambda> needs x. Write",
        ),
        (
            {"model": 3},
            r"model needs an nn.Module, a class or function that makes one, or a rule with the method build; got 3",
        ),
        (
            {"data": [(1, 2)]},
            r"data needs a Federation, or a rule with the method build; got \[\(1, 2\)\]. See `turnout ls data`",
        ),
        ({"aggregation": 5}, r"aggregation needs a rule with the method coefficients or combine; got 5"),
        (
            {"fleet": to.fleet.Bernoulli(prob=0.5)},
            r"fleet needs a Fleet; got Bernoulli\(prob=0\.5.*\)\. Write fleet=Fleet\(availability=Bernoulli\(…\)\)\.",
        ),
        ({"fleet": to.Fleet}, r"fleet needs a Fleet; got the class Fleet\. Write fleet=Fleet\(…\)\."),
        ({"data_seed": -1}, r"data_seed must be a whole number from 0 up, or none; got -1\. Change data_seed\."),
        ({"data_seed": "x"}, r"data_seed must be a whole number from 0 up, or none; got 'x'"),
        ({"data_seed": True}, r"data_seed must be a whole number from 0 up, or none; got True"),
        ({"arms": [to.arm("a", data_seed=1.5)]}, r"data_seed must be a whole number from 0 up, or none; got 1\.5"),
        ({"evaluate": 5}, r"evaluate needs a Cadence; got 5\. Write evaluate=Cadence\(…\)\."),
        (
            {"arms": ["FedAvg"]},
            r"arms needs a list of arms; got 'FedAvg'\. Write arms=\[turnout\.arm\(\"FedAvg\", …\)\]",
        ),
        ({"arms": "FedAvg"}, r"arms needs a list of arms; got 'FedAvg'"),
        ({"arms": to.arm("a")}, r"arms needs a list of arms; got one arm\. Write arms=\[turnout\.arm\(…\)\]"),
        ({"server": None}, r"server needs a rule with the method advance; got None"),
        ({"attack": 0.3}, r"attack needs a rule with the method forge or relabel; got 0.3"),
        ({"model": nn.LazyLinear(3)}, r"LazyLinear has some that wait for their first input. Run one sample"),
        ({"model": nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 3))}, r"Sequential has some that wait for their first"),
    ],
)
def test_error_what_is_no_rule_of_its_axis(changes: dict[str, type[Any]], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        study(**changes)


def test_error_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match=r"(?s)rounds >= 1.*model needs.*selection needs"):
        study(rounds=0, model=3, selection=4)


def test_error_an_arm_is_held_to_the_same() -> None:
    with pytest.raises(ConfigError, match="selection needs a rule, not its class"):
        study(arms=[to.arm("a", selection=to.selection.Uniform)]).run()


@pytest.mark.parametrize(
    ("clients", "came"),
    [
        ([(torch.zeros(2, 4), torch.zeros(2)), (1, 2, 3)], "Client 1's samples .* got tuple of 3"),
        ({0: 1, 1: 2}, "Client 0's samples .* got int"),
        ([torch.zeros(2)], "Client 0's samples .* got Tensor"),
    ],
)
def test_error_clients_that_are_no_pairs(clients: Any, came: str) -> None:
    with pytest.raises(DataError, match=rf"{came}. Pass \(inputs, targets\)."):
        to.data.from_clients(clients)


def test_contract_inputs_that_carry_gradients_are_taken_without() -> None:
    pairs = [(torch.randn(6, 4, requires_grad=True), torch.arange(6) % 3) for _ in range(3)]
    assert not train_of(to.data.from_clients(pairs)).x.requires_grad


# names and dicts in place of rules


def test_contract_a_name_is_the_rule_with_its_defaults() -> None:
    short = study(aggregation="fednova", server="sgd", loss="cross-entropy", fleet=to.Fleet(availability="bernoulli"))  # type: ignore[arg-type]
    assert short.aggregation == to.aggregation.FedNova()
    assert short.server == to.server.SGD()
    assert short.loss is to.losses.cross_entropy
    assert short.fleet == to.Fleet(availability=to.fleet.Bernoulli())
    assert to.data.Digits(partition="dirichlet").partition == to.data.partition.Dirichlet(concentration=0.5)  # type: ignore[arg-type]
    assert to.fleet.Never(count=1, others="markov").others == to.fleet.Markov()  # type: ignore[arg-type]


def test_contract_a_dict_is_a_table_of_a_study_file() -> None:
    made: Any = study(
        data={"use": "digits", "clients": np.int64(7), "partition": {"use": "shards"}},
        local={"lr": 0.2, "epochs": 2, "schedule": {"use": "step", "milestones": (3, 4)}},
        fleet={"availability": {"use": "never", "count": 2, "others": to.fleet.Bernoulli(prob=0.25)}, "clock": None},
        evaluate={"every": 2},
    )
    assert made.data == to.data.Digits(clients=7, partition=to.data.partition.Shards())
    assert made.local.schedule.milestones == (3, 4)
    assert made.local == to.local.SGD(lr=0.2, epochs=2, schedule=made.local.schedule)
    assert made.fleet.availability.others == to.fleet.Bernoulli(prob=0.25)
    assert made.evaluate == to.Cadence(every=2)


def test_contract_a_dict_in_an_arm_changes_the_rule_of_the_study() -> None:
    base = to.local.SGD(lr=0.1, epochs=3, batch_size=5, schedule="inverse")  # type: ignore[arg-type]
    made: Any = study(
        local=base,
        fleet=to.Fleet(availability=to.fleet.Markov(join=0.3)),
        arms=[
            to.arm("faster", local={"lr": 0.3}),
            to.arm("named", local={"use": "sgd", "momentum": 0.5}),
            to.arm("adam", local={"use": "adam", "lr": 0.01, "steps": 2}),
            to.arm("away", fleet={"availability": {"leave": 0.5}}),
        ],
    ).versions()
    assert made["faster"].local == replace(base, lr=0.3)
    assert made["named"].local == replace(base, momentum=0.5)
    assert made["adam"].local == to.local.Adam(lr=0.01, steps=2)
    assert made["away"].fleet.availability == to.fleet.Markov(join=0.3, leave=0.5)


def test_contract_python_and_study_files_read_the_same(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(
        """
        rounds = 2
        data = { use = "digits", clients = 5, partition = "dirichlet" }
        model = "softmax"
        local = { lr = 0.1, epochs = 1 }
        [[arm]]
        name = "x"
        local = { lr = 0.3 }
        """
    )
    same = to.Study(
        name="study",
        rounds=2,
        data={"use": "digits", "clients": 5, "partition": "dirichlet"},  # type: ignore[arg-type]
        model="softmax",  # type: ignore[arg-type]
        local={"lr": 0.1, "epochs": 1},  # type: ignore[arg-type]
        arms=[to.arm("x", local={"lr": 0.3})],  # type: ignore[arg-type]
    )
    assert resolved_settings(same) == resolved_settings(to.load_study(file))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: study(aggregation="fedavgg"), r"^There is no aggregation rule 'fedavgg'\. Did you mean fedavg\?"),
        (lambda: study(local="sgd"), r"^SGD needs lr\. Set local\.lr\.$"),
        (
            lambda: study(local={"lr": 0.1, "epoch": 1}),
            r"^SGD has no setting epoch\. Did you mean epochs\? It has lr",
        ),
        (
            lambda: study(local={"lr": "0.1", "epochs": 1}),
            r'^SGD needs lr to be a number; got "0\.1"\. Change local\.lr\.$',
        ),
        (
            lambda: study(arms=[to.arm("x", local={"lrr": 0.3})]),
            r"^Arm 'x': SGD has no setting lrr\. Did you mean lr\? It has lr, ",
        ),
        (
            lambda: study(arms=[to.arm("x", data={"clients": 3})]),
            r"^Arm 'x': data needs use, the name of a rule",
        ),
        (
            lambda: to.data.Digits(partition="dirichlett"),  # type: ignore[arg-type]
            r"There is no data\.partition rule 'dirichlett'\. Did you mean",
        ),
        (lambda: to.data.Digits(partition=3), r"Digits needs partition to be a rule with the method split; got 3"),  # type: ignore[arg-type]
        (
            lambda: to.data.Digits(partition=to.data.partition.Iid),  # type: ignore[arg-type]
            r"Digits needs partition to be a rule with the method split; got the class Iid",
        ),
        (
            lambda: to.Fleet(availability=to.fleet.Deadline()),  # type: ignore[arg-type]
            r"Fleet needs availability to be a rule with the method up; got Deadline",
        ),
        (
            lambda: to.local.SGD(lr=0.1, epochs=1, schedule="stepp"),  # type: ignore[arg-type]
            r"no local\.schedule rule 'stepp'\. Did you mean step",
        ),
        (lambda: study(local={"lr": 10**30, "epochs": 1}), r"^A whole number must fit into 64 bits"),
    ],
)
def test_error_a_name_or_a_dict_that_is_no_rule(make: Callable[..., Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make()
