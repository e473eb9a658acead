"""The tables of a report: formatted for HTML and LaTeX, raw for CSV."""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from turnout import number_format
from turnout.array_types import Ids
from turnout.journal.codec import OUTCOMES
from turnout.number_format import Say
from turnout.report.load_studies import Arm, Gathered, rounds_of


class Column(NamedTuple):
    """A number of each run, shown as its mean over seeds."""

    heading: str
    say: Say
    spread: Callable[[float | None, float | None], str] | None = None  # formats mean ± std; None shows the mean alone


COSTS = {
    "round": Column("rounds", number_format.number),
    "cumulative_bytes_down": Column("bytes down", number_format.amount_of_bytes),
    "cumulative_bytes_up": Column("bytes up", number_format.amount_of_bytes),
    "cumulative_gradient_evaluations": Column("gradient evaluations", number_format.number),
    "cumulative_probe_evaluations": Column("probe evaluations", number_format.number),
    "cumulative_sim_seconds": Column("simulated time", number_format.seconds),
    "cumulative_wall_seconds": Column("wall time", number_format.seconds),
}
MAY_BE_ZERO = ("cumulative_sim_seconds", "cumulative_probe_evaluations")  # shown only if a run has some
PARTICIPATION = {
    "clients": Column("clients", number_format.number),
    "never_up": Column("never available", number_format.number),
    "never_asked": Column("never asked", number_format.number),
    "never_answered": Column("never used", number_format.number),
    "times_answered_median": Column("updates used, median", number_format.number),
    "times_answered_most": Column("updates used, most", number_format.number),
    "top_tenth_share": Column("share of the top 10 %", number_format.percent),
    "times_answered_jain": Column("Jain's index of updates used", number_format.index),
}
FAIRNESS = {
    "client_accuracy_mean": Column("mean over clients", number_format.percent, number_format.spread_percent),
    "client_accuracy_worst": Column("worst 10 %", number_format.percent, number_format.spread_percent),
    "client_accuracy_best": Column("best 10 %", number_format.percent, number_format.spread_percent),
    "client_accuracy_std": Column("spread over clients", number_format.percent, number_format.spread_percent),
    "client_accuracy_jain": Column("Jain's index", number_format.index, number_format.spread_index),
    "client_accuracy_gini": Column("Gini's index", number_format.index, number_format.spread_index),
    "client_accuracy_parity": Column("gap between groups", number_format.percent, number_format.spread_percent),
}
FAIRNESS_OF_LOSS = {
    "client_loss_mean": Column("mean over clients", number_format.number, number_format.spread),
    "client_loss_worst": Column("worst 10 %", number_format.number, number_format.spread),
    "client_loss_best": Column("best 10 %", number_format.number, number_format.spread),
    "client_loss_std": Column("spread over clients", number_format.number, number_format.spread),
    "client_loss_gini": Column("Gini's index", number_format.index, number_format.spread_index),
    "client_loss_parity": Column("gap between groups", number_format.number, number_format.spread),
}
OUTCOME_NOTE = (
    "A client that is asked in a round gets one job. Complete: it did all steps and its update was used. Partial: it "
    "did fewer steps, and its update was used. Late: its update came after the round was closed. Lost: nothing came "
    "back. Rejected: its update failed a check. At work: the job had not ended when the run ended. Over all seeds."
)
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
    """One table; the first column names the arm."""

    name: str  # of its CSV and LaTeX files
    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    raw: pd.DataFrame  # every number in full precision, for CSV
    notes: Sequence[str] = field(default=())

    def html(self, places: Mapping[str, int]) -> str:
        """Return the table as HTML; `places` has the position of each arm, which decides its colour."""
        widths = [f"--half:{len(heading) // 2 + 2}ch" for heading in self.headings]  # a heading takes two lines
        head = "".join(
            f'<th scope=col style="{width}">{html.escape(heading)}</th>'
            for width, heading in zip(widths, self.headings, strict=True)
        )
        body = "".join(f"<tr>{_arm_cell(row[0], places)}{_cells(row[1:])}</tr>\n" for row in self.rows)
        notes = "".join(f"<p class=note>{html.escape(note)}</p>\n" for note in self.notes)
        table = f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
        return f"<div class=scroll>{table}</div>\n{notes}"

    def latex(self) -> str:
        """Return the table as LaTeX, for a paper; it needs the package booktabs."""
        head, *body = [" & ".join(map(latex_text, line)) + r" \\" for line in (self.headings, *self.rows)]
        columns = "l" + "r" * (len(self.headings) - 1)
        inside = [r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
        return "\n".join([f"% {self.title}", rf"\begin{{tabular}}{{{columns}}}", *inside, r"\end{tabular}", ""])


def _arm_cell(arm: str, places: Mapping[str, int]) -> str:
    return f"<th scope=row><span class=named>{swatch(places.get(arm))}<span>{html.escape(arm)}</span></span></th>"


def _cells(cells: Sequence[str]) -> str:
    return "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)


def swatch(place: int | None) -> str:
    """Return a short line in an arm's colour and dash."""
    if place is None:
        return ""
    classes = f"arm c{place % 7} d{place // 7 % 3}"
    return f'<svg class=key viewBox="0 0 24 8" aria-hidden=true><line class="{classes}" x1=1 y1=4 x2=23 y2=4 /></svg>'


def latex_text(text: str) -> str:
    """Return text with every character escaped that is special in LaTeX."""
    return re.sub("|".join(map(re.escape, LATEX)), lambda match: LATEX[match[0]], text)


def over_seeds(name: str, title: str, columns: Mapping[str, Column], frame: pd.DataFrame) -> Table:
    """Return a table of means over seeds, with standard deviations in the raw numbers; empty columns are left out."""
    used = {name: column for name, column in columns.items() if name in frame and frame[name].notna().any()}
    rows, raw = [], []
    for arm in dict.fromkeys(frame["arm"]):
        runs = frame[frame["arm"] == arm]
        moments = {name: _moments(runs[name]) for name in used}
        cells = (each.spread(*moments[c]) if each.spread else each.say(moments[c][0]) for c, each in used.items())
        rows.append([arm, str(len(runs)), *cells])
        raw.append({"arm": arm, "seeds": len(runs)} | {f"{c}_mean": m for c, (m, _) in moments.items()})
        raw[-1] |= {f"{c}_std": std for c, (_, std) in moments.items()}
    headings = ["arm", "seeds", *(each.heading for each in used.values())]
    return Table(name=name, title=title, headings=headings, rows=rows, raw=pd.DataFrame(raw))


def _moments(values: pd.Series) -> tuple[float | None, float | None]:
    numbers = values.to_numpy(dtype=np.float64)
    known = numbers[np.isfinite(numbers)]
    std = float(known.std(ddof=1)) if len(known) > 1 else None
    return (float(known.mean()) if len(known) else None), std


def totals(arms: Sequence[Arm]) -> pd.DataFrame:
    """Return the total costs of each run: the cumulative sums of its last round."""
    parts = [rounds_of(arm).groupby("seed").last().assign(arm=arm.name).reset_index() for arm in arms]
    frame = pd.concat([part for part in parts if len(part)] or [pd.DataFrame(columns=["arm", "seed", *COSTS])])
    return frame[["arm", "seed", *COSTS]]


def outcomes_table(jobs: Mapping[str, Ids]) -> Table:
    """Return how the jobs of each arm ended, over all seeds: counts and shares of the journal's outcomes.

    Args:
        jobs: by arm, the number of jobs in each outcome, in the order of `Outcome`.
    """
    rows, raw = [], []
    for arm, counts in jobs.items():
        total = int(counts.sum())
        shares = [float(count / total) if total else float("nan") for count in counts]
        pairs = zip(counts, shares, strict=True)
        cells = (f"{count:,} ({number_format.percent(share)})" if total else "0" for count, share in pairs)
        rows.append([arm, f"{total:,}", *cells])
        raw.append({"arm": arm, "jobs": total} | dict(zip(OUTCOMES, map(int, counts), strict=True)))
        raw[-1] |= {f"{name} share": share for name, share in zip(OUTCOMES, shares, strict=True)}
    return Table(
        name="outcomes",
        title="How jobs ended",
        headings=["arm", "jobs", *OUTCOMES],
        rows=rows,
        raw=pd.DataFrame(raw),
        notes=(OUTCOME_NOTE,),
    )


def rejected_table(arms: Sequence[Arm]) -> Table:
    """Return the number of rejected updates, by arm and reason, over all seeds."""
    counts: dict[tuple[str, str], int] = {}
    for arm in arms:
        for reasons in rounds_of(arm)["rejected"]:
            for each in reasons:
                key = arm.name, each["reason"]
                counts[key] = counts.get(key, 0) + 1
    rows = [(arm, reason, count) for (arm, reason), count in counts.items()]
    return Table(
        name="rejected",
        title="Rejected updates",
        headings=("arm", "reason", "updates"),
        rows=[(arm, reason, f"{count:,}") for arm, reason, count in rows],
        raw=pd.DataFrame(rows, columns=["arm", "reason", "updates"]),
        notes=("Over all seeds and rounds. The journal has the client and the round of each.",),
    )


def costs_table(gathered: Gathered) -> Table:
    """Return the total costs of each arm."""
    frame = totals(gathered.arms)
    zero = [column for column in MAY_BE_ZERO if not (frame[column].astype("float64") > 0).any()]
    table = over_seeds("costs", "Costs, mean over seeds", COSTS, frame.drop(columns=zero))
    several = any(len(arm.seeds) > 1 for arm in gathered.arms)
    group = "Runs of a group advance together, so the wall time of a run is that of its whole group."
    notes = (f"Means over seeds. {group}" if several else f"One seed. {group}",)
    return replace(table, notes=notes)
