"""The tutorial notebook: every code cell runs, in order, in a fresh process, and it ends with the comparison."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parent.parent / "docs" / "tutorial.ipynb"
MARK = "--- cell "
PATHS = re.compile(r"(/(home|tmp|root|work|usr|var|Users|opt|mnt)/|[A-Z]:\\)")


def cells(kind: str) -> list[dict[str, Any]]:
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return [cell for cell in book["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def stored(cell: dict[str, Any]) -> str:
    return "".join("".join(output.get("text", [])) for output in cell["outputs"])


NOTES_ARE_FINE = """import warnings
from turnout.errors import StudyNote
warnings.simplefilter("ignore", StudyNote)
"""


def run(sources: list[str], folder: Path) -> list[str]:
    """Run the cells in one process in a folder, warnings as errors; return what each printed."""
    parts = [f"print({MARK!r} + '{place}', flush=True)\n{text}\n" for place, text in enumerate(sources)]
    script = folder / "notebook.py"
    script.write_text("\n".join([NOTES_ARE_FINE, *parts]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [part.partition("\n")[2] for part in done.stdout.split(MARK)[1:]]


def words(text: str) -> str:
    """Return a text without its numbers, curves and spacing, which rounding may change from machine to machine."""
    return " ".join(re.findall(r"[^\W\d_]{3,}", text))


@pytest.mark.slow
def test_contract_every_cell_runs_and_the_last_ones_compare(tmp_path: Path) -> None:
    code = cells("code")
    printed = run([source(cell) for cell in code], tmp_path)
    assert len(printed) == len(code)
    table, verdict = printed[-2:]
    assert "points from FedAvg" in table
    assert [line.split()[0] for line in table.splitlines()[1:3]] == ["FedAvg", "FedNova"]
    assert "FedNova" in verdict
    assert "95 % interval" in verdict
    assert (tmp_path / "day-and-night.html").stat().st_size > 10_000
    for cell, text in zip(code[:-2], printed[:-2], strict=True):
        assert words(stored(cell)) == words(text), "the notebook's stored output is from another version of it"


def test_contract_no_output_holds_a_path_or_an_error() -> None:
    assert any(stored(cell) for cell in cells("code"))
    for cell in cells("code"):
        assert not PATHS.search(json.dumps(cell["outputs"]))
        assert {output["output_type"] for output in cell["outputs"]} <= {"stream"}


def test_contract_a_cell_that_fails_is_seen(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run(["half = 1 / 2", "half / 0"], tmp_path)


def test_contract_cells_share_their_names_and_are_told_apart(tmp_path: Path) -> None:
    assert run(["a = 2", "print(a)\nprint(a + 1)"], tmp_path) == ["", "2\n3\n"]
