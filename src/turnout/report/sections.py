"""The sections of the page: what each says in words, its tables, and the places of its pictures."""

import html
from collections.abc import Iterator, Sequence
from typing import Any

from turnout import number_format
from turnout.journal import Loaded
from turnout.journal.changed_data import CHANGED
from turnout.report import curves
from turnout.report.contents import Contents, Event
from turnout.study import to_toml

CHART = "<div class=legend data-part=legend></div><div class=chart data-part=chart></div>"
CURVES = f"""<div data-picture=curves><div class=controls>
<label>show <select data-part=metric></select></label>
<span class=switch role=group aria-label="against" data-part=axis></span>
<label data-part=banded>band <select data-part=band><option value=std>± std over seeds
<option value=range>min–max over seeds<option value=none>none</select></label>
<label><input type=checkbox data-part=log> log scale</label></div>{CHART}</div>"""
SMALL = """<div data-picture={name}><div class=controls><span>against</span>
<span class=switch role=group aria-label="against" data-part=axis></span></div>
<div class=legend data-part=legend></div><div class=pair data-part=charts></div></div>"""
MAP = f"""<div data-picture=map><div class=controls>
<label>arm <select data-part=arm></select></label><label>seed <select data-part=seed></select></label>
<label>clients by <select data-part=order><option value=times_answered>times counted
<option value=times_asked>times asked
<option value=times_up>availability<option value=share>share of the aggregation<option value=sizes>data size
<option value=speed>speed<option value=id>number</select></label>
<label>show <select data-part=quantity><option value=all>everything<option value=up>up<option value=asked>asked
<option value=answered>answered<option value=partial>answered in part<option value=dropped>dropped</select></label>
</div>{CHART}</div>"""
HELD = """<div data-picture=shares><h3>Share of the aggregation against share of the data</h3>
<p class=lead>One dot a client; on the dashed line, a client counts for as much as it holds.
This is <span data-part=of></span>.</p><div class=chart data-part=chart></div></div>
<div data-picture=labels><h3>Who holds which label</h3>
<p class=lead>How much of a client's data each label is: the stronger the colour, the more. Clients stand in the order
chosen above.</p><div class=chart data-part=chart></div></div>"""
UNKNOWN = "How much data each client holds is not in the journal."
MOST_EVENTS = 40
MOST_BANDS = 6  # arms; the bands of more would only cover each other
FACTS = ("engine", "device", "versions", "machine", "notes")  # how a study was run, as far as a reader can use it
LARGE = 300  # clients or rounds that may not get a cell of their own on every screen


def sections(found: Contents) -> list[tuple[str, str, str]]:
    """Return (anchor, heading, markup) of each section that has something to show."""
    parts = [
        ("comparison", "Comparison", _comparison(found)),
        ("curves", "Curves", _curves(found)),
        ("participation", "Who took part", _participation(found)),
        ("counted", "Who counted", _counted(found)),
        ("fairness", "Whom it serves", _fairness(found)),
        ("rules", "What the rules say", _rules(found)),
        ("events", "Events", _events(found.events, found)),
        ("turned-away", "Answers that were not believed", _table(found, "turned-away")),
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
    tests = _table(found, "tests")
    lead = "A dot is the difference in the one seed that was run; one seed has no interval."
    if tests:
        lead = (
            "A dot is the mean difference over the seeds that both arms have, a bar its interval; all bars together "
            "hold with 95 %. A bar that crosses the line at zero is no clear difference."
        )
        tests = f"<details><summary>Every test of these differences</summary>{tests}</details>"
    elif any(row.difference is not None and row.difference.seeds > 1 for row in comparison.rows):
        lead = "A dot is the mean difference over the seeds that both arms have; it was the same in each."
    heading = f"<h3>Difference from {html.escape(comparison.baseline)}</h3>"
    picture = "<div data-picture=forest><div class=chart data-part=chart></div></div>"
    return table + heading + _lead(lead) + picture + tests


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
        yield f"To keep the page small, the map leaves out {number_format.plural(maps['left_out'], 'later seed')}."


def _counted(found: Contents) -> str:
    table = _table(found, "participation")
    if not table:
        return ""
    lead = "An answer counts when it goes into the model."
    if not any(rows.any() for rows in found.counted.values()):
        return _lead(lead) + table
    seeds = max(len(rows) for rows in found.counted.values())
    banded = seeds > 1 and len(found.counted) <= MOST_BANDS
    lead += " The lines put each arm's clients in order" + ("; the band is the range over seeds." if banded else ".")
    charts = "".join(f"<div class=chart data-part={key}></div>" for key in ("counted", "shares-ranked"))
    ranks = f"<div data-picture=ranks><div class=legend data-part=legend></div><div class=pair>{charts}</div></div>"
    known = any(run["held"] is not None for run in found.maps["runs"])
    held = HELD if known else f"<p class=note>{UNKNOWN}</p>"
    return _lead(lead) + table + ranks + held


def _fairness(found: Contents) -> str:
    table = _table(found, "fairness")
    if not table:
        return ""
    lead = _lead(
        "Accuracy of the last model on each client's own hold-out. Worst and best 10 % are means over a tenth of the "
        "clients; Jain's index is 1 when all clients are served alike."
    )
    chart = "<div class=legend data-part=legend></div><div class=chart data-part=accuracies></div>"
    ranks = f"<h3>From the worst served to the best</h3><div data-picture=accuracies>{chart}</div>"
    if clients := _table(found, "clients"):
        ranks = f"<details><summary>Accuracy of each client</summary>{clients}</details>{ranks}"
    if groups := _table(found, "groups"):
        ranks = f"<h3>By group</h3>{groups}{ranks}"
    if not any(_moves(found, metric) for metric in found.curves if curves.group_of(metric) == curves.FAIRNESS):
        once = "<p class=note>Clients were measured once; with evaluate.clients_every the same goes over rounds.</p>"
        return lead + table + ranks + once
    return lead + table + ranks + "<h3>Over rounds</h3>" + SMALL.format(name="fairness")


def _moves(found: Contents, metric: str) -> bool:
    return any(len(curve.round) > 1 for curve in found.curves[metric].values())


def _rules(found: Contents) -> str:
    told = [metric for metric in found.curves if curves.group_of(metric) == curves.RULES]
    if not told:
        return ""
    lead = "What rules report of themselves, round by round: what a filter let through, the server's learning rate, "
    lead += "drift, norms, staleness; whichever of these the arms have."
    return _lead(lead) + SMALL.format(name="rules")


def _events(events: Sequence[Event], found: Contents) -> str:
    if not events:
        return ""
    arms = found.gathered.arms
    rows = []
    for event in events[:MOST_EVENTS]:
        where = "every arm" if len(event.arms) == len(arms) else ", ".join(arms[place].name for place in event.arms)
        cells = (number_format.ranges(list(event.rounds)), where, str(event.runs))
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
    seeds = number_format.ranges([int(seed) for seed in study.runs["seed"]])
    runs = ", ".join(f"{count} {status}" for status, count in study.runs["status"].value_counts().items())
    started = study.runs["started"].min()
    told = {"seeds": seeds, "runs": runs, "started": "" if started != started else f"{started:%Y-%m-%d %H:%M} UTC"}
    told |= {key: _said(facts[key]) for key in FACTS if key in facts}
    told |= {"data that changed": _said(facts[CHANGED])} if CHANGED in facts else {}
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
