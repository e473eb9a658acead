"""The trained model, taken out: what PyTorch measures of it is what turnout recorded of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import turnout as to
from tests.support.command import Turnout
from tests.support.optional import present
from turnout.checkpoint.tensor_files import Piece, about_of, opened, tensors_of, write
from turnout.data.federation import Federation
from turnout.errors import JournalError
from turnout.journal import Journal, Loaded
from turnout.journal.checksums import update_checksums
from turnout.journal.open_database import open_for_writing
from turnout.requests import Record
from turnout.study import Result, Study

CLASSES, WIDE = 3, 20  # matrices of linear layers with sixteen outputs or more lie transposed in turnout's own layout


def clients(shape: tuple[int, ...], symbols: int | None = None) -> Federation:
    """Return four clients and a test set whose labels can be learnt from the inputs."""
    generator = torch.Generator().manual_seed(0)

    def samples(count: int) -> tuple[Tensor, Tensor]:
        if symbols is not None:
            x = torch.randint(symbols, (count, *shape), generator=generator)
            return x, x[:, -1] % CLASSES
        x = torch.randn(count, *shape, generator=generator)
        return x, x.flatten(1)[:, :CLASSES].argmax(1)

    return to.data.from_clients([samples(n) for n in (12, 20, 16, 24)], test=samples(50), num_classes=CLASSES)


class Everything(nn.Module):
    """Running statistics, integer buffers, a frozen layer, tied weights and wide layers in one module."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(6, WIDE).requires_grad_(False)
        self.first, self.again = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE)
        self.again.weight = self.first.weight
        self.norm = nn.BatchNorm1d(WIDE)
        self.head = nn.Linear(WIDE, CLASSES)
        self.register_buffer("order", torch.arange(WIDE).flip(0))

    def forward(self, x: Tensor) -> Tensor:
        wide = self.norm(torch.relu(self.first(self.frozen(x))))
        scores: Tensor = self.head(torch.relu(self.again(wide[:, self.order])))
        return scores


def local(**more: Any) -> dict[str, Any]:
    return {"local": to.local.SGD(lr=0.1, batch_size=8, epochs=1), "rounds": 3, "seeds": 2, **more}


STUDIES: dict[str, dict[str, Any]] = {
    "mlp": local(data=clients((6,)), model=to.models.MLP(hidden=(WIDE, 18))),
    "cnn": local(data=clients((1, 8, 8)), model=to.models.CNN(dense=WIDE)),
    "lstm": local(
        data=clients((5,), 7),
        model=to.models.CharLSTM(embedding=4, hidden=WIDE, layers=1, vocabulary=7),
        local=to.local.SGD(lr=2.0, batch_size=8, epochs=3),
    ),
    "everything": local(data=clients((6,)), model=Everything),
    "an instance": local(data=clients((6,)), model=Everything()),
    "fedexp": local(data=clients((6,)), model=to.models.MLP(hidden=(WIDE,)), server=to.server.FedExP(eps=1e-9)),
}


def check_measures(module: nn.Module, study: Study, loaded: Loaded, seed: int) -> None:
    """Measure the module with PyTorch alone, and hold it against the record of the last round."""
    data = study.data
    assert isinstance(data, Federation)
    assert data.test is not None
    with torch.no_grad():
        scores = module.eval()(data.test.x)
    last = loaded.rounds[(loaded.rounds["seed"] == seed) & (loaded.rounds["round"] == 3)].iloc[0]
    assert float((scores.argmax(1) == data.test.y).double().mean()) == pytest.approx(last["accuracy"])
    assert float(F.cross_entropy(scores, data.test.y)) == pytest.approx(last["loss"], rel=1e-5)


def stop_at(round: int) -> Callable[[str, int, Record], None]:
    def stop(arm: str, seed: int, record: Record) -> None:
        if record.round == round:
            raise KeyboardInterrupt

    return stop


def run(study: Study, how: str, folder: Path) -> Result:
    if how == "in memory":
        return study.run()
    if how == "resumed":
        with pytest.raises(KeyboardInterrupt):
            study.run(folder, on_progress=stop_at(2))
    return study.run(folder)


