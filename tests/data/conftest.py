"""Set-up for tests of data: the real files where they are, and no downloads."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def real() -> Callable[..., str]:
    """Return the folder TURNOUT_DATA names, or skip where it lacks one of the sets asked for."""

    def folder(*names: str) -> str:
        root = os.environ.get("TURNOUT_DATA")
        if not root:
            pytest.skip("TURNOUT_DATA is not set; it names the folder that holds the real data sets")
        for name in names:
            if not (Path(root) / name).is_dir():
                pytest.skip(f"TURNOUT_DATA has no folder {name}")
        return root

    return folder


@pytest.fixture
def nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fail a test that would download, and give it an empty cache."""

    def refused(*args: object) -> None:
        raise AssertionError("a test tried to download")

    monkeypatch.setattr("turnout.data.files._stream", refused)
    monkeypatch.setenv("TURNOUT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no environment variable name a folder of data."""
    monkeypatch.delenv("TURNOUT_DATA", raising=False)
