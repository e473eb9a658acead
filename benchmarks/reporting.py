"""Figures as a table for people and as JSON for programs, with the machine they were taken on."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows lined up, numbers to the right."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(header):
        is_number = any(isinstance(row[place], float | int) or str(row[place])[:1] in "0123456789>" for row in rows)
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row))
    is_terminal = Console().is_terminal
    Console(markup=False, width=None if is_terminal else 200).print(table)


def write_json(path: Path | None, figures: Mapping[str, Any]) -> None:
    """Write the figures, and where and when they were taken, if a file was named."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=2) + "\n")


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "taken": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
