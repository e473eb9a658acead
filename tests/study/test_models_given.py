"""Models of one's own in a study: built anew for each seed under a key, or one start for every seed."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import turnout as to
from tests.support.command import Turnout
from tests.support.own_models import Net, study
from tests.support.runs import models_of
from turnout.errors import ConfigError, JournalError
from turnout.journal import Journal
from turnout.journal.open_database import open_for_writing
from turnout.models.initialise import build_initialised
from turnout.models.keyed import made
from turnout.report import write_report
from turnout.study import Study, resolved_settings

NOTE = "every seed starts from the weights of the given module; pass model=Net or model=lambda: Net(...) to draw new"


class RandomFeatures(nn.Module):
    """A frozen layer that is drawn, and a tensor that PyTorch knows nothing of."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.head = nn.Linear(4, 6).requires_grad_(False), nn.Linear(6, 3)
        self.shift = torch.randn(6)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(torch.relu(self.features(x) + self.shift))
        return scores


def starts(found: Study) -> list[float]:
    return found.run().loaded.rounds.query("round == 0")["loss"].tolist()


@pytest.mark.parametrize("model", [Net, lambda: Net(6), partial(Net, width=6)], ids=["class", "function", "partial"])
def test_contract_each_seed_has_a_start_of_its_own_and_always_the_same(model: Callable[[], nn.Module]) -> None:
    first = starts(study(model=model))
    torch.rand(3), np.random.rand(2), random.random()  # noqa: NPY002
    assert starts(study(model=model)) == first
    assert len(set(first)) == 2


