"""Device speeds: seconds per local step, and download and upload bandwidth, for every client.

A speed is one number for all clients, one number per client, or a lognormal distribution. Recorded phones replace the
distribution by measurements: each client is, for the whole run, one of FLASH's phone models and one of its network
users, drawn at random.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError, DataError, Problem, TurnoutError
from turnout.limits import read_json
from turnout.protocols import Population, View
from turnout.settings import Positive, Range, rule

BYTES_PER_KB = 1024.0
LEAST_SHARE = 0.1  # a transfer has at least a tenth of the user's mean speed
MOST_BYTES = 1 << 26
SCORES = "flash_ai_benchmark_333_phones.json"
SPEEDS = "flash_network_speed_19_users.json"


@rule("fleet.clock")
class Lognormal:
    """One value per client, the same in every round: median · exp(sigma · z), with z standard normal."""

    median: Positive  # median of the distribution, greater than 0
    # standard deviation of the logarithm, 0 or more; 0 gives every client the median, 0.5 to 1 is usual
    sigma: Annotated[float, Range(least=0, ceiling=20)] = 0.5


Amount = float | tuple[float, ...] | Lognormal


def normals(uniforms: Floats) -> Floats:
    """Return standard normal numbers from uniform numbers in [0, 1), by the inverse distribution function."""
    from scipy.special import ndtri  # the import takes a quarter of a second

    return np.asarray(ndtri(np.clip(uniforms, 2.0**-54, None)))


def amounts(amount: Amount, name: str, clients: Ids, view: View) -> Floats:
    """Return the value of each of these clients."""
    if isinstance(amount, Lognormal):
        draws = view.streams.uniforms(f"device {name}", 0, clients)[:, 0]
        return amount.median * np.exp(amount.sigma * normals(draws))
    if isinstance(amount, float | int):
        return np.full(len(clients), float(amount))
    return np.asarray(amount, dtype=np.float64)[clients]


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The recordings: relative speeds of phones, and (mean, deviation) of users' bandwidths in bytes per second."""

    scores: Floats
    down: Floats
    up: Floats


@rule("fleet.clock.phones")
class Phones:
    """Recorded phones and networks (FLASH)."""

    folder: str | None = None  # folder of FLASH's two files; none is device-capability in the folder TURNOUT_DATA

    def slowness(self, clients: Ids, view: View) -> Floats:
        """Return the duration of a step on each client's phone, relative to the median phone."""
        scores = self._recorded().scores
        phone = view.streams.uniforms("device phone", 0, clients)[:, 0] * len(scores)
        return np.asarray(np.median(scores) / scores[phone.astype(np.int64)])

    def bandwidths(self, clients: Ids, view: View) -> tuple[Floats, Floats]:
        """Return download and upload bytes per second in this round; normal, truncated at a tenth of the mean."""
        recorded = self._recorded()
        user = (view.streams.uniforms("device network", 0, clients)[:, 0] * len(recorded.down)).astype(np.int64)
        draws = view.streams.uniforms("device speed", view.round, clients, 2)
        return speeds(recorded.down[user], draws[:, 0]), speeds(recorded.up[user], draws[:, 1])

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the recordings cannot be read."""
        try:
            self._recorded()
        except TurnoutError as error:
            yield Problem(str(error), "fleet.clock.phones")

    def _recorded(self) -> _Recorded:
        root = self.folder or os.environ.get("TURNOUT_DATA")
        if root is None:
            raise ConfigError(
                "Phones needs the folder of the recorded devices; TURNOUT_DATA is not set. "
                "Set fleet.clock.phones.folder to the folder that holds them.",
                setting="fleet.clock.phones.folder",
            )
        return _read(Path(root).expanduser())


def speeds(mean_and_deviation: Floats, uniforms: Floats) -> Floats:
    """Return speeds from a normal distribution truncated at a tenth of its mean."""
    from scipy.special import ndtr  # the import takes a quarter of a second

    mean, deviation = mean_and_deviation.T
    safe = np.maximum(deviation, 1e-12 * mean)
    below = ndtr((LEAST_SHARE - 1.0) * mean / safe)
    speed = mean + safe * normals(below + (1.0 - below) * uniforms)
    return np.asarray(np.maximum(speed, LEAST_SHARE * mean))


@lru_cache(maxsize=2)
def _read(root: Path) -> _Recorded:
    phones, users = (_json(root, name) for name in (SCORES, SPEEDS))
    try:
        scores = np.array([float(phone["CPU_F_AI_Score"]) for phone in phones])
        down, up = (_means(users, way) for way in ("down", "up"))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"The recorded devices in {root} are not FLASH's: {type(error).__name__}: {error}.") from error
    means = np.concatenate([scores, down[:, :1].ravel(), up[:, :1].ravel()])
    spreads = np.concatenate([down[:, 1:], up[:, 1:]])
    has_devices = len(scores) > 0 and len(users) > 0
    if not has_devices or not (
        0 < means.min() <= means.max() < np.inf and 0 <= spreads.min() <= spreads.max() < np.inf
    ):
        raise DataError(
            f"The recorded devices in {root} need speeds > 0 and deviations >= 0; some have other values, or there are "
            "no devices. Get the files again."
        )
    return _Recorded(scores, down, up)


def _means(users: Mapping[str, Mapping[str, float]], way: str) -> Floats:
    pairs = [(user[f"{way}_u"], user[f"{way}_sigma"]) for user in users.values()]
    return np.array(pairs, dtype=np.float64).reshape(-1, 2) * BYTES_PER_KB


def _json(root: Path, name: str) -> Any:
    for folder in (root, root / "device-capability"):
        if (folder / name).is_file():
            return read_json(folder / name, MOST_BYTES)
    raise DataError(
        f"Phones needs {name}; it is neither in {root} nor in {root / 'device-capability'}. "
        "Set fleet.clock.phones.folder to the folder that holds it."
    )
