"""The tables that hold the arms against each other: the comparison, and the tests it rests on."""

import pandas as pd

from turnout.report.tables import Table
from turnout.study import formats
from turnout.study.comparison import SURE, Comparison, Row
from turnout.study.formats import MISSING

PAIRED = ("pairs", "mean", "low", "high", "bootstrap_low", "bootstrap_high", "t_test_p", "signed_rank_p", "effect_size")
TESTS = (
    "t: paired t-test; Wilcoxon: signed-rank test, exact; both corrected over the arms by Holm's method. Bootstrap: "
    "percentiles of the mean over 9,999 resamples of the seeds. Effect: Cohen's d of the paired differences, their "
    "mean over their standard deviation."
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
        "pairs of seeds",
        f"{unit} from {found.baseline}",
        f"{SURE} interval, t",
        f"{SURE} interval, bootstrap",
        "p, t",
        "p, t (Holm)",
        "p, Wilcoxon",
        "p, Wilcoxon (Holm)",
        "effect",
    ]
    return Table(
        name="tests",
        title=f"Differences from {found.baseline}, seed by seed",
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
        str(told.pairs),
        found.amount(told.mean, "+"),
        between(told.low, told.high),
        between(told.bootstrap_low, told.bootstrap_high),
        formats.p_value(told.t_test_p),
        formats.p_value(row.holm_p),
        formats.p_value(told.signed_rank_p),
        formats.p_value(row.holm_signed_rank_p),
        formats.number(told.effect_size),
    ]


def _raw(row: Row) -> dict[str, object]:
    return {
        "arm": row.arm,
        "seeds": row.final.count,
        "final_mean": row.final.mean,
        "final_std": row.final.std,
        "diverged": row.diverged,
        **{f"difference_{name}": getattr(row.difference, name, None) for name in PAIRED},
        "holm_p": row.holm_p,
        "holm_signed_rank_p": row.holm_signed_rank_p,
        **{f"{name}_to_target": reached.median for name, reached in row.to_target.items()},
        "reached_target": row.to_target["round"].reached if row.to_target else None,
    }