class Drawn(nn.Module):
    """One number from a source of one's own."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__()
        self.number = nn.Parameter(torch.tensor(draw()))


@pytest.mark.parametrize(
    "draw",
    [lambda: float(torch.rand(1)), lambda: float(np.random.rand()), random.random],  # noqa: NPY002
    ids=["torch", "numpy", "python"],
)
def test_contract_every_global_generator_is_keyed(draw: Callable[[], float]) -> None:
    def number(seed: int) -> float:
        return made(lambda: Drawn(draw), "Drawn", torch.Generator().manual_seed(seed)).number.item()  # type: ignore[operator]

    assert number(3) == number(3) != number(4)


def test_contract_an_instance_keeps_its_weights() -> None:
    assert len(set(starts(study(model=Net())))) == 1


def test_contract_the_users_own_initialisation_is_kept() -> None:
    found = study(model=Net, local=to.local.SGD(lr=1e-12, steps=1)).run()
    assert torch.allclose(found.state_dict("study", 1)["head.bias"], torch.full((3,), 0.25))


def test_contract_the_global_generators_are_left_alone() -> None:
    def positions() -> tuple[Any, ...]:
        return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index] # noqa: NPY002

    before = positions()
    study().run()
    assert positions() == before


def test_identity_plain_layers_are_drawn_as_those_of_a_rule() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(4, 3), nn.LSTM(3, 4), nn.Embedding(5, 2))

    mine = made(make, "make", torch.Generator().manual_seed(3)).state_dict()
    rules = build_initialised(make, torch.Generator().manual_seed(3)).state_dict()
    assert all(torch.equal(mine[name], rules[name]) for name in rules)


def test_contract_arms_with_functions_that_look_alike_are_told_apart() -> None:
    same_name = [to.arm("kinked", model=lambda: Net(slope=0.0)), to.arm("linear", model=lambda: Net(slope=1.0))]
    found = models_of(study(arms=same_name).run())
    assert not torch.allclose(found["kinked", 0], found["linear", 0])
    given = Net()
    twin = Net(slope=1.0)
    twin.load_state_dict(given.state_dict())
    found = models_of(study(arms=[to.arm("kinked", model=given), to.arm("linear", model=twin)]).run())
    assert not torch.allclose(found["kinked", 0], found["linear", 0])


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
def test_contract_each_seed_has_the_frozen_weights_it_drew(engine: str) -> None:
    together = study(model=RandomFeatures, rounds=2).run(engine=engine)
    drew = [together.state_dict("study", seed)["features.weight"] for seed in (0, 1)]
    assert not torch.equal(*drew)
    alone = study(model=RandomFeatures, rounds=2, seeds=(1,)).run(engine=engine)
    for name, value in alone.state_dict("study", 1).items():
        torch.testing.assert_close(together.state_dict("study", 1)[name], value)


def test_contract_the_given_module_is_not_touched() -> None:
    module = Net().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    result = study(model=module).run()
    result.module("study", 0)
    assert module.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    shared = Net()
    result = study(model=lambda: shared).run()
    start = shared.first.weight.clone()
    result.module("study", 0)
    assert torch.equal(shared.first.weight, start)


PROCESS = """
    import torch
    import turnout as to
    from tests.support.own_models import Net, study
    torch.rand({draws})
    for model in (Net, lambda: Net(7)):
        print(sum(float(value.double().sum()) for value in study(model=model).run().state_dict("study", 1).values()))
    """


def test_contract_another_process_ends_at_the_same_model() -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", dedent(PROCESS.format(draws=draws))],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        ).stdout
        for draws in (1, 2)
    ]
    assert said[0] == said[1]
    assert len(said[0].split()) == 2


def test_contract_a_class_is_named_and_a_function_is_told_by_what_it_makes() -> None:
    assert resolved_settings(study(model=Net))["model"] == {"use": f"{Net.__module__}:Net"}

    class Local(Net):
        """One that no file can name."""

    plain = resolved_settings(study(model=lambda: Net(6)))["model"]
    assert (plain["made_in_python"], plain["name"]) == (
        "function",
        "test_contract_a_class_is_named_and_a_function_is_told_by_what_it_makes.<locals>.<lambda>",
    )
    assert plain == resolved_settings(study(model=lambda: Net(6)))["model"]
    assert plain != resolved_settings(study(model=lambda: Net(7)))["model"]
    assert resolved_settings(study(model=Local))["model"]["made_in_python"] == "class"


def test_contract_a_folder_goes_on_with_the_same_function_and_refuses_another(tmp_path: Path) -> None:
    study(model=lambda: Net(6)).run(tmp_path)
    assert study(model=lambda: Net(6)).run(tmp_path).was_finished
    with pytest.raises(JournalError, match=r"with other settings \(model\)"):
        study(model=lambda: Net(7)).run(tmp_path)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: 3, r"model needs a function that returns an nn.Module; .*<lambda> returned 3. Change model."),
        (lambda: Net(width="wide"), r"The model .*<lambda> cannot be built: TypeError: .*Change model."),  # type: ignore[arg-type]
        (lambda: nn.LazyLinear(3), r"LazyLinear has some that wait for their first input"),
    ],
)
def test_error_a_function_that_makes_no_model(model: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study(model=model).run()


def test_contract_an_instance_is_noted_wherever_it_matters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], turnout: Turnout
) -> None:
    result = study(model=Net()).run(tmp_path / "out")
    assert f"note: {NOTE}" in capsys.readouterr().err
    assert NOTE in result.table()
    assert NOTE in result._repr_html_()
    loaded = to.load(tmp_path / "out")
    assert loaded.notes[0].startswith(NOTE)
    assert loaded.study["facts"]["notes"] == list(loaded.notes)
    write_report([tmp_path / "out"], tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().count(NOTE) >= 2  # beside the comparison and with the settings
    assert NOTE in turnout("compare", tmp_path / "out").out


def test_contract_one_seed_is_on_record_and_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    result = study(model=Net(), seeds=1).run()
    assert result.loaded.notes[0].startswith(NOTE)
    assert NOTE not in capsys.readouterr().err + result.table()


def test_contract_what_is_drawn_anew_needs_no_note(capsys: pytest.CaptureFixture[str]) -> None:
    arms = [to.arm("class"), to.arm("function", model=lambda: Net(6)), to.arm("rule", model=to.models.Softmax())]
    assert study(arms=arms).run().loaded.notes == ()
    (note,) = study(arms=[*arms, to.arm("given", model=Net())]).run().loaded.notes
    assert note.startswith("every seed of given starts from the weights")
    assert study(model=Net()).run(progress=False).loaded.notes
    assert capsys.readouterr().err.count("note: ") == 1


@pytest.mark.parametrize("notes", ["text", [3], ["\x1b[2J"], ["x" * 20_000], ["x"] * 200], ids=range(5))
def test_error_notes_that_a_stranger_wrote(tmp_path: Path, notes: Any) -> None:
    study(model=Net(), seeds=1).run(tmp_path)
    with Journal.open(tmp_path) as journal:
        facts = {**journal.facts, "notes": notes}
    database = open_for_writing(tmp_path)
    database.execute("UPDATE study SET facts = ?", (json.dumps(facts),))
    database.close()
    with pytest.raises(JournalError, match="holds values that turnout did not write"):
        to.load(tmp_path)
