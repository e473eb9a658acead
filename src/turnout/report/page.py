"""The page: one HTML file with everything in it, which asks nothing of any network."""

import base64
import hashlib
import html
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from turnout.journal import Loaded
from turnout.report import formats
from turnout.report.comparing import final
from turnout.report.contents import Contents, Event, as_json
from turnout.report.holdings import UNKNOWN
from turnout.report.packing import text_chunks
from turnout.study import to_toml

SCRIPTS = ("charts.js", "maps.js", "page.js")
LOGO = (
    '<svg viewBox="0 0 26 26" aria-hidden=true><circle cx=6 cy=13 r=4.5 fill="var(--c0)"/>'
    '<circle cx=15 cy=7 r=4.5 fill="var(--c4)"/><circle cx=17 cy=19 r=4.5 fill="none" stroke="var(--soft)" '
    'stroke-width=1.6 stroke-dasharray="2.4 2"/></svg>'
)
CHART = "<div class=legend data-part=legend></div><div class=chart data-part=chart></div>"
CURVES = f"""<div data-picture=curves><div class=controls>
<label>show <select data-part=metric></select></label>
<span class=switch role=group aria-label="against" data-part=axis></span>
<label>band <select data-part=band><option value=std>± std over seeds<option value=range>min–max over seeds
<option value=none>none</select></label>
<label><input type=checkbox data-part=log> log scale</label></div>{CHART}</div>"""
MAP = f"""<div data-picture=map><div class=controls>
<label>arm <select data-part=arm></select></label><label>seed <select data-part=seed></select></label>
<label>clients by <select data-part=order><option value=times_answered>times counted
<option value=times_asked>times asked
<option value=times_up>times up<option value=share>share of the aggregation<option value=sizes>data size
<option value=id>number</select></label>
<label>show <select data-part=quantity><option value=all>everything<option value=up>up<option value=asked>asked
<option value=answered>answered<option value=partial>answered in part<option value=dropped>dropped</select></label>
</div>{CHART}</div>"""
HELD = """<div data-picture=shares><h3>Share of the aggregation against share of the data</h3>
<p class=lead>One dot a client; on the dashed line, a client counts for as much as it holds.
This is <span data-part=of></span>.</p><div class=chart data-part=chart></div></div>
<div data-picture=labels><h3>Who holds which label</h3>
<p class=lead>How much of a client's data each label is: the stronger the colour, the more. Clients stand in the order
chosen above.</p><div class=chart data-part=chart></div></div>"""
MOST_EVENTS = 40
LARGE = 300  # clients or rounds that may not get a cell of their own on every screen


def chunks(found: Contents) -> Iterator[str]:
    """Yield the page, piece by piece."""
    script = "\n".join(_asset(name) for name in SCRIPTS)
    title = html.escape(f"{found.gathered.title}: turnout report")
    yield (
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">\n'
        '<meta name=viewport content="width=device-width, initial-scale=1">\n<meta name=referrer content=no-referrer>\n'
        f'<link rel=icon href="data:,">\n<title>{title}</title>\n<style>\n{_asset("page.css")}</style>\n'
        "</head>\n<body>\n"
    )
    yield _header(found)
    yield "<main>\n<noscript><p class=note>The pictures need JavaScript; words and tables do not.</p></noscript>\n"
    for name, heading, body in _sections(found):
        yield f"<section id={name}>\n<h2>{html.escape(heading)}</h2>\n{body}\n</section>\n"
    yield f"</main>\n{_footer()}\n<script type=application/json id=data>"
    yield from text_chunks(as_json(found))
    yield f"</script>\n<script>{script}</script>\n</body>\n</html>\n"


