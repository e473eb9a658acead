"""Encode who took part in few bytes: a bit per client for who was available, lists for who was asked.

The page sorts and bins the clients. Every number is exact as long as it fits. What is left out to keep the page small
is said on it: later seeds first, then clients beyond twenty thousand (every k-th is kept), then rounds (every k-th).
"""

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.journal import ClientFacts
from turnout.report.load_studies import Arm
from turnout.report.participation import STATES, Participation

BUDGET = 5_000_000  # bytes of the page that all maps may take
MOST_CLIENTS = 20_000
PER_CLIENT = 14  # bytes of the page that one client's counts and share take
LABEL_LEVELS = 255
MOST_LABELS = 1_000_000  # clients times classes
MOST_LETTERS = 200_000  # in the names of all clients together
NUMBER_TYPES = {"B": "<u1", "H": "<u2", "I": "<u4", "f": "<f4"}


def packed(values: NDArray[Any]) -> dict[str, str]:
    """Return numbers as base64, in the narrowest type that holds them."""
    if values.dtype.kind == "f":
        letter = "f"
    else:
        most = int(values.max()) if values.size else 0
        letter = "B" if most < 1 << 8 else "H" if most < 1 << 16 else "I"
    return {"t": letter, "d": base64.b64encode(values.astype(NUMBER_TYPES[letter]).tobytes()).decode("ascii")}


def every(count: int, most: int) -> int:
    """Return the smallest k such that every k-th of `count` items are at most `most`."""
    return max(1, -(-count // max(most, 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Which clients and rounds are on the map: every k-th."""

    clients: int = 1
    rounds: int = 1


ReadRun = Callable[[Arm, int], Participation]
ReadFacts = Callable[[Arm, int], ClientFacts | None]


def maps(arms: Sequence[Arm], read_run: ReadRun, read_facts: ReadFacts, budget: int = BUDGET) -> dict[str, Any]:
    """Return the maps of as many seeds as fit the budget, all arms of a seed together; the first seed always fits."""
    places_of: dict[str, dict[bytes, int]] = {"ups": {}, "holdings": {}}
    page: dict[str, Any] = {"states": list(STATES), "ups": [], "holdings": [], "runs": [], "left_out": 0}
    spent, steps = 0, Steps()
    seeds = list(dict.fromkeys(seed for arm in arms for seed in arm.seeds))
    for at, seed in enumerate(seeds):
        places = [place for place, arm in enumerate(arms) if seed in arm.seeds]
        runs = [read_run(arms[place], seed) for place in places]
        if at == 0:
            steps = _steps(runs, budget)
        facts = [read_facts(arms[place], seed) for place in places]
        holdings = [_encode_facts(each, run, steps) for each, run in zip(facts, runs, strict=True)]
        new = {_key(each): _length(each) for each in holdings if each and _key(each) not in places_of["holdings"]}
        spent += sum(_costs(runs, steps)) + sum(new.values())
        if at and spent > budget:
            page["left_out"] = len(seeds) - at
            break
        for place, run, holding in zip(places, runs, holdings, strict=True):
            entry = {"arm": place, "seed": seed, **_run(run, steps)}
            entry["up"] = _place_of(entry["up"], page["ups"], places_of["ups"])
            entry["holdings"] = None if holding is None else _place_of(holding, page["holdings"], places_of["holdings"])
            page["runs"].append(entry)
    return page | {"every_client": steps.clients, "every_round": steps.rounds}


def _place_of(entry: dict[str, Any], page: list[Any], known: dict[bytes, int]) -> int:
    """Return the place of an entry in a list on the page; equal entries are added once."""
    key = _key(entry)
    if key not in known:
        known[key] = len(page)
        page.append(entry)
    return known[key]


def _key(entry: dict[str, Any]) -> bytes:
    return blake2b(json.dumps(entry).encode(), digest_size=16).digest()


def _length(holding: dict[str, Any]) -> int:
    names = sum(map(len, holding.get("names", ())))
    return names + sum(len(part["d"]) for part in holding.values() if isinstance(part, dict))


def _steps(runs: Sequence[Participation], budget: int) -> Steps:
    most = min(MOST_CLIENTS, budget // (2 * PER_CLIENT * max(1, len(runs))))  # counts take at most half of the budget
    clients = max((every(run.num_clients, most) for run in runs), default=1)
    cells, counts = _costs(runs, Steps(clients=clients))
    return Steps(clients=clients, rounds=every(cells, budget - counts))


def _costs(runs: Sequence[Participation], steps: Steps) -> tuple[int, int]:
    """Return about how many bytes the maps of a seed take, and the counts; equal availability is stored once."""
    bits = {run.up_key: run.num_clients * len(run.rounds) // 8 for run in runs}
    asked = sum(3 * len(run.clients) for run in runs)
    cells = 4 * (sum(bits.values()) + asked) // (3 * steps.clients * steps.rounds)
    return cells, sum(PER_CLIENT * run.num_clients for run in runs) // steps.clients


def _run(run: Participation, steps: Steps) -> dict[str, Any]:
    rounds = np.arange(0, len(run.rounds), steps.rounds)
    owner = np.repeat(np.arange(len(run.rounds)), run.counts)
    is_shown = (owner % steps.rounds == 0) & (run.clients % steps.clients == 0)
    bits = b"".join(_bits(run, run.up.mask(int(place)), steps) for place in rounds)
    shown = slice(None, None, steps.clients)
    return {
        "clients": len(range(0, run.num_clients, steps.clients)),
        "rounds": packed(run.rounds[rounds]),
        "up": packed(np.frombuffer(bits, dtype=np.uint8)),
        "counts": packed(np.bincount(owner[is_shown], minlength=len(run.rounds))[rounds]),
        "asked": packed(run.clients[is_shown] // steps.clients),
        "as": packed(run.states[is_shown]),
        "times_up": packed(run.times_up[shown]),
        "times_asked": packed(run.times_asked[shown]),
        "times_answered": packed(run.times_answered[shown]),
        "share": packed(run.share[shown]),
    }


def _bits(run: Participation, up: NDArray[np.bool_], steps: Steps) -> bytes:
    mask = np.pad(up, (0, run.num_clients - len(up))) if len(up) < run.num_clients else up
    return np.packbits(mask[:: steps.clients], bitorder="little").tobytes()


def _encode_facts(facts: ClientFacts | None, run: Participation, steps: Steps) -> dict[str, Any] | None:
    """Return the data sizes, names, speeds and label shares of the clients on the map; None if not known."""
    if facts is None or len(facts.sizes) != run.num_clients:
        return None
    shown = slice(None, None, steps.clients)
    entry: dict[str, Any] = {"sizes": packed(facts.sizes[shown]), "total": int(facts.sizes.sum())}
    if facts.client_names is not None and sum(map(len, facts.client_names[shown])) <= MOST_LETTERS:
        entry["names"] = list(facts.client_names[shown])
    if facts.seconds_per_step is not None:
        entry["seconds"] = packed(facts.seconds_per_step[shown])
    labels = None if facts.label_counts is None else facts.label_counts[shown]
    if labels is None or labels.size > MOST_LABELS:
        return entry
    shares = labels / np.maximum(labels.sum(axis=1, keepdims=True), 1)
    return entry | {"classes": labels.shape[1], "labels": packed(np.rint(LABEL_LEVELS * shares).astype(np.uint8))}


def text_chunks(page: dict[str, Any]) -> Iterator[str]:
    """Yield JSON that is safe inside a script element: no character of it can end or open a tag."""
    encoder = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for chunk in encoder.iterencode(page):
        yield chunk.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
