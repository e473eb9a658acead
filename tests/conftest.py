"""Shared set-up: a private cache folder, and small federations with known answers."""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.command import Said, Turnout
from turnout.cli import main
from turnout.engine import Engine, Sequential, Vectorised

settings.register_profile("turnout", settings.default, deadline=None, max_examples=50)  # the machine may be busy
settings.load_profile("turnout")


@pytest.fixture(autouse=True)
def _private_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNOUT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def turnout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Turnout:
    """Run the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def call(*arguments: object) -> Said:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        return Said(int(left.value.code or 0), *capsys.readouterr())

    return call


@pytest.fixture(params=["sequential", "stacked", "blocks", "workers"])
def any_engine(request: pytest.FixtureRequest) -> Callable[[], Engine]:
    """Every way of running clients."""
    ways: dict[str, Callable[[], Engine]] = {
        "sequential": Sequential,
        "stacked": lambda: Vectorised("cpu", block=1000),
        "blocks": lambda: Vectorised("cpu", block=3, threads=1),
        "workers": lambda: Vectorised("cpu", stack=False, workers=2),
    }
    return ways[request.param]


@pytest.fixture
def data_folder() -> Path:
    """The folder of real data sets, where TURNOUT_DATA names one."""
    import os

    named = os.environ.get("TURNOUT_DATA")
    if not named or not Path(named).is_dir():
        pytest.skip("TURNOUT_DATA does not name a folder of data sets")
    return Path(named)
