"""Which arms can be compared, and which of them seed by seed (paired).

Two arms are paired if their [data] sections agree, including the data's seed and the number of clients: a seed then
gives both the same clients with the same samples, and the same random draws of available clients, asked clients and
mini-batches. Arms that split or sample the same data set differently are compared unpaired. Arms on different data
sets, and losses of different loss functions, are not compared: their difference has no meaning. Nor is an arm without a
shared model, whose loss and accuracy are those of clients' own models on hold-outs, compared with one on the test set.
"""

from collections.abc import Mapping
from typing import Any

from turnout.errors import ConfigError
from turnout.metrics import EVALUATED, MEASURED_ON, ON_TEST_SET

Config = Mapping[str, Any]  # a run's resolved study
WHICH_DATA = ("use", "name")  # the settings of [data] that say which data set it is
MOST_SHOWN = 40


def check_comparable(configs: Mapping[str, Config], baseline: str, metric: str) -> None:
    """Raise if an arm's difference from the baseline has no meaning."""
    theirs = configs[baseline]
    for arm, ours in configs.items():
        for key in WHICH_DATA:
            mine, other = _data(ours).get(key), _data(theirs).get(key)
            if mine != other:
                raise ConfigError(
                    f"{arm} and {baseline} were run on different data (data.{key}: {_shown(mine)} and "
                    f"{_shown(other)}); a difference between them has no meaning. Compare runs on the same data set."
                )
        if metric == "loss" and ours.get("loss") != theirs.get("loss"):
            raise ConfigError(
                f"{arm} and {baseline} have different loss functions ({_shown(ours.get('loss'))} and "
                f"{_shown(theirs.get('loss'))}); a difference of their losses has no meaning. "
                "Compare another metric, with --metric accuracy for example."
            )


def measured_on(facts: Mapping[str, Any]) -> str:
    """Return what the loss and the accuracy of a run are measured of and on, from its facts in the journal."""
    return str(facts.get(MEASURED_ON, ON_TEST_SET))


def measured_apart(ours: str, theirs: str, metric: str) -> str | None:
    """Return why two arms, measured on these, have no difference in a metric; None if they have."""
    if metric not in EVALUATED or ours == theirs:
        return None
    return f"its {metric} is of {ours}, not of {theirs}; client_accuracy is on hold-outs in every arm that has them"


def unshared(ours: Config, theirs: Config) -> str | None:
    """Return the data settings in which two arms differ, so that they share no randomness; None if they agree."""
    mine, other = _data(ours), _data(theirs)
    keys = [key for key in dict.fromkeys([*mine, *other]) if mine.get(key) != other.get(key)]
    return ", ".join(f"data.{key}" for key in keys) or None


def _data(config: Config) -> Mapping[str, Any]:
    data = config.get("data")
    return data if isinstance(data, Mapping) else {"use": data}


def _shown(value: Any) -> str:
    return f"{value!r:.{MOST_SHOWN}}"
