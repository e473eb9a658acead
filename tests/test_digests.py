"""The studies that `make digests` compares use every rule, and each of them is a study."""

import json
from pathlib import Path

import pytest
from benchmarks.digest_cases import BASE, CASES
from benchmarks.digests import case_study, difference

from turnout.axes import AXES
from turnout.catalogue import catalogue

RULES = [(axis, name) for axis in AXES if axis not in ("data", "models") for name in catalogue(axis)]


@pytest.mark.parametrize(("axis", "name"), RULES)
def test_contract_every_rule_is_in_a_case(axis: str, name: str) -> None:
    assert f'"{name}"' in json.dumps([BASE, CASES]), f"benchmarks/digest_cases.py has no case for {axis} {name}"


@pytest.mark.parametrize("name", CASES)
def test_contract_every_case_is_a_study(name: str, tmp_path: Path) -> None:
    assert case_study(name, tmp_path).rounds == 5


def test_golden_a_difference_says_where() -> None:
    before = {"bits": "a", "size": 1.0, "rounds": [[7, 100, 0.5], [8, 100, 0.25]]}
    other_bits, other_clients = before | {"bits": "b"}, before | {"rounds": [[7, 100, 0.5], [9, 100, 0.25]]}
    other_loss = before | {"rounds": [[7, 100, 0.5], [8, 100, 0.26]]}
    rounding = before | {"rounds": [[7, 100, 0.5], [8, 100, 0.250001]]}
    assert difference(before, before, same_machine=True) == ""
    assert difference(before, other_bits, same_machine=True) == "final model: other bits"
    assert difference(before, other_bits, same_machine=False) == ""
    assert difference(before, other_clients, same_machine=True) == "round 1: other clients or steps"
    assert difference(before, other_loss, same_machine=True) == "round 1: [100, 0.25] became [100, 0.26]"
    assert difference(before, rounding, same_machine=True) == ""
