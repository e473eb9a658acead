"""The table of rows: RAM and file agree, rows cost nothing until written, and large tables stay out of RAM."""

import gc
import os
import subprocess
import sys
import textwrap
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, dtype

from tests.support.optional import present
from turnout.row_table import LINE, RowTable, consecutive, new_rows

LIKE = torch.zeros(3, dtype=torch.float64)
LONG = torch.zeros(515, dtype=torch.float64)  # three more than lines of memory hold
WRITES = st.lists(
    st.tuples(st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True), st.floats(-9, 9)), max_size=6
)


def places(like: Tensor = LIKE) -> tuple[RowTable, RowTable]:
    """The same table in RAM and in a file."""
    return RowTable(6, like, budget=6 * like.nbytes), RowTable(6, like, budget=6 * like.nbytes - 1)


@given(WRITES, st.sampled_from([LIKE, LONG]))
def test_property_ram_and_file_agree_with_a_plain_array(writes: list[tuple[list[int], float]], like: Tensor) -> None:
    here, there = places(like)
    expected, heard = np.zeros((6, len(like))), np.zeros(6, dtype=bool)
    for rows, value in writes:
        ids = np.array(rows)
        values = value * np.arange(1.0, len(like) + 1.0) + ids[:, None]
        expected[ids], heard[ids] = values, True
        for table in (here, there):
            table.put(ids, torch.from_numpy(values))
            assert np.array_equal(table.take(ids).numpy(), values)
    for table in (here, there):
        assert np.array_equal(table.take(np.arange(6)).numpy(), expected)
        assert np.array_equal(table.seen, heard)
        assert np.array_equal(table.changed, heard)


def test_contract_the_budget_decides_where_the_table_lies() -> None:
    here, there = places()
    assert (here.file is None, there.file is None) == (True, False)
    assert here.bytes == there.bytes == 6 * 3 * 8


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1030), (torch.float64, 515)])
def test_contract_long_rows_begin_at_a_line_of_memory(dtype: dtype, size: int) -> None:
    table = RowTable(4, torch.zeros(size, dtype=dtype))
    for rows in (table.rows, table.spare(3), new_rows(2, size, dtype, table.device)):
        assert present(rows).shape[1] == size
        assert [row.data_ptr() % LINE for row in present(rows)] == [0] * len(present(rows))


def test_contract_short_rows_take_no_more_memory_than_their_numbers() -> None:
    rows = RowTable(1000, torch.zeros(3)).rows
    assert present(rows).untyped_storage().nbytes() == present(rows).nbytes == 1000 * 3 * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_contract_bytes_and_numbers_follow_the_models_precision(dtype: dtype) -> None:
    for budget in (0, 1 << 20):
        table = RowTable(4, torch.zeros(5, dtype=dtype), budget)
        assert table.bytes == 4 * 5 * (4 if dtype is torch.float32 else 8)
        table.put(np.array([2]), torch.full((1, 5), 0.1, dtype=dtype))
        assert table.take(np.array([2])).dtype == dtype
        assert torch.equal(table.take(np.array([2])), torch.full((1, 5), 0.1, dtype=dtype))


def test_contract_rows_are_zero_until_written_and_a_file_takes_no_room_for_them() -> None:
    table = RowTable(1000, torch.zeros(4096), budget=0)  # 16 MiB
    assert not table.take(np.array([0, 999])).any()
    facts = os.fstat(present(table.file).file.fileno())
    assert facts.st_size == table.bytes
    assert facts.st_blocks * 512 < table.bytes / 100


def test_contract_what_is_taken_is_a_copy() -> None:
    for table in places():
        table.put(np.array([1]), torch.ones(1, 3, dtype=torch.float64))
        table.take(np.array([1])).add_(5.0)
        assert table.take(np.array([1])).tolist() == [[1.0, 1.0, 1.0]]


def test_contract_taking_no_rows_gives_none() -> None:
    for table in places():
        assert table.take(np.zeros(0, dtype=np.int64)).shape == (0, 3)


def test_contract_the_file_has_no_name_and_is_closed_with_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    table = RowTable(6, LIKE, budget=0)
    table.put(np.arange(6), torch.ones(6, 3, dtype=torch.float64))
    assert list(tmp_path.iterdir()) == []  # nothing that a killed process could leave
    handle = present(table.file).file.fileno()
    del table
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


NO_ROOM = """
import resource, sys
import numpy as np, torch
from turnout.errors import TurnoutError
from turnout.row_table import RowTable
if sys.argv[1] == "limit":  # files may have a megabyte
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    table = RowTable(64, torch.zeros(1 << 16), budget=0)  # 16 MiB
    table.take(np.arange(64))
    for row in range(64):
        table.put(np.array([row]), torch.ones(1, 1 << 16))
        table.take(np.arange(64))
except TurnoutError as error:
    print(error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits and mounts are those of Linux")
@pytest.mark.parametrize("how", ["limit", "mount"])
def test_error_a_full_temporary_folder_is_one_message(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", NO_ROOM, how]
    if how == "mount":  # a small file system of its own, where the user may mount one
        inner = f'mount -t tmpfs -o size=1m none {tmp_path} && exec "$@"'
        command = ["unshare", "--mount", "--map-root-user", "sh", "-c", inner, "sh", *command]
        tried = subprocess.run([*command[:-4], "true"], capture_output=True, check=False)
        if tried.returncode:
            pytest.skip("no file system can be mounted here")
    room = {**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=room, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"of 64 clients, up to 0.0168 GB, has no room in {tmp_path}: " in done.stdout
    assert "set TMPDIR to a folder on a larger disk." in done.stdout
    assert ("No space left on device" in done.stdout) == (how == "mount")
    assert list(tmp_path.iterdir()) == []


HUNDRED_THOUSAND = """
import numpy as np, torch
from turnout.aggregation import FedVARP
from turnout.protocols import Population, View
from turnout.rows import Facts, Rows
from turnout.streams import Streams

