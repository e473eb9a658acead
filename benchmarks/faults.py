"""Kill turnout in real processes, at random points and with power cuts, and see whether anything is lost.

    python -m benchmarks.faults --kills 200

Prints JSON. Every study is first run untouched; each that was killed and resumed must end with the same journal and
the same models, bit for bit.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.harness import Tally, torture, turnouts
from tests.faults.studies import STUDIES, write_study


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    begun, found = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as folder, turnouts(Path(folder)) as turnout:
        for place, name in enumerate(STUDIES):
            kills = given.kills // len(STUDIES) + (place < given.kills % len(STUDIES))
            rng = random.Random(f"{given.seed} {name}")
            found[name] = torture(turnout, write_study(Path(folder), name), kills, rng)
    print(json.dumps(report(found, given.seed, time.monotonic() - begun), indent=2))
    return 1 if any(tally.lost for tally in found.values()) else 0


def report(found: dict[str, Tally], seed: int, seconds: float) -> dict[str, object]:
    """Return the figures."""
    totals = {
        name: sum(getattr(t, name) for t in found.values()) for name in ("kills", "power_cuts", "resumed", "studies")
    }
    lost = {name: list(tally.lost) for name, tally in found.items() if tally.lost}
    return {
        **totals,
        "kills_by_study": {n: t.kills for n, t in found.items()},
        "lost": lost,
        "seed": seed,
        "seconds": round(seconds),
    }


if __name__ == "__main__":
    sys.exit(main())