def _asset(name: str) -> str:
    return (files("turnout.report") / "assets" / name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Allow this one script, and no connection at all."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _header(found: Contents) -> str:
    gathered = found.gathered
    links = "".join(f"<a href=#{name}>{html.escape(heading)}</a>" for name, heading, _ in _sections(found))
    return (
        f"<header>\n<h1>{LOGO}<span>{html.escape(gathered.title)}</span></h1>\n"
        f"<p class=about>{html.escape(_about(found))}</p>\n"
        f"<div class=verdict><p class=words>{html.escape(verdict(found))}</p>"
        f"<p class=rests>{html.escape(_rests_on(found))}</p></div>\n<nav>{links}</nav>\n</header>\n"
    )


def verdict(found: Contents) -> str:
    """Return the outcome in words; that nobody came is said first."""
    unmoved = "No client's answer counted in any round, so no model was ever moved. "
    trained = any(len(run.rounds) for run in found.attended.values())
    moved = any(rows.any() for rows in found.counted.values())
    return (unmoved if trained and not moved else "") + found.gathered.verdict


def _about(found: Contents) -> str:
    arms = found.gathered.arms
    seeds = max((len(arm.seeds) for arm in arms), default=0)
    rounds = max((int(run.rounds.max()) for run in found.attended.values() if len(run.rounds)), default=0)
    clients = max((run.num_clients for run in found.attended.values()), default=0)
    counts = ((len(arms), "arm"), (seeds, "seed"), (rounds, "round"), (clients, "client"))
    return " × ".join(formats.plural(count, thing) for count, thing in counts)


def _rests_on(found: Contents) -> str:
    """Return what the verdict rests on, and what weakens it."""
    comparison, arms = found.gathered.comparison, found.gathered.arms
    unfinished = sum(arm.unfinished for arm in arms)
    left_out = f" {formats.plural(unfinished, 'run')} not finished." if unfinished else ""
    if comparison is None:
        return f"Nothing is compared.{left_out}"
    base = next(row for row in comparison.rows if row.arm == comparison.baseline)
    final_value = final(base, comparison.metric.endswith("accuracy"))
    one = " One seed shows no spread: run more before believing it." if base.final.count == 1 else ""
    last = f"{base.arm} ends at {final_value} over {formats.plural(base.final.count, 'seed')}."
    others = f" {formats.plural(len(comparison.rows) - 1, 'other arm')} held against it, seed by seed."
    return last + (others if len(comparison.rows) > 1 else "") + one + left_out


def _sections(found: Contents) -> list[tuple[str, str, str]]:
    """Return (anchor, heading, markup) of each section that has something to show."""
    parts = [
        ("comparison", "Comparison", _comparison(found)),
        ("curves", "Curves", _curves(found)),
        ("participation", "Who took part", _participation(found)),
        ("counted", "Who counted", _counted(found)),
        ("fairness", "Whom it serves", _fairness(found)),
        ("events", "Events", _events(found.events, found)),
        ("costs", "What it cost", _table(found, "costs")),
        ("settings", "Settings, and how to run it again", _settings(found)),
    ]
    return [part for part in parts if part[2]]


def _table(found: Contents, name: str) -> str:
    table = found.table(name)
    places = {arm.name: place for place, arm in enumerate(found.gathered.arms)}
    return "" if table is None or not table.rows else table.html(places)


def _lead(text: str) -> str:
    return f"<p class=lead>{html.escape(text)}</p>"


def _comparison(found: Contents) -> str:
    comparison = found.gathered.comparison
    if comparison is None:
        return ""
    table = _table(found, "comparison")
    if not any(row.difference is not None for row in comparison.rows):
        return table
    return (
        f"{table}<h3>Difference from {html.escape(comparison.baseline)}</h3>"
        + _lead(
            "A dot is the mean difference over the seeds that both arms have, a bar its 95 % interval. "
            "A bar that crosses the line at zero is no clear difference."
        )
        + "<div data-picture=forest><div class=chart data-part=chart></div></div>"
    )


def _curves(found: Contents) -> str:
    if not found.curves:
        return ""
    marks = " Thin upright lines and ticks are events; they are listed below." if found.events else ""
    seeds = max(len(arm.seeds) for arm in found.gathered.arms)
    lead = "The mean over seeds, and a band." if seeds > 1 else "One seed, so no band."
    lead += " Choose what to show, and what to hold it against."
    lead += " Names switch arms off." if len(found.gathered.arms) > 1 else ""
    return _lead(lead + marks) + CURVES


def _participation(found: Contents) -> str:
    runs = found.maps["runs"]
    if not runs or not any(run["clients"] for run in runs):
        return ""
    if not any(len(run.rounds) for run in found.attended.values()):
        return _lead("No round has been run yet.")
    nobody = all(len(run.clients) == 0 for run in found.attended.values())
    large = any(run.num_clients > LARGE or len(run.rounds) > LARGE for run in found.attended.values())
    lead = "Every client in every round."
    lead += " No client was asked in any round." if nobody else ""
    lead += " Where they are many, a cell stands for several clients and rounds." if large else ""
    return _lead(lead) + MAP + "".join(f"<p class=note>{html.escape(note)}</p>" for note in _left_out(found.maps))


def _left_out(maps: dict[str, Any]) -> Iterator[str]:
    if maps["every_client"] > 1:
        yield f"To keep the page small, one client in {maps['every_client']} is on the map."
    if maps["every_round"] > 1:
        yield f"To keep the page small, one round in {maps['every_round']} is on the map."
    if maps["left_out"]:
        yield f"To keep the page small, the map leaves out {formats.plural(maps['left_out'], 'later seed')}."


def _counted(found: Contents) -> str:
    table = _table(found, "participation")
    if not table:
        return ""
    lead = "An answer counts when it goes into the model."
    if not any(rows.any() for rows in found.counted.values()):
        return _lead(lead) + table
    lead += " The lines put each arm's clients in order; the band is the range over seeds."
    ranks = f"<div data-picture=counted>{CHART}</div><div data-picture=shares-ranked>{CHART}</div>"
    known = any(run["held"] is not None for run in found.maps["runs"])
    held = HELD if known else f"<p class=note>{UNKNOWN}</p>"
    return f"{_lead(lead)}{table}<div class=pair>{ranks}</div>{held}"


def _fairness(found: Contents) -> str:
    table = _table(found, "fairness")
    if not table:
        return ""
    lead = _lead(
        "Accuracy of the last model on each client's own hold-out. Worst and best 10 % are means over a tenth of the "
        "clients; Jain's index is 1 when all clients are served alike. The curves above show these over rounds where "
        "they were measured."
    )
    return f"{lead}{table}<div data-picture=accuracies>{CHART}</div>"


def _events(events: Sequence[Event], found: Contents) -> str:
    if not events:
        return ""
    arms = found.gathered.arms
    rows = []
    for event in events[:MOST_EVENTS]:
        where = "every arm" if len(event.arms) == len(arms) else ", ".join(arms[place].name for place in event.arms)
        cells = (formats.ranges(list(event.rounds)), where, str(event.runs))
        rows.append(
            f"<tr><th scope=row>{html.escape(event.text)}</th>"
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
            + "</tr>"
        )
    head = "<tr><th scope=col>what</th><th scope=col>rounds</th><th scope=col>arms</th><th scope=col>runs</th></tr>"
    more = len(events) - MOST_EVENTS
    note = f"<p class=note>{more} more kinds of event are in the journal.</p>" if more > 0 else ""
    table = f"<div class=scroll><table class=text><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table></div>"
    return table + note


def _settings(found: Contents) -> str:
    return "".join(_study(study) for study in found.gathered.studies)


def _study(study: Loaded) -> str:
    name, facts = str(study.study["name"]), study.study["facts"]
    seeds = formats.ranges([int(seed) for seed in study.runs["seed"]])
    runs = ", ".join(f"{count} {status}" for status, count in study.runs["status"].value_counts().items())
    started = study.runs["started"].min()
    told = {"seeds": seeds, "runs": runs, "started": "" if started != started else f"{started:%Y-%m-%d %H:%M} UTC"}
    told |= {key: _said(value) for key, value in facts.items()}
    pairs = "".join(f"<dt>{html.escape(key)}</dt><dd>{html.escape(text)}</dd>" for key, text in told.items() if text)
    file = f"{name}.toml"
    again = f"turnout run {file if file.replace('-', '').replace('.', '').replace('_', '').isalnum() else repr(file)}"
    return (
        f"<h3>{html.escape(name)}</h3><dl>{pairs}</dl>"
        f"<p>To run it again, save the study below as <code>{html.escape(file)}</code> and run "
        f"<code>{html.escape(again)}</code>. The same seeds give the same clients, cohorts and mini-batches. Data or "
        "rules of your own, named by their address, have to be at hand.</p>"
        f"<details><summary>The study with every setting</summary><pre>{html.escape(_toml(study))}</pre></details>"
    )


def _toml(study: Loaded) -> str:
    return to_toml(study.study["config"]).strip()


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_said(each)}" for key, each in value.items())
    return ", ".join(map(_said, value)) if isinstance(value, list) else str(value)


def _footer() -> str:
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    by = f"turnout {html.escape(version('turnout'))}"
    return f"<footer>Written by {by}, {made}. Nothing on this page is fetched.</footer>"
