"""What a notebook shows of a result: the comparison as a table, the verdict, and what a reader should know."""

import html
from collections.abc import Callable

from turnout.analysis.comparison import Comparison
from turnout.errors import TurnoutError


def as_html(comparison: Callable[[], Comparison], title: str) -> str:
    """Return the comparison in HTML; where there is nothing to compare, the reason."""
    try:
        found = comparison()
    except TurnoutError as error:  # a study without a test set
        return _paragraphs([title, str(error)])
    shown = found.shown()
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in shown.headings)
    rows = "".join(
        f"<tr><th>{html.escape(row[0])}</th>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row[1:])}</tr>"
        for row in shown.rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return _paragraphs([title]) + table + _paragraphs([found.verdict(), *shown.notes])


def _paragraphs(texts: list[str]) -> str:
    return "".join(f"<p>{html.escape(text)}</p>" for text in texts)
