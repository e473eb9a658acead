"""Studies on data of one's own: what is measured of its clients, and what cannot be."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import turnout as to
from turnout.errors import ConfigError
from turnout.report import write_report
from turnout.report.contents import contents
from turnout.report.load_studies import gather


def clients(sizes: tuple[int, ...] = (20, 12, 8)) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(n, 4, generator=generator), torch.arange(n) % 3) for n in sizes]


def study(data: Any = None, **changes: Any) -> to.Study:
    given = {"model": "softmax", "local": {"lr": 0.1, "steps": 2}, "rounds": 2}
    return to.Study(**{"data": to.data.from_clients(clients()) if data is None else data, **given, **changes})


def test_contract_each_client_of_ones_own_is_measured_on_its_hold_out() -> None:
    data = to.data.from_clients(clients(), holdout=0.25)
    found = study(data, evaluate=to.Cadence(clients_every=1)).run().loaded.client_accuracy
    assert found["round"].tolist() == [1] * 3 + [2] * 3
    assert found["accuracy"].notna().all()


@pytest.mark.parametrize("data", [None, to.data.Digits(clients=5)])
def test_error_clients_without_a_hold_out_cannot_be_measured(data: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"clients_every = 1 measures every client on its own hold-out, and this fede"
    ):
        study(data, evaluate=to.Cadence(clients_every=1)).run()


@pytest.mark.parametrize("use", ["digits", "femnist"])
def test_error_a_study_file_is_told_where_it_asks_for_hold_outs(tmp_path: Path, use: str) -> None:
    file = tmp_path / "study.toml"
    text = 'rounds = 1\nmodel = "softmax"\nlocal = { lr = 0.1, steps = 1 }\nevaluate = { clients_every = 5 }\n[data]\n'
    file.write_text(f'{text}use = "{use}"\n')
    with pytest.raises(
        ConfigError, match=r"study\.toml:4: evaluate\.clients_every = 5 .*Set evaluate\.clients_every to 0"
    ):
        to.load_study(file)
    file.write_text(f'{text}use = "{use}"\nholdout = 0.2\n')
    assert to.load_study(file).evaluate.clients_every == 5


def test_contract_names_and_groups_are_in_the_frames_and_on_the_page(tmp_path: Path) -> None:
    data = to.data.from_clients(clients(), holdout=0.25, names=["Ada", "Bo", "Cy"], groups=["north", "south", "north"])
    found = study(data, name="named", arms=[to.arm("one"), to.arm("two")]).run(tmp_path).loaded
    for frame in (found.clients, found.client_accuracy):
        assert set(zip(frame["client"], frame["name"], frame["group"], strict=True)) == {
            (0, "Ada", "north"),
            (1, "Bo", "south"),
            (2, "Cy", "north"),
        }
    gathered = contents(gather([tmp_path]))
    people, groups = gathered.table("clients"), gathered.table("groups")
    assert people is not None
    assert groups is not None
    mean = found.client_accuracy.groupby(["name", "arm"])["accuracy"].mean()
    assert people.raw.set_index("client")["two"].to_dict() == {n: mean[n, "two"] for n in ("Ada", "Bo", "Cy")}
    north = found.client_accuracy.query("group == 'north' and arm == 'one'")["accuracy"].mean()
    assert groups.raw.set_index(["arm", "group"])["accuracy_mean"]["one", "north"] == pytest.approx(north)
    page = write_report([tmp_path], tmp_path / "page.html").read_text()
    assert "By group" in page
    assert "Accuracy of each client" in page


def test_contract_frames_of_unnamed_clients_have_no_columns_for_names() -> None:
    found = study().run().loaded
    assert not {"name", "group"} & set(found.clients.columns)
