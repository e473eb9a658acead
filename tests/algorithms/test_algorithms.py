"""Every named algorithm: what its file says, what it stands for, and that its study file runs."""

import ast
import inspect
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import turnout as to
from tests.support.runs import models_of
from turnout import algorithms
from turnout.algorithms import ALGORITHMS, GROUPS
from turnout.algorithms.algorithm import PARTS, Algorithm, flat
from turnout.axes import AXES
from turnout.cli.listing import found, shown_text
from turnout.errors import ConfigError
from turnout.study import load_study, resolved_settings, to_toml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "turnout" / "algorithms"
NO_ALGORITHM = {"__init__", "algorithm", "example", "local_adaptive"}
SECTIONS = {facts.section for facts in AXES.values()}


@pytest.fixture(params=ALGORITHMS.values(), ids=list(ALGORITHMS))
def entry(request: pytest.FixtureRequest) -> Algorithm:
    found: Algorithm = request.param
    return found


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The functions that write the pages, which need nothing of MkDocs itself."""
    config, files = ModuleType("mkdocs.config.defaults"), ModuleType("mkdocs.structure.files")
    config.MkDocsConfig = files.File = files.Files = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, config.__name__, config)
    monkeypatch.setitem(sys.modules, files.__name__, files)
    return runpy.run_path(str(ROOT / "docs" / "generate.py"))


def toml_of(page: str) -> str:
    (block,) = re.findall(r"^```toml\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    return str(block)


def versions(study: to.Study) -> dict[str, Any]:
    return {name: resolved_settings(arm) for name, arm in study.versions().items()}


def test_contract_the_package_lists_every_file_once() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - NO_ALGORITHM
    listed = [function.__name__ for group in GROUPS.values() for function in group]
    assert sorted(listed) == sorted(files)
    assert files | {"ALGORITHMS", "GROUPS", "Sections"} == set(algorithms.__all__)
    assert list(ALGORITHMS) == [name.replace("_", "-") for name in listed]
    for name in listed:
        function = getattr(to.algorithms, name)
        assert (function.__module__, function.__name__) == (f"turnout.algorithms.{name}", name)


def test_contract_a_docstring_has_its_parts_in_order(entry: Algorithm) -> None:
    first, blank, second = entry.docstring.splitlines()[:3]
    assert first.endswith(".")
    assert blank == ""
    assert second
    assert entry.parts["about"].strip().endswith(".")
    assert list(entry.parts) == ["about", *PARTS]
    for part in PARTS:
        assert entry.parts[part].strip(), part
    for part in ("Round:", "Choice per axis:"):
        lines = [line for line in entry.parts[part].splitlines() if line]
        assert lines
        assert all(line.startswith("    ") for line in lines), part


def test_contract_the_choice_per_axis_is_what_the_function_returns(entry: Algorithm) -> None:
    told = {}
    for line in entry.parts["Choice per axis:"].splitlines():
        section, _, choice = line.strip().partition(" ")
        if section:
            told[section] = choice
    made = entry.function(**entry.example.settings)
    assert list(told) == list(made)
    assert set(made) <= SECTIONS
    for section, values in made.items():
        named = values.get("use")
        assert named is None or named in told[section], f"{section} is {named}"


def test_contract_every_setting_is_typed_explained_and_has_a_place(entry: Algorithm) -> None:
    function = inspect.unwrap(entry.function)
    signature = inspect.signature(function)
    assert signature.return_annotation is algorithms.Sections
    for given in signature.parameters.values():
        assert given.kind is given.KEYWORD_ONLY
        assert given.annotation is not given.empty
    for setting in entry.settings:
        assert setting.meaning.endswith("."), setting.name
        assert len(setting.meaning) > 20, setting.name
    needed = {name for name, value in entry.parameters.items() if value.is_required}
    assert needed <= set(entry.example.settings)
    every = {name: 1 if value.default is None else value.default for name, value in entry.parameters.items()}
    assert set(entry.places({**every, **entry.example.settings}).values()) == set(entry.parameters)


def test_contract_show_prints_the_docstring_and_the_settings(entry: Algorithm) -> None:
    (facts,) = found(f"algorithms/{entry.name}")
    text = shown_text(facts)
    assert text.startswith(f"algorithms/{entry.name}\n{entry.docstring}\n")
    for setting in entry.settings:
        assert f"\n  {setting.name}: {setting.type}" in text
        assert " ".join(setting.meaning.split()) in " ".join(text.split())
    assert f"**turnout.algorithms.{entry.function.__name__}(" in text


def test_contract_the_study_on_its_page_is_the_python_call_and_runs(
    entry: Algorithm, pages: dict[str, Any], tmp_path: Path
) -> None:
    page = pages["algorithm_page"](entry)
    for heading in ("Round", "When to use it", "Settings", "Try it"):
        assert f"\n## {heading}\n" in page
    file = tmp_path / f"try-{entry.name}.toml"
    file.write_text(toml_of(page), encoding="utf-8")
    loaded = load_study(file)
    plain = entry.example.study(entry.name)
    arms = [to.arm("FedAvg", **to.algorithms.fedavg())] if len(plain["arm"]) > 1 else []
    arms.append(to.arm(entry.example.title, **entry.function(**entry.example.settings)))
    in_python = to.Study(**{key: value for key, value in plain.items() if key != "arm"}, arms=tuple(arms))
    assert versions(in_python) == versions(loaded)
    result = load_study(file, ["rounds=2", "seeds=1", "data.samples=600"]).run(progress=False)
    assert len(result.loaded.rounds) == 3 * len(plain["arm"])  # the start and two rounds
    for model in models_of(result).values():
        assert np.isfinite(model.numpy()).all()


def test_contract_a_recipe_at_the_top_is_the_python_call_in_the_study(entry: Algorithm, tmp_path: Path) -> None:
    plain, made = entry.example.study(entry.name), entry.function(**entry.example.settings)
    *_, in_an_arm = load_written(tmp_path, plain).versions().values()
    rest = {key: without(value, made.get(key, {})) for key, value in plain.items() if key != "arm"}
    rest = {key: value for key, value in rest.items() if value}
    at_the_top = load_written(tmp_path, {"recipe": {"use": entry.name, **entry.example.settings}, **rest})
    assert resolved_settings(at_the_top) == resolved_settings(in_an_arm)
    in_python = to.Study(**{**rest, **{key: {**rest.get(key, {}), **value} for key, value in made.items()}})
    assert resolved_settings(in_python) == resolved_settings(at_the_top)


def load_written(folder: Path, plain: dict[str, Any]) -> to.Study:
    file = folder / "study.toml"
    file.write_text(to_toml(plain), encoding="utf-8")
    return load_study(file)


def without(section: Any, made: dict[str, Any]) -> Any:
    """Return a section without what an algorithm sets in it; nothing is left of another rule."""
    if not isinstance(section, dict):
        return section
    is_other = made.get("use", section.get("use")) != section.get("use")
    return {} if is_other else {key: value for key, value in section.items() if key not in made or key == "use"}


def other(path: str, value: Any) -> Any:
    """Return a value that a fixed section setting does not have."""
    if not path.endswith("use"):
        return 3 if value is None else "none" if path == "local.control" else "other"
    instead = {"local": "yogi", "aggregation": "median", "server": "fedyogi", "selection": "poisson"}
    named = instead.get(path.split(".")[-2], "other")
    return {"yogi": "adam", "median": "krum", "fedyogi": "fedadam"}[named] if named == value else named


def test_error_what_defines_an_algorithm_cannot_be_overridden(entry: Algorithm, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(to_toml(entry.example.study(entry.name)), encoding="utf-8")
    arm, settings = len(entry.example.study(entry.name)["arm"]) - 1, entry.example.settings
    free = entry.places(settings)
    fixed = {path: value for path, value in flat(entry.function(**settings)).items() if path not in free}
    assert fixed
    for path, value in fixed.items():
        change = f"arm.{arm}.{path}={other(path, value)}"
        with pytest.raises(ConfigError) as failure:
            load_study(file, [change])
        told = [line for line in str(failure.value).splitlines() if f"The recipe {entry.name} needs {path} = " in line]
        assert len(told) == 1, (path, str(failure.value))
        assert told[0].startswith(f"--set {change}: ")
        assert f"Change {path}, or leave the recipe out and write its sections" in told[0]


def test_contract_the_index_names_every_algorithm_in_the_order_people_learn_them(pages: dict[str, Any]) -> None:
    links = re.findall(r"\]\(([a-z-]+)\.md\)", pages["algorithms_page"]())
    assert links == list(ALGORITHMS)


def test_contract_no_algorithm_imports_another() -> None:
    for path in FOLDER.glob("*.py"):
        imported = {n.module for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)}
        inside = {str(name) for name in imported if str(name).startswith("turnout.algorithms.")}
        if path.stem not in NO_ALGORITHM:
            assert inside <= {f"turnout.algorithms.{name}" for name in NO_ALGORITHM}


def test_error_a_call_names_the_setting_and_the_fix() -> None:
    with pytest.raises(ConfigError, match=r"^fedprox needs prox_strength > 0; got 0. Change recipe.prox_strength.$"):
        to.algorithms.fedprox(prox_strength=0)
    with pytest.raises(ConfigError, match='scaffold needs control to be one of "average", "gradient"; got "none"'):
        to.algorithms.scaffold(control="none")  # type: ignore[arg-type]
