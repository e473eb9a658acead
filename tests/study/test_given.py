"""What is given in Python is held against the axis it is given for, before anything runs."""

import pytest
import torch
from torch import nn

import turnout as to
from turnout.errors import ConfigError, DataError


def study(**changes):
    pairs = [(torch.randn(6, 4), torch.arange(6) % 3) for _ in range(3)]
    given = {"data": to.data.from_clients(pairs), "model": nn.Linear(4, 3), "local": to.local.SGD(lr=0.1, steps=1)}
    return to.Study(**{**given, "rounds": 1, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": nn.Linear}, r"model needs a rule, not its class; got Linear. Write Linear\(…\)."),
        ({"selection": to.selection.Uniform}, r"selection needs a rule, not its class; got Uniform. Write Uniform"),
        (
            {"model": lambda x: x},
            r"model needs a Module, or a rule with the method build; got <function .* See `turnout ls models`",
        ),
        (
            {"data": [(1, 2)]},
            r"data needs a Federation, or a rule with the method build; got \[\(1, 2\)\]. See `turnout ls data`",
        ),
        ({"aggregation": "fedavg"}, r"aggregation needs a rule with the method coefficients or combine; got 'fedavg'"),
        ({"server": None}, r"server needs a rule with the method advance; got None"),
        ({"attack": 0.3}, r"attack needs a rule with the method forge or relabel; got 0.3"),
        ({"model": nn.LazyLinear(3)}, r"LazyLinear has some that wait for their first input. Run one sample"),
        ({"model": nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 3))}, r"Sequential has some that wait for their first"),
    ],
)
def test_error_what_is_no_rule_of_its_axis(changes, said):
    with pytest.raises(ConfigError, match=said):
        study(**changes)


def test_error_all_that_is_wrong_is_said_at_once():
    with pytest.raises(ConfigError, match=r"(?s)rounds >= 1.*model needs.*selection needs"):
        study(rounds=0, model=3, selection=4)


def test_error_an_arm_is_held_to_the_same():
    with pytest.raises(ConfigError, match="selection needs a rule, not its class"):
        study(arms=[to.arm("a", selection=to.selection.Uniform)]).run()


@pytest.mark.parametrize(
    ("clients", "came"),
    [
        ([(torch.zeros(2, 4), torch.zeros(2)), (1, 2, 3)], "client 1 came as tuple of 3"),
        ({0: 1, 1: 2}, "client 0 came as int"),
        ([torch.zeros(2)], "client 0 came as Tensor"),
    ],
)
def test_error_clients_that_are_no_pairs(clients, came):
    with pytest.raises(DataError, match=rf"one \(x, y\) pair per client; {came}. Pass a list of pairs."):
        to.data.from_clients(clients)


def test_contract_inputs_that_carry_gradients_are_taken_without():
    pairs = [(torch.randn(6, 4, requires_grad=True), torch.arange(6) % 3) for _ in range(3)]
    assert not to.data.from_clients(pairs).train.x.requires_grad
