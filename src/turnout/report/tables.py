"""The tables of a report: formatted for reading, raw for CSV, and as LaTeX."""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from turnout.report import formats
from turnout.report.formats import MISSING
from turnout.report.gather import Arm, Gathered, rounds_of
from turnout.study.compare import Comparison, Row
from turnout.study.statistics import LEVEL, Reached

SURE = f"{100 * LEVEL:.0f} %"
TO_TARGET: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "round": ("rounds to target", formats.number),
    "bytes": ("bytes to target", formats.amount_of_bytes),
    "gradient_evaluations": ("gradients to target", formats.number),
    "sim_seconds": ("simulated time to target", formats.seconds),
}
LEDGER: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "round": ("rounds", formats.number),
    "cumulative_bytes_down": ("bytes down", formats.amount_of_bytes),
    "cumulative_bytes_up": ("bytes up", formats.amount_of_bytes),
    "cumulative_gradient_evaluations": ("gradient evaluations", formats.number),
    "cumulative_probe_evaluations": ("probe evaluations", formats.number),
    "cumulative_sim_seconds": ("simulated time", formats.seconds),
    "cumulative_wall_seconds": ("wall time", formats.seconds),
}
PARTS: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "clients": ("clients", formats.number),
    "never_up": ("never up", formats.number),
    "never_asked": ("never asked", formats.number),
    "never_answered": ("never counted", formats.number),
    "times_answered_median": ("times counted, median", formats.number),
    "times_answered_most": ("times counted, most", formats.number),
    "top_tenth_share": ("share of the top 10 %", formats.percent),
    "times_answered_jain": ("Jain's index of counts", formats.number),
}
FAIR: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "client_accuracy_mean": ("mean over clients", formats.percent),
    "client_accuracy_worst": ("worst 10 %", formats.percent),
    "client_accuracy_best": ("best 10 %", formats.percent),
    "client_accuracy_std": ("spread over clients", formats.percent),
    "client_accuracy_jain": ("Jain's index", formats.number),
}
LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "×": r"$\times$",
    "…": r"\ldots{}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table: the first column names the arm, the others are numbers."""

    name: str  # of its files
    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    raw: pd.DataFrame  # every number in full, for CSV
    notes: Sequence[str] = field(default=())

    def html(self, places: Mapping[str, int]) -> str:
        """Return the table as markup; `places` gives each arm its colour."""
        head = "".join(f"<th scope=col>{html.escape(heading)}</th>" for heading in self.headings)
        body = "".join(
            f"<tr><th scope=row><span class=named>{swatch(places.get(row[0]))}<span>{html.escape(row[0])}</span></span></th>"
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in row[1:])
            + "</tr>"
            for row in self.rows
        )
        notes = "".join(f"<p class=note>{html.escape(note)}</p>" for note in self.notes)
        return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{notes}"

    def latex(self) -> str:
        """Return the table for a paper; it needs the package booktabs."""
        lines = [self.headings, *self.rows]
        head, *body = [" & ".join(map(latex_text, line)) + r" \\" for line in lines]
        columns = "l" + "r" * (len(self.headings) - 1)
        inside = [r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
        return "\n".join([f"% {self.title}", rf"\begin{{tabular}}{{{columns}}}", *inside, r"\end{tabular}", ""])


def swatch(place: int | None) -> str:
    """Return an arm's mark: its colour and its dash."""
    if place is None:
        return ""
    classes = f"arm c{place % 7} d{place // 7 % 3}"
    return f'<svg class=key viewBox="0 0 24 8" aria-hidden=true><line class="{classes}" x1=1 y1=4 x2=23 y2=4 /></svg>'


def latex_text(text: str) -> str:
    """Return text with every sign that LaTeX would act on written out."""
    return re.sub("|".join(map(re.escape, LATEX)), lambda match: LATEX[match[0]], text)


def comparison_table(found: Comparison) -> Table:
    """Return the arms side by side, with what it took to get to the target."""
    points = found.metric.endswith("accuracy")
    unit = "points" if points else "difference"
    used = {
        name: told
        for name, told in TO_TARGET.items()
        if name != "sim_seconds" or any((row.to_target[name].median or 0) > 0 for row in found.rows if row.to_target)
    }
    used = used if found.target is not None else {}
    headings = ["arm", "seeds", f"final {found.metric}", f"{unit} from {found.baseline} [{SURE}]", "p (Holm)"]
    rows = [
        [
            row.arm,
            str(row.final.count),
            _final(row, points),
            _difference(row, points),
            formats.p_value(row.holm_p),
            *(_reached(row.to_target[name], say) for name, (_, say) in used.items()),
        ]
        for row in found.rows
    ]
    return Table(
        name="comparison",
        title=f"Final {found.metric}",
        headings=[*headings, *(heading for heading, _ in used.values())],
        rows=rows,
        raw=pd.DataFrame([_raw(row) for row in found.rows]),
        notes=_notes(found, points),
    )


def _notes(found: Comparison, points: bool) -> list[str]:
    notes = [
        "mean ± standard deviation over seeds; differences are taken seed by seed; interval: Student's t; "
        "p: paired t-test, corrected over the arms by Holm's method"
    ]
    if found.target is not None:
        shown = formats.percent(found.target, 2) if points else formats.number(found.target, 4)
        some = any(0 < row.to_target["round"].reached < row.to_target["round"].seeds for row in found.rows)
        unreached = "; (2/3): two of three seeds got there, the others count as later than any" if some else ""
        notes.append(f"target: {found.metric} {shown} ({found.target_origin}); medians over seeds{unreached}")
    return [*notes, *(note for note in found.notes if not note.endswith("never reached it"))]


def _final(row: Row, points: bool) -> str:
    if row.final.mean is None:
        return f"diverged in {row.diverged} of {row.final.count}"
    return (formats.spread_percent if points else formats.spread)(row.final.mean, row.final.std, 2 if points else 4)


def _difference(row: Row, points: bool) -> str:
    told = row.difference
    if told is None:
        return MISSING

    def say(value: float, sign: str = "") -> str:
        return formats.signed(f"{100 * value:{sign}z.1f}" if points else f"{value:{sign}z.3g}")

    if told.low is None or told.high is None:
        return f"{say(told.mean, '+')} [{MISSING}]"
    return f"{say(told.mean, '+')} [{say(told.low)}, {say(told.high)}]"


def _reached(reached: Reached, say: Callable[[float | None], str]) -> str:
    if reached.reached == 0:
        return "never"
    some = "" if reached.reached == reached.seeds else f" ({reached.reached}/{reached.seeds})"
    return say(reached.median) + some


def _raw(row: Row) -> dict[str, object]:
    told = row.difference
    parts = (
        "pairs",
        "mean",
        "low",
        "high",
        "bootstrap_low",
        "bootstrap_high",
        "t_test_p",
        "signed_rank_p",
        "effect_size",
    )
    return {
        "arm": row.arm,
        "seeds": row.final.count,
        "final_mean": row.final.mean,
        "final_std": row.final.std,
        "diverged": row.diverged,
        **{f"difference_{name}": getattr(told, name, None) for name in parts},
        "holm_p": row.holm_p,
        **{f"{name}_to_target": reached.median for name, reached in row.to_target.items()},
        "reached_target": row.to_target["round"].reached if row.to_target else None,
    }


def over_seeds(
    name: str, title: str, columns: Mapping[str, tuple[str, Callable[[float | None], str]]], frame: pd.DataFrame
) -> Table:
    """Return a table of means over seeds, with the spread in the raw numbers; columns without a number are left out."""
    used = {column: told for column, told in columns.items() if column in frame and frame[column].notna().any()}
    arms = list(dict.fromkeys(frame["arm"]))
    rows, raw = [], []
    for arm in arms:
        mine = frame[frame["arm"] == arm]
        told = (SPREADS[say](*_moments(mine[column])) if spread else say(_moments(mine[column])[0]) for column, (_, say) in used.items())
        rows.append([arm, str(len(mine)), *told])
        figures = zip(used, (_moments(mine[column]) for column in used), strict=True)
        raw.append({"arm": arm, "seeds": len(mine)} | {f"{c}_{w}": v for c, pair in figures for w, v in zip(("mean", "std"), pair, strict=True)})
    headings = ["arm", "seeds", *(heading for heading, _ in used.values())]
    return Table(name=name, title=title, headings=headings, rows=rows, raw=pd.DataFrame(raw))


def _moments(values: pd.Series) -> tuple[float | None, float | None]:
    numbers = values.to_numpy(dtype=np.float64)
    known = numbers[np.isfinite(numbers)]
    std = float(known.std(ddof=1)) if len(known) > 1 else None
    return (float(known.mean()) if len(known) else None), std


def totals(arms: Sequence[Arm]) -> pd.DataFrame:
    """Return what each run cost in all: its last round's sums."""
    parts = [rounds_of(arm).groupby("seed").last().assign(arm=arm.name).reset_index() for arm in arms]
    frame = pd.concat([part for part in parts if len(part)] or [pd.DataFrame(columns=["arm", "seed", *LEDGER])])
    return frame[["arm", "seed", *LEDGER]]


def ledger(gathered: Gathered) -> Table:
    """Return the cost ledger."""
    frame = totals(gathered.arms)
    silent = ("cumulative_sim_seconds", "cumulative_probe_evaluations")
    idle = [column for column in silent if not (frame[column].astype("float64") > 0).any()]
    return over_seeds("costs", "What it cost, mean over seeds", LEDGER, frame.drop(columns=idle))
