"""How much each client holds, and of which labels, where that can be known.

The journal does not keep the data. Data sets that come with turnout and need no file are made again from the study's
own settings, to the last sample; of all others nothing is said.
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnout.data.assemble import Source
from turnout.data.federation import Held
from turnout.errors import TurnoutError
from turnout.report.gather import Arm
from turnout.streams import Ids, Streams
from turnout.study import load_study, to_toml

MADE_AGAIN = ("digits", "synthetic", "synthetic-iid", "synthetic-on-demand")
UNKNOWN = "How much data each client holds is not in the journal."
MOST_COUNTS = 1_000_000  # clients times classes


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What the clients of one run hold."""

    sizes: Ids
    labels: Ids | None  # (clients, classes): how many samples of each class


def holdings(arm: Arm, seed: int) -> Holdings | None:
    """Return what the clients of a run hold; None where it cannot be known."""
    data = _data_section(arm)
    if data is None:
        return None
    try:
        return _made_again(data, seed)
    except TurnoutError:  # written by another turnout, with settings that this one does not know
        return None


def data_key(arm: Arm, seed: int) -> str:
    """Return the same text for runs with the same data."""
    data = _data_section(arm)
    fixed = (data or {}).get("seed")
    return json.dumps([data, seed if fixed is None else fixed], sort_keys=True)


def _data_section(arm: Arm) -> dict[str, Any] | None:
    configs = arm.study.runs.loc[arm.study.runs["arm"] == arm.own_name, "config"]
    data = configs.iloc[0].get("data") if len(configs) else None
    if not isinstance(data, dict) or data.get("use") not in MADE_AGAIN or _names_own_code(data):
        return None
    return data


def _names_own_code(value: Any) -> bool:
    """Whether a setting names a class by its address: reading a report must run nobody's code."""
    if isinstance(value, dict | list):
        return any(_names_own_code(each) for each in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and ":" in value


def _made_again(data: dict[str, Any], seed: int) -> Holdings | None:
    study = {
        "name": "holdings",
        "rounds": 1,
        "data": data,
        "model": {"use": "softmax"},
        "local": {"lr": 1.0, "steps": 1},
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "holdings.toml"
        file.write_text(to_toml(study), encoding="utf-8")
        read = load_study(file)
    if not isinstance(read.data, Source):
        return None
    federation = read.data.build(Streams(seed if read.data_seed is None else read.data_seed))
    classes = federation.num_classes
    small = classes is not None and federation.num_clients * classes <= MOST_COUNTS
    held = small and isinstance(federation.train, Held)
    return Holdings(sizes=federation.sizes, labels=federation.label_counts() if held else None)
