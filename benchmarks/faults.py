"""Kill turnout in real processes, lie to its coordinator, damage and craft its files, and see what is lost or harmed.

    python -m benchmarks.faults --kills 200 --rounds 3000 --files 5000

Prints JSON. Every study is first run untouched; each that was killed and resumed must end with the same journal and
the same models, bit for bit. In every round of the second part half of the clients lie in one way or another: none of
them may count, and the model has to stay finite. Every damaged file has to be read or refused with a message of ours;
`benchmarks/fuzz.py` does that steered by coverage. Folders that were crafted to reach out (links, rollback journals
that name files) are read and resumed, and nothing outside of them may change.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn
from hypothesis import strategies as st
from tests.support.crafted_folders import CRAFTED, everything, half_done, users_files
from tests.support.damaged_files import SLOW, damaged, outcome
from tests.support.engines import KINDS, Lying, spoil
from tests.support.fault_injection import KillCounts, Turnout, torture, turnouts
from tests.support.fault_studies import STUDIES, write_study
from tests.support.runs import run
from tests.support.tasks import blob_task
from tests.support.untrusted_readers import READERS

from turnout.aggregation import FedVARP
from turnout.coordinator import Plan
from turnout.local import SGD

LOCAL = SGD(lr=0.1, batch_size=5, epochs=1)
COMMANDS = ("compare", "report", "resume")  # on crafted folders


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3000, help="in which clients lie")
    parser.add_argument("--files", type=int, default=5000, help="damaged, for each reader; of pages a twentieth")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    begun, found = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as folder, turnouts(Path(folder)) as turnout:
        for place, name in enumerate(STUDIES):
            kills = given.kills // len(STUDIES) + (place < given.kills % len(STUDIES))
            rng = random.Random(f"{given.seed} {name}")
            found[name] = torture(turnout, write_study(Path(folder), name), kills, rng)
        reached_out = crafted(turnout, Path(folder) / "sandbox")
    figures = report(found, given.seed, time.monotonic() - begun)
    figures |= {"answers": lied_to(given.rounds, given.seed), "files_damaged": read_damaged(given.files)}
    figures |= {"crafted_folders": {"commands": len(CRAFTED) * len(COMMANDS), "changed_outside": reached_out}}
    print(json.dumps(figures, indent=2))
    return 1 if reached_out or any(tally.lost for tally in found.values()) else 0


def crafted(turnout: Turnout, sandbox: Path) -> list[str]:
    """Read and resume each crafted folder in processes of their own; return what changed outside of it."""
    mine, changed = users_files(sandbox / "mine"), []
    half = half_done(sandbox / "half", sandbox / "half.toml")
    for name, craft in CRAFTED.items():
        for command in COMMANDS:
            folder = Path(shutil.copytree(half, sandbox / "theirs", symlinks=True))
            craft(folder, mine)
            before = {path: told for path, told in everything(sandbox).items() if not path.startswith("theirs")}
            turnout.run(command, folder)
            after = {path: told for path, told in everything(sandbox).items() if not path.startswith("theirs")}
            changed += [
                f"{command} on {name}: {path}" for path in {*before, *after} if before.get(path) != after.get(path)
            ]
            shutil.rmtree(folder)
            shutil.rmtree(mine)
            users_files(mine)
    return changed


def lied_to(rounds: int, seed: int) -> dict[str, Any]:
    """Run rounds in which three of six clients lie, each in its own way, and count what was made of their answers."""
    rng = random.Random(seed)
    turned_away: dict[str, int] = dict.fromkeys(KINDS, 0)
    honest = believed = 0
    for _ in range(-(-rounds // 10)):
        liars = dict(zip(rng.sample(range(6), 3), rng.sample(list(KINDS), 3), strict=True))
        engine = Lying(*(spoil(client, kind) for client, kind in liars.items()))
        final, records = run(
            blob_task(6),
            Plan(local=LOCAL, rounds=10, aggregation=FedVARP()),
            engine=engine,
        )
        if not torch.isfinite(final.model).all():
            raise SystemExit(f"The model is not finite after {liars}.")
        for record in records[1:]:
            for client in record.rejected:
                turned_away[liars[client]] += 1
            honest += sum(client not in liars for client in record.answered.tolist())
            believed += sum(client in liars for client in record.answered.tolist())
    return {"rounds": 10 * -(-rounds // 10), "honest_used": honest, "bad_rejected": turned_away, "bad_used": believed}


def read_damaged(count: int) -> dict[str, int]:
    """Have every reader read so many damaged files; anything but a result or a TurnoutError falls through."""
    with tempfile.TemporaryDirectory() as folder:
        counts = {name: -(-count // 20) if name in SLOW else count for name in READERS}
        return {name: _damaged_files(name, least, Path(folder)) for name, least in counts.items()}


def _damaged_files(name: str, count: int, folder: Path) -> int:
    seen = 0

    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @drawn(chooser=st.data())
    def read(chooser: st.DataObject) -> None:
        nonlocal seen
        outcome(name, chooser.draw(damaged(name)), folder)
        seen += 1

    read()
    return seen


def report(found: dict[str, KillCounts], seed: int, seconds: float) -> dict[str, object]:
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
