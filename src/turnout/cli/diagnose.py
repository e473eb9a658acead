"""`turnout diagnose`: what will make a study hard, and which rules to try first, in words first."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console

from turnout import number_format
from turnout.analysis.diagnosis.advice import RankedRule
from turnout.analysis.diagnosis.diagnosis import Diagnosis
from turnout.analysis.diagnosis.estimate import Estimate
from turnout.analysis.diagnosis.rehearsal import BASELINE
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
from turnout.study.rehearsal import Tell

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
LINE_SECONDS = 2.0  # between two lines of progress


def print_diagnosis(study: Study, arm: str | None, seed: int | None, *, as_json: bool = False) -> None:
    """Print the diagnosis of one arm of a study; progress goes to standard error."""
    name = arm or next(iter(study.versions()))
    with _activity(f"{study.name}: diagnosing {name}") as tell:
        found = diagnose_study(study, arm, seed, tell=tell)
    typer.echo(json_text(found.as_dict()) if as_json else printable("\n".join(lines(found))))


@contextmanager
def _activity(title: str) -> Iterator[Tell]:
    """Show a title at once and then what is being done: in place at a terminal, else a line every two seconds."""
    console, shown_at = Console(stderr=True), time.monotonic()
    if console.is_terminal:
        with console.status(printable(title)) as status:
            yield lambda what: status.update(printable(f"{title}: {what}"))
        return
    console.print(printable(title), markup=False, highlight=False, soft_wrap=True)

    def tell(what: str) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= LINE_SECONDS:
            shown_at = time.monotonic()
            console.print(printable(what), markup=False, highlight=False, soft_wrap=True)

    yield tell


def lines(found: Diagnosis) -> list[str]:
    """Return the diagnosis as text."""
    rules = found.advice.rules
    said = [f"Try {rules[0].name} first: {_prediction(found, rules[0])}." if rules else "No rule could be rehearsed."]
    said += [f"  {place}. {rule.name}: {rule.reason}" for place, rule in enumerate(rules[:BEST], start=1)]
    said += [_trust(found)] if len(rules) > 1 else []
    said.append(f"What holds {found.arm} back most, by theory, is {found.dominant}: {MEANINGS[found.dominant]}.")
    said += [f"A setting to change: {text}." for text in found.advice.settings]
    said += ["", text_table(*_rules(found))]
    said += [f"{name} was not rehearsed: {reason}" for name, reason in found.advice.left_out.items()]
    said += ["", text_table(*_terms(found)), "", text_table(*_measures(found)), "", *_flexible(found)]
    return [*said, *_bill(found)]


def _prediction(found: Diagnosis, rule: RankedRule) -> str:
    """Return what is expected of a rule, beside FedAvg."""
    here = f"its {found.error_name} is expected to be {_error_text(found, rule.predicted)} after all rounds"
    plain = next((each for each in found.advice.rules if each.name == BASELINE), None)
    if plain is None or plain is rule:
        return here
    return f"{here}, and {_error_text(found, plain.predicted)} with {BASELINE}"


def _trust(found: Diagnosis) -> str:
    """Return how far the first rule is ahead of the second, and whether that is more than chance."""
    (first, second), lead = found.advice.rules[:2], found.advice.lead
    if lead is not None and lead.value > 2 * lead.error:
        return f"{first.name} was ahead of {second.name} in the rehearsal by more than twice the standard error."
    return f"The rehearsal does not tell {first.name} and {second.name} apart: run both, with several seeds."


def _bill(found: Diagnosis) -> list[str]:
    """Return what the diagnosis was made of, and what it cost."""
    share = number_format.percent(found.rehearsed_rounds / max(found.study_rounds, 1), 0)
    return [
        f"{found.clients_measured} of {found.clients} clients measured; ± is the standard error.",
        f"Cost: {found.pilot_rounds} rounds of pilot and {found.rehearsed_rounds} rounds of rehearsal, {share} of the "
        f"{found.study_rounds} rounds that these rules take in this study.",
    ]


def _terms(found: Diagnosis) -> tuple[list[str], list[list[str]]]:
    total = sum(found.terms.values()) or 1.0
    ordered = sorted(found.terms.items(), key=lambda entry: -entry[1])
    rows = [[name, number_format.number(value), number_format.percent(value / total, 0)] for name, value in ordered]
    return ["error term of the bound on ‖∇F‖²", "size", "share"], rows


def _rules(found: Diagnosis) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            str(place),
            rule.name,
            str(rule.seeds),
            _error_text(found, rule.rehearsed.value),
            "" if rule.name == BASELINE else _signed(found, rule.gain),
            _error_text(found, rule.predicted),
            number_format.number(rule.bound),
        ]
        for place, rule in enumerate(found.advice.rules, start=1)
    ]
    measured = f"{found.error_name} in rehearsal"
    return ["rank", "rule", "seeds", measured, f"below {BASELINE}", "after all rounds", "what the bound leaves"], rows


def _error_text(found: Diagnosis, value: float) -> str:
    if not math.isfinite(value):
        return "diverged"
    return number_format.percent(value) if found.error_name == "error" else number_format.number(value)


def _signed(found: Diagnosis, gain: Estimate) -> str:
    if not math.isfinite(gain.value):
        return ""
    error = f" ± {_error_text(found, gain.error)}" if math.isfinite(gain.error) else ""
    return f"{_error_text(found, gain.value)}{error}"


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
        where = "would come to the optimum x*"
        if scheme.mismatch >= SMALL_SHIFT:
            share = number_format.percent(scheme.mismatch)
            where = f"would put {share} of the weight at other clients than the samples are"
        rule = f"scheme-{scheme.name.lower()}"
        said.append(f'With the participation of the pilot, aggregation = "{rule}" {where}.')
    bounds = found.turnover
    if bounds and bounds["shift"] == 0:
        said.append("One model is best for every client (Γ = 0): arrivals and departures would not move the optimum.")
    elif bounds:
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
