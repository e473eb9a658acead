"""The tables that hold the arms against each other: the comparison, and the tests it rests on."""

from dataclasses import fields

import pandas as pd

from turnout import number_format
from turnout.analysis.comparison import SURE, Comparison, Row
from turnout.analysis.statistics import Difference
from turnout.number_format import MISSING
from turnout.report.tables import Table

TESTS = (
    "t: paired t-test, or Welch's where arms are not paired; Wilcoxon: signed-rank test, exact, of paired arms. "
    "Bootstrap: percentiles of the mean over 9,999 resamples of the seeds. Intervals and corrected p-values hold for "
    "all arms together (Bonferroni's correction): an interval leaves out zero exactly where its corrected p is below "
    "0.05. Effect: Cohen's d, the mean difference over the standard deviation of the differences, or of the seeds "
    "where arms are not paired."
)


def comparison_table(found: Comparison) -> Table:
    """Return the arms side by side, with what it took to get to the target."""
    shown = found.shown()
    return Table(
        name="comparison",
        title=f"Final {found.metric}",
        headings=shown.headings,
        rows=shown.rows,
        raw=pd.DataFrame([_raw(row) for row in found.rows]),
        notes=[note for note in shown.notes if not note.endswith("never reached it")],  # the cells say it
    )


def tests_table(found: Comparison) -> Table | None:
    """Return every test of every difference; None where there is none to make."""
    tested = [row for row in found.rows if row.difference is not None and row.difference.low is not None]
    if not tested:
        return None
    unit = "points" if found.in_points else "difference"
    headings = [
        "arm",
        "seeds",
        f"{unit} from {found.baseline}",
        f"{SURE} interval, t",
        f"{SURE} interval, bootstrap",
        "p, t",
        "p, t (corrected)",
        "p, Wilcoxon",
        "p, Wilcoxon (corrected)",
        "effect",
    ]
    return Table(
        name="tests",
        title=f"Differences from {found.baseline}",
        headings=headings,
        rows=[_tests(found, row) for row in tested],
        raw=pd.DataFrame([_raw(row) for row in tested]),
        notes=[TESTS],
    )


def _tests(found: Comparison, row: Row) -> list[str]:
    told = row.difference
    assert told is not None

    def between(low: float | None, high: float | None) -> str:
        return MISSING if low is None or high is None else f"{found.amount(low)} to {found.amount(high)}"

    return [
        row.arm,
        f"{told.seeds}{'' if told.is_paired else ', unpaired'}",
        found.amount(told.mean, "+"),
        between(told.low, told.high),
        between(told.bootstrap_low, told.bootstrap_high),
        number_format.p_value(told.t_test_p),
        number_format.p_value(told.corrected_p),
        number_format.p_value(told.signed_rank_p),
        number_format.p_value(told.corrected_signed_rank_p),
        number_format.number(told.effect_size),
    ]


def _raw(row: Row) -> dict[str, object]:
    return {
        "arm": row.arm,
        "seeds": row.final.count,
        "final_mean": row.final.mean,
        "final_std": row.final.std,
        "diverged": row.diverged,
        **{f"difference_{part.name}": getattr(row.difference, part.name, None) for part in fields(Difference)},
        **{f"{name}_to_target": reached.median for name, reached in row.to_target.items()},
        "reached_target": row.to_target["round"].reached if row.to_target else None,
    }
