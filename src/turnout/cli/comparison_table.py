"""A comparison of arms as a table for a terminal."""

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from turnout.analysis.comparison import SURE, Comparison


def comparison_table(comparison: Comparison) -> Group:
    """Return two tables: final values with differences and curves, and below them the costs to the target.

    Both fit into 80 columns if names are short.
    """
    shown = comparison.shown()
    cost_headings = [heading for heading, _ in comparison.costs_shown().values()]
    costs = len(cost_headings)
    lines = [[*row[: len(row) - costs], line] for row, line in zip(shown.rows, comparison.sparklines(), strict=True)]
    above = [heading.replace(f" [{SURE}]", f"\n[{SURE}]") for heading in shown.headings]
    parts: list[Table | Text] = [_aligned([*above[: len(above) - costs], ""], lines)]
    if costs:
        parts += [Text(), _aligned(["to target", *cost_headings], [[row[0], *row[-costs:]] for row in shown.rows])]
    notes = [*shown.notes, f"blocks: {comparison.metric} over rounds, on one scale"]
    return Group(*parts, Text(), Text("\n".join(notes), style="italic dim"))


def _aligned(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return aligned columns, the first to the left; cells are Text, because rich reads brackets in a str as markup."""
    table = Table(box=None, pad_edge=False)
    for place, heading in enumerate(headings):
        table.add_column(Text(heading), justify="right" if place else "left", overflow="fold", vertical="bottom")
    for row in rows:
        table.add_row(*map(Text, row))
    return table
