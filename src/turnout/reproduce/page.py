"""Writes the page of reproductions from results: `python -m turnout.reproduce.page [RESULT.json …]`.

The named results are first copied to docs/results. Numbers and verdicts come from the results, what a study is and what
was found from its module. The page, and the table in the README, have no text that was written by hand.
"""

import json
import shutil
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from turnout.errors import ConfigError
from turnout.number_format import number
from turnout.reproduce.claims import MANY_SEEDS, UNITS_WITHOUT_SPACE, interval_text, value_text
from turnout.reproduce.running import never_text, verdict_text
from turnout.reproduce.shipped import shipped

RESULTS = Path("docs/results")
PAGE = Path("docs/reproductions.md")
README = Path("README.md")
START, END = "<!-- claims: python -m turnout.reproduce.page -->", "<!-- /claims -->"
INTRO = """\
# The papers, reproduced

Each study has at most six primary claims: the main ones of its paper. A claim is judged by its interval, which allows
for the number of claims and for seeds that were added until the claims were settled (Holm's method, Pocock's boundary):

- *held*: the interval lies on the claimed side of the threshold;
- *contradicted*: it lies on the other side;
- *not settled*: it includes the threshold. Below the table stand the smallest effect that the seeds could have shown
  with a chance of 80 %, and about how many seeds would settle an effect of the size seen;
- *not tested*: no test was possible, because there was one seed, or every seed gave the same value.

*Smaller than the paper* stands beside a verdict where even the largest effect in the interval is below half of the
paper's. Everything else is secondary: it has a 95 % interval of its own and no verdict. *Ours* marks what the paper
does not claim. An identity is *exact* if it is true in every seed. Values are means over seeds ± standard deviations;
where some seeds never reached a target, pseudo-medians with the number of these seeds, by the signed-rank test.
Settings were tuned on seeds that are not reported.

Seeds are added by a group-sequential rule up to a cap. Where claims were open at a first cap, a larger one was chosen
with `turnout power` on the results of these earlier seeds, which are not reported, so that fresh seeds settle what
about twenty minutes of processor time can settle. `turnout power docs/results/*.json` prints for every study what its
seeds can tell, and what more would settle.

This page is written by `python -m turnout.reproduce.page` from `docs/results/*.json`, which `turnout reproduce` wrote.
"""
HEADINGS = ("held", "contradicted", "not settled", "not tested")
ALIKE = {  # where every primary claim has the same verdict
    "held": "All {} main claims are held.",
    "contradicted": "All {} main claims are contradicted.",
    "not settled": "These seeds settle none of the {} main claims.",
    "not tested": "None of the {} main claims could be tested.",
}


def page(results: Sequence[dict[str, Any]], pending: Sequence[str] = ()) -> str:
    """Return the page as Markdown; `pending` names the studies that have no result."""
    lines = [
        INTRO,
        f"| study | paper | scale, seeds | {' | '.join(HEADINGS)} | what was found | processor time |",
        f"|---|---|---|{'---|' * len(HEADINGS)}---|---|",
    ]
    for result in results:
        link = f"[{result['name']}](#{result['name']})"
        lines.append(f"{_summary_cells(result, link)} | {_time(sum(result['seconds'].values()))} |")
    return "\n".join([*lines, *_pending(pending), "", *(line for result in results for line in _section(result))])


def summary(results: Sequence[dict[str, Any]], pending: Sequence[str] = ()) -> str:
    """Return the README's table: one row per study, with the four counts and what was found."""
    lines = [f"| study | paper | scale, seeds | {' | '.join(HEADINGS)} | what was found |"]
    lines.append(f"|---|---|---|{'---|' * len(HEADINGS)}---|")
    for result in results:
        link = f"[{result['name']}]({PAGE}#{result['name']})"
        lines.append(f"{_summary_cells(result, link)} |")
    return "\n".join([*lines, *_pending(pending)])


def _pending(names: Sequence[str]) -> list[str]:
    return ["", f"Without a result so far: {', '.join(names)}."] if names else []


def _summary_cells(result: dict[str, Any], link: str) -> str:
    run = f"{result['scale']}, {result['seeds']}"
    counted = [str(result["verdicts"][verdict] or "–") for verdict in HEADINGS]
    return "| " + " | ".join([link, _cell(result["paper"]), run, *counted, _cell(finding(result))])


def finding(result: dict[str, Any]) -> str:
    """Return what was found in one sentence: the study's own, or which primary claims have which verdict."""
    if result["found"]:
        return str(result["found"])
    primary = [claim for claim in result["claims"] if claim["verdict"] is not None]
    found = {verdict: [each["text"] for each in primary if each["verdict"] == verdict] for verdict in HEADINGS}
    alike = next((verdict for verdict, texts in found.items() if len(texts) == len(primary) > 1), None)
    if alike is not None:
        return ALIKE[alike].format(len(primary))
    parts = [f"{verdict.capitalize()}: {'; '.join(texts)}." for verdict, texts in found.items() if texts]
    return " ".join(parts) or "No primary claim."


