"""The HTML view of a result in a notebook: the comparison as a table, the verdict and notes."""

import html
from collections.abc import Callable

from turnout.analysis.comparison import Comparison
from turnout.errors import TurnoutError


def as_html(comparison: Callable[[], Comparison], title: str) -> str:
    """Return the comparison as HTML; if nothing can be compared, the reason."""
    try:
        compared = comparison()
    except TurnoutError as error:  # a study without a test set
        return _paragraphs([title, str(error)])
    shown = compared.shown()
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in shown.headings)
    rows = "".join(
        f"<tr><th>{html.escape(row[0])}</th>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row[1:])}</tr>"
        for row in shown.rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return _paragraphs([title]) + table + _paragraphs([compared.verdict(), *shown.notes])


def _paragraphs(texts: list[str]) -> str:
    return "".join(f"<p>{html.escape(text)}</p>" for text in texts)
