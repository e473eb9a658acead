"""The sections of the page as HTML: sentences, tables, and placeholders that the scripts fill with charts."""

import html
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from turnout import number_format
from turnout.analysis.audit.words import sentences
from turnout.journal import Loaded
from turnout.journal.changed_data import CHANGED
from turnout.report import curves
from turnout.report.changes import changes_figure
from turnout.report.contents import Contents, Event
from turnout.report.models_used import models_markup
from turnout.report.svg import cause_figure
from turnout.study import to_toml

CHART = "<div class=legend data-part=legend></div><div class=chart data-part=chart></div>"
CURVES = f"""<div data-picture=curves><div class=controls>
<label>metric <select data-part=metric></select></label>
<span class=switch role=group aria-label="horizontal axis" data-part=axis></span>
<label data-part=banded>band <select data-part=band><option value=std>± std over seeds
<option value=range>min–max over seeds<option value=none>none</select></label>
<label><input type=checkbox data-part=log> log scale</label></div>{CHART}</div>"""
SMALL = """<div data-picture={name}><div class=controls><span>horizontal axis</span>
<span class=switch role=group aria-label="horizontal axis" data-part=axis></span></div>
<div class=legend data-part=legend></div><div class=pair data-part=charts></div></div>"""
MAP = f"""<div data-picture=map><div class=controls>
<label>arm <select data-part=arm></select></label><label>seed <select data-part=seed></select></label>
<label>sort clients by <select data-part=order><option value=times_answered>updates used
<option value=times_asked>times asked
<option value=times_up>availability<option value=share>share of the aggregation<option value=sizes>data size
<option value=speed>speed<option value=id>number</select></label>
<label>show <select data-part=quantity><option value=all>all states<option value=up>available<option value=asked>asked
<option value=used>complete or partial<option value=complete>complete<option value=partial>partial
<option value=late>late<option value=lost>lost<option value=rejected>rejected<option value=working>at work</select>
</label></div>{CHART}</div>"""
DATA_CHARTS = """<div data-picture=shares><h3>Share of the aggregation and share of the data</h3>
<p class=lead>One dot per client. On the dashed line, a client's share of the aggregation equals its share of the data.
Shown: <span data-part=of></span>.</p><div class=chart data-part=chart></div></div>
<div data-picture=labels><h3>Labels per client</h3>
<p class=lead>The share of each label in a client's data: the darker, the larger. Clients are sorted as on the map
above.</p><div class=chart data-part=chart></div></div>"""
UNKNOWN = "The journal does not say how much data each client holds."
MOST_EVENTS = 40
MOST_BANDS = 6  # arms; with more, the bands would cover each other
FACTS = ("engine", "device", "versions", "machine", "notes")  # of how the study was run, that the page shows
LARGE = 300  # clients or rounds; with more, a cell of the map may stand for several


Part = tuple[str, tuple[str, ...]]  # HTML, and the names of the pictures in it
NOTHING: Part = ("", ())


class Section(NamedTuple):
    """A section of the page."""

    anchor: str
    heading: str
    markup: str
    pictures: tuple[str, ...] = ()  # names of the pictures in it, which a script draws


def sections(contents: Contents) -> list[Section]:
    """Return each section that has something to show."""
    parts = [
        Section("comparison", "Comparison", *_comparison(contents)),
        Section("curves", "Training curves", *_curves(contents)),
        Section("participation", "Participation", *_participation(contents)),
        Section("models", "Models used by clients", _models(contents)),
        Section("changes", "Accuracy around changes of concept", _changes(contents)),
        Section("updates-used", "Updates used per client", *_updates_used(contents)),
        Section("objective", "The objective that was minimised", _objective(contents)),
        Section("fairness", "Accuracy per client", *_fairness(contents)),
        Section("appeal", "Appeal over rounds", *_appeal(contents)),
        Section("rules", "Metrics of the rules", *_rules(contents)),
        Section("events", "Events", _events(contents.events, contents)),
        Section("rejected", "Rejected updates", _table(contents, "rejected")),
        Section("costs", "Costs", _table(contents, "costs")),
        Section("settings", "Settings, and how to run the study again", _settings(contents)),
    ]
    return [part for part in parts if part.markup]


