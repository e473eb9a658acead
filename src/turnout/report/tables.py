"""The tables of a report: formatted for reading, raw for CSV, and as LaTeX."""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from turnout import number_format
from turnout.number_format import Say
from turnout.report.load_studies import Arm, Gathered, rounds_of


class Column(NamedTuple):
    """A number of each run, shown as its mean over seeds."""

    heading: str
    say: Say
    spread: Callable[[float | None, float | None], str] | None = None  # given: mean ± std


LEDGER = {
    "round": Column("rounds", number_format.number),
    "cumulative_bytes_down": Column("bytes down", number_format.amount_of_bytes),
    "cumulative_bytes_up": Column("bytes up", number_format.amount_of_bytes),
    "cumulative_gradient_evaluations": Column("gradient evaluations", number_format.number),
    "cumulative_probe_evaluations": Column("probe evaluations", number_format.number),
    "cumulative_sim_seconds": Column("simulated time", number_format.seconds),
    "cumulative_wall_seconds": Column("wall time", number_format.seconds),
}
NUMBERS = re.compile(r"-?\d[\d.,e+-]*")  # in the reason why an answer was not believed
MAY_BE_IDLE = ("cumulative_sim_seconds", "cumulative_probe_evaluations")  # shown only where one is above zero
PARTS = {
    "clients": Column("clients", number_format.number),
    "never_up": Column("never up", number_format.number),
    "never_asked": Column("never asked", number_format.number),
    "never_answered": Column("never counted", number_format.number),
    "times_answered_median": Column("times counted, median", number_format.number),
    "times_answered_most": Column("times counted, most", number_format.number),
    "top_tenth_share": Column("share of the top 10 %", number_format.percent),
    "times_answered_jain": Column("Jain's index of counts", number_format.index),
}
FAIR = {
    "client_accuracy_mean": Column("mean over clients", number_format.percent, number_format.spread_percent),
    "client_accuracy_worst": Column("worst 10 %", number_format.percent, number_format.spread_percent),
    "client_accuracy_best": Column("best 10 %", number_format.percent, number_format.spread_percent),
    "client_accuracy_std": Column("spread over clients", number_format.percent, number_format.spread_percent),
    "client_accuracy_jain": Column("Jain's index", number_format.index, number_format.spread_index),
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
        halves = [f"--half:{len(heading) // 2 + 2}ch" for heading in self.headings]  # so that two lines will do
        named = zip(halves, self.headings, strict=True)
        head = "".join(f'<th scope=col style="{half}">{html.escape(heading)}</th>' for half, heading in named)
        body = "".join(f"<tr>{_named(row[0], places)}{_cells(row[1:])}</tr>\n" for row in self.rows)
        notes = "".join(f"<p class=note>{html.escape(note)}</p>\n" for note in self.notes)
        table = f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
        return f"<div class=scroll>{table}</div>\n{notes}"

    def latex(self) -> str:
        """Return the table for a paper; it needs the package booktabs."""
        head, *body = [" & ".join(map(latex_text, line)) + r" \\" for line in (self.headings, *self.rows)]
        columns = "l" + "r" * (len(self.headings) - 1)
        inside = [r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
        return "\n".join([f"% {self.title}", rf"\begin{{tabular}}{{{columns}}}", *inside, r"\end{tabular}", ""])


def _named(arm: str, places: Mapping[str, int]) -> str:
    return f"<th scope=row><span class=named>{swatch(places.get(arm))}<span>{html.escape(arm)}</span></span></th>"


def _cells(cells: Sequence[str]) -> str:
    return "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)


def swatch(place: int | None) -> str:
    """Return an arm's mark: its colour and its dash."""
    if place is None:
        return ""
    classes = f"arm c{place % 7} d{place // 7 % 3}"
    return f'<svg class=key viewBox="0 0 24 8" aria-hidden=true><line class="{classes}" x1=1 y1=4 x2=23 y2=4 /></svg>'


def latex_text(text: str) -> str:
    """Return text with every sign that LaTeX would act on written out."""
    return re.sub("|".join(map(re.escape, LATEX)), lambda match: LATEX[match[0]], text)


def over_seeds(name: str, title: str, columns: Mapping[str, Column], frame: pd.DataFrame) -> Table:
    """Return a table of means over seeds, with the spread in the raw numbers; columns without a number are left out."""
    used = {column: told for column, told in columns.items() if column in frame and frame[column].notna().any()}
    rows, raw = [], []
    for arm in dict.fromkeys(frame["arm"]):
        mine = frame[frame["arm"] == arm]
        moments = {column: _moments(mine[column]) for column in used}
        told = (each.spread(*moments[c]) if each.spread else each.say(moments[c][0]) for c, each in used.items())
        rows.append([arm, str(len(mine)), *told])
        raw.append({"arm": arm, "seeds": len(mine)} | {f"{c}_mean": m for c, (m, _) in moments.items()})
        raw[-1] |= {f"{c}_std": std for c, (_, std) in moments.items()}
    headings = ["arm", "seeds", *(each.heading for each in used.values())]
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


def turned_away(arms: Sequence[Arm]) -> Table:
    """Return how many answers were not believed, by arm and reason, over all seeds; numbers in a reason are dots."""
    counts: dict[tuple[str, str], int] = {}
    for arm in arms:
        for reasons in rounds_of(arm)["rejected"]:
            for each in reasons:
                key = arm.name, NUMBERS.sub("…", each["reason"])
                counts[key] = counts.get(key, 0) + 1
    rows = [(arm, reason, count) for (arm, reason), count in counts.items()]
    return Table(
        name="turned-away",
        title="Answers that were not believed",
        headings=("arm", "reason", "answers"),
        rows=[(arm, reason, f"{count:,}") for arm, reason, count in rows],
        raw=pd.DataFrame(rows, columns=["arm", "reason", "answers"]),
        notes=("Over all seeds and rounds; which client and which round is in the journal.",),
    )


def ledger(gathered: Gathered) -> Table:
    """Return the cost ledger."""
    frame = totals(gathered.arms)
    idle = [column for column in MAY_BE_IDLE if not (frame[column].astype("float64") > 0).any()]
    table = over_seeds("costs", "What it cost, mean over seeds", LEDGER, frame.drop(columns=idle))
    several = any(len(arm.seeds) > 1 for arm in gathered.arms)
    group = "Runs of a study advance together, so the wall time of one is that of its group."
    notes = (f"Means over seeds. {group}" if several else f"One seed. {group}",)
    return replace(table, notes=notes)
