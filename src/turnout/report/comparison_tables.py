"""The tables of a comparison of arms: final values with differences, and all statistical tests."""

from dataclasses import fields

import pandas as pd

from turnout import number_format
from turnout.analysis.comparison import SURE, Comparison, Row, never_reached_note
from turnout.analysis.statistics import Difference
from turnout.number_format import MISSING
from turnout.report.tables import Table

TESTS = (
    "t: paired t-test, or Welch's t-test if arms are not paired. Wilcoxon: exact signed-rank test of paired arms. "
    "P-values are corrected for the number of arms by Holm's method; an interval is that of the t-test, at the level "
    "of the step at which its arm was decided, so it excludes zero exactly if the corrected p of the t-test is below "
    "0.05. The verdict is the t-test's. Smallest: the smallest difference that these seeds tell from none with a "
    "chance of 80 %. Needed: seeds that tell a difference of the size seen with that chance; roughly, because the "
    "spread is estimated from these seeds. Effect: Cohen's d, the mean difference divided by the standard deviation of "
    "the differences, or, if arms are not paired, by that of the seeds."
)


def comparison_table(comparison: Comparison) -> Table:
    """Return the final values of the arms, their differences from the baseline, and their costs to the target."""
    shown, said_in_cells = comparison.shown(), {never_reached_note(row) for row in comparison.rows}
    return Table(
        name="comparison",
        title=f"Final {comparison.metric}",
        headings=shown.headings,
        rows=shown.rows,
        raw=pd.DataFrame([_raw(row) for row in comparison.rows]),
        notes=[note for note in shown.notes if note not in said_in_cells],
    )


def tests_table(comparison: Comparison) -> Table | None:
    """Return every test of every difference; None if no difference can be tested."""
    tested = [row for row in comparison.rows if row.difference is not None and row.difference.low is not None]
    if not tested:
        return None
    unit = "points" if comparison.in_points else "difference"
    headings = [
        "arm",
        "seeds",
        f"{unit} from {comparison.baseline}",
        f"{SURE} interval, t",
        "p, t",
        "p, t (corrected)",
        "p, Wilcoxon",
        "p, Wilcoxon (corrected)",
        "effect",
        "verdict",
        "smallest",
        "seeds needed",
    ]
    return Table(
        name="tests",
        title=f"Differences from {comparison.baseline}",
        headings=headings,
        rows=[_tests(comparison, row) for row in tested],
        raw=pd.DataFrame([_raw(row) for row in tested]),
        notes=[TESTS],
    )


def _tests(comparison: Comparison, row: Row) -> list[str]:
    difference = row.difference
    assert difference is not None

    def between(low: float | None, high: float | None) -> str:
        return MISSING if low is None or high is None else " to ".join(comparison.ends(low, high))

    return [
        row.arm,
        f"{difference.seeds}{'' if difference.is_paired else ', unpaired'}",
        comparison.amount(difference.mean, "+"),
        between(difference.low, difference.high),
        number_format.p_value(difference.t_test_p),
        number_format.p_value(difference.corrected_p),
        number_format.p_value(difference.signed_rank_p),
        number_format.p_value(difference.corrected_signed_rank_p),
        number_format.number(difference.effect_size),
        "clear" if difference.is_clear else "not settled",
        MISSING if difference.smallest is None else comparison.amount(difference.smallest),
        number_format.number(difference.seeds_needed),
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