def _table(contents: Contents, name: str) -> str:
    table = contents.table(name)
    places = {arm.name: place for place, arm in enumerate(contents.gathered.arms)}
    return "" if table is None or not table.rows else table.html(places)


def _lead(text: str) -> str:
    return f"<p class=lead>{html.escape(text)}</p>"


def _comparison(contents: Contents) -> Part:
    comparison = contents.gathered.comparison
    if comparison is None:
        return NOTHING
    table = _table(contents, "comparison")
    if not any(row.difference is not None for row in comparison.rows):
        return table, ()
    tests = _table(contents, "tests")
    lead = "A dot is the difference in the only seed that was run. One seed gives no interval."
    if tests:
        lead = (
            "A dot is the mean difference over seeds, a bar its interval, corrected for the number of arms. If a bar "
            "crosses zero, the difference is not settled."
        )
        tests = f"<details><summary>All statistical tests of these differences</summary>{tests}</details>"
    elif any(row.difference is not None and row.difference.seeds > 1 for row in comparison.rows):
        lead = "A dot is the mean difference over seeds; it was the same in each seed."
    heading = f"<h3>Difference from {html.escape(comparison.baseline)}</h3>"
    picture = "<div data-picture=forest><div class=chart data-part=chart></div></div>"
    return table + heading + _lead(lead) + picture + tests, ("forest",)


def _curves(contents: Contents) -> Part:
    if not contents.curves:
        return NOTHING
    marks = " Vertical lines and ticks mark events, which are listed below." if contents.events else ""
    seeds = max(len(arm.seeds) for arm in contents.gathered.arms)
    lead = "One seed, so no band."
    if seeds > 1:
        lead = "Each line is the mean over seeds; the band shows how much the seeds differ."
    lead += " Choose the metric and the horizontal axis: rounds or a cost."
    lead += " Click a name in the legend to hide an arm." if len(contents.gathered.arms) > 1 else ""
    return _lead(lead + marks) + CURVES, ("curves",)


def _participation(contents: Contents) -> Part:
    runs = contents.maps["runs"]
    if not runs or not any(run["clients"] for run in runs):
        return NOTHING
    if not any(len(run.rounds) for run in contents.first_runs.values()):
        return _lead("No round has been run yet."), ()
    nobody = all(len(run.clients) == 0 for run in contents.first_runs.values())
    large = any(run.num_clients > LARGE or len(run.rounds) > LARGE for run in contents.first_runs.values())
    lead = "The state of every client in every round: one row per client, one column per round."
    lead += " No client was asked in any round." if nobody else ""
    lead += " With many clients or rounds, a cell stands for several." if large else ""
    notes = "".join(f"<p class=note>{html.escape(note)}</p>" for note in _left_out(contents.maps))
    outcomes = "" if nobody else f"<h3>How jobs ended</h3>{_table(contents, 'outcomes')}"
    return _lead(lead) + MAP + notes + outcomes, ("map",)


def _left_out(maps: dict[str, Any]) -> Iterator[str]:
    if maps["every_client"] > 1:
        yield f"To keep the page small, the map shows one client in {maps['every_client']}."
    if maps["every_round"] > 1:
        yield f"To keep the page small, the map shows one round in {maps['every_round']}."
    if maps["left_out"]:
        yield f"To keep the page small, the map leaves out {number_format.plural(maps['left_out'], 'later seed')}."


def _models(contents: Contents) -> str:
    markup = models_markup(contents.models_used)
    lead = (
        "Which of several models each client trained: one row per client, one column per round, one colour per model."
    )
    return _lead(lead) + markup if markup else ""


