"""The pages: the list, a running study, and the report with a link back to the list."""

import base64
import hashlib
import html
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from turnout import number_format
from turnout.report.contents import contents
from turnout.report.load_studies import gather
from turnout.report.page import LOGO, SCRIPTS, chunks, policy
from turnout.report.participation_encoding import text_chunks
from turnout.ui.live_study import LiveStudy
from turnout.ui.study_summary import FINISHED, UNREADABLE, StudySummary

BACK = "<header><nav><a href=/>All runs</a></nav></header>\n"
LOST = "<p class='note lost' data-part=lost hidden>The server does not answer. This page shows its last data.</p>\n"
OWN = ("ui.css", "listen.js", "list.js", "live.js")
LIST = """<main>
<div class=controls><label>search <input type=search data-part=find placeholder="name or state"></label>
<span class=switch role=group aria-label="state" data-part=states></span></div>
<form action=/show><div class=scroll><table class=runs><thead><tr>
<th scope=col><span class=unseen>select</span></th>
<th scope=col data-by=study aria-sort=none><button type=button>study</button></th>
<th scope=col data-by=state aria-sort=none><button type=button>state</button></th>
<th scope=col data-by=share aria-sort=none><button type=button>rounds</button></th>
<th scope=col data-by=best aria-sort=none><button type=button>last accuracy</button></th>
<th scope=col data-by=started aria-sort=descending><button type=button>started</button></th>
</tr></thead><tbody></tbody></table></div>
<p class=note data-part=none hidden></p>
<div class=compare hidden><span data-part=ticked></span><button data-part=go></button>
<button type=button data-part=clear>Clear selection</button></div></form>
</main>"""


class Page(NamedTuple):
    """A page as it is sent."""

    body: bytes
    policy: str
    status: int = 200


def list_page(root: Path, since: str, lines: Iterable[StudySummary]) -> Page:
    """Return the list of all studies; `since` names the state that it shows."""
    about = f"Studies in {root}"
    data = {"since": since, "rows": [row(line) for line in lines]}
    return _page("turnout runs", f"{_header('turnout', about)}{LIST}", ("listen.js", "list.js"), data)


def live_page(line: StudySummary, found: LiveStudy) -> Page:
    """Return the page of a running study."""
    links = "".join(f"<a href=#{anchor}>{html.escape(heading)}</a>" for anchor, heading, _, _ in found.sections)
    where = "" if line.name == line.study else f", in {line.name}"
    counts = f"{number_format.plural(line.arms, 'arm')} × {number_format.plural(line.seeds, 'seed')}{where}"
    told = (
        "<div class=verdict><p class=words data-part=words></p><progress data-part=bar></progress>"
        f"<p class=rests data-part=rests></p></div>\n<nav>{links}</nav>\n"
    )
    body = "".join(
        f"<section id={anchor}>\n<h2>{html.escape(heading)}</h2>\n{markup}\n</section>\n"
        for anchor, heading, markup, _ in found.sections
    )
    data = {**found.data, "live": {"shape": found.shape, "line": row(line)}}
    whole = f"{_header(line.study, counts, back=True, more=told)}<main>\n{body}</main>\n"
    return _page(f"{line.study}: running", whole, (*SCRIPTS, "listen.js", "live.js"), data)


def report_page(folders: Sequence[Path]) -> Page:
    """Return the report of some studies, as `turnout report` writes it, under a link to the list."""
    head, *rest = chunks(contents(gather(folders)))
    return Page("".join([head, BACK, *rest]).encode(), f"{policy()}; frame-ancestors 'none'")


def message_page(text: str, status: int) -> Page:
    """Return a page with one sentence."""
    words = f"<div class=verdict><p class=words>{html.escape(text)}</p></div>"
    return _page("turnout", _header("turnout", "", back=True, more=words), (), {})._replace(status=status)


def row(line: StudySummary) -> dict[str, Any]:
    """Return a row of the list as plain values."""
    lowest, highest = (min(line.accuracies), max(line.accuracies)) if line.accuracies else (None, None)
    low, high = number_format.percent(lowest), number_format.percent(highest)
    return {
        "name": line.name,
        "study": line.study,
        "state": line.state,
        "arms": line.arms,
        "seeds": line.seeds,
        "done": line.done,
        "rounds": line.done if line.state == FINISHED else line.rounds,
        "runs": line.arms * line.seeds,
        "finished": line.runs_finished,
        "accuracy": high if low == high else f"{low.removesuffix(' %')}–{high}",
        "best": highest,
        "started": line.started,
        "when": _local(line.started),
        "problem": f"This study cannot be read: {line.problem}" if line.state == UNREADABLE else "",
    }


def _local(started: str) -> str:
    return f"{datetime.fromisoformat(started).astimezone():%Y-%m-%d %H:%M}" if started else ""


def _header(title: str, about: str, *, back: bool = False, more: str = "") -> str:
    return (
        f"{BACK if back else ''}<header>\n<h1>{LOGO}<span>{html.escape(title)}</span></h1>\n"
        f"<p class=about>{html.escape(about)}</p>\n{more}{LOST}</header>\n"
    )


def _page(title: str, body: str, scripts: Sequence[str], data: Mapping[str, Any]) -> Page:
    style, script = _asset("page.css") + _asset("ui.css"), "\n".join(map(_asset, scripts))
    own_policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    text = (
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
        '<meta name=viewport content="width=device-width, initial-scale=1">\n<meta name=referrer content=no-referrer>\n'
        f'<link rel=icon href="data:,">\n<title>{html.escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n'
        f"{body}<script type=application/json id=data>{''.join(text_chunks(dict(data)))}</script>\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )
    return Page(text.encode(), own_policy)


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    package = "turnout.ui" if name in OWN else "turnout.report"
    return (files(package) / "assets" / name).read_text(encoding="utf-8")
