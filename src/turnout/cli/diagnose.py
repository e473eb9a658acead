"""`turnout diagnose`: what will make a study hard, and which rules to try first, in words first."""

import sys
from collections.abc import Sequence

import typer

from turnout import number_format
from turnout.analysis.diagnosis.diagnosis import Diagnosis
from turnout.analysis.diagnosis.terms import (
    DRIFT,
    MISMATCH,
    NOISE,
    OPTIMISATION,
    PARTICIPATION,
    SELECTION,
)
from turnout.cli.error_messages import printable
from turnout.cli.json_output import json_text
from turnout.cli.text_table import text_table
from turnout.study import Study
from turnout.study.diagnose import diagnose_study

MEANINGS = {
    OPTIMISATION: "the run is too short for its step size to come to the optimum",
    NOISE: "mini-batches are too small for the step size",
    PARTICIPATION: "cohorts differ from round to round",
    DRIFT: "clients move towards their own optima between two rounds",
    SELECTION: "the selection prefers clients with a high loss",
    MISMATCH: "the run weighs clients otherwise than their data sizes ask for",
}
BEST = 3  # rules that the words name
SMALL_SHIFT = 0.005  # of the weight: a scheme whose mismatch is below it is said to converge to x*


def print_diagnosis(study: Study, arm: str | None, seed: int | None, *, as_json: bool = False) -> None:
    """Print the diagnosis of one arm of a study."""
    if not as_json:
        typer.echo(f"{study.name}: a pilot of a few rounds, then losses and gradients of each client")
        sys.stdout.flush()
    found = diagnose_study(study, arm, seed)
    typer.echo(json_text(found.as_dict()) if as_json else printable("\n".join(lines(found))))


def lines(found: Diagnosis) -> list[str]:
    """Return the diagnosis as text."""
    said = [
        f"The largest error term of {found.arm} is {found.dominant}: {MEANINGS[found.dominant]}.",
        "Try, in this order:",
    ]
    said += [f"  {place}. {rule.name}: {rule.reason}" for place, rule in enumerate(found.advice.rules[:BEST], start=1)]
    said += [f"Settings: {text}." for text in found.advice.settings]
    said += ["Bounds hold up to constants: read them as an order of magnitude, and the order of rules as a guess.", ""]
    said += [text_table(*_terms(found)), "", text_table(*_rules(found)), "", text_table(*_measures(found)), ""]
    said += _flexible(found)
    measured = f"{found.clients_measured} of {found.clients} clients measured, {found.pilot_rounds} rounds of pilot"
    return [*said, f"{measured}; ± is the standard error."]


def _terms(found: Diagnosis) -> tuple[list[str], list[list[str]]]:
    total = sum(found.terms.values())
    ordered = sorted(found.terms.items(), key=lambda entry: -entry[1])
    rows = [[name, number_format.number(value), number_format.percent(value / total, 0)] for name, value in ordered]
    return ["error term of the bound on ‖∇F‖²", "size", "share"], rows


def _rules(found: Diagnosis) -> tuple[list[str], list[list[str]]]:
    rows = [
        [str(place), rule.name, number_format.number(rule.bound)]
        for place, rule in enumerate(found.advice.rules, start=1)
    ]
    return ["rank", "rule", "what the bound leaves"], rows


def _measures(found: Diagnosis) -> tuple[list[str], list[list[str]]]:
    rows = [
        [f"{m.name} ({m.symbol})", number_format.number(m.estimate.value), _error(m.estimate.error), m.meaning]
        for m in found.measures
    ]
    return _left_last(["measure", "estimate", "±", "definition"], rows)


def _left_last(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Return a table whose last column is text: padded, so that it is aligned to the left."""
    width = max(len(line[-1]) for line in (headings, *rows))
    padded = [[*line[:-1], line[-1].ljust(width)] for line in (headings, *rows)]
    return padded[0], padded[1:]


def _error(value: float) -> str:
    return "exact" if value == 0 else number_format.number(value, 2)


def _flexible(found: Diagnosis) -> list[str]:
    """Return who converges under the schemes, and what an arrival or a departure does to the optimum."""
    said = []
    for scheme in found.schemes:
        where = "converges to x*"
        if scheme.mismatch >= SMALL_SHIFT:
            where = f"minimises another objective ({number_format.percent(scheme.mismatch)} of the weight is elsewhere)"
        said.append(f"Scheme {scheme.name} {where}, with the participation of the pilot.")
    bounds = found.turnover
    if bounds:
        shift, median = number_format.number(bounds["shift"], 2), number_format.number(bounds["shift_median"], 2)
        said.append(
            f"If client {bounds['client']:.0f} left or came, the optimum would move by at most {shift} (the median "
            f"client: {median})."
        )
        said.append(
            f"If it left after round {bounds['departs_at']:.0f}, excluding it would pay with "
            f"{bounds['rounds_to_exclude']:.0f} or more rounds to go; a fast reboot helps within "
            f"{number_format.number(bounds['reboot_radius'], 2)} of the old optimum."
        )
    return [*said, ""]
