"""Families of models: their vector, their members, and what a study file says of them."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import turnout as to
from tests.support.families import CLASSES, FAMILY, INPUTS, family_task, members_of
from turnout.errors import ConfigError
from turnout.models import MLP, Family, Softmax
from turnout.models.layout import Layout
from turnout.models.members import SERVER, Members, multiply_adds
from turnout.models.user_modules import build_module
from turnout.study import load_study, resolved_settings
from turnout.study.toml_text import to_toml

TEXT = """
name = "family"
rounds = 1

[data]
use = "digits"
clients = 4

[model]
use = "family"
server = { use = "mlp", hidden = [8, 4] }
clients = [
    { use = "mlp", hidden = [4] },
    "softmax",
]

[width]
use = "architectures"

[local]
lr = 0.1
epochs = 1
"""


class Twice(nn.Module):
    """A module of one's own, with one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = 2 * self.layer(x.flatten(1))
        return out


def built(rule: Family, seed: int = 1) -> nn.Module:
    return rule.build((INPUTS,), CLASSES, torch.Generator().manual_seed(seed))


def test_golden_the_vector_holds_the_server_and_then_each_member() -> None:
    module = built(FAMILY)
    members = Members.of(module, torch.zeros(1, INPUTS))
    assert members.sizes == (5 * 4 + 4 + 4 * 3 + 3, 5 * 5 + 5 + 5 * 4 + 4 + 4 * 3 + 3)
    runs = [part.columns for part in (members.parts.server, *members.parts.members)]
    assert torch.equal(torch.cat(runs), torch.arange(Layout.of(module).size))
    for number in (SERVER, 0, 1):
        columns = runs[number + 1]
        alone = members.cut((number,))
        assert torch.equal(Layout.of(alone).flatten(alone), Layout.of(module).flatten(module)[columns])
        assert [slot.name for slot in Layout.of(alone).slots] == [
            slot.name for slot in members.layout.slots if columns[0] <= slot.start <= columns[-1]
        ]


def test_identity_the_output_is_the_servers_and_every_model_starts_as_it_would_alone() -> None:
    module, x = built(FAMILY), torch.randn(3, INPUTS)
    alone = [build_module(part, (INPUTS,), CLASSES, torch.Generator().manual_seed(1)) for part in FAMILY.parts]
    assert torch.equal(module(x), alone[0](x))
    members = Members.of(module, x[:1])
    for number, model in enumerate(alone[1:]):
        assert torch.equal(members.cut((number,))(x), model(x))


def test_golden_costs_are_multiplications_relative_to_the_servers_model() -> None:
    members = Members.of(built(FAMILY), torch.zeros(1, INPUTS))
    server = 5 * 7 + 7 * 4 + 4 * 3
    costs = [member.step_cost for member in members.parts.members]
    assert costs == [(5 * 4 + 4 * 3) / server, (5 * 5 + 5 * 4 + 4 * 3) / server]
    assert multiply_adds(nn.Conv2d(2, 3, 3), torch.zeros(1, 2, 5, 5)) == 3 * 3 * 3 * 2 * 9
    assert multiply_adds(nn.Flatten(), torch.zeros(1, 2)) == 1


def test_golden_last_layers_are_in_the_order_of_the_module() -> None:
    task = family_task(Family(server=MLP(hidden=(20,)), clients=(MLP(hidden=(9, 20)),)))
    flat = task.layout.flatten(task.module)
    for columns, layer in zip(members_of(task).parts.last_layers, ("server.3", "members.0.5"), strict=True):
        parameters = task.module.get_submodule(layer).parameters()
        assert torch.equal(flat[columns], torch.cat([value.detach().reshape(-1) for value in parameters]))


def test_error_last_layers_of_different_shapes_are_named() -> None:
    task = family_task(Family(server=MLP(hidden=(7,)), clients=(MLP(hidden=(7,)), MLP(hidden=(5,)))))
    with pytest.raises(
        ConfigError, match=r"server's has 3×7 and 3, architecture 0 has 3×7 and 3; architecture 1 has 3×5"
    ):
        members_of(task).check_last_layers()
    members_of(family_task()).check_last_layers()


