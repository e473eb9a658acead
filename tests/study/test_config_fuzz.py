"""Any study loads back to itself, and any document is a study or a message."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.study_texts import GOOD
from turnout.aggregation import FedAvg
from turnout.data.digits import Digits
from turnout.errors import ConfigError
from turnout.fleet import Always, Bernoulli, Fleet
from turnout.local import SGD
from turnout.losses import cross_entropy, squared_error
from turnout.models import MLP, Softmax
from turnout.selection import Uniform, Weighted
from turnout.study import Arm, Study, load_study, resolved_settings, to_toml

names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8)
numbers = st.floats(1e-6, 0.99)
locals_ = st.builds(
    SGD,
    lr=numbers,
    batch_size=st.none() | st.integers(1, 99),
    epochs=st.integers(1, 9) | st.just((1, 3)),
    momentum=numbers,
    clip_norm=st.none() | numbers,
)
sections = st.fixed_dictionaries(
    {},
    optional={
        "local": locals_,
        "selection": st.builds(Uniform, cohort_size=st.none() | st.integers(1, 5))
        | st.builds(Weighted, cohort_size=st.integers(1, 5), replacement=st.booleans()),
        "model": st.just(Softmax()) | st.builds(MLP, hidden=st.lists(st.integers(1, 9)).map(tuple)),
        "aggregation": st.builds(FedAvg, weighting=st.sampled_from(["mean", "ratio"])),
        "fleet": st.builds(Fleet, availability=st.just(Always()) | st.builds(Bernoulli, prob=numbers)),
        "rounds": st.integers(1, 10**6),
        "loss": st.sampled_from([None, cross_entropy, squared_error]),
        "data_seed": st.integers(0, 9),
    },
)
arms_ = st.lists(st.builds(Arm, names, sections), max_size=3, unique_by=lambda arm: arm.name).map(tuple)


@given(shared=sections, arms=arms_, seeds=st.integers(1, 9) | st.just((4, 2)), local=locals_)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_property_any_study_loads_back_to_itself(
    tmp_path: Path, shared: dict[str, Any], arms: tuple[Arm, ...], seeds: Any, local: SGD
) -> None:
    needed = {"data": Digits(clients=9), "model": Softmax(), "local": local, "rounds": 3}
    study = Study(**{**needed, **shared}, arms=arms, seeds=seeds)
    file = tmp_path / "study.toml"
    file.write_text(to_toml(resolved_settings(study)), encoding="utf-8")
    again = load_study(file)
    assert resolved_settings(again) == resolved_settings(study)
    assert resolved_versions(again) == resolved_versions(study)


def resolved_versions(study: Study) -> dict[str, Any]:
    return {name: resolved_settings(version) for name, version in study.versions().items()}


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["sgd", "iid"])
)
words = st.sampled_from(
    ["name", "use", "rounds", "seeds", "arm", "local", "lr", "epochs", "fleet", "availability", "selection", "recipe",
     "cohort_size", "data", "clients", "partition", "model", "hidden", "loss", "seed", "evaluate", "target", "prob"]
)  # fmt: skip
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(words | names, v, max_size=4), max_leaves=12
)
documents = st.dictionaries(words | names, values, max_size=8)


def outcome(file: Path, flags: Sequence[str] = ()) -> Study | ConfigError:
    try:
        return load_study(file, flags)
    except ConfigError as error:
        return error


@given(documents, st.lists(st.text(max_size=20), max_size=2))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_property_any_document_is_a_study_or_a_config_error(
    tmp_path: Path, document: dict[str, Any], flags: list[str]
) -> None:
    file = tmp_path / "study.toml"
    for entries in (document, {**tomllib.loads(GOOD), **document}):
        arms = entries.get("arm")
        written = {**entries, "arm": [arms] if isinstance(arms, dict) else []}
        plain = f"arm = {arms}\n" if isinstance(arms, int) and not isinstance(arms, bool) else ""
        file.write_text(plain + to_toml(written), encoding="utf-8")
        found = outcome(file, flags)
        assert isinstance(found, Study) or str(found)


@given(st.integers(0, len(GOOD)), st.integers(0, 30), st.text(max_size=4))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_property_a_damaged_file_is_a_study_or_a_config_error(tmp_path: Path, at: int, cut: int, put: str) -> None:
    file = tmp_path / "study.toml"
    file.write_text(GOOD[:at] + put + GOOD[at + cut :], encoding="utf-8", errors="replace")
    found = outcome(file)
    assert isinstance(found, Study) or all(line.startswith(f"{file}:") for line in str(found).splitlines())
