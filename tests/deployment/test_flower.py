"""A deployment on real processes: SuperLink, SuperNodes and apps on loopback, with TLS and a key per device."""

import runpy
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPException, HTTPSConnection
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.deployment.flower_processes import (
    FLOWER,
    Fleet,
    free_port,
    make,
    num_rounds,
    records,
    running,
    send,
    sibling,
    wait,
)
from tests.support.command import Turnout
from tests.support.runs import models_of
from turnout.data.federation import from_clients
from turnout.deploy.credentials import write_certificates, write_device_key
from turnout.deploy.folder import Folder
from turnout.deploy.launch import start
from turnout.study import Study, load_study

pytestmark = [
    pytest.mark.flower,
    pytest.mark.skipif(find_spec("flwr") is None, reason="flwr is not installed: pip install 'turnout[flower]'"),
]

COMMON = """
name = "devices"
rounds = {rounds}
evaluate.every = 100
[model]
use = "softmax"
[local]
use = "sgd"
lr = 0.1
steps = 4
batch_size = 5
"""
SCAFFOLD = COMMON.format(rounds=3) + 'control = "average"\n[aggregation]\nuse = "fedavg"\nweighting = "mean"\n'
FEDAVG = COMMON.format(rounds=40) + '[aggregation]\nuse = "fedavg"\nweighting = "mean"\n'
PATIENCE = 240  # seconds that anything may take on a busy machine


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = make(tmp_path_factory.mktemp("flower") / "devices", SCAFFOLD, 3)
    with running(folder) as started:
        for number in (0, 1):
            started.device(number)
        yield started


def simulated(folder: Folder, study: str, devices: int) -> torch.Tensor:
    """Return the model of the same study on the same samples, in simulation."""
    hooks = runpy.run_path(str(folder.app / "device.py"))
    data = [hooks["load_data"](number)["train"] for number in range(devices)]
    file = folder.path / "simulated.toml"
    file.write_text(f'{study}\n[data]\nuse = "digits"\n')
    federation = from_clients(data, test=hooks["load_server"]()["test"], num_classes=3)
    value = load_study(file)
    parts = {name: getattr(value, name) for name in ("model", "local", "rounds", "aggregation", "name", "evaluate")}
    (model,) = models_of(Study(data=federation, **parts).run(engine="sequential", progress=False)).values()
    return model


def test_identity_scaffold_on_devices_is_the_simulation_although_the_server_app_is_killed(
    fleet: Fleet, turnout: Turnout
) -> None:
    folder = sibling(fleet.folder, "scaffold", SCAFFOLD, 2, deadline=60, grace=60, start=2)
    start(folder)
    wait(lambda: num_rounds(folder) > 1, PATIENCE, lambda: fleet.log("server"))
    fleet.kill_server_app()
    assert num_rounds(folder) < 4
    said = turnout("deploy", "run", folder.path)
    assert said.code == 0, said.err
    assert "finished; next: turnout report" in said.out
    done = records(folder)
    assert [row["round"] for row in done] == [0, 1, 2, 3]
    assert [row["answered"] for row in done] == [0, 2, 2, 2]
    assert {one["outcome"] for row in done for one in row["clients"].values()} == {"complete"}
    ours = torch.cat([part.flatten() for part in torch_model(folder)])
    theirs = simulated(folder, SCAFFOLD, 2)
    assert float((ours - theirs).abs().max()) < 1e-6
    assert (fleet.folder.device(0) / "state").is_dir()
    assert "finished" in turnout("deploy", "status", folder.path).out
    assert turnout("report", folder.run).code == 0
    assert "already holds the whole study" in turnout("deploy", "run", folder.path).out


def torch_model(folder: Folder) -> list[torch.Tensor]:
    from turnout.journal import load

    loaded = load(folder.run)
    (place,) = loaded.finished
    return list(loaded.state_dict(*place).values())


def test_contract_devices_join_late_are_suspended_and_are_killed(fleet: Fleet) -> None:
    folder = sibling(fleet.folder, "faults", FEDAVG, 3, deadline=10, grace=20, start=2)
    start(folder)
    wait(lambda: num_rounds(folder) > 1, PATIENCE, lambda: fleet.log("server"))
    fleet.device(2)
    joined = wait(lambda: [r for r in records(folder) if 2 in r["clients"] and r["clients"][2]["answered"]], PATIENCE)
    assert any("client 2 arrived" in str(row["events"]) for row in records(folder))
    send(fleet.pid("device-1"), signal.SIGSTOP)
    send(fleet.pid("device-2"), signal.SIGKILL)
    before = joined[0]["round"]
    alone = wait(
        lambda: [r for r in records(folder) if r["round"] > before and r["asked"] == 3 and r["answered"] == 1], PATIENCE
    )
    outcomes = {client: one["outcome"] for client, one in alone[0]["clients"].items()}
    assert outcomes[0] == "complete"
    assert outcomes[1] in ("late", "lost")
    assert outcomes[2] in ("late", "lost")
    send(fleet.pid("device-1"), signal.SIGCONT)
    since = alone[0]["round"]
    back = wait(
        lambda: [r for r in records(folder) if r["round"] > since and r["clients"].get(1, {}).get("answered")], PATIENCE
    )
    assert back[0]["clients"][1]["outcome"] == "complete"
    fleet.kill_server_app()


