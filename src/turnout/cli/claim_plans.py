"""Prints what the seeds of reproductions can tell, and what more would settle: `turnout power` on their results."""

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill, wrap

import typer

from turnout.analysis.power import POWER
from turnout.cli.error_messages import printable
from turnout.cli.json_output import json_text
from turnout.cli.text_table import text_table
from turnout.limits import read_json
from turnout.number_format import MISSING, number, plural
from turnout.reproduce.claims import MANY_SEEDS, value_text
from turnout.reproduce.seed_plan import (
    BUDGET_MINUTES,
    MINUTE,
    ClaimPlan,
    StudyPlan,
    overall_verdict,
    plans_as_dict,
    study_plan,
)

MOST_BYTES = 10_000_000  # of a result file; the largest shipped one has a hundredth of it
NARROWEST_CLAIM = 24  # columns
USUAL, WIDEST = 100, 120  # columns of a line where there is no terminal, and at most
HEADINGS = ("verdict", "seeds", "effect ± spread", "can tell", "seeds needed")
NOTES = (
    "effect: our value minus the claim's threshold, mean ± standard deviation over seeds; a pseudo-median alone where "
    "a seed may never reach a target",
    f"can tell: smallest effect that the seeds show with a power of {100 * POWER:.0f} %; seeds needed: those that show "
    "an effect of the size seen with that power, at the level at which the claim was tested",
    "the effect of an open claim is known only roughly, and so are the seeds that it needs: it may take several times "
    "as many",
    "minutes are processor time of a whole run with fresh seeds, at the pace of the run that was recorded",
)
IN_SUMMARY = f"within {BUDGET_MINUTES} minutes"
SUMMARY_NOTE = f"{IN_SUMMARY}: open claims that a run of this length would settle, with the seeds and minutes for that"


def print_claim_plans(files: Sequence[Path], *, as_json: bool) -> None:
    """Print what the seeds of each result can tell, and what would settle its claims.

    Args:
        files: results that `turnout reproduce` wrote.
        as_json: print JSON.
    """
    plans = [study_plan(read_json(file, MOST_BYTES), str(file)) for file in files]
    if as_json:
        typer.echo(json_text(plans_as_dict(plans)))
        return
    columns = min(shutil.get_terminal_size((USUAL, 24)).columns, WIDEST)
    parts = [_study_text(plan, columns) for plan in plans]
    is_one = len(plans) == 1
    parts += [] if is_one else [_summary_table(plans), fill(overall_verdict(plans), columns)]
    notes = "\n".join(
        fill(note, columns, subsequent_indent="  ") for note in (*NOTES, *([] if is_one else [SUMMARY_NOTE]))
    )
    typer.echo(printable("\n\n".join([*parts, notes])))


def _study_text(plan: StudyPlan, columns: int) -> str:
    time = plural(math.ceil(plan.seconds / MINUTE), "minute")
    lines = [f"{plan.name}: {plan.seeds} of at most {plan.most} seeds, scale {plan.scale}, {time} of processor time"]
    lines += [_claim_table(plan.claims, columns)] if plan.claims else []
    lines += [fill(line, columns, subsequent_indent="  ") for line in (plan.verdict(), *plan.remarks())]
    return "\n".join(lines)


def _claim_table(claims: Sequence[ClaimPlan], columns: int) -> str:
    """Return one row per claim; a long claim is wrapped."""
    cells = [_cells(claim) for claim in claims]
    taken = sum(2 + max(map(len, column)) for column in zip(HEADINGS, *cells, strict=True))
    texts = [wrap(claim.text, max(columns - taken, NARROWEST_CLAIM)) or [""] for claim in claims]
    rows = []
    for text, row in zip(texts, cells, strict=True):
        rows += [[text[0], *row], *([line, *([""] * len(row))] for line in text[1:])]
    return text_table(["claim", *HEADINGS], rows)


def _cells(claim: ClaimPlan) -> list[str]:
    effect = value_text(claim.effect, claim.spread, claim.unit)
    smallest = MISSING if claim.smallest is None else value_text(claim.smallest, None, claim.unit)
    return [claim.verdict, str(claim.seeds), effect, smallest, _needed_text(claim)]


def _needed_text(claim: ClaimPlan) -> str:
    if not claim.was_tested:
        return MISSING
    is_counted = claim.seeds_needed is not None and claim.seeds_needed <= MANY_SEEDS
    return number(claim.seeds_needed) if is_counted else f"> {MANY_SEEDS:,}"


def _summary_table(plans: Sequence[StudyPlan]) -> str:
    headings = ["study", "seeds", "most", "settled", "open", IN_SUMMARY, "seeds needed", "minutes"]
    return text_table(headings, [_summary_row(plan) for plan in plans])


def _summary_row(plan: StudyPlan) -> list[str]:
    counts = [plan.seeds, plan.most, len(plan.settled), len(plan.open)]
    seeds = plan.seeds_for_affordable
    affordable = str(len(plan.affordable)) if plan.open else MISSING
    price = [MISSING, MISSING] if seeds is None else [str(seeds), str(math.ceil(plan.minutes(seeds)))]
    return [plan.label, *map(str, counts), affordable, *price]
