"""`turnout audit`: which objective the runs of a study minimised, in words first."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from turnout import number_format
from turnout.analysis.audit import Audit, Repair, audit_runs, repair
from turnout.analysis.audit.groups import Group
from turnout.analysis.audit.mismatch import difference
from turnout.analysis.audit.words import Summary, repair_sentences, sentences, summaries
from turnout.cli.error_messages import printable
from turnout.cli.json_output import json_text
from turnout.cli.text_table import text_table
from turnout.errors import ConfigError
from turnout.journal import Loaded, load
from turnout.study import to_toml

REPAIR = "repair.toml"
REPAIRED = "repaired"


def audit(
    folder: Path, arm: str | None, seed: int | None, since: int, *, repairs: bool = False, as_json: bool = False
) -> None:
    """Print the audit of a study's runs; with `repairs` also write a study that tries the repaired weights."""
    loaded = load(folder)
    audits = audit_runs(loaded, arm, seed, since=since)
    found = repair(_one(audits)) if repairs else None
    written = None if found is None else _write(folder, loaded, audits[0], found)
    if as_json:
        plain: dict[str, Any] = {"audits": [each.as_dict() for each in audits]}
        if found is not None:
            plain["repair"] = found.as_dict() | {"study": str(written)}
        typer.echo(json_text(plain))
        return
    typer.echo(printable("\n".join(_text(audits))))
    if found is not None:
        typer.echo(printable("\n" + "\n".join(repair_sentences(audits[0].arm, found))))
        typer.echo(f"wrote {written}; next: turnout run {written}")


def _one(audits: Sequence[Audit]) -> Audit:
    """Return the first audit; raise if several arms were audited, for each needs a repair of its own."""
    arms = list(dict.fromkeys(each.arm for each in audits))
    if len(arms) > 1:
        raise ConfigError(f"A repair is of one arm; this study has {', '.join(arms)}. Choose one with --arm.")
    return audits[0]


def _text(audits: Sequence[Audit]) -> list[str]:
    found = summaries(audits)
    lines = [sentence for each in found for sentence in [*sentences(each), ""]]
    lines += [text_table(*_overview(found)), "", text_table(*_causes(found)), ""]
    if len(found) == 1:
        first = audits[0]
        lines += ["" if len(audits) == 1 else f"clients and groups of seed {first.seed}:"][: len(audits) - 1]
        lines += [text_table(*_groups(first.groups)), "", text_table(*_clients(first))]
    else:
        lines.append("For clients and groups of clients, choose an arm with --arm.")
    return lines


def _overview(found: Sequence[Summary]) -> tuple[list[str], list[list[str]]]:
    headings = ["arm", "mismatch", "by chance", "χ²", "clients that count", "by samples", "without weight"]
    rows = [
        [
            each.arm,
            number_format.percent(each.total_variation),
            number_format.percent(each.chance),
            number_format.number(each.chi_square),
            number_format.number(each.effective_clients),
            number_format.number(each.effective_clients_asked),
            number_format.number(each.unseen),
        ]
        for each in found
    ]
    return headings, rows


def _causes(found: Sequence[Summary]) -> tuple[list[str], list[list[str]]]:
    names = [name for name in found[0].causes if any(each.causes[name] for each in found)]
    rows = [[each.arm, *(number_format.percent(each.causes[name]) for name in names)] for each in found]
    rows = [[*row, number_format.percent(each.total_variation)] for row, each in zip(rows, found, strict=True)]
    return ["cause", *names, "sum"], rows


def _groups(groups: Sequence[Group]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            f"{each.by}: {each.name}",
            str(each.clients),
            number_format.percent(each.asked),
            number_format.percent(each.effective),
            _ratio(each.effective, each.asked),
        ]
        for each in groups
    ]
    return ["group", "clients", "samples", "weight", "ratio"], rows


def _clients(found: Audit) -> tuple[list[str], list[list[str]]]:
    weights, over_and_under = found.weights, found.most_changed()
    gap = difference(weights.effective, weights.asked)
    rows = [
        [
            found.name_of(int(client)),
            number_format.percent(float(weights.asked[client]), 2),
            number_format.percent(float(weights.effective[client]), 2),
            number_format.signed(f"{100 * gap[client]:+.2f}"),
            f"{weights.times_up[client]} of {weights.rounds}",
            number_format.number(float(weights.draws[client])),
        ]
        for clients in over_and_under
        for client in clients
    ]
    return ["client", "samples", "weight", "points", "rounds up", "updates used"], rows


def _ratio(effective: float, asked: float) -> str:
    return f"{effective / asked:.2f}" if asked > 0 else number_format.MISSING


def _write(folder: Path, loaded: Loaded, audited: Audit, found: Repair) -> Path:
    """Write a study of the run as it was, and with the repaired coefficients; return its path.

    It has the run's own seed alone: with another one, other clients may hold the data and be available.
    """
    path = folder / REPAIR
    if path.is_symlink():  # an untrusted folder must not choose which file is overwritten
        raise ConfigError(f"{path} is a link to another place; nothing was written. Remove it.")
    (config,) = loaded.runs[loaded.runs["arm"] == audited.arm]["config"].iloc[:1]
    plain = {**config, "name": f"{loaded.study['name']}-repair", "seeds": [audited.seed]}
    changed = {"name": f"{audited.arm}, {REPAIRED}", "aggregation": found.aggregation}
    plain["arm"] = [{"name": audited.arm}, changed]
    path.write_text(to_toml(plain), encoding="utf-8")
    return path