@pytest.mark.parametrize("how", ["in memory", "in a folder", "resumed"])
@pytest.mark.parametrize("name", STUDIES)
def test_identity_pytorch_measures_what_was_recorded(name: str, how: str, tmp_path: Path) -> None:
    study = Study(**STUDIES[name], checkpoint=to.Checkpoint(rounds=1))
    result = run(study, how, tmp_path / "out")
    assert result.loaded.rounds["accuracy"].nunique() > 2  # something was learnt
    for seed in (0, 1):
        module = result.module("study", seed)
        assert not module.training
        check_measures(module, study, result.loaded, seed)
        given = result.state_dict("study", seed)
        own = module.state_dict()
        assert [(key, value.shape, value.dtype) for key, value in given.items()] == [
            (key, value.shape, value.dtype) for key, value in own.items()
        ]
        assert all(value.is_contiguous() and torch.equal(value, own[key]) for key, value in given.items())
        if name in ("everything", "an instance"):
            module = Everything()
            module.load_state_dict(given, strict=True)
            check_measures(module, study, result.loaded, seed)


def test_contract_what_is_not_trained_is_as_the_module_had_it() -> None:
    module = Everything()
    found = Study(**{**STUDIES["an instance"], "model": module}).run().state_dict("study", 1)
    for name in ("frozen.weight", "frozen.bias", "order", "norm.num_batches_tracked"):
        assert torch.equal(found[name], module.state_dict()[name])
    assert torch.equal(found["first.weight"], found["again.weight"])
    assert not torch.equal(found["first.weight"], module.first.weight)
    assert not torch.equal(found["norm.running_mean"], present(module.norm.running_mean))


def test_contract_what_was_taken_out_is_a_copy() -> None:
    result = Study(**STUDIES["mlp"]).run()
    for value in result.state_dict("study", 0).values():
        value.zero_()
    for parameter in result.module("study", 0).parameters():
        parameter.data.zero_()
    assert all(value.any() for value in result.state_dict("study", 0).values())


def test_contract_fedexp_gives_out_the_mean_that_was_measured() -> None:
    study = Study(**STUDIES["fedexp"])
    last = replace(study, server=to.server.FedExP(eps=1e-9, evaluates_average=False))
    mean, moved, before = (
        one.run().state_dict("study", 0)["1.weight"] for one in (study, last, replace(last, rounds=2))
    )
    torch.testing.assert_close(mean, (moved + before) / 2)
    assert not torch.allclose(mean, moved, rtol=1e-3)


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm"])
def test_contract_a_folder_is_enough_for_a_shipped_model(name: str, tmp_path: Path) -> None:
    study = Study(**STUDIES[name])
    study.run(tmp_path / "out")
    loaded = to.load(tmp_path / "out")
    check_measures(loaded.module("study", 1), study, loaded, 1)


def test_error_a_module_of_ones_own_is_not_in_a_folder(tmp_path: Path) -> None:
    Study(**STUDIES["everything"]).run(tmp_path / "out")
    loaded = to.load(tmp_path / "out")
    with pytest.raises(JournalError, match=r"this run's is your own. Make the module yourself.*load_state_dict"):
        loaded.module("study", 0)
    Everything().load_state_dict(loaded.state_dict("study", 0), strict=True)


@pytest.fixture
def trained(turnout: Turnout, tmp_path: Path) -> Study:
    """A finished study of two arms and two seeds in the folder `out`."""
    arms = (to.arm("FedAvg"), to.arm("FedExP", server=to.server.FedExP()))
    study = Study(**STUDIES["everything"], arms=arms)
    study.run(tmp_path / "out", progress=False)
    return study


