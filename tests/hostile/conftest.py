"""The command, run in a folder of its own."""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from turnout.cli import main


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Turnout = Callable[..., Said]


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
