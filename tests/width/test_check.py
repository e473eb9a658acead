"""`turnout check` refuses what widths do not go with: the file and the line, the reason, and what to do instead."""

import os
from pathlib import Path

import pytest
import torch

from tests.support.command import Turnout
from turnout.catalogue import catalogue
from turnout.streams import Streams
from turnout.study.check_models import any_sample
from turnout.study.task_parts import num_outputs
from turnout.traits import DataTraits, traits_of
from turnout.width.rates import Rates

STUDY = """\
rounds = 2
data   = {{ use = "{data}", clients = 10 }}
model  = {model}
local  = {local}
{more}
[width]
use   = "{width}"
rates = {rates}
{assign}"""
DEFAULTS = {
    "data": "digits",
    "model": '{ use = "mlp", hidden = [8] }',
    "local": "{ lr = 0.1, steps = 2, batch_size = 8 }",
    "more": "",
    "width": "nested",
    "rates": "[1.0, 0.5]",
    "assign": "",
}
FIRST, LOCAL, MORE, WIDTH, ASSIGN = 3, 4, 5, 6, 9  # lines of the study
REFUSED = {
    "no hidden units": ({"model": '"softmax"'}, FIRST, "it has no hidden units. Use a model of linear"),
    "groups of channels": (
        {"data": "cifar10", "model": '"resnet18"', "rates": "[0.01]"},
        FIRST,
        "1 normalises 2 groups of channels, and 1 channel cannot be divided among them. Change width.rates",
    ),
    "krum": ({"more": 'aggregation = { use = "krum", num_attackers = 1 }'}, MORE, "Krum combines whole"),
    "median": ({"more": 'aggregation = "median"'}, MORE, "Median combines whole updates"),
    "fedvarp": ({"more": 'aggregation = "fedvarp"'}, MORE, 'Set aggregation.use = "fedavg"'),
    "mifa": ({"more": 'aggregation = "mifa"'}, MORE, "MIFA combines whole updates"),
    "scaffold": (
        {"local": '{ lr = 0.1, steps = 2, control = "average" }'},
        LOCAL,
        'what SGD keeps between rounds is of the whole model, and a client trains a part of it. Set local.control = "n',
    ),
    "momentum": (
        {"local": "{ lr = 0.1, steps = 2, momentum = 0.9 }", "width": "ordered"},
        LOCAL,
        "the width changes at every local step, and SGD carries momentum or other state from step to step",
    ),
    "filter": ({"more": 'filtering = "greedy"'}, MORE, "Greedy may average updates before the round does"),
    "personal": ({"more": 'personal = "ditto"'}, MORE, "Ditto trains whole models at the clients"),
    "fedbuff": (
        {
            "more": 'asynchrony = { use = "fedbuff", buffer_size = 2, concurrency = 4 }\n'
            'fleet = { clock = { use = "deadline" } }',
        },
        MORE,
        "updates of different rounds have different parameters",
    ),
    "attack": (
        {"more": 'attack = { use = "sign-flip", fraction = 0.3 }'},
        MORE,
        "SignFlip forges updates",
    ),
    "fedexp": ({"more": 'server = "fedexp"'}, MORE, "FedExP needs a direction that is one weighted sum"),
    "speed": ({"assign": 'assign = "by-speed"'}, ASSIGN, 'assign = "by-speed" needs a clock that knows how fast'),
    "listed": ({"assign": 'assign = "listed"'}, ASSIGN - 1, "one rate per client; got 2 for 10 clients"),
    "no labels": (
        {"data": "linear-regression", "assign": "mask_labels = true"},
        ASSIGN,
        "Nested with mask_labels = true needs to know how many samples of each label a client has",
    ),
    "several models": (
        {"more": 'assignment = { use = "lowest-loss", num_models = 2 }'},
        WIDTH,
        "Nested has clients train parts of one model",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_error_check_names_the_line_and_the_way_out(name: str, turnout: Turnout) -> None:
    changes, line, message = REFUSED[name]
    Path("study.toml").write_text(STUDY.format(**DEFAULTS | changes), encoding="utf-8")
    said = turnout("check", "study.toml")
    assert said.code == 2
    assert message in said.err
    assert any(text.startswith(f"study.toml:{line}: ") and message in text for text in said.err.splitlines()), said.err


def test_contract_check_takes_a_model_that_can_be_cut(turnout: Turnout) -> None:
    for width in (name for name, rule in catalogue("width").items() if issubclass(rule, Rates)):
        Path("study.toml").write_text(STUDY.format(**DEFAULTS | {"width": width}), encoding="utf-8")
        assert turnout("check", "study.toml").code == 0


def test_error_an_arm_with_a_model_of_its_own_is_checked_by_itself(turnout: Turnout) -> None:
    arms = '\n\n[[arm]]\nname = "deep"\n\n[[arm]]\nname = "flat"\nmodel = "softmax"\n'
    Path("study.toml").write_text(STUDY.format(**DEFAULTS) + arms, encoding="utf-8")
    said = turnout("check", "study.toml")
    assert said.code == 2
    assert said.err.startswith("study.toml:16: width needs a model that can be cut; Sequential cannot: it has")


def test_error_a_model_that_fails_on_a_sample_says_its_shape(turnout: Turnout, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("nets.py").write_text(
        "from torch import nn\n\nclass Net(nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(nn.Linear(7, 4), nn.Linear(4, 10))\n"
    )
    monkeypatch.syspath_prepend(".")
    Path("study.toml").write_text(STUDY.format(**DEFAULTS | {"model": '"nets:Net"'}), encoding="utf-8")
    said = turnout("check", "study.toml", "--allow-code")
    assert said.code == 2
    assert "study.toml:3: " in said.err
    assert "it fails on a sample of shape (64,): RuntimeError: mat1 and mat2" in said.err


DRAWN = {  # data that need no files
    "concept-drift": {},
    "digits": {},
    "linear-regression": {"dim": 5},
    "quadratics": {"dim": 3},
    "synthetic": {},
    "synthetic-iid": {},
    "synthetic-on-demand": {"clients": 5},
}
READ = ("cifar10", "fashion-mnist", "hapt", "mnist", "mnist-drift", "mnist-writers", "shakespeare")


def test_contract_all_data_say_the_form_of_their_samples() -> None:
    for data in catalogue("data").values():
        assert traits_of(DataTraits, data()).sample_form is not None


@pytest.mark.parametrize("name", [*DRAWN, *READ])
def test_golden_the_form_that_data_say_is_the_form_of_their_samples(name: str) -> None:
    if name in READ and not os.environ.get("TURNOUT_DATA"):
        pytest.skip(f"set TURNOUT_DATA to the folder that holds {name}")
    rule = catalogue("data")[name](**DRAWN.get(name, {}))
    form, built = traits_of(DataTraits, rule).sample_form, rule.build(Streams(0))
    assert form is not None
    assert form.shape == built.example_shape
    assert form.outputs == num_outputs(built)
    assert any_sample(form, torch.Generator()).is_floating_point() == built.example.is_floating_point()
