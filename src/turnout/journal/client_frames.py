"""Frames and records with one entry per client."""

from typing import Any

import numpy as np
import pandas as pd


def rejections(rejected: dict[str, str]) -> tuple[dict[str, Any], ...]:
    """Return (client, reason) as records, which Parquet can hold where it cannot hold a mapping."""
    return tuple({"client": int(client), "reason": str(reason)} for client, reason in rejected.items())


def client_frame(keys: list[tuple[str, int, int]], lengths: list[int], columns: dict[str, Any]) -> pd.DataFrame:
    """Return a frame of clients: each key (arm, seed, round) is repeated for its number of clients."""
    arms, seeds, rounds = zip(*keys, strict=True) if keys else ((), (), ())
    repeated = {
        "arm": np.repeat(np.array(arms, dtype=object), lengths),
        "seed": np.repeat(np.array(seeds, dtype=np.int64), lengths),
        "round": np.repeat(np.array(rounds, dtype=np.int64), lengths),
    }
    return pd.DataFrame({**repeated, **columns})
