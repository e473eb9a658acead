"""A model that does not suit a personal rule, or a family without architectures, is refused by `turnout check`."""

from pathlib import Path

import pytest

from tests.support.command import Turnout

STUDY = """rounds = 2
model = {model}
[data]
use = "digits"
clients = 10
holdout = 0.2
[local]
lr = 0.1
batch_size = 10
epochs = 1
{more}
"""
MLP = '{ use = "mlp", hidden = [16] }'
WITH_STATISTICS = '{ use = "mlp", hidden = [16], batch_norm = true }'
FAMILY = '{ use = "family", server = "mlp", clients = ["softmax"] }'
KEEP = '[personal]\nuse = "layers"\nkeep = ["{keep}"]'
CASES = {
    "nothing": (MLP, KEEP.format(keep="head"), 13, "'head' matches none of 1.weight, 1.bias, 3.weight, 3.bias"),
    "everything": (MLP, KEEP.format(keep="*"), 13, "keeps all of 1.weight, 1.bias, 3.weight, 3.bias"),
    "statistics": (WITH_STATISTICS, '[personal]\nuse = "apfl"', 2, "APFL cannot keep running statistics"),
    "momentum": (MLP, 'momentum = 0.9\n[personal]\nuse = "apfl"', 7, "APFL does the shared steps a second time"),
    "family": (FAMILY, "", 1, 'A family of models needs width.use = "architectures"'),
}


@pytest.mark.parametrize("name", CASES)
def test_error_check_names_the_line_and_the_reason(name: str, turnout: Turnout) -> None:
    model, more, line, reason = CASES[name]
    Path("study.toml").write_text(STUDY.format(model=model, more=more), encoding="utf-8")
    said = turnout("check", "study.toml")
    assert said.code == 2
    assert said.err.startswith(f"study.toml:{line}: ")
    assert reason in said.err
    assert said.err.count("\n") == 1


def test_contract_check_takes_layers_that_are_there(turnout: Turnout) -> None:
    Path("study.toml").write_text(STUDY.format(model=MLP, more=KEEP.format(keep="3")), encoding="utf-8")
    assert turnout("check", "study.toml").code == 0