def with_summary(readme: str, table: str) -> str:
    """Return the README with the table between its marks."""
    before, start, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    return f"{before}{start}\n{table}\n{end}{after}" if start and end else readme


def _section(result: dict[str, Any]) -> list[str]:
    primary = [claim for claim in result["claims"] if claim["is_primary"]]
    secondary = [claim for claim in result["claims"] if not claim["is_primary"]]
    lines = [f"## {result['name']} {{ #{result['name']} }}", ""]
    lines += [f"**{_cell(result['caveat'])}**", ""] if result["caveat"] else []
    lines += [f"{_cell(result['what'])} {_cell(result['paper'])}.", ""]
    lines += [*_rows("primary claim", primary), ""] if primary else []
    unsettled = [claim for claim in primary if claim["verdict"] == "not settled"]
    lines += [f"- *Not settled*: {_cell(claim['text'])}: {_cell(outlook_text(claim))}." for claim in unsettled]
    notes = [f"*{_cell(claim['text'])}*: {_cell(claim['note'])}" for claim in result["claims"] if claim["note"]]
    lines += [f"- {note}" for note in (*notes, *map(_cell, result["notes"]))]
    lines += ["", *_rows("secondary", secondary)] if secondary else []
    return [*lines, "", _provenance(result), ""]


def _rows(heading: str, claims: Sequence[dict[str, Any]]) -> list[str]:
    lines = [f"| {heading} | paper | ours | interval | verdict |", "|---|---|---|---|---|"]
    for claim in claims:
        ours = value_text(claim["ours"], claim["spread"], claim["unit"]) + never_text(claim["never"], claim["seeds"])
        text = claim["text"] + (" (ours)" if claim["is_ours"] else "")
        verdict = verdict_text(claim)
        is_bad = claim["verdict"] == "contradicted" or claim["is_exact"] is False
        cells = [*map(_cell, (text, claim["paper"], ours)), interval_text(claim["low"], claim["high"], claim["than"])]
        lines.append("| " + " | ".join([*cells, f"**{verdict}**" if is_bad else verdict]) + " |")
    return lines


def outlook_text(claim: dict[str, Any]) -> str:
    """Return what the seeds of a claim could have shown, and how many would settle an effect of the size seen."""
    unit = "" if claim["unit"] in UNITS_WITHOUT_SPACE else f" {claim['unit']}"
    shown = "the seeds bound no effect" if claim["smallest"] is None else ""
    shown = shown or f"{claim['seeds']} seeds show an effect of {number(claim['smallest'])}{unit} or more"
    needed = claim["seeds_needed"]
    if needed is None or needed > MANY_SEEDS:
        return f"{shown}; more than {MANY_SEEDS:,} seeds would settle one of the size seen"
    if needed <= claim["seeds"]:
        return f"{shown}; a few more seeds may settle it"
    return f"{shown}; about {needed:,} seeds would settle one of the size seen"


def _provenance(result: dict[str, Any]) -> str:
    spent = {kind: seconds for kind, seconds in result["seconds"].items() if seconds >= 0.05}
    total = sum(spent.values())
    shares = sorted(spent.items(), key=lambda item: -item[1])
    where = ", ".join(f"{kind} {100 * seconds / total:.0f} %" for kind, seconds in shares)
    return (
        f"`{result['command']}`: {result['runs']} runs, {_seeds(result)}, "
        f"{_time(total)} of processor time ({where}). "
        f"{result['date']}, turnout {result['version']}."
    )


def _seeds(result: dict[str, Any]) -> str:
    if result["most"] == result["looks"][0]:
        return f"{result['seeds']} seeds"
    return f"{result['seeds']} seeds (looks at {', '.join(map(str, result['looks']))} of at most {result['most']})"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _cell(text: str) -> str:
    return escape(text, quote=False).replace("|", "&#124;").replace("*", "\\*").replace("\n", " ")


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Return the results in a folder, sorted by name; raise if one was written before claims had four verdicts."""
    found = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}
    old = [name for name, result in found.items() if "verdicts" not in result]
    if old:
        raise ConfigError(
            f"The page needs results with four verdicts; {', '.join(old)} in {folder} have none. Run these studies "
            "again with turnout reproduce, or remove the files."
        )
    return [_with_texts(result) for result in found.values()]


def _with_texts(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the texts that the module of its study has now."""
    study = shipped().get(result["name"])
    if study is None:
        return result
    about = study.about
    texts = {"paper": about.paper, "what": about.what, "caveat": about.caveat, "found": about.found}
    return {**result, **texts, "notes": list(about.notes)}


def without_result(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of the shipped studies that have no result."""
    return sorted(set(shipped()) - {result["name"] for result in results})


def main(new: Sequence[str], root: Path) -> None:
    """Copy new results to docs/results, and write the page."""
    folder = root / RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    for file in map(Path, new):
        shutil.copy(file, folder / f"{json.loads(file.read_text(encoding='utf-8'))['name']}.json")
    results, readme = read_results(folder), root / README
    pending = without_result(results)
    (root / PAGE).write_text(page(results, pending), encoding="utf-8")
    if readme.exists():
        table = summary(results, pending)
        readme.write_text(with_summary(readme.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:], Path.cwd())
