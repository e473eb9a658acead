"""Feeds each reader of strangers' files with bytes that atheris steers by what the reader's code does with them.

    python -m benchmarks.fuzz --seconds 600                 every reader, ten minutes each; JSON on stdout
    python -m benchmarks.fuzz --seconds 90 --reader study

Needs atheris, which is not among turnout's own requirements. A reader that ends in anything but a result or a
TurnoutError, takes more than ten seconds or more than two gigabytes has a finding: its input is kept in --keep.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from traceback import extract_tb

FUZZED = (
    "study", "trace", "idx", "journal", "archive", "recording", "leaf", "arrays",
    "checkpoint", "model", "line", "pages", "database",
)  # fmt: skip
MOST_SECONDS, MOST_MEGABYTES, MOST_BYTES = 10, 2048, 20_000


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=int, default=90, help="for each reader")
    arguments.add_argument("--reader", choices=FUZZED, action="append", help="only this one; may be repeated")
    arguments.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="where findings go")
    arguments.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.inside:
        feed(chosen.reader[0], chosen.seconds, chosen.keep)
        return
    found = [fed(reader, chosen.seconds, chosen.keep) for reader in chosen.reader or FUZZED]
    print(json.dumps(found, indent=2))


def fed(reader: str, seconds: int, keep: Path) -> dict[str, object]:
    """Feed one reader in a process of its own, which may hang or die."""
    kept = keep / reader
    kept.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.fuzz", "--inside", "--reader", reader, "--seconds", str(seconds)]
    ended = subprocess.run(
        [*command, "--keep", str(kept)], capture_output=True, text=True, errors="replace", check=False
    )
    executions = re.findall(r"stat::number_of_executed_units: +(\d+)", ended.stderr)
    if not executions:
        raise SystemExit(f"{reader}: atheris did not run to its end.\n{ended.stderr[-2000:]}")
    covered = re.findall(r"cov: (\d+)", ended.stderr)
    return {
        "reader": reader,
        "seconds": seconds,
        "executions": int(executions[-1]),
        "branches_covered": int(covered[-1]) if covered else 0,
        "findings": sorted(str(file) for file in kept.iterdir()),
    }


def feed(reader: str, seconds: int, keep: Path) -> None:
    """Feed one reader in this process until the time is up."""
    import atheris

    with atheris.instrument_imports(include=["turnout", "tomllib", "tarfile", "zipfile"]):
        from tests.support.untrusted_readers import GOOD, READERS

        from turnout.errors import TurnoutError

    seen: set[str] = set()
    folder = tempfile.TemporaryDirectory()
    corpus = tempfile.TemporaryDirectory()
    for place, good in enumerate(GOOD[reader]):
        (Path(corpus.name) / str(place)).write_bytes(good)

    def one(data: bytes) -> None:
        try:
            READERS[reader](data, Path(folder.name))
        except TurnoutError:
            pass
        except Exception as error:
            where = extract_tb(error.__traceback__)[-1]
            name = f"{type(error).__name__}-{Path(where.filename).stem}-{where.lineno}"
            if name not in seen:  # the same mistake is kept once, and the feeding goes on
                seen.add(name)
                (keep / name).write_bytes(data)
        for file in Path(folder.name).iterdir():
            file.unlink()

    limits = [f"-max_total_time={seconds}", f"-timeout={MOST_SECONDS}", f"-rss_limit_mb={MOST_MEGABYTES}"]
    options = [*limits, f"-max_len={MOST_BYTES}", f"-artifact_prefix={keep}/", "-print_final_stats=1", "-verbosity=1"]
    atheris.Setup([sys.argv[0], *options, corpus.name], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
