"""Writes the page of reproductions from results: `python -m turnout.reproduce.page [RESULT.json …]`.

The named results are first copied to docs/results. The page, and the table of claims in the README, have no text that
was written by hand.
"""

import json
import shutil
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from turnout.reproduce.claims import Outcome, count_text, outcome_of, value_text

RESULTS = Path("docs/results")
PAGE = Path("docs/reproductions.md")
README = Path("README.md")
START, END = "<!-- claims: python -m turnout.reproduce.page -->", "<!-- /claims -->"
INTRO = """\
# The papers, reproduced

Every row is a claim of a paper, tested on ours: the mean over seeds ± the standard deviation over seeds. *Held* means
that the mean and most seeds are on the claimed side and that the paired test is clear (p < 0.05) after Holm's
correction over all tested claims of the study; an identity has to hold in every seed. *Not tested* means that the
seeds are on the claimed side and no test can be made of them: every seed gave the same value, or there was one seed. A
row without a verdict is a number to look at. Settings were tuned on seeds that are not reported.

This page is written by `python -m turnout.reproduce.page` from `docs/results/*.json`, which `turnout reproduce` wrote.
"""
SHOWN: dict[Outcome, str] = {"held": "yes", "not held": "**no**", "not tested": "not tested", "no claim": "–"}


def page(results: Sequence[dict[str, Any]]) -> str:
    """Return the page as Markdown."""
    lines = [
        INTRO,
        "| study | paper | scale | seeds | claims that held | processor time |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        held = count_text(_outcomes(result))
        time = _time(sum(result["seconds"].values()))
        lines.append(
            f"| [{result['name']}](#{result['name']}) | {_cell(result['paper'])} | {result['scale']} | "
            f"{result['seeds']} | {held} | {time} |"
        )
    return "\n".join([*lines, "", *(line for result in results for line in _section(result))])


def summary(results: Sequence[dict[str, Any]]) -> str:
    """Return the README's table: one row per study, with the number of claims that held."""
    lines = ["| study | of | scale, seeds | claims that held |", "|---|---|---|---|"]
    for result in results:
        link = f"[{result['name']}]({PAGE}#{result['name']})"
        run = f"{result['scale']}, {result['seeds']}"
        lines.append(f"| {link} | {_cell(result['paper'])} | {run} | {count_text(_outcomes(result))} |")
    return "\n".join(lines)


def with_summary(readme: str, table: str) -> str:
    """Return the README with the table between its marks."""
    before, start, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    return f"{before}{start}\n{table}\n{end}{after}" if start and end else readme


def _outcomes(result: dict[str, Any]) -> list[Outcome]:
    return [outcome_of(claim["held"], claim["supported"]) for claim in result["claims"]]


def _section(result: dict[str, Any]) -> list[str]:
    lines = [
        f"## {result['name']} {{ #{result['name']} }}",
        "",
        f"{_cell(result['what'])} {_cell(result['paper'])}.",
        "",
    ]
    lines += ["| claim | paper | ours | held |", "|---|---|---|---|"]
    for claim, outcome in zip(result["claims"], _outcomes(result), strict=True):
        ours = value_text(claim["ours"], claim["spread"], claim["unit"])
        cells = (claim["text"], claim["paper"], ours, SHOWN[outcome])
        lines.append("| " + " | ".join([*map(_cell, cells[:3]), cells[3]]) + " |")
    notes = [f"*{_cell(claim['text'])}*: {_cell(claim['note'])}" for claim in result["claims"] if claim["note"]]
    notes += map(_cell, result["notes"])
    if notes:
        lines += ["", *(f"- {note}" for note in notes)]
    return [*lines, "", _provenance(result), ""]


def _provenance(result: dict[str, Any]) -> str:
    spent = {kind: seconds for kind, seconds in result["seconds"].items() if seconds >= 0.05}
    total = sum(spent.values())
    shares = sorted(spent.items(), key=lambda item: -item[1])
    where = ", ".join(f"{kind} {100 * seconds / total:.0f} %" for kind, seconds in shares)
    return (
        f"`{result['command']}`: {result['runs']} runs, {result['seeds']} seeds, "
        f"{_time(total)} of processor time ({where}). "
        f"{result['date']}, turnout {result['version']}."
    )


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _cell(text: str) -> str:
    return escape(text, quote=False).replace("|", "&#124;").replace("*", "\\*").replace("\n", " ")


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Return the results in a folder, sorted by name."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]


def main(new: Sequence[str], root: Path) -> None:
    """Copy new results to docs/results, and write the page."""
    folder = root / RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    for file in map(Path, new):
        shutil.copy(file, folder / f"{json.loads(file.read_text(encoding='utf-8'))['name']}.json")
    results, readme = read_results(folder), root / README
    (root / PAGE).write_text(page(results), encoding="utf-8")
    if readme.exists():
        readme.write_text(with_summary(readme.read_text(encoding="utf-8"), summary(results)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:], Path.cwd())
