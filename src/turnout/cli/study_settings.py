"""The settings of a study itself, for `turnout ls settings` and `turnout show`: those that are no rule of an axis."""

from dataclasses import asdict
from typing import Any

from turnout.axes import TABLES
from turnout.rule_sources import describe_class

EXAMPLES: dict[str, dict[str, Any]] = {  # by name in Python: how a study file writes it
    "name": {"name": "my-study"},
    "rounds": {"rounds": 100},
    "seeds": {"seeds": 5},
    "until_clear": {"seeds": 5, "until_clear": {"most": 40}},
    "target": {"target": {"accuracy": 0.8}},
    "loss": {"loss": "cross-entropy"},
    "data_seed": {"data": {"use": "digits", "seed": 7}},
    "track": {"track": ["tensorboard"]},
    "fleet": {"fleet": {"availability": {"use": "bernoulli", "prob": 0.8}}},
    "turnover": {
        "fleet": {"membership": {"use": "scheduled", "departures": [{"client": 0, "round": 10}]}},
        "turnover": {"on_departure": "exclude", "reboot": "fast"},
    },
    "trust": {"trust": {"policy": "clip", "max_norm": 10.0}},
    "memory": {"memory": {"table_mib": 256}},
    "evaluate": {
        "data": {"holdout": 0.1},
        "evaluate": {"every": 5, "clients_every": 50, "metrics": ["accuracy"]},
    },
    "checkpoint": {"checkpoint": {"rounds": 10}},
}


def study_settings() -> dict[str, dict[str, Any]]:
    """Return what is known of each setting, by name with `-` for `_`."""
    return {name.replace("_", "-"): _facts(name) for name in EXAMPLES}


def _facts(name: str) -> dict[str, Any]:
    field = next(field for field in describe_class("turnout.study.study", "Study").settings if field.name == name)
    if name in TABLES:
        module, _, kind = TABLES[name].kind.partition(":")
        said, made = describe_class(module, kind), f"turnout.{kind}(…)"
        rest = {"notes": said.notes, "settings": [asdict(setting) for setting in said.settings]}
        return {"summary": said.summary, **rest, "python": f"turnout.Study({name}={made})", "file": EXAMPLES[name]}
    return {"summary": field.meaning, "python": f"turnout.Study({name}=…)", "file": EXAMPLES[name]}
