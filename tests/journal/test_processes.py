"""A journal between processes: a real second one writes without pause until it is killed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.journal_records import journal
from turnout.errors import JournalError
from turnout.journal import load

WRITER = """
import sys
from itertools import count
from pathlib import Path
from tests.support.journal_records import info, journal, record
out = journal(Path(sys.argv[1]))
runs = [out.begin(info(seed=seed)) for seed in range(2)]
for round in count():
    out.write([(run, record(round)) for run in runs])
    if round == 3:
        print("writing", flush=True)
"""


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A folder, and another process that is writing to it."""
    folder = tmp_path_factory.mktemp("runs") / "phones"
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        try:
            yield folder, process
        finally:
            process.kill()


def test_contract_a_writer_is_read_refuses_others_and_leaves_whole_rounds_when_killed(
    writer: tuple[Path, "subprocess.Popen[str]"],
) -> None:
    folder, process = writer
    lengths: set[Any] = set()
    while len(lengths) < 3:  # it goes on writing between two readings
        assert process.poll() is None
        loaded = load(folder)
        first, second = (loaded.rounds[loaded.rounds["seed"] == seed]["round"].tolist() for seed in range(2))
        assert first == second == list(range(len(first)))
        assert len(loaded.clients) == 2 * len(loaded.rounds)
        lengths.add(len(first))
    with pytest.raises(
        JournalError, match=f"is being written by another run, process {process.pid}; nothing was changed"
    ):
        journal(folder)
    process.kill()
    process.wait()
    left = load(folder)
    assert left.runs["status"].tolist() == ["running", "running"]
    first, second = (left.rounds[left.rounds["seed"] == seed]["round"].tolist() for seed in range(2))
    assert first == second == list(range(len(first)))
    assert len(first) >= max(lengths)
    with journal(folder) as out:
        assert out.read("SELECT count(*) FROM round") == [(0,)]
