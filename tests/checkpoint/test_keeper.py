"""The keeper: what is saved comes back, rows are saved when they change, and old files go only when told."""

from pathlib import Path

import numpy as np
import pytest
import torch

from turnout.checkpoint import Checkpoint, Keeper, tensors_of
from turnout.checkpoint.files import Piece, verify, write
from turnout.checkpoint.keeper import Blocks, clean
from turnout.coordinator import State
from turnout.coordinator.saving import tables_of
from turnout.errors import ConfigError, JournalError
from turnout.memory import RowTable

SIZE, ROWS, CPU = 400, 40, torch.device("cpu")


def state(budget: int = 1 << 30) -> State:
    like = torch.zeros(SIZE)
    return State(model=like + 1, last_losses=np.zeros(ROWS), aggregation={"table": RowTable(ROWS, like, budget)})


def put(of: State, ids: list[int], value: float) -> None:
    rows = torch.full((len(ids), SIZE), value) + torch.arange(SIZE) / 7
    tables_of(of)["aggregation.table"].put(np.array(ids), rows)


def kept(keeper: Keeper, round: int, states: dict[int, State]) -> None:
    keeper.settle(keeper.save(round, states, {}))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("budget", [0, 1 << 30], ids=["in a file", "in RAM"])
def test_identity_rows_saved_in_pieces_come_back_whole(tmp_path: Path, budget: int) -> None:
    keeper, runs = Keeper(tmp_path, 0), {3: state(budget), 8: state(budget)}
    put(runs[3], list(range(30)), 1.0)
    kept(keeper, 1, runs)
    for round in range(2, 6):
        put(runs[3], [round, 31 + round], float(round))
        put(runs[8], [round], -1.0)
        kept(keeper, round, runs)
    assert len(keeper.files) > 1
    for stored in keeper.files:
        verify(tmp_path, stored)
    back = Keeper(tmp_path, 0, keeper.files).restore(CPU)
    for run, whole in runs.items():
        table, before = tables_of(back[run])["aggregation.table"], tables_of(whole)["aggregation.table"]
        assert torch.equal(table.take(np.arange(ROWS)), before.take(np.arange(ROWS)))
        assert np.array_equal(table.seen, before.seen)
        assert not table.changed.any()
        assert torch.equal(back[run].model, whole.model)


def test_contract_only_changed_rows_are_written_until_a_whole_file_is_as_cheap(tmp_path: Path) -> None:
    keeper, run = Keeper(tmp_path, 0), state()
    put(run, list(range(ROWS)), 1.0)
    kept(keeper, 1, {1: run})
    whole = keeper.files[0].bytes
    sizes, counts = [], []
    for round in range(2, 40):
        put(run, [round], 2.0)
        kept(keeper, round, {1: run})
        sizes.append(keeper.files[-1].bytes)
        counts.append(sum(file.bytes for file in keeper.files))
        assert files(tmp_path) == sorted(Path(file.name).name for file in keeper.files)
    assert min(sizes) < whole / 4
    assert max(sizes) >= 0.9 * whole  # a whole one, now and then
    assert max(counts) < 2.5 * whole


def test_contract_a_table_that_was_replaced_is_written_whole(tmp_path: Path) -> None:
    keeper, run = Keeper(tmp_path, 0), state()
    put(run, list(range(ROWS)), 1.0)
    kept(keeper, 1, {1: run})
    run.aggregation = {"table": RowTable(ROWS, run.model)}
    put(run, [5], 3.0)
    kept(keeper, 2, {1: run})
    assert len(keeper.files) == 1
    back = tables_of(Keeper(tmp_path, 0, keeper.files).restore(CPU)[1])["aggregation.table"]
    assert np.flatnonzero(back.seen).tolist() == [5]


