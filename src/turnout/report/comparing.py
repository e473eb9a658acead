"""The table that holds the arms against each other."""

from collections.abc import Mapping

import pandas as pd

from turnout.report import formats
from turnout.report.formats import MISSING
from turnout.report.tables import Say, Table
from turnout.study.compare import Comparison, Row
from turnout.study.statistics import LEVEL, Reached

SURE = f"{100 * LEVEL:.0f} %"
TO_TARGET: Mapping[str, tuple[str, Say]] = {
    "round": ("rounds to target", formats.number),
    "bytes": ("bytes to target", formats.amount_of_bytes),
    "gradient_evaluations": ("gradients to target", formats.number),
    "sim_seconds": ("simulated time to target", formats.seconds),
}
METHODS = (
    "mean ± standard deviation over seeds; differences are taken seed by seed; interval: Student's t; "
    "p: paired t-test, corrected over the arms by Holm's method"
)
PAIRED = ("pairs", "mean", "low", "high", "bootstrap_low", "bootstrap_high", "t_test_p", "signed_rank_p", "effect_size")


def comparison_table(found: Comparison) -> Table:
    """Return the arms side by side, with what it took to get to the target."""
    points = found.metric.endswith("accuracy")
    unit = "points" if points else "difference"
    used = _costs_shown(found)
    pairs = [f"{unit} from {found.baseline} [{SURE}]", "p (Holm)"] if len(found.rows) > 1 else []
    rows = [
        [
            row.arm,
            str(row.final.count),
            final(row, points),
            *((_difference(row, points), formats.p_value(row.holm_p)) if pairs else ()),
            *(_reached(row.to_target[name], say) for name, (_, say) in used.items()),
        ]
        for row in found.rows
    ]
    return Table(
        name="comparison",
        title=f"Final {found.metric}",
        headings=["arm", "seeds", f"final {found.metric}", *pairs, *(heading for heading, _ in used.values())],
        rows=rows,
        raw=pd.DataFrame([_raw(row) for row in found.rows]),
        notes=_notes(found, points),
    )


def final(row: Row, points: bool) -> str:
    """Return an arm's final value, mean ± standard deviation."""
    if row.final.mean is None:
        return f"diverged in {row.diverged} of {row.final.count}"
    return (formats.spread_percent if points else formats.spread)(row.final.mean, row.final.std, 2 if points else 4)


def _costs_shown(found: Comparison) -> dict[str, tuple[str, Say]]:
    """Return the costs to the target, without a clock that never moved."""
    if found.target is None:
        return {}
    ticked = any((row.to_target["sim_seconds"].median or 0) > 0 for row in found.rows)
    return {name: told for name, told in TO_TARGET.items() if ticked or name != "sim_seconds"}


def _notes(found: Comparison, points: bool) -> list[str]:
    notes = [METHODS if len(found.rows) > 1 else "mean ± standard deviation over seeds"]
    if found.target is not None:
        shown = formats.percent(found.target, 2) if points else formats.number(found.target, 4)
        late = any(0 < row.to_target["round"].reached < row.to_target["round"].seeds for row in found.rows)
        some = "; (2/3): two of three seeds got there, and the others count as later than any" if late else ""
        notes.append(f"target: {found.metric} {shown} ({found.target_origin}); medians over seeds{some}")
    return [*notes, *(note for note in found.notes if not note.endswith("never reached it"))]


def _difference(row: Row, points: bool) -> str:
    told = row.difference
    if told is None:
        return MISSING

    def say(value: float, sign: str = "") -> str:
        return formats.signed(f"{100 * value:{sign}z.1f}" if points else f"{value:{sign}z.3g}")

    if told.low is None or told.high is None:
        return f"{say(told.mean, '+')} [{MISSING}]"
    return f"{say(told.mean, '+')} [{say(told.low)}, {say(told.high)}]"


def _reached(reached: Reached, say: Say) -> str:
    if reached.reached == 0:
        return "never"
    some = "" if reached.reached == reached.seeds else f" ({reached.reached}/{reached.seeds})"
    return say(reached.median) + some


def _raw(row: Row) -> dict[str, object]:
    return {
        "arm": row.arm,
        "seeds": row.final.count,
        "final_mean": row.final.mean,
        "final_std": row.final.std,
        "diverged": row.diverged,
        **{f"difference_{name}": getattr(row.difference, name, None) for name in PAIRED},
        "holm_p": row.holm_p,
        **{f"{name}_to_target": reached.median for name, reached in row.to_target.items()},
        "reached_target": row.to_target["round"].reached if row.to_target else None,
    }