def _changes(contents: Contents) -> str:
    if not contents.around_changes:
        return ""
    lead = _lead(
        "The labels of some clients change between two time steps. Before: the last measurement on samples of the old "
        "concept. At the change: the first on samples of the new one, with models that have not been trained on it. "
        "After k: when models have been trained on k time steps of it. Clients that change again by then are left out."
    )
    places = {arm.name: place for place, arm in enumerate(contents.gathered.arms)}
    figure = f"<figure>{changes_figure(contents.around_changes, places)}</figure>"
    each = f"<details><summary>Each change</summary>{_table(contents, 'each-change')}</details>"
    return lead + figure + _table(contents, "changes") + each


def _updates_used(contents: Contents) -> Part:
    table = _table(contents, "participation")
    if not table:
        return NOTHING
    lead = "How often the server used an update of each client, and the client's share of the aggregation."
    if not any(rows.any() for rows in contents.updates_used.values()):
        return _lead(lead) + table, ()
    seeds = max(len(rows) for rows in contents.updates_used.values())
    has_band = seeds > 1 and len(contents.updates_used) <= MOST_BANDS
    lead += " Each line shows an arm's clients in order" + ("; the band is the range over seeds." if has_band else ".")
    charts = "".join(f"<div class=chart data-part={key}></div>" for key in ("updates-used", "shares"))
    ranks = f"<div data-picture=ranks><div class=legend data-part=legend></div><div class=pair>{charts}</div></div>"
    known = any(run["holdings"] is not None for run in contents.maps["runs"])
    of_data = DATA_CHARTS if known else f"<p class=note>{UNKNOWN}</p>"
    return _lead(lead) + table + ranks + of_data, ("ranks", *(("shares", "labels") if known else ()))


def _objective(contents: Contents) -> str:
    table = _table(contents, "objective")
    if not table:
        return ""
    words = "".join(f"<p class=lead>{html.escape(' '.join(sentences(each)))}</p>" for each in contents.objectives)
    lead = _lead(
        "The weight of a client in the objective that the run went down: the sum over rounds of its coefficient times "
        "its local work. The mismatch is the share of this weight that is at other clients than the data sizes ask "
        "for; its causes sum to it, and a negative one corrects the others. Mean over seeds."
    )
    figure = cause_figure([(each.arm, each.causes, each.total_variation) for each in contents.objectives])
    return f"{words}{lead}{table}<figure>{figure}</figure>"


def _fairness(contents: Contents) -> Part:
    table = _table(contents, "fairness")
    if not table:
        return NOTHING
    lead = _lead(
        "Accuracy of the last model on each client's own hold-out data. Worst and best 10 % are the means over the "
        "tenth of clients with the lowest and the highest accuracy. Jain's index is 1, and Gini's is 0, if all clients "
        "have the same accuracy."
    )
    chart = "<div class=legend data-part=legend></div><div class=chart data-part=accuracies></div>"
    ranks = f"<h3>Clients in order of accuracy</h3><div data-picture=accuracies>{chart}</div>"
    if personal := _table(contents, "personal"):
        lead += _lead(
            "Clients have models of their own: the table compares them with the shared model, client by client. A rule "
            "is worth its cost if it beats fine-tuning, which is an arm with personal = fine-tune."
        )
        table = personal + table
    if clients := _table(contents, "clients"):
        ranks = f"<details><summary>Accuracy of each client</summary>{clients}</details>{ranks}"
    if losses := _table(contents, "fairness-loss"):
        ranks = f"<h3>Loss per client</h3>{losses}{ranks}"
    if groups := _table(contents, "groups"):
        ranks = f"<h3>By group</h3>{groups}{ranks}"
    if not any(_moves(contents, metric) for metric in contents.curves if curves.group_of(metric) == curves.FAIRNESS):
        once = (
            "<p class=note>Clients were evaluated once. Set evaluate.clients_every to see their accuracy over rounds."
            "</p>"
        )
        return lead + table + ranks + once, ("accuracies",)
    charts = "<h3>Over rounds</h3>" + SMALL.format(name="fairness")
    return lead + table + ranks + charts, ("accuracies", "fairness")