def test_contract_a_restored_keeper_goes_on_in_pieces(tmp_path: Path) -> None:
    keeper, run = Keeper(tmp_path, 0), state()
    put(run, list(range(ROWS)), 1.0)
    kept(keeper, 1, {1: run})
    again = Keeper(tmp_path, 0, keeper.files)
    back = again.restore(CPU)
    put(back[1], [7], 9.0)
    kept(again, 2, back)
    assert len(again.files) == 2
    assert again.files[1].bytes < again.files[0].bytes / 2


def test_contract_the_old_file_stays_until_the_journal_has_been_told(tmp_path: Path) -> None:
    keeper, run = Keeper(tmp_path, 0), State(model=torch.zeros(3))
    kept(keeper, 1, {1: run})
    save = keeper.save(2, {1: run}, {})
    assert files(tmp_path) == ["0-1.safetensors", "0-2.safetensors"]
    keeper.settle(save)
    assert files(tmp_path) == ["0-2.safetensors"]


def test_contract_runs_that_have_ended_leave_their_models_and_nothing_else(tmp_path: Path) -> None:
    keeper, ended = Keeper(tmp_path, 2), State(model=torch.arange(3.0), buffers=torch.ones(1))
    kept(keeper, 1, {1: ended})
    save = keeper.save(2, {}, {1: ended})
    keeper.settle(save)
    assert (save.files, save.ended) == ((), (1,))
    assert files(tmp_path) == ["2-2.safetensors"]
    back = tensors_of(tmp_path, "models/2-2.safetensors", "1/")
    assert torch.equal(back["model"], torch.arange(3.0))
    assert torch.equal(back["buffers"], torch.ones(1))


def test_contract_what_a_killed_process_left_is_cleaned_up_and_nothing_else(tmp_path: Path) -> None:
    for name in ("checkpoints/0-1.safetensors", "checkpoints/0-2.safetensors", "checkpoints/0-3.safetensors.part"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "checkpoints" / "notes.txt").write_text("mine")
    clean(tmp_path, {"checkpoints/0-1.safetensors"})
    assert files(tmp_path) == ["0-1.safetensors", "notes.txt"]


def test_contract_rows_are_taken_a_block_at_a_time() -> None:
    ids, taken = np.arange(5), []

    def take(some: np.ndarray) -> torch.Tensor:
        taken.append(some.tolist())
        return torch.zeros(len(some), 1)

    assert len(list(Blocks(ids, 25 << 20, take))) == 3
    assert taken == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3)], ids=str)
def test_contract_tensors_of_every_kind_come_back(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(torch.Size(shape).numel() or 0).reshape(shape).to(dtype)
    stored = write(tmp_path, "models/0-0.safetensors", [Piece.of("1/x", tensor), Piece.of("1/y", tensor)], {})
    verify(tmp_path, stored)
    back = tensors_of(tmp_path, stored.name, "1/")
    assert set(back) == {"x", "y"}
    assert back["x"].dtype == dtype
    assert torch.equal(back["x"], tensor)


def test_error_a_file_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("in the way")
    with pytest.raises(JournalError, match=r"0-0.safetensors cannot be written: .*last checkpoint is kept. Free some"):
        write(tmp_path, "models/0-0.safetensors", [], {})
    assert files(tmp_path) == ["models"]


def test_contract_a_checkpoint_is_due_by_rounds_or_by_seconds() -> None:
    assert Checkpoint() == Checkpoint(seconds=30.0)
    assert [round for round in range(10) if Checkpoint(rounds=3).is_due(round, 1e9)] == [3, 6, 9]
    assert [seconds for seconds in (0, 4.9, 5) if Checkpoint(seconds=5).is_due(1, seconds)] == [5]
    assert Checkpoint(rounds=3, seconds=5).is_due(4, 6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "checkpoint needs rounds >= 1; got 0. Change checkpoint.rounds."),
        ({"seconds": -1.0}, "checkpoint needs seconds >= 0; got -1.0. Change checkpoint.seconds."),
        ({"seconds": float("nan")}, "checkpoint needs seconds >= 0; got nan"),
    ],
)
def test_error_an_impossible_cadence(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Checkpoint(**settings)  # type: ignore[arg-type]
