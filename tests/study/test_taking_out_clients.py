"""A client's own model, taken out: what PyTorch measures of it is what turnout reported of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import turnout as to
from tests.support.command import Turnout
from turnout.checkpoint.own_models import InMemory
from turnout.checkpoint.tensor_files import Piece, about_of, opened, tensors_of, write
from turnout.client_models import ClientModels
from turnout.data.federation import Federation
from turnout.errors import ConfigError, JournalError, StudyNote
from turnout.journal import Loaded
from turnout.journal.checksums import update_checksums
from turnout.journal.open_database import open_for_writing
from turnout.study import Result, Study

CLASSES, WIDE = 3, 20  # a layer of sixteen units or more lies transposed in turnout's own layout
LAST = ("4",)


def federation() -> Federation:
    """Return four clients whose inputs lie at different places, each with a hold-out."""
    generator = torch.Generator().manual_seed(0)

    def samples(client: int, count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 6, generator=generator)
        return x + client, x[:, :CLASSES].roll(client, 1).argmax(1)

    sizes = enumerate((12, 20, 16, 24))
    clients = [samples(i, n) for i, n in sizes]
    return to.data.from_clients(clients, num_classes=CLASSES, holdout=0.25, public=samples(1, 9)[0])


ALGORITHMS: dict[str, Any] = {
    "Ditto": to.algorithms.ditto(),
    "FedBN": to.algorithms.fedbn(),
    "FedPer": to.algorithms.fedper(keep=LAST),
    "FedRep": to.algorithms.fedrep(keep=LAST, kept_steps=2),
    "FedBABU": to.algorithms.fedbabu(keep=LAST),
    "fine-tuning": to.algorithms.fine_tuning(tuning_steps=3),
    "pFedMe": to.algorithms.pfedme(strength=1.0, epochs=None, steps=3, batch_size=8),
    "APFL": to.algorithms.apfl(mixing=0.4),
    "IFCA": to.algorithms.ifca(num_models=2),
    "COMET": {**to.algorithms.comet(), "width": to.width.Architectures()},
    "FedAvg": to.algorithms.fedavg(),
}
SMALL, LARGE = to.models.MLP(hidden=(5,)), to.models.MLP(hidden=(WIDE, 4))
FAMILY = to.models.Family(server=to.models.MLP(hidden=(7,)), clients=(SMALL, LARGE))
WITHOUT_STATISTICS = ("APFL", "IFCA")
EVALUATED = [(arm, None) for arm in ALGORITHMS if arm != "FedAvg"] + [("APFL", "personal"), ("APFL", "mixture")]


def study(arms: Any = tuple(ALGORITHMS), **more: Any) -> Study:
    def arm(name: str) -> Any:
        sections = ALGORITHMS[name]
        local = {**sections.get("local", {}), "batches": "replaced"}
        model = to.models.MLP(hidden=(WIDE,), batch_norm=name not in WITHOUT_STATISTICS)
        return to.arm(name, **{**sections, "local": local, "model": FAMILY if "width" in sections else model})

    how: dict[str, Any] = {"local": to.local.SGD(lr=0.1, batch_size=8, steps=4), "rounds": 3, "seeds": 1, **more}
    how["model"] = to.models.MLP(hidden=(WIDE,))
    return Study(data=federation(), arms=tuple(arm(name) for name in arms), **how)


@pytest.fixture(scope="module")
def in_memory() -> Result:
    return study().run()


@pytest.fixture(scope="module")
def in_folder(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return study().run(tmp_path_factory.mktemp("runs") / "out")


def reported(loaded: Loaded, arm: str, measure: str) -> Any:
    frame = loaded.personal
    return frame[(frame["arm"] == arm) & (frame["round"] == 3) & (frame["measure"] == measure)]["value"].to_numpy()


def check_clients(result: Result, arm: str, which: str | None) -> None:
    """Measure each client's module with PyTorch alone, and hold it against what was reported."""
    data = result.study.data
    assert isinstance(data, Federation)
    assert data.holdout is not None
    kind = which or ("mixture" if arm == "APFL" else "personal")
    losses, accuracies = [], []
    for client in range(4):
        module = result.module(arm, 0, client=client, which=which)
        x, y = data.holdout.of(client)
        with torch.no_grad():
            scores = module(x)
        losses.append(float(F.cross_entropy(scores, y)))
        accuracies.append(float((scores.argmax(1) == y).double().mean()))
    if arm == "IFCA":
        frame = result.loaded.client_accuracy
        last = frame[(frame["arm"] == arm) & (frame["round"] == 3)]
        assert accuracies == pytest.approx(last["accuracy"].to_numpy())
        return
    assert losses == pytest.approx(reported(result.loaded, arm, f"{kind} loss"), rel=1e-5)
    assert accuracies == pytest.approx(reported(result.loaded, arm, f"{kind} accuracy"))
    assert len(set(losses)) == 4


@pytest.mark.parametrize(("arm", "which"), EVALUATED)
def test_contract_pytorch_measures_what_was_reported(in_memory: Result, arm: str, which: str | None) -> None:
    check_clients(in_memory, arm, which)


@pytest.mark.parametrize(("arm", "which"), EVALUATED)
def test_contract_a_folder_gives_the_same_models(in_folder: Result, arm: str, which: str | None) -> None:
    check_clients(in_folder, arm, which)


def test_identity_the_mixture_is_the_mixture_of_what_is_taken_out(in_memory: Result) -> None:
    shared = in_memory.state_dict("APFL", 0)
    own, mixture = (in_memory.state_dict("APFL", 0, client=1, which=which) for which in ("personal", "mixture"))
    for name, value in mixture.items():
        assert torch.allclose(value, 0.4 * own[name] + 0.6 * shared[name], atol=1e-6)


