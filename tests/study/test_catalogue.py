"""What there is to choose from, and what each rule says of itself."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from torch import nn

import turnout
from turnout.aggregation import FedAvg
from turnout.axes import AXES
from turnout.catalogue import catalogue, describe, find, hint_text, is_rule, loss_named, name_of, rule_named
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.losses import LOSSES, cross_entropy
from turnout.parameters import parameters
from turnout.protocols import Selection
from turnout.rule_sources import describe_class, shipped_losses, shipped_rules
from turnout.selection import Uniform


@pytest.mark.parametrize("axis", AXES)
def test_contract_a_name_is_the_file_name_and_leads_back_to_the_rule(axis: str) -> None:
    for name, rule in catalogue(axis).items():
        assert name == Path(sys.modules[rule.__module__].__file__ or "").stem.replace("_", "-")
        assert rule_named(axis, name) is rule
        assert name_of(axis, rule) == name


@pytest.mark.parametrize("axis", AXES)
def test_contract_every_axis_offers_something(axis: str) -> None:
    assert catalogue(axis)


@pytest.mark.parametrize("axis", AXES)
def test_contract_every_rule_can_be_described(axis: str) -> None:
    for rule in catalogue(axis).values():
        described = describe(rule)
        assert described.summary
        assert [setting.name for setting in described.settings] == list(parameters(rule))


@pytest.mark.parametrize("axis", AXES)
def test_identity_a_rule_read_from_its_source_is_the_rule_that_is_imported(axis: str) -> None:
    read = shipped_rules(axis)
    assert list(read) == list(catalogue(axis))
    for name, rule in catalogue(axis).items():
        assert (read[name].module, read[name].class_name) == (rule.__module__, rule.__name__)
        assert read[name].describe() == describe(rule)
        assert read[name].summary == describe(rule).summary
        assert eval(read[name].in_python, {"turnout": turnout}) is rule


def test_identity_losses_read_from_their_source_are_the_losses() -> None:
    assert shipped_losses() == {name: (loss.__doc__ or "").splitlines()[0] for name, loss in LOSSES.items()}


@pytest.mark.parametrize("table", [turnout.Cadence, turnout.Trust, turnout.Checkpoint, turnout.Fleet])
def test_identity_a_table_read_from_its_source_has_the_settings_of_its_class(table: type) -> None:
    read = describe_class(table.__module__, table.__name__)
    assert read.settings == describe(table).settings
    assert read.summary == (table.__doc__ or "").splitlines()[0]


def test_golden_the_description_of_fedavg() -> None:
    described = describe(FedAvg)
    assert described.summary == "FedAvg: a weighted average of the client updates."
    assert described.intuition.startswith("a client with more data has more weight")
    assert described.formula.splitlines()[0].startswith("mean      u = (1/|S|)")
    assert described.notes.startswith("π_i is the probability that an available client is selected")
    assert described.reduces_to.startswith("one step of gradient descent")
    assert described.reference.endswith("arXiv:1602.05629.")
    weighting, _ = described.settings
    assert (weighting.type, weighting.default) == ('"mean" | "ht" | "ht-fleet" | "ratio" | "measured"', '"ratio"')


def test_golden_settings_carry_type_default_and_meaning() -> None:
    settings = {setting.name: setting for setting in describe(SGD).settings}
    assert settings["lr"].default is None
    assert settings["lr"].meaning.startswith("local learning rate η_l")
    assert settings["epochs"].type == "int >= 1 | [int >= 1, int >= 1] | none"
    assert settings["batch_size"].default == "none"


@pytest.mark.parametrize("axis", AXES)
def test_contract_every_setting_is_explained_in_words(axis: str) -> None:
    for name, rule in shipped_rules(axis).items():
        for setting in rule.describe().settings:
            assert len(setting.meaning.split()) > 4, f"{name}.{setting.name} says only {setting.meaning!r}"


def test_golden_types_read_as_a_study_file_writes_them() -> None:
    hints = [int, float | None, tuple[int, ...], tuple[float, float], Literal["a", 1], dict[str, int]]
    wanted = ["int", "float | none", "[int, …]", "[float, float]", '"a" | 1', "dict[str, int]"]
    assert [hint_text(hint) for hint in hints] == wanted


@dataclass(frozen=True)
class Nobody:
    """A rule of one's own."""

    cohort_size: int = 1

    def choose(self) -> None: ...


@dataclass(frozen=True)
class Explained:
    """Settings with every form of comment."""

    at_end: int = 1  # number of local steps τ
    # Learning rate η_l,
    # greater than 0.
    above: float = 0.1
    # A comment with an empty line below explains no setting.

    bare: int = 1
    # Momentum ρ,
    both: tuple[float, float] = (0.0, 0.9)  # 0 to 1
    marked: int = 1  # noqa: RUF100


def test_golden_a_setting_is_explained_at_the_end_of_its_line_or_on_the_lines_above() -> None:
    meanings = {setting.name: setting.meaning for setting in describe(Explained).settings}
    assert meanings == {
        "at_end": "number of local steps τ",
        "above": "Learning rate η_l, greater than 0.",
        "bare": "",
        "both": "Momentum ρ, 0 to 1",
        "marked": "",
    }


class Plain:
    """A rule that is not a dataclass."""

    def __init__(self, width: int, *, depth: float = 2.0) -> None: ...

    def choose(self) -> None: ...


class Net(nn.Module):
    """A module of one's own."""


def test_contract_a_rule_of_ones_own_is_found_by_its_address() -> None:
    address = f"{__name__}:Nobody"
    assert rule_named("selection", address) is Nobody
    assert name_of("selection", Nobody) == address
    assert rule_named("models", f"{__name__}:Net") is Net


def test_contract_settings_of_a_plain_class_come_from_its_init() -> None:
    found = parameters(Plain)
    assert list(found) == ["width", "depth"]
    assert found["width"].is_required
    assert (found["depth"].hint, found["depth"].default) == (float, 2.0)


def test_contract_protocols_are_not_rules() -> None:
    assert is_rule(Uniform, AXES["selection"])
    assert not is_rule(Selection, AXES["selection"])


def test_error_an_unknown_rule_is_answered_with_a_suggestion() -> None:
    message = r"There is no selection rule 'unifrom'. Did you mean uniform\? There are .*: see `turnout ls selection`"
    with pytest.raises(ConfigError, match=message):
        rule_named("selection", "unifrom")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nowhere_at_all.rules:Mine", "cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("turnout.selection:Unifrom", r"turnout.selection has no Unifrom. Did you mean Uniform\?"),
        (":Name", "is not an address. Write it as package.module:Name"),
        ("..:x", "cannot be imported"),
    ],
)
def test_error_an_address_that_leads_nowhere_says_why(address: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find(address)


def test_error_a_class_of_another_axis_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a rule for server: it needs a method advance"):
        rule_named("server", f"{__name__}:Nobody")


def test_error_an_unknown_axis_lists_the_axes() -> None:
    with pytest.raises(ConfigError, match=r"There is no axis selektion. Did you mean selection\? The axes are data,"):
        catalogue("selektion")


def test_contract_losses_are_found_by_name_and_by_address() -> None:
    assert loss_named("cross-entropy") is cross_entropy
    assert loss_named("turnout.losses:cross_entropy") is cross_entropy


def test_error_an_unknown_loss_lists_the_losses() -> None:
    message = r"There is no loss 'cross_entrpy'. Did you mean cross-entropy\? There are cross-entropy, squared-error"
    with pytest.raises(ConfigError, match=message):
        loss_named("cross_entrpy")