CLIENTS, SIZE, COHORT = 100_000, 7_850, 1_000

def view(counted=None):
    population = Population.of(np.ones(CLIENTS, dtype=np.int64))
    if counted is not None:
        population = Population(
            sizes=population.sizes, weights=counted / counted.sum(), everyone=np.flatnonzero(counted), counted=counted
        )
    return View(round=1, rounds=1, streams=Streams(0), population=population, model=torch.zeros(SIZE))

def combine(clients, here, memory):
    n = len(clients)
    ones, population = np.ones(n, dtype=np.int64), here.population
    facts = Facts(
        clients=clients, weights=population.weights[clients], num_examples=ones, asked_steps=ones, local_steps=ones,
        local_work=np.ones(n), local_lr=np.ones(n), multiplicity=ones, inclusion_prob=None,
        num_clients=population.num_counted,
    )
    delta = torch.from_numpy(clients % 10).float()[:, None].expand(n, SIZE).contiguous()
    return FedVARP().combine(Rows(facts, delta), memory, here, None)

everyone, memory, here = np.arange(CLIENTS), {}, view()
for begin in range(0, CLIENTS, COHORT):  # every client once
    got = combine(everyone[begin : begin + COHORT], here, memory)
    memory = got.memory
assert memory["table"].file is not None
assert memory["table"].seen.all()
assert abs(float(memory["mean"][0]) - 4.5) < 1e-4, float(memory["mean"][0])
assert got.metrics["memory_bytes"] == CLIENTS * SIZE * 4 + SIZE * 8
late = combine(everyone[3 :: CLIENTS // COHORT], here, memory)  # a cohort from all over the file
assert torch.allclose(late.direction, torch.full((SIZE,), 4.5), atol=1e-4)
counted = everyone % 10 < 5  # half of them leave: the mean is summed afresh over the whole table
after = combine(everyone[:5], view(counted), late.memory)
assert torch.allclose(after.direction, torch.full((SIZE,), 2.0), atol=1e-4)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
def test_contract_fedvarp_remembers_a_hundred_thousand_clients_within_two_gibibytes(tmp_path: Path) -> None:
    script = tmp_path / "many.py"
    script.write_text(textwrap.dedent(HUNDRED_THOUSAND))
    room = {**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, script], env=room, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2 << 30
    assert not list(tmp_path.glob("turnout-*.rows"))  # and the file is gone


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [1, 4]])
def test_contract_rows_in_the_spare_memory_are_written_like_any_others(order: list[int]) -> None:
    ids = np.array(order)
    for table in places():
        for start in (1.0, 100.0):
            spare = table.spare(len(ids))
            spare.copy_(start + torch.arange(len(ids) * 3, dtype=torch.float64).view(-1, 3))
            values = spare.clone()
            table.put(ids, spare)
            table.spare(6).fill_(-1.0)  # the next rows on their way leave the table alone
            assert torch.equal(table.take(ids), values)
        rest = np.setdiff1d(np.arange(6), ids)
        assert torch.equal(table.take(rest), torch.zeros(len(rest), 3, dtype=torch.float64))


def test_contract_a_part_of_the_columns_is_that_part_of_the_rows() -> None:
    ids = np.array([4, 0])
    for table in places():
        table.put(np.arange(6), torch.arange(18, dtype=torch.float64).view(6, 3))
        part = table.columns(ids, 1, torch.empty(2, 2, dtype=torch.float64))
        assert torch.equal(part, table.take(ids)[:, 1:3])


@given(st.lists(st.integers(0, 9), unique=True, min_size=1), st.booleans())
def test_property_rows_in_a_run_are_read_and_written_as_any_others(places: list[int], in_order: bool) -> None:
    rows = np.array(sorted(places) if in_order else places)
    table = RowTable(10, torch.zeros(3))
    before = torch.arange(30.0).view(10, 3)
    table.put(np.arange(10), before.clone())
    taken = table.take(rows)
    assert torch.equal(taken, before[rows])
    taken.add_(100.0)  # a copy, however it was taken
    assert torch.equal(table.take(np.arange(10)), before)
    table.put(rows, taken)
    after = before.clone()
    after[rows] += 100.0
    assert torch.equal(table.take(np.arange(10)), after)
    run = consecutive(rows)
    assert (run is not None) == all(b - a == 1 for a, b in pairwise(rows))
    assert run is None or list(range(run.start, run.stop)) == rows.tolist()


def test_contract_rows_for_everyone_from_elsewhere_do_not_take_the_place_of_the_spare_memory() -> None:
    table = RowTable(3, torch.zeros(2))
    table.spare(3).fill_(7.0)
    table.put(np.arange(3), torch.ones(3, 2))
    assert table.take(np.arange(3)).tolist() == [[1.0, 1.0]] * 3