@pytest.mark.parametrize("where", ["in_memory", "in_folder"])
def test_contract_a_client_of_a_family_has_the_module_of_its_architecture(
    where: str, request: pytest.FixtureRequest
) -> None:
    result: Result = request.getfixturevalue(where)
    modules = [result.module("COMET", 0, client=client) for client in range(4)]
    counts = [sum(parameter.numel() for parameter in module.parameters()) for module in modules]
    assert sorted(counts) == [6 * 5 + 5 + 5 * 3 + 3] * 2 + [6 * 20 + 20 + 20 * 4 + 4 + 4 * 3 + 3] * 2
    for client, module in enumerate(modules):
        again = result.loaded.module("COMET", 0, client=client)
        named = result.state_dict("COMET", 0, client=client)
        assert list(again.state_dict()) == list(module.state_dict()) == list(named)
        assert all(torch.equal(value, named[name]) for name, value in again.state_dict().items())
    assert any(name.startswith("members.1") for name in result.state_dict("COMET", 0))


def test_contract_only_what_differs_is_stored(in_folder: Result) -> None:
    assert in_folder.folder is not None
    (file,) = in_folder.folder.glob("models/*.safetensors")
    run = in_folder.loaded.runs.query("arm == 'FedBN'")["id"].iloc[0]
    name = file.relative_to(in_folder.folder).as_posix()
    stored = tensors_of(in_folder.folder, name, f"{run} clients/personal/")

    assert set(stored) == {"2.weight", "2.bias", "2.running_mean", "2.running_var"}
    assert {len(value) for value in stored.values()} == {4}


def test_contract_a_client_that_never_trained_is_named_and_has_the_first_model() -> None:
    result = study(("Ditto",), rounds=1, selection=to.selection.Uniform(cohort_size=1)).run()
    (asked,) = result.loaded.clients["client"].unique()
    others = [client for client in range(4) if client != asked]
    result.module("Ditto", 0, client=int(asked))
    with pytest.warns(StudyNote, match=f"Client {others[0]} never trained: its own model is still made from the init"):
        first = result.state_dict("Ditto", 0, client=others[0])
    with pytest.warns(StudyNote):
        second = result.state_dict("Ditto", 0, client=others[1])

    assert all(torch.equal(first[name], second[name]) for name in first)


def test_contract_models_beyond_the_limit_are_not_stored() -> None:
    limited = study(("Ditto", "FedPer"), memory=to.MemoryLimit(own_models_mib=0.002)).run()

    with pytest.raises(ConfigError, match=r"take 1 MiB, more than memory.own_models_mib, so they were not stored"):
        limited.module("Ditto", 0, client=1)
    assert isinstance(limited.module("FedPer", 0, client=1), nn.Module)
    assert np.isfinite(reported(limited.loaded, "Ditto", "personal loss")).all()


@pytest.mark.parametrize("where", ["in_memory", "in_folder"])
def test_error_a_client_that_is_not_there(where: str, request: pytest.FixtureRequest) -> None:
    result = request.getfixturevalue(where)
    for client in (4, -1):
        with pytest.raises(ConfigError, match=rf"has 4 clients, numbered from 0; got client = {client}"):
            result.module("Ditto", 0, client=client)
    with pytest.raises(ConfigError, match=r"Clients of this run have no models of their own: all use the shared"):
        result.state_dict("FedAvg", 0, client=0)
    with pytest.raises(ConfigError, match=r"models of kind personal and mixture; got 'own'"):
        result.state_dict("APFL", 0, client=0, which="own")


def test_contract_export_writes_a_clients_model(turnout: Turnout, in_folder: Result, tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"
    said = turnout("export", str(in_folder.folder), "--arm", "FedBN", "--client", "2", "-o", str(out))
    taken = in_folder.state_dict("FedBN", 0, client=2)

    assert "Wrote the last model of client 2 of FedBN, seed 0" in said.out
    assert all(torch.equal(value, taken[name]) for name, value in load_file(out).items())


@pytest.mark.parametrize(
    "change", [{"count": 3}, {"count": "4"}, {"kinds": {"personal": ["9.weight"]}}, {"kinds": 3}, {"has": 1}], ids=str
)
def test_error_models_that_a_stranger_described(change: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    result = study(("Ditto",)).run(folder)
    name = next(folder.glob("models/*.safetensors")).relative_to(folder).as_posix()
    with opened(folder, name) as file:
        about = about_of(file)
    about["runs"]["1"]["clients"] |= change
    stored = write(folder, name, [Piece.of(*each) for each in tensors_of(folder, name, "").items()], about)
    database = open_for_writing(folder)
    database.execute("UPDATE file SET sha256 = ?, bytes = ? WHERE name = ?", (stored.sha256, stored.bytes, name))
    update_checksums(database, "file")
    database.close()
    with pytest.raises(JournalError):
        result.state_dict("Ditto", 0, client=1)


@pytest.mark.parametrize("number", [2, -1])
def test_error_an_architecture_that_the_family_does_not_have(in_memory: Result, number: int) -> None:
    last = in_memory.loaded.last_model("COMET", 0)
    models = ClientModels(num_clients=4, kinds={"personal": {}}, architecture=np.full(4, number))
    changed = replace(last, own=InMemory(models))
    with pytest.raises(JournalError, match=rf"client 0 has {number}, which the family does not have. The file was ch"):
        changed.of_client(0)
