"""What is imported when: text and names need no numbers, so they come without the packages that take seconds."""

import os
import pty
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest

import turnout
from turnout.axes import AXES

PUBLIC = {
    "of a study": [
        "Arm",
        "Cadence",
        "Checkpoint",
        "Fleet",
        "MemoryLimit",
        "Study",
        "Trust",
        "Turnover",
        "UntilClear",
        "arm",
    ],
    "errors": ["ConfigError", "DataError", "JournalError", "TurnoutError", "UpdateError"],
    "axes": [
        "aggregation",
        "assignment",
        "assist",
        "asynchrony",
        "attacks",
        "data",
        "filtering",
        "fleet",
        "local",
        "models",
        "personal",
        "selection",
        "server",
        "width",
    ],
    "for rules and engines of one's own": ["engine", "protocols", "traits"],
    "named": ["algorithms", "losses"],
    "functions": ["compare", "load", "load_study"],
}
HEAVY = ("pandas", "rich.console", "scipy", "sklearn", "torch")


def imported_by(code: str, packages: tuple[str, ...] = HEAVY) -> list[str]:
    """Return which of these packages a fresh interpreter has imported after some code."""
    code += f"\nimport sys\nprint('imported', *[name for name in {packages!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()[1:]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["check", "--help"],
        ["trace", "--help"],
        ["ls"],
        ["ls", "--json"],
        ["show", "fedavg"],
        ["show", "sgd", "--json"],
        ["show", "evaluate"],
        ["show", "cross-entropy"],
        ["show", "demo"],
        ["show", "nothing-of-that-name"],
    ],
    ids=" ".join,
)
def test_contract_text_is_printed_without_importing_what_trains(arguments: list[str]) -> None:
    code = f"from turnout.cli import main\ntry:\n    main({arguments!r})\nexcept SystemExit:\n    pass"
    assert imported_by(code) == []


def test_contract_importing_turnout_imports_nothing_heavy() -> None:
    assert imported_by("import turnout") == []
    assert imported_by("from turnout import Study", ("pandas", "scipy", "sklearn")) == []


def test_contract_a_rule_of_any_axis_needs_neither_pandas_nor_scipy() -> None:
    code = "from turnout.axes import AXES\nfrom turnout.catalogue import catalogue\n[catalogue(axis) for axis in AXES]"
    assert imported_by(code, ("pandas", "scipy", "sklearn")) == []


def test_contract_the_public_names_are_these_and_every_axis_is_among_them() -> None:
    assert sorted(turnout.__all__) == sorted(name for names in PUBLIC.values() for name in names)
    assert {axis.package.split(".")[1] for axis in AXES.values()} == set(PUBLIC["axes"])
    for axis in AXES.values():
        assert attrgetter(axis.package.removeprefix("turnout."))(turnout).__name__ == axis.package


def test_contract_every_public_name_is_there_and_is_listed() -> None:
    for name in turnout.__all__:
        assert getattr(turnout, name) is not None
        assert name in dir(turnout)
    star: dict[str, object] = {}
    exec("from turnout import *", star)
    assert set(turnout.__all__) <= set(star)
    assert turnout.compare is sys.modules["turnout.analysis.compare"].compare
    assert turnout.fleet.Fleet is turnout.Fleet


def test_error_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'turnout' has no attribute 'Sudy'"):
        turnout.Sudy  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Sudy'"):
        exec("from turnout import Sudy")


def test_contract_python_m_turnout_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "turnout", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"turnout {turnout.__version__}\n"


def test_contract_a_run_starts_without_the_packages_that_only_its_comparison_needs() -> None:
    assert imported_by("import turnout.cli.run_study, turnout.cli.resume", ("scipy", "sklearn")) == []


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["run", "no-such-study"], "no-such-study"),
        (["resume", "no-such-folder"], "no-such-folder"),
        (["check", "no-such-study"], "no-such-study"),
        (["compare", "no-such-folder"], "compare"),
        (["report", "no-such-folder"], "report"),
    ],
)
def test_contract_a_terminal_shows_what_is_started_before_pytorch_is_imported(
    command: list[str], name: str, tmp_path: Path
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import os\nos._exit(7)")  # the first import of torch ends it
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": paths, "TERM": "xterm"}
    code = f"from turnout.cli import main\nmain({command!r})"
    done = subprocess.run([sys.executable, "-c", code], stdout=theirs, stderr=theirs, env=environment, check=False)
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert done.returncode == 7
    assert shown == f"starting {name}: loading PyTorch"