def test_error_models_that_clients_cannot_share() -> None:
    sample = torch.zeros(1, INPUTS)
    with pytest.raises(ConfigError, match=r'needs a family of models; got Linear. Set model.use = "family"'):
        Members.of(nn.Linear(5, 3), sample)
    norm = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    with pytest.raises(ConfigError, match=r"cannot average running statistics.*members.0.1.running_mean"):
        Members.of(built(Family(server=MLP(), clients=(norm,))), sample)
    with pytest.raises(
        ConfigError, match=r"model.server has outputs of shape \(3,\), model.clients, number 0, of shape \(2"
    ):
        Members.of(built(Family(server=MLP(), clients=(nn.Linear(5, 2),))), sample)
    with pytest.raises(ConfigError, match=r"model.clients, number 0, fails on a sample of shape \(5,\): RuntimeError"):
        Members.of(built(Family(server=MLP(), clients=(nn.Linear(4, 3),))), sample)
    with pytest.raises(ConfigError, match=r"model.server has none"):
        Members.of(built(Family(server=nn.Identity(), clients=(nn.Identity(),))), sample)
    with pytest.raises(ConfigError, match=r"one architecture for clients, or more; got none. Set model.clients"):
        Family(server=MLP(), clients=())


def test_identity_a_study_file_with_a_family_loads_back_to_itself(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(TEXT)
    study = load_study(tmp_path / "study.toml")
    assert study.model == Family(server=MLP(hidden=(8, 4)), clients=(MLP(hidden=(4,)), Softmax()))
    (tmp_path / "again.toml").write_text(to_toml(resolved_settings(study)))
    assert load_study(tmp_path / "again.toml") == study


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hidden = [4]", "hiden = [4]", r"study.toml:13: MLP has no setting hiden. Did you mean hidden\?"),
        ('"softmax"', "3", r"study.toml:14: model.clients.1 must be a table, or the name of a rule; got 3"),
        ('"softmax"', '"sofmax"', r"study.toml:14: There is no model rule 'sofmax'"),
        ("hidden = [8, 4]", "hidden = [0]", r"study.toml:11: MLP needs hidden >= 1; got 0"),
    ],
)
def test_error_a_mistake_in_a_list_of_rules_has_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "study.toml").write_text(TEXT.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        load_study(tmp_path / "study.toml")


def test_golden_entries_of_a_list_of_rules_are_names_dicts_or_rules() -> None:
    family = Family(server="mlp", clients=["softmax", {"use": "mlp", "hidden": [3]}, MLP()])  # type: ignore[arg-type]
    assert family.clients == (Softmax(), MLP(hidden=(3,)), MLP())
    with pytest.raises(ConfigError, match=r"Family needs server to be a rule with the method build or a function"):
        Family(server=3, clients=(MLP(),))  # type: ignore[arg-type]


def digits(model: object, **more: object) -> to.Study:
    settings = {"data": to.data.Digits(clients=4), "local": to.local.SGD(lr=0.1, epochs=1), "rounds": 1} | more
    return to.Study(model=model, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("parts", [(Twice, lambda: Twice()), (Twice(), Twice())], ids=["made", "given"])
def test_contract_modules_of_ones_own_are_members(parts: tuple[object, object]) -> None:
    study = digits(Family(server=parts[0], clients=(parts[1], MLP(hidden=(6,)))), width="architectures")  # type: ignore[arg-type]
    result = study.run()
    (place,) = result.loaded.finished
    names = list(result.state_dict(*place))
    assert names[:2] == ["server.layer.weight", "server.layer.bias"]
    assert "members.1.3.weight" in names
    assert result.module(*place)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_error_a_family_and_architectures_need_each_other() -> None:
    with pytest.raises(ConfigError, match=r'family of models needs width.use = "architectures".*got none'):
        digits(FAMILY).run()
    with pytest.raises(ConfigError, match=r'family of models needs width.use = "architectures".*got Nested'):
        digits(FAMILY, width=to.width.Nested(rates=(0.5,))).run()
    with pytest.raises(ConfigError, match=r"Architectures needs a family of models; got Sequential"):
        digits(MLP(), width="architectures").run()
