"""The report's page: one HTML file that contains everything it needs and loads nothing from a network."""

import base64
import hashlib
import html
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files

from turnout import number_format
from turnout.analysis.comparison import NOBODY
from turnout.report.contents import Contents, as_json
from turnout.report.participation_encoding import text_chunks
from turnout.report.sections import sections

SCRIPTS = ("charts.js", "maps.js", "page.js")
LOGO = (
    '<svg viewBox="0 0 26 26" aria-hidden=true><circle cx=6 cy=13 r=4.5 fill="var(--c0)"/>'
    '<circle cx=15 cy=7 r=4.5 fill="var(--c4)"/><circle cx=17 cy=19 r=4.5 fill="none" stroke="var(--soft)" '
    'stroke-width=1.6 stroke-dasharray="2.4 2"/></svg>'
)


def chunks(contents: Contents) -> Iterator[str]:
    """Yield the page, piece by piece."""
    script = _script()
    title = html.escape(f"{contents.gathered.title}: turnout report")
    yield (
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">\n'
        '<meta name=viewport content="width=device-width, initial-scale=1">\n<meta name=referrer content=no-referrer>\n'
        f'<link rel=icon href="data:,">\n<title>{title}</title>\n<style>\n{_asset("page.css")}</style>\n'
        "</head>\n<body>\n"
    )
    yield _header(contents)
    yield "<main>\n<noscript><p class=note>The charts need JavaScript; texts and tables do not.</p></noscript>\n"
    for name, heading, body, _ in sections(contents):
        yield f"<section id={name}>\n<h2>{html.escape(heading)}</h2>\n{body}\n</section>\n"
    yield f"</main>\n{_footer()}\n<script type=application/json id=data>"
    yield from text_chunks(as_json(contents))
    yield f"</script>\n<script>{script}</script>\n</body>\n</html>\n"


def _asset(name: str) -> str:
    return (files("turnout.report") / "assets" / name).read_text(encoding="utf-8")


def _script() -> str:
    return "\n".join(_asset(name) for name in SCRIPTS)


def policy() -> str:
    """Return the content security policy of a report: it allows the page's own script, and no connection at all."""
    digest = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _header(contents: Contents) -> str:
    gathered = contents.gathered
    links = "".join(f"<a href=#{name}>{html.escape(heading)}</a>" for name, heading, _, _ in sections(contents))
    return (
        f"<header>\n<h1>{LOGO}<span>{html.escape(gathered.title)}</span></h1>\n"
        f"<p class=about>{html.escape(_about(contents))}</p>\n"
        f"<div class=verdict><p class=words>{html.escape(verdict(contents))}</p>"
        f"<p class=rests>{html.escape(_basis(contents))}</p></div>\n<nav>{links}</nav>\n</header>\n"
    )


def verdict(contents: Contents) -> str:
    """Return the verdict of the comparison; if no update was used in any run, that comes first."""
    unused = "No client's update was used in any round, so the models never changed. "
    has_rounds = any(len(run.rounds) for run in contents.first_runs.values())
    is_used = any(rows.any() for rows in contents.updates_used.values())
    is_said = contents.gathered.verdict == NOBODY
    return (unused if has_rounds and not is_used and not is_said else "") + contents.gathered.verdict


def _about(contents: Contents) -> str:
    arms = contents.gathered.arms
    seeds = max((len(arm.seeds) for arm in arms), default=0)
    rounds = max((int(run.rounds.max()) for run in contents.first_runs.values() if len(run.rounds)), default=0)
    clients = max((run.num_clients for run in contents.first_runs.values()), default=0)
    counts = ((len(arms), "arm"), (seeds, "seed"), (rounds, "round"), (clients, "client"))
    return " × ".join(number_format.plural(count, thing) for count, thing in counts)


def _basis(contents: Contents) -> str:
    """Return the baseline's final value, what was compared with it, and what weakens the verdict."""
    comparison, arms = contents.gathered.comparison, contents.gathered.arms
    unfinished = sum(arm.unfinished for arm in arms)
    left_out = f" {number_format.plural(unfinished, 'run')} not finished." if unfinished else ""
    if comparison is None:
        return f"Nothing is compared.{left_out}"
    base = next(row for row in comparison.rows if row.arm == comparison.baseline)
    is_one_seed = base.final.count == 1
    warning = " One seed does not show how much results vary: run more seeds." if is_one_seed else ""
    over = "in the only seed that was run" if is_one_seed else f"over {base.final.count:,} seeds"
    baseline = f"The baseline is {base.arm}, which ends at {comparison.final(base)} {over}."
    compared = sum(row.apart is None for row in comparison.rows) - 1
    others = f" {number_format.plural(compared, 'other arm')} compared with it."
    basis = baseline + others if len(comparison.rows) > 1 else ""  # with one arm, the verdict says it
    return (basis + warning + left_out).strip()


def _footer() -> str:
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    by = f"turnout {html.escape(version('turnout'))}"
    return f"<footer>Written by {by}, {made}. This page loads nothing from a network.</footer>"