def _appeal(contents: Contents) -> Part:
    table = _table(contents, "appeal")
    if not table:
        return NOTHING
    lead = _lead(
        "The model of a round, before its step, serves a client if its loss on the client's training samples is below "
        "what the client requires, for example the loss of a model that the client trained alone."
    )
    has_charts = any(_moves(contents, metric) for metric in contents.curves if curves.group_of(metric) == curves.APPEAL)
    if not has_charts:
        return lead + table, ()
    return lead + table + SMALL.format(name="appeal"), ("appeal",)


def _moves(contents: Contents, metric: str) -> bool:
    return any(len(curve.round) > 1 for curve in contents.curves[metric].values())


def _rules(contents: Contents) -> Part:
    if not any(curves.group_of(metric) == curves.RULES for metric in contents.curves):
        return NOTHING
    lead = "Metrics that the rules of an arm report each round, such as the share of clients that a filter kept, the "
    lead += "server's learning rate, drift, update norms or staleness."
    return _lead(lead) + SMALL.format(name="rules"), ("rules",)


def _events(events: Sequence[Event], contents: Contents) -> str:
    if not events:
        return ""
    arms = contents.gathered.arms
    rows = []
    for event in events[:MOST_EVENTS]:
        where = "every arm" if len(event.arms) == len(arms) else ", ".join(arms[place].name for place in event.arms)
        cells = (number_format.ranges(list(event.rounds)), where, str(event.runs))
        rows.append(
            f"<tr><th scope=row>{html.escape(event.text)}</th>"
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
            + "</tr>"
        )
    head = "<tr><th scope=col>event</th><th scope=col>rounds</th><th scope=col>arms</th><th scope=col>runs</th></tr>"
    more = len(events) - MOST_EVENTS
    note = f"<p class=note>The journal has {more} more kinds of event.</p>" if more > 0 else ""
    table = f"<div class=scroll><table class=text><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table></div>"
    return table + note


def _settings(contents: Contents) -> str:
    return "".join(_study(study) for study in contents.gathered.studies)


def _study(study: Loaded) -> str:
    name, facts = str(study.study["name"]), study.study["facts"]
    seeds = number_format.ranges([int(seed) for seed in study.runs["seed"]])
    runs = ", ".join(f"{count} {status}" for status, count in study.runs["status"].value_counts().items())
    started = study.runs["started"].min()
    texts = {"seeds": seeds, "runs": runs, "started": "" if started != started else f"{started:%Y-%m-%d %H:%M} UTC"}
    texts |= {key: _as_text(facts[key]) for key in FACTS if key in facts}
    texts |= {"changed data": _as_text(facts[CHANGED])} if CHANGED in facts else {}
    pairs = "".join(f"<dt>{html.escape(key)}</dt><dd>{html.escape(text)}</dd>" for key, text in texts.items() if text)
    file = f"{name}.toml"
    again = f"turnout run {file if file.replace('-', '').replace('.', '').replace('_', '').isalnum() else repr(file)}"
    return (
        f"<h3>{html.escape(name)}</h3><dl>{pairs}</dl>"
        f"<p>To run the study again, save the settings below as <code>{html.escape(file)}</code> and run "
        f"<code>{html.escape(again)}</code>. The same seeds give the same clients, cohorts and mini-batches. If the "
        "study names code of your own (package.module:Name), that code must be installed.</p>"
        f"<details><summary>All settings of the study</summary><pre>{html.escape(_toml(study))}</pre></details>"
    )


def _toml(study: Loaded) -> str:
    return to_toml(study.study["config"]).strip()


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_as_text(each)}" for key, each in value.items())
    return ", ".join(map(_as_text, value)) if isinstance(value, list) else str(value)