HOSTILE = """
from pathlib import Path

import numpy as np
from device import load_data
from flwr.app import Message
from flwr.clientapp import ClientApp
from turnout.deploy.apps import client_app
from turnout.world.deployment.flower_grid import from_record, to_record
from turnout.world.deployment.parcel import Parcel

honest = client_app(load_data, Path(__file__).with_name("study.toml"))
app = ClientApp()


def spoiled(parcel: Any, device: Any) -> Any:
    values, arrays = dict(parcel.values), dict(parcel.arrays)
    lies = {
        (1, 1): lambda: arrays.update(delta=arrays["delta"] * np.float32("nan")),
        (2, 0): lambda: arrays.update(delta=arrays["delta"][:-1]),
        (2, 1): lambda: arrays.update(delta=arrays["delta"][:1]),
        (3, 0): lambda: values.update(steps=10**12),
        (3, 1): lambda: values.update(round=1),
    }
    lies.get((values["round"], device), lambda: None)()
    return Parcel(parcel.kind, values, arrays)


@app.query("turnout")
def answer(message: Any, context: Any) -> Any:
    reply = honest(message, context)
    parcel = from_record(reply.content)
    if parcel.kind == "train":
        return Message(to_record(spoiled(parcel, int(context.node_config["device"]))), reply_to=message)
    return reply
"""


def test_contract_hostile_answers_over_the_wire_are_rejected_and_on_record(fleet: Fleet) -> None:
    study = FEDAVG.replace("rounds = 40", "rounds = 3")
    folder = sibling(fleet.folder, "hostile", study, 2, deadline=60, grace=60, start=2)
    (folder.app / "client_app.py").write_text(HOSTILE)
    start(folder)
    wait(lambda: num_rounds(folder) == 4, 2 * PATIENCE, lambda: fleet.log("server"))
    done = records(folder)[1:]
    shape = "expected delta of shape [15] and type float32"
    for reason, row in (
        ("the update is not finite", done[0]),
        (f"{shape}, got [14] float32", done[1]),
        (f"{shape}, got [1] float32", done[1]),
        ("expected 1 to 4 local steps, got 1000000000000", done[2]),
        ("the answer is for round 1, and round 3 was asked", done[2]),
    ):
        assert reason in str(row["rejected"])
    assert [row["answered"] for row in done] == [1, 0, 0]
    assert {one["outcome"] for one in done[1]["clients"].values()} == {"rejected"}


def test_contract_strangers_are_kept_out(fleet: Fleet, tmp_path: Path) -> None:
    port, own = fleet.folder.settings().port, fleet.folder.device(0)
    write_device_key(tmp_path / "stranger.key", tmp_path / "stranger.pub")
    write_certificates(tmp_path / "other", ("localhost", "127.0.0.1"))
    common = [str(FLOWER / "flower-supernode"), "--superlink", f"127.0.0.1:{port}", "--max-retries", "1"]
    trusted, other = (
        ["--root-certificates", str(own / "ca.crt")],
        ["--root-certificates", str(tmp_path / "other/ca.crt")],
    )
    wrong = {
        "unregistered": [*trusted, "--auth-supernode-private-key", str(tmp_path / "stranger.key")],
        "no-key": trusted,
        "wrong-ca": [*other, "--auth-supernode-private-key", str(own / "device.key")],
        "plain": ["--insecure"],
    }
    for name, arguments in wrong.items():
        fleet.start(name, [*common, "--port", str(free_port()), *arguments], FLWR_HOME=str(tmp_path / name))
    for name in wrong:
        assert fleet.started[name].wait(PATIENCE) != 0, fleet.log(name)
        assert "Receiving" not in fleet.log(name)
    with pytest.raises((urllib.error.URLError, ConnectionError, HTTPException)):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/fleet/pull-messages", data=b"{}", timeout=10)
    context = ssl.create_default_context(cafile=str(own / "ca.crt"))
    headers = {"Content-Type": "application/protobuf", "Accept": "application/protobuf"}
    for path in ("pull-messages", "push-messages", "push-object", "get-fab"):
        with closing(HTTPSConnection("127.0.0.1", port, context=context, timeout=30)) as unsigned:
            unsigned.request("POST", f"/v1/fleet/{path}", b"", headers)
            with closing(unsigned.getresponse()) as refused:
                assert refused.status in (401, 403)
    listening = subprocess.run(["cat", "/proc/net/tcp"], capture_output=True, text=True, check=True).stdout
    addresses = {line.split()[1].split(":")[0] for line in listening.splitlines()[1:] if f":{port:04X} " in line[:25]}
    assert addresses == {"0100007F"}, "the SuperLink listens on loopback alone"
