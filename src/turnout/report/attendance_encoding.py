"""Who took part, as few bytes: bits for who was up, lists for who was asked. The page puts them in order and bins them.

Every number is exact as long as it fits. What is left out to keep the page small is said on it: later seeds first,
then clients beyond twenty thousand (every k-th stays), then rounds (every k-th stays).
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
from turnout.report.attendance import STATES, Attendance
from turnout.report.load_studies import Arm

BUDGET = 5_000_000  # bytes of the page for all maps
MOST_CLIENTS = 20_000
PER_CLIENT = 14  # bytes of the page for one client's counts and share
LABEL_LEVELS = 255
MOST_LABELS = 1_000_000  # clients times classes
MOST_LETTERS = 200_000  # of clients' names on the page
LETTERS = {"B": "<u1", "H": "<u2", "I": "<u4", "f": "<f4"}


def packed(values: NDArray[Any]) -> dict[str, str]:
    """Return numbers as base64 in the narrowest kind that holds them."""
    if values.dtype.kind == "f":
        letter = "f"
    else:
        most = int(values.max()) if values.size else 0
        letter = "B" if most < 1 << 8 else "H" if most < 1 << 16 else "I"
    return {"t": letter, "d": base64.b64encode(values.astype(LETTERS[letter]).tobytes()).decode("ascii")}


def every(count: int, most: int) -> int:
    """Return k so that every k-th of so many leaves at most `most`."""
    return max(1, -(-count // max(most, 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Which clients and rounds are kept: every k-th."""

    clients: int = 1
    rounds: int = 1


Read = Callable[[Arm, int], Attendance]
Know = Callable[[Arm, int], ClientFacts | None]


def maps(arms: Sequence[Arm], read: Read, know: Know, budget: int = BUDGET) -> dict[str, Any]:
    """Return the maps of as many seeds as fit, every arm of a seed together; the first seed always fits."""
    stores: dict[str, dict[bytes, int]] = {"ups": {}, "held": {}}
    page: dict[str, Any] = {"states": list(STATES.values()), "ups": [], "held": [], "runs": [], "left_out": 0}
    spent, steps = 0, Steps()
    seeds = list(dict.fromkeys(seed for arm in arms for seed in arm.seeds))
    for at, seed in enumerate(seeds):
        places = [place for place, arm in enumerate(arms) if seed in arm.seeds]
        runs = [read(arms[place], seed) for place in places]
        if at == 0:
            steps = _steps(runs, budget)
        holdings = [_holding(know(arms[place], seed), run, steps) for place, run in zip(places, runs, strict=True)]
        new = {_key(held): _length(held) for held in holdings if held and _key(held) not in stores["held"]}
        spent += sum(_costs(runs, steps)) + sum(new.values())
        if at and spent > budget:
            page["left_out"] = len(seeds) - at
            break
        for place, run, held in zip(places, runs, holdings, strict=True):
            entry = {"arm": place, "seed": seed, **_run(run, steps)}
            entry["up"] = _stored(page["ups"], stores["ups"], entry["up"])
            entry["held"] = None if held is None else _stored(page["held"], stores["held"], held)
            page["runs"].append(entry)
    return page | {"every_client": steps.clients, "every_round": steps.rounds}


def _stored(page: list[Any], known: dict[bytes, int], entry: dict[str, Any]) -> int:
    """Keep an entry once for all runs that share it; return its place."""
    key = _key(entry)
    if key not in known:
        known[key] = len(page)
        page.append(entry)
    return known[key]


def _key(entry: dict[str, Any]) -> bytes:
    return blake2b(json.dumps(entry).encode(), digest_size=16).digest()


def _length(held: dict[str, Any]) -> int:
    names = sum(map(len, held.get("names", ())))
    return names + sum(len(part["d"]) for part in held.values() if isinstance(part, dict))


def _steps(runs: Sequence[Attendance], budget: int) -> Steps:
    most = min(MOST_CLIENTS, budget // (2 * PER_CLIENT * max(1, len(runs))))  # at most half of it for counts
    clients = max((every(run.num_clients, most) for run in runs), default=1)
    cells, counts = _costs(runs, Steps(clients=clients))
    return Steps(clients=clients, rounds=every(cells, budget - counts))


def _costs(runs: Sequence[Attendance], steps: Steps) -> tuple[int, int]:
    """Return about how many bytes the maps of a seed take, and the counts beside them; who was up is kept once."""
    bits = {run.up_key: run.num_clients * len(run.rounds) // 8 for run in runs}
    asked = sum(3 * len(run.clients) for run in runs)
    cells = 4 * (sum(bits.values()) + asked) // (3 * steps.clients * steps.rounds)
    return cells, sum(PER_CLIENT * run.num_clients for run in runs) // steps.clients


def _run(run: Attendance, steps: Steps) -> dict[str, Any]:
    rounds = np.arange(0, len(run.rounds), steps.rounds)
    owner = np.repeat(np.arange(len(run.rounds)), run.counts)
    kept = (owner % steps.rounds == 0) & (run.clients % steps.clients == 0)
    bits = b"".join(_bits(run, run.up.mask(int(place)), steps) for place in rounds)
    some = slice(None, None, steps.clients)
    return {
        "clients": len(range(0, run.num_clients, steps.clients)),
        "rounds": packed(run.rounds[rounds]),
        "up": packed(np.frombuffer(bits, dtype=np.uint8)),
        "counts": packed(np.bincount(owner[kept], minlength=len(run.rounds))[rounds]),
        "asked": packed(run.clients[kept] // steps.clients),
        "as": packed(run.states[kept]),
        "times_up": packed(run.times_up[some]),
        "times_asked": packed(run.times_asked[some]),
        "times_answered": packed(run.times_answered[some]),
        "share": packed(run.share[some]),
    }


def _bits(run: Attendance, up: NDArray[np.bool_], steps: Steps) -> bytes:
    mask = np.pad(up, (0, run.num_clients - len(up))) if len(up) < run.num_clients else up
    return np.packbits(mask[:: steps.clients], bitorder="little").tobytes()


def _holding(found: ClientFacts | None, run: Attendance, steps: Steps) -> dict[str, Any] | None:
    if found is None or len(found.sizes) != run.num_clients:
        return None
    some = slice(None, None, steps.clients)
    entry: dict[str, Any] = {"sizes": packed(found.sizes[some]), "total": int(found.sizes.sum())}
    if found.client_names is not None and sum(map(len, found.client_names[some])) <= MOST_LETTERS:
        entry["names"] = list(found.client_names[some])
    if found.seconds_per_step is not None:
        entry["seconds"] = packed(found.seconds_per_step[some])
    labels = None if found.label_counts is None else found.label_counts[some]
    if labels is None or labels.size > MOST_LABELS:
        return entry
    shares = labels / np.maximum(labels.sum(axis=1, keepdims=True), 1)
    return entry | {"classes": labels.shape[1], "labels": packed(np.rint(LABEL_LEVELS * shares).astype(np.uint8))}


def unpacked(entry: dict[str, str]) -> NDArray[Any]:
    """Return the numbers that `packed` wrote."""
    return np.frombuffer(base64.b64decode(entry["d"]), dtype=LETTERS[entry["t"]])


def text_chunks(page: dict[str, Any]) -> Iterator[str]:
    """Yield JSON that is safe inside a script element: no character of it can end or open a tag."""
    encoder = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for chunk in encoder.iterencode(page):
        yield chunk.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
