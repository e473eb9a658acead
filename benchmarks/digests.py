"""Has any number changed? Small studies over every rule, on both engines, beside what was recorded before.

    python -m benchmarks.digests                       compare; exit 1 if a number differs
    python -m benchmarks.digests --record --why TEXT   record what differs now as right, with the reason
    python -m benchmarks.digests CASE ...              these cases alone

A case is the same where the final model has the same bits and every round has the same facts. On another processor or
another version of torch the last bits of sums may differ; there the facts are compared to six digits. `digests.json`
holds what was recorded, and for each case the reason for its last change.
"""

import argparse
import csv
import json
import os
import platform
import tempfile
import warnings
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch

import turnout as to
from benchmarks.digest_cases import BASE, CASES, NEEDS_DATA, TRACE_ROWS
from benchmarks.reporting import print_table
from turnout.engine import Sequential, Vectorised
from turnout.requests import Record
from turnout.study import to_toml

RECORDED = Path(__file__).with_name("digests.json")
ENGINES = {"vectorised": lambda: Vectorised("cpu", block=4, workers=1, threads=1), "sequential": Sequential}
REPLAYED = "deadline"  # the case that the journal of a replay is recorded from
DIGITS = 6  # significant, of numbers that are compared to rounding


def case_study(name: str, folder: Path) -> to.Study:
    """Return the study of a case; a trace or a recorded run that it names lies in the folder."""
    trace = folder / "trace.csv"
    if not trace.exists():
        with trace.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("client", "start", "end", "state"))
            rows.writerows((*row, "up") for row in TRACE_ROWS)
    text = json.dumps(BASE | (CASES | NEEDS_DATA)[name]).replace('"TRACE"', json.dumps(str(trace)))
    if '"JOURNAL"' in text:
        journal = folder / "journal"
        case_study(REPLAYED, folder).run(journal, engine=Sequential(), progress=False)
        text = text.replace('"JOURNAL"', json.dumps(str(journal)))
    sections = json.loads(text)
    file = folder / f"{name}.toml"
    file.write_text(to_toml(sections))
    return to.load_study(file, allow_code=True)


def facts_of(record: Record) -> list[Any]:
    """Return one round: a checksum of who did what, then numbers that may differ in their last digits."""
    names = ("up", "asked", "multiplicity", "answered", "asked_steps", "local_steps", "late")
    whole = [np.asarray(getattr(record, name), dtype=np.int64) for name in names]
    whole.append(np.array(sorted(record.rejected), dtype=np.int64))
    checksum = crc32(b"|".join(values.tobytes() for values in whole))
    counts = [record.costs.bytes_down, record.costs.bytes_up]
    counts += [record.costs.gradient_evaluations, record.costs.probe_evaluations]
    losses = record.losses[np.isfinite(record.losses)]
    numbers = [record.coefficients.sum(), np.abs(record.coefficients).sum(), losses.sum(), record.costs.sim_seconds]
    numbers += [record.metrics.get("loss", 0.0), record.metrics.get("accuracy", 0.0)]
    if record.client_accuracy is not None:
        numbers.append(np.nansum(record.client_accuracy))
    return [checksum, *counts, *(float(f"{float(number):.{DIGITS}g}") for number in numbers)]


def run_case(name: str, engine: str, folder: Path) -> dict[str, Any]:
    """Run a case and return the digest of its final model, and the facts of every round."""
    study, rounds = case_study(name, folder), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = study.run(
            engine=ENGINES[engine](), on_progress=lambda _, __, record: rounds.append(facts_of(record)), progress=False
        )
    digest, sum_ = blake2b(digest_size=12), 0.0
    for tensor in result.state_dict(study.name, study.all_seeds[0]).values():
        digest.update(tensor.cpu().numpy().tobytes())
        sum_ += float(tensor.double().abs().sum())
    return {"bits": digest.hexdigest(), "size": float(f"{sum_:.{DIGITS}g}"), "rounds": rounds}


def difference(before: dict[str, Any], now: dict[str, Any], *, same_machine: bool) -> str:
    """Return how two outcomes differ, in words; empty where they are the same."""
    for round, (old, new) in enumerate(zip(before["rounds"], now["rounds"], strict=False)):
        if old[0] != new[0]:
            return f"round {round}: other clients or steps"
        if not np.allclose(old[1:], new[1:], rtol=10.0 ** (1 - DIGITS), atol=1e-12) or len(old) != len(new):
            return f"round {round}: {old[1:]} became {new[1:]}"
    if len(before["rounds"]) != len(now["rounds"]):
        return f"{len(before['rounds'])} rounds became {len(now['rounds'])}"
    if not np.isclose(before["size"], now["size"], rtol=10.0 ** (1 - DIGITS)):
        return f"final model: |x| {before['size']} became {now['size']}"
    if same_machine and before["bits"] != now["bits"]:
        return "final model: other bits"
    return ""


def _at_hand() -> list[str]:
    """Return the cases that can run: those on real data sets need TURNOUT_DATA."""
    if os.environ.get("TURNOUT_DATA"):
        return [*CASES, *NEEDS_DATA]
    print(f"TURNOUT_DATA is not set: {', '.join(NEEDS_DATA)} are left out.")
    return [*CASES]


def circumstances() -> dict[str, str]:
    """Return what the last bits depend on."""
    return {
        "machine": platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
    }


def main() -> int:
    """Compare, or record; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--record", action="store_true", help="record what differs as right")
    parser.add_argument("--why", default="", help="the reason, kept with each case that differs")
    given = parser.parse_args()
    if given.record and not given.why:
        parser.error("--record needs --why: the reason is kept with every case that differs")
    torch.set_num_threads(1)
    known = json.loads(RECORDED.read_text()) if RECORDED.exists() else {"circumstances": circumstances(), "cases": {}}
    same_machine = known["circumstances"] == circumstances()
    rows, changed = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in given.cases or _at_hand():
            now = {engine: run_case(name, engine, Path(scratch)) for engine in ENGINES}
            before = known["cases"].get(name)
            found = (
                "not recorded before"
                if before is None
                else "; ".join(
                    f"{engine}: {what}"
                    for engine in ENGINES
                    if (what := difference(before[engine], now[engine], same_machine=same_machine))
                )
            )
            changed += bool(found)
            if found and given.record:
                known["cases"][name] = now | {"why": given.why}
            rows.append((name, "differs" if found else "same", found or (before or {}).get("why", "")))
    print_table("Digests", ("case", "is", "how, or why it last changed"), rows)
    if not same_machine:
        print("Recorded on another processor or torch: bits are not compared, facts to six digits are.")
    if given.record:
        known["circumstances"] = known["circumstances"] if given.cases else circumstances()
        RECORDED.write_text(_text(known))
        print(f"Recorded {changed} of {len(rows)} cases in {RECORDED.name}.")
        return 0
    print(f"{len(rows) - changed} of {len(rows)} cases are the same.")
    return 1 if changed else 0


def _text(known: dict[str, Any]) -> str:
    """Return the file's text, one line per engine and case, so that a change is a line of a diff."""
    lines = []
    for name in sorted(known["cases"]):
        entry = known["cases"][name]
        parts = [f"  {json.dumps(key)}: {json.dumps(entry[key])}" for key in (*ENGINES, "why")]
        lines.append(f" {json.dumps(name)}: {{\n" + ",\n".join(parts) + "\n }")
    head = json.dumps(known["circumstances"])
    return f'{{"circumstances": {head},\n"cases": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    raise SystemExit(main())