def test_contract_export_writes_pytorchs_names(trained: Study, turnout: Turnout) -> None:
    said = turnout("export", "out", "--arm", "FedExP", "--seed", 1, "-o", "model.safetensors")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("Wrote the last model of FedExP, seed 1, to model.safetensors: 14 tensors, ")
    found, expected = load_file("model.safetensors"), to.load("out").state_dict("FedExP", 1)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    Everything().load_state_dict(found, strict=True)
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["model.safetensors", "out"]


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("-o", "m.safetensors", "--seed", "1"),
            "out holds several runs that match. Choose one with --arm and --seed. "
            "Finished runs: FedAvg with seed 0, 1; FedExP with seed 0, 1.",
        ),
        (("-o", "m.safetensors", "--arm", "Fed"), "out holds no finished run that matches."),
        (("-o", "m.pt", "--arm", "FedAvg", "--seed", "0"), "export writes .safetensors files, which run no code"),
        (
            ("-o", "there.safetensors", "--arm", "FedAvg", "--seed", "0"),
            "there.safetensors exists; nothing was",
        ),
        (("-o", "no/m.safetensors", "--arm", "FedAvg", "--seed", "0"), "m.safetensors cannot be written: No such file"),
    ],
)
def test_error_export_says_what_to_choose(turnout: Turnout, arguments: tuple[str, ...], message: str) -> None:
    Path("there.safetensors").write_text("mine")
    said = turnout("export", "out", *arguments)
    assert said.code == 2
    assert message in said.err
    assert Path("there.safetensors").read_text() == "mine"
    assert not list(Path.cwd().glob("m.*"))


@pytest.mark.usefixtures("trained")
def test_contract_export_overwrites_where_it_is_told_to(turnout: Turnout) -> None:
    Path("there.safetensors").write_text("mine")
    named = ("--arm", "FedAvg", "--seed", "0", "-o", "there.safetensors")
    assert turnout("export", "out", *named, "--force").code == 0
    assert load_file("there.safetensors")


def test_contract_export_of_the_only_run_needs_no_names(turnout: Turnout, tmp_path: Path) -> None:
    Study(**{**STUDIES["mlp"], "seeds": (4,)}).run(tmp_path / "out")
    assert "of study, seed 4" in turnout("export", "out", "-o", "model.safetensors").out


def replaced(folder: Path, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Put another file in place of the models', signed in the journal as a stranger could."""
    name = next(folder.glob("models/*.safetensors")).relative_to(folder).as_posix()
    stored = write(folder, name, [Piece.of(*each) for each in tensors.items()], about)
    database = open_for_writing(folder)
    database.execute("UPDATE file SET sha256 = ?, bytes = ? WHERE name = ?", (stored.sha256, stored.bytes, name))
    update_checksums(database, "file")
    database.close()


@pytest.mark.parametrize(
    "change",
    [
        {"names": ["1.weight"]},
        {"names": "1.weight"},
        {"names": [[1], {}]},
        {"example_shape": [-1]},
        {"example_shape": [2.5]},
        {"example_shape": [1] * 1000},
        {"num_outputs": "3"},
        {"num_outputs": None},
    ],
    ids=str,
)
def test_error_a_model_that_a_stranger_wrote(change: dict[str, Any], tmp_path: Path) -> None:
    Study(**{**STUDIES["mlp"], "seeds": 1}).run(tmp_path)
    name = next(tmp_path.glob("models/*.safetensors")).relative_to(tmp_path).as_posix()
    with opened(tmp_path, name) as file:
        about = about_of(file)
    tensors = tensors_of(tmp_path, name, "")
    about["runs"]["1"] |= change
    replaced(tmp_path, about, tensors)
    with pytest.raises(JournalError, match="holds values that turnout did not write"):
        to.load(tmp_path).state_dict("study", 0)


def test_error_a_strangers_model_does_not_fit_its_module(tmp_path: Path) -> None:
    Study(**{**STUDIES["mlp"], "seeds": 1}).run(tmp_path)
    with Journal.open(tmp_path) as journal:
        ((config,),) = journal.read("SELECT config FROM run")
    database = open_for_writing(tmp_path)
    for hidden in ([19, 18], "twenty"):
        changed = json.loads(config)
        changed["model"]["hidden"] = hidden
        database.execute("UPDATE run SET config = ?", (json.dumps(changed),))
        with pytest.raises(JournalError, match="holds values that turnout did not write"):
            to.load(tmp_path).module("study", 0)
    database.close()
