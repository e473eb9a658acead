"""The keeper: what is saved comes back, rows are saved when they change, and old files go only when told."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from turnout.checkpoint import Checkpoint, CheckpointStore, LastModel, read_model
from turnout.checkpoint.store import Blocks, clean
from turnout.checkpoint.tensor_files import Piece, about_of, opened, tensors_of, verify, write
from turnout.coordinator import State
from turnout.coordinator.saving import tables_of
from turnout.errors import ConfigError, JournalError
from turnout.row_table import RowTable

SIZE, ROWS = 1030, 40


def state(budget: int = 1 << 30) -> State:
    like = torch.zeros(SIZE)
    return State(model=like + 1, last_losses=np.zeros(ROWS), aggregation={"table": RowTable(ROWS, like, budget)})


def put(of: State, ids: list[int], value: float) -> None:
    rows = torch.full((len(ids), SIZE), value) + torch.arange(SIZE) / 7
    tables_of(of)["aggregation.table"].put(np.array(ids), rows)


def kept(keeper: CheckpointStore, round: int, states: dict[int, State]) -> None:
    keeper.settle(keeper.save(round, states, {}))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("budget", [0, 1 << 30], ids=["in a file", "in RAM"])
def test_identity_rows_saved_in_pieces_come_back_whole(tmp_path: Path, budget: int) -> None:
    keeper, runs = CheckpointStore(tmp_path, 0), {3: state(budget), 8: state(budget)}
    put(runs[3], list(range(30)), 1.0)
    kept(keeper, 1, runs)
    for round in range(2, 6):
        put(runs[3], [round, 31 + round], float(round))
        put(runs[8], [round], -1.0)
        kept(keeper, round, runs)
    assert len(keeper.files) > 1
    for stored in keeper.files:
        verify(tmp_path, stored)
    back = CheckpointStore(tmp_path, 0, keeper.files).restore(runs)
    for run, whole in runs.items():
        table, before = tables_of(back[run])["aggregation.table"], tables_of(whole)["aggregation.table"]
        assert torch.equal(table.take(np.arange(ROWS)), before.take(np.arange(ROWS)))
        assert np.array_equal(table.seen, before.seen)
        assert not table.changed.any()
        assert torch.equal(back[run].model, whole.model)


def test_contract_only_changed_rows_are_written_until_a_whole_file_is_as_cheap(tmp_path: Path) -> None:
    keeper, run = CheckpointStore(tmp_path, 0), state()
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
    keeper, run = CheckpointStore(tmp_path, 0), state()
    put(run, list(range(ROWS)), 1.0)
    kept(keeper, 1, {1: run})
    run.aggregation = {"table": RowTable(ROWS, run.model)}
    put(run, [5], 3.0)
    kept(keeper, 2, {1: run})
    assert len(keeper.files) == 1
    back = tables_of(CheckpointStore(tmp_path, 0, keeper.files).restore({1: run})[1])["aggregation.table"]
    assert np.flatnonzero(back.seen).tolist() == [5]


def test_contract_a_restored_keeper_goes_on_in_pieces(tmp_path: Path) -> None:
    keeper, run = CheckpointStore(tmp_path, 0), state()
    put(run, list(range(ROWS)), 1.0)
    kept(keeper, 1, {1: run})
    again = CheckpointStore(tmp_path, 0, keeper.files)
    back = again.restore({1: run})
    put(back[1], [7], 9.0)
    kept(again, 2, back)
    assert len(again.files) == 2
    assert again.files[1].bytes < again.files[0].bytes / 2


def rewritten(folder: Path, change: Callable[[dict[str, torch.Tensor], dict[str, Any]], object]) -> CheckpointStore:
    """A keeper whose one file somebody has changed and vouches for."""
    keeper, run = CheckpointStore(folder, 0), state()
    put(run, [3, 5], 1.0)
    kept(keeper, 1, {1: run})
    name = keeper.files[0].name
    tensors = tensors_of(folder, name, "")
    with opened(folder, name) as file:
        about = about_of(file)
    change(tensors, about)
    return CheckpointStore(folder, 0, [write(folder, name, [Piece.of(*piece) for piece in tensors.items()], about)])


def of_run(change: dict[str, Any]) -> Callable[[Any, Any], object]:
    return lambda tensors, about: about["runs"]["1"].update(change)


def of_kinds(kind: Any) -> Callable[[Any, Any], object]:
    return lambda tensors, about: about["runs"]["1"]["kinds"].update({"aggregation.table": kind})


def of_seconds(value: Any) -> Callable[[Any, Any], object]:
    return lambda tensors, about: about["runs"]["1"]["kinds"].update({"world.seconds": {"is": "value", "value": value}})


TABLE = "1/rows:aggregation.table"
STRANGE: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "no runs": (lambda tensors, about: about.clear(), "KeyError: 'runs'"),
    "another run": (lambda tensors, about: about.update(runs={"2": {}}), "KeyError: '1'"),
    "runs that are a text": (lambda tensors, about: about.update(runs="1"), "TypeError"),
    "a tensor of another run": (lambda tensors, about: tensors.update({"7/x": torch.zeros(1)}), "KeyError: 7"),
    "a tensor of nobody": (lambda tensors, about: tensors.update({"x": torch.zeros(1)}), "ValueError"),
    "no model": (lambda tensors, about: tensors.pop("1/model"), "KeyError: 'model'"),
    "another model": (lambda tensors, about: tensors.update({"1/model": torch.zeros(7)}), r"model of \(7,\)"),
    "a model of other numbers": (
        lambda tensors, about: tensors.update({"1/model": torch.zeros(SIZE).double()}),
        "model of .* torch.float64, not",
    ),
    "a model that is not finite": (
        lambda tensors, about: tensors.update({"1/model": torch.full((SIZE,), torch.nan)}),
        "model is not finite",
    ),
    "a measured model that is not finite": (
        lambda tensors, about: tensors.update({"1/measured": torch.full((SIZE,), torch.inf)}),
        "measured is not finite",
    ),
    "buffers": (lambda tensors, about: tensors.update({"1/buffers": torch.zeros(1)}), "buffers of another model"),
    "measured": (lambda tensors, about: tensors.update({"1/measured": torch.zeros(2)}), "measured of"),
    "more clients": (
        lambda tensors, about: tensors.update({"1/last_losses": torch.zeros(ROWS + 1).double()}),
        "last_losses of",
    ),
    "a round that is a text": (of_run({"round": "9"}), "round must be a whole number"),
    "a round below none": (of_run({"round": -1}), "round must be a whole number"),
    "a round beyond numbers": (of_run({"restart": 10**30}), "restart must be a whole number"),
    "a clock that is none": (of_seconds(float("nan")), "the world's clock shows no number"),
    "a clock that is a list": (of_seconds([]), "the world's clock shows no number"),
    "a part that is none": (of_run({"kinds": {"elsewhere.x": {"is": "value", "value": 1}}}), "KeyError: 'elsewhere'"),
    "a kind that is none": (of_kinds(5), "TypeError"),
    "a tensor that is not there": (of_kinds({"is": "tensor"}), "KeyError: 'aggregation.table'"),
    "a table of all there are": (
        of_kinds({"is": "table", "rows": 10**12, "budget": 1}),
        "number from 0 to 134217728",
    ),
    "a table of fewer columns than the model": (
        of_kinds({"is": "table", "rows": ROWS, "columns": 3, "budget": 1}),
        "has 3 columns",
    ),
    "a table of more columns than the model": (
        of_kinds({"is": "table", "rows": ROWS, "columns": 10**6, "budget": 1}),
        "the columns of",
    ),
    "a budget below none": (
        of_kinds({"is": "table", "rows": ROWS, "columns": SIZE, "budget": -1}),
        "the budget of",
    ),
    "a row before the first": (
        lambda tensors, about: tensors.update({f"{TABLE}.ids": torch.tensor([-1, 5])}),
        "rows that do not fit",
    ),
    "a row after the last": (
        lambda tensors, about: tensors.update({f"{TABLE}.ids": torch.tensor([3, ROWS])}),
        "rows that do not fit",
    ),
    "more ids than rows": (
        lambda tensors, about: tensors.update({f"{TABLE}.ids": torch.tensor([3, 4, 5])}),
        "rows that do not fit",
    ),
    "rows of other numbers": (
        lambda tensors, about: tensors.update({f"{TABLE}.rows": torch.zeros(2, SIZE, dtype=torch.int32)}),
        "rows that do not fit",
    ),
    "ids without rows": (lambda tensors, about: tensors.pop(f"{TABLE}.rows"), "cannot be read"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_error_a_file_that_could_not_follow_the_start_is_refused(tmp_path: Path, name: str) -> None:
    change, why = STRANGE[name]
    with pytest.raises(
        JournalError, match=rf"0-1.safetensors (holds values that turnout did not write|{why}).*good copy"
    ) as e:
        rewritten(tmp_path, change).restore({1: state()})
    assert re.search(why, str(e.value))


def test_identity_a_file_that_was_rewritten_as_it_was_comes_back(tmp_path: Path) -> None:
    back = rewritten(tmp_path, lambda tensors, about: None).restore({1: state()})
    assert np.flatnonzero(tables_of(back[1])["aggregation.table"].seen).tolist() == [3, 5]


def test_contract_the_old_file_stays_until_the_journal_has_been_told(tmp_path: Path) -> None:
    keeper, run = CheckpointStore(tmp_path, 0), State(model=torch.zeros(3))
    kept(keeper, 1, {1: run})
    save = keeper.save(2, {1: run}, {})
    assert files(tmp_path) == ["0-1.safetensors", "0-2.safetensors"]
    keeper.settle(save)
    assert files(tmp_path) == ["0-2.safetensors"]


def test_contract_runs_that_have_ended_leave_their_models_and_nothing_else(tmp_path: Path) -> None:
    keeper, ended = CheckpointStore(tmp_path, 2), State(model=torch.arange(3.0), buffers=torch.ones(1))
    kept(keeper, 1, {1: ended})
    last = LastModel(tensors={"b": torch.arange(3.0), "a": torch.ones(1)}, example_shape=(4,), num_outputs=2)
    save = keeper.save(2, {}, {1: last})
    keeper.settle(save)
    assert (save.files, save.ended) == ((), (1,))
    assert files(tmp_path) == ["2-2.safetensors"]
    back = read_model(tmp_path, "models/2-2.safetensors", 1)
    assert list(back.tensors) == ["b", "a"]
    assert all(torch.equal(back.tensors[name], last.tensors[name]) for name in "ab")
    assert (back.example_shape, back.num_outputs) == ((4,), 2)


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
    (tmp_path / "models" / "0-0.safetensors.part").mkdir(parents=True)  # in the way
    with pytest.raises(JournalError, match=r"0-0.safetensors cannot be written: .*last checkpoint is kept. Free some"):
        write(tmp_path, "models/0-0.safetensors", [], {})
    assert files(tmp_path) == []


def test_contract_a_checkpoint_is_due_by_rounds_or_by_seconds() -> None:
    assert Checkpoint() == Checkpoint(seconds=30.0)
    assert [round for round in range(10) if Checkpoint(rounds=3).is_due(round, 1e9)] == [3, 6, 9]
    assert [seconds for seconds in (0, 4.9, 5) if Checkpoint(seconds=5).is_due(1, seconds)] == [5]
    assert Checkpoint(rounds=3, seconds=5).is_due(4, 6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "Checkpoint needs rounds >= 1; got 0. Change checkpoint.rounds."),
        ({"seconds": -1.0}, "Checkpoint needs seconds >= 0; got -1.0. Change checkpoint.seconds."),
        ({"seconds": float("nan")}, 'Checkpoint needs seconds to be a number or "none"; got nan'),
    ],
)
def test_error_an_impossible_cadence(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Checkpoint(**settings)  # type: ignore[arg-type]
