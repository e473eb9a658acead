"""A deployment on real processes: SuperLink, SuperNodes and apps on loopback, with TLS and a key per device."""

import os
import runpy
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest
import torch

from tests.deployment.flower_processes import (
    DEVICE,
    FLOWER,
    Fleet,
    Replaying,
    free_port,
    make,
    num_rounds,
    records,
    running,
    send,
    sibling,
    start_nginx,
    wait,
)
from tests.support.command import Turnout
from tests.support.runs import models_of
from turnout.aggregation import SchemeC
from turnout.coordinator import Turnover
from turnout.data.federation import from_clients
from turnout.deploy.credentials import write_certificates, write_device_key
from turnout.deploy.folder import Folder
from turnout.deploy.launch import start
from turnout.fleet import replay
from turnout.journal import load
from turnout.local import SGD
from turnout.models import Softmax
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
lr = {lr}
steps = {steps}
batch_size = 5
"""
MEAN = '[aggregation]\nuse = "fedavg"\nweighting = "mean"\n'
SCAFFOLD = COMMON.format(rounds=2, lr=0.1, steps=4) + 'control = "average"\n' + MEAN
FEDAVG = COMMON.format(rounds=2, lr=0.1, steps=4) + MEAN
FEDBUFF = (
    COMMON.format(rounds=3, lr=0.1, steps=4)
    + MEAN
    + '[asynchrony]\nuse = "fedbuff"\nbuffer_size = 1\nconcurrency = 2\n'
)
UNENDING = (
    COMMON.format(rounds=500, lr=1e-6, steps=20_000)
    + """
[aggregation]
use = "scheme-c"
[turnover]
on_departure = "exclude"
reboot = "vanilla"
"""
)
PATIENCE = 600  # seconds that anything may take on a busy machine
FIRST, ALL = (0, 1), (0, 1, 2)  # devices that are there from the beginning, and all


@dataclass(frozen=True)
class Scene:
    """What the tests share: a SuperLink with two devices."""

    fleet: Fleet
    network: Replaying  # through which device 1 reaches the server
    outside: int | None  # port of nginx, through which device 0 does, where it is installed


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = make(tmp_path_factory.mktemp("flower") / "devices", SCAFFOLD, len(ALL))
    with running(folder) as fleet, closing(Replaying(folder)) as network:
        outside = None if which("nginx") is None else start_nginx(fleet)
        for number, port in ((0, outside), (1, network.server_port)):
            fleet.device(number, through=port)
        yield Scene(fleet, network, outside)


@pytest.fixture(scope="module")
def runs(scene: Scene) -> dict[str, Folder]:
    """Three runs that are under way at once on the first two devices."""
    found = {}
    for name, study in (("scaffold", SCAFFOLD), ("hostile", FEDAVG), ("fedbuff", FEDBUFF)):
        found[name] = sibling(scene.fleet.folder, name, study, FIRST, deadline=90, grace=90, late=300, start=2)
    (found["hostile"].app / "client_app.py").write_text(HOSTILE)
    (found["fedbuff"].app / "device.py").write_text(DEVICE + SLOW)
    for run in found.values():
        start(run)
    return found


def simulated(folder: Folder, study: str, devices: Sequence[int], **more: Any) -> torch.Tensor:
    """Return the model of the same study on the same samples, in simulation."""
    hooks = runpy.run_path(str(folder.app / "device.py"))
    data = [hooks["load_data"](number)["train"] for number in devices]
    file = folder.path / "simulated.toml"
    file.write_text(f'{study}\n[data]\nuse = "digits"\n')
    federation = from_clients(data, test=hooks["load_server"]()["test"], num_classes=3)
    value = load_study(file)
    parts = {name: getattr(value, name) for name in ("model", "local", "rounds", "aggregation", "name", "evaluate")}
    result = Study(data=federation, **parts, **more).run(engine="sequential", progress=False)
    (model,) = models_of(result).values()
    return model


def model_of(folder: Folder) -> torch.Tensor:
    loaded = load(folder.run)
    (place,) = loaded.finished
    return torch.cat([part.flatten() for part in loaded.state_dict(*place).values()])


def test_identity_scaffold_on_devices_is_the_simulation_although_the_server_app_is_killed(
    scene: Scene, runs: dict[str, Folder], turnout: Turnout
) -> None:
    """Device 1's answers are all delivered twice, and device 0 is behind nginx."""
    folder, fleet = runs["scaffold"], scene.fleet
    wait(lambda: num_rounds(folder) > 1, PATIENCE, lambda: fleet.log("server"))
    fleet.kill_server_app(folder)
    assert num_rounds(folder) < 3
    said = turnout("deploy", "run", folder.path)
    assert said.code == 0, said.err
    assert "finished; next: turnout report" in said.out
    done = records(folder)
    assert [row["round"] for row in done] == [0, 1, 2]
    assert [row["answered"] for row in done] == [0, 2, 2]
    assert {one["outcome"] for row in done for one in row["clients"].values()} == {"complete"}
    assert float((model_of(folder) - simulated(folder, SCAFFOLD, FIRST)).abs().max()) < 1e-6
    assert (fleet.folder.device(0) / "state").is_dir()
    assert "finished" in turnout("deploy", "status", folder.path).out
    assert turnout("report", folder.run).code == 0
    assert "already holds the whole study" in turnout("deploy", "run", folder.path).out
    pushed = [status for path, status in scene.network.again if path.endswith("/push-messages")]
    assert len(pushed) >= 3  # a hello and two updates: none of them counted twice
    replayed = simulated(folder, SCAFFOLD, FIRST, fleet=replay(run=folder.run))
    assert float((model_of(folder) - replayed).abs().max()) < 1e-6


def answered(row: dict[str, Any]) -> set[int]:
    return {client for client, one in row["clients"].items() if one["answered"]}


SLOW = """

fast = load_data


def load_data(device):
    time.sleep(5 * device)
    return fast(device)
"""


def test_contract_fedbuff_weighs_real_lateness(scene: Scene, runs: dict[str, Folder]) -> None:
    folder = runs["fedbuff"]
    wait(lambda: num_rounds(folder) == 4, PATIENCE, lambda: scene.fleet.log("server"))
    done = records(folder)[1:]
    ages = [row["staleness"] for row in done]
    assert ages[0] == 0
    assert max(ages) >= 1  # two train at once, and each server step takes one update
    for row, age in zip(done, ages, strict=True):
        (one,) = [one for one in row["clients"].values() if one["answered"]]
        assert one["coefficient"] == pytest.approx((1 + age) ** -0.5)


HOSTILE = """
import json
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


def spoiled(parcel, device, earlier):
    values, arrays = dict(parcel.values), dict(parcel.arrays)
    if (values["round"], device) == (1, 1):
        earlier.write_text(json.dumps({"values": values, "delta": arrays["delta"].tolist()}))
    if (values["round"], device) == (2, 1):  # the answer of the first round, once more
        again = json.loads(earlier.read_text())
        return Parcel(parcel.kind, again["values"], {"delta": np.array(again["delta"], "float32")})
    lies = {
        (1, 0): lambda: arrays.update(delta=arrays["delta"] * np.float32("nan")),
        (1, 1): lambda: arrays.update(delta=arrays["delta"][:1]),
        (2, 0): lambda: values.update(steps=10**12),
    }
    lies.get((values["round"], device), lambda: None)()
    return Parcel(parcel.kind, values, arrays)


@app.query("turnout")
def answer(message, context):
    reply = honest(message, context)
    parcel = from_record(reply.content)
    if parcel.kind == "train":
        config = context.node_config
        reply = spoiled(parcel, int(config["device"]), Path(str(config["state"])).with_name("earlier.json"))
        return Message(to_record(reply), reply_to=message)
    return reply
"""


def test_contract_hostile_answers_over_the_wire_are_rejected_and_on_record(
    scene: Scene, runs: dict[str, Folder]
) -> None:
    folder = runs["hostile"]
    wait(lambda: num_rounds(folder) == 3, PATIENCE, lambda: scene.fleet.log("server"))
    done = records(folder)[1:]
    for reason, row in (
        ("the update is not finite", done[0]),
        ("expected delta of shape [15] and type float32, got [1] float32", done[0]),
        ("expected 1 to 4 local steps, got 1000000000000", done[1]),
        ("the answer is for round 1, and round 2 was asked", done[1]),
    ):
        assert reason in str(row["rejected"])
    assert [row["answered"] for row in done] == [0, 0]
    assert {one["outcome"] for row in done for one in row["clients"].values()} == {"rejected"}


def test_contract_strangers_are_kept_out(scene: Scene, tmp_path: Path) -> None:
    fleet = scene.fleet
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
    }
    for name, arguments in wrong.items():
        fleet.start(name, [*common, "--port", str(free_port()), *arguments], FLWR_HOME=str(tmp_path / name))
    for name in wrong:
        assert fleet.started[name].wait(PATIENCE) != 0, fleet.log(name)
        assert "Receiving" not in fleet.log(name)
    for path in ("pull-messages", "push-messages", "push-object", "get-fab"):
        assert posted(fleet.folder, port, f"/v1/fleet/{path}") in (401, 403)
    assert spoken_plainly(port)
    listening = subprocess.run(["cat", "/proc/net/tcp"], capture_output=True, text=True, check=True).stdout
    addresses = {line.split()[1].split(":")[0] for line in listening.splitlines()[1:] if f":{port:04X} " in line[:25]}
    assert addresses == {"0100007F"}, "the SuperLink listens on loopback alone"


def posted(folder: Folder, port: int, path: str, body: bytes = b"") -> int:
    """Return the status of a request that no key has signed."""
    context = ssl.create_default_context(cafile=str(folder.certificates / "ca.crt"))
    headers = {"Content-Type": "application/protobuf", "Accept": "application/protobuf"}
    with closing(HTTPSConnection("127.0.0.1", port, context=context, timeout=60)) as unsigned:
        unsigned.request("POST", path, body, headers)
        with closing(unsigned.getresponse()) as refused:
            return refused.status


def spoken_plainly(port: int) -> bool:
    """Return whether a request without TLS is refused."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/fleet/pull-messages", data=b"{}", timeout=10).close()
    except (urllib.error.URLError, ConnectionError, HTTPException):
        return True
    return False


CONTROL = ("/v1/control/start-run", "/v1/control/list-runs")


@pytest.mark.skipif(which("nginx") is None, reason="nginx is not installed: apt-get install nginx-light")
def test_contract_from_outside_only_fleet_paths_with_bodies_of_a_limited_size_pass(
    scene: Scene, runs: dict[str, Folder]
) -> None:
    """Device 0 has worked through this nginx, so what devices need passes."""
    folder, port, inside = scene.fleet.folder, scene.outside, scene.fleet.folder.settings().port
    assert port is not None
    assert "/v1/fleet/pull-messages" in (folder.path / "nginx" / "access.log").read_text()
    assert posted(folder, port, "/v1/fleet/pull-messages") in (401, 403)  # by the SuperLink: it is not signed
    assert posted(folder, port, "/v1/fleet/push-object", bytes(65 << 20)) == 413
    for path in CONTROL:
        assert posted(folder, inside, path) != 404, "the SuperLink has this control call"
        assert posted(folder, port, path) == 404
    assert posted(folder, port, "/v1/fleet/../control/list-runs") in (400, 404)
    assert spoken_plainly(port)


def test_contract_devices_join_late_are_suspended_killed_stopped_and_restarted(
    scene: Scene, runs: dict[str, Folder]
) -> None:
    """The last test, as it ends devices. Work is never complete: scheme C weighs what was done by the deadline."""
    fleet, earlier = scene.fleet, [*records(runs["scaffold"]), *records(runs["hostile"])]
    slowest = max(row["sim_seconds"] for row in earlier)  # on this machine, today, with three runs at once
    grace = max(15.0, 0.6 * slowest)
    folder = sibling(fleet.folder, "faults", UNENDING, ALL, deadline=0.2, grace=grace, late=10, start=2)
    start(folder)

    def later(is_so: Callable[[dict[str, Any]], Any], since: int = 0) -> dict[str, Any]:
        """Return the first round after another of which something is so."""
        found = wait(
            lambda: [row for row in records(folder) if row["round"] > since and is_so(row)],
            PATIENCE,
            lambda: (
                f"{fleet.log('server')[-1000:]} {[(r['round'], r['events'], r['clients']) for r in records(folder)]}"
            ),
        )
        first: dict[str, Any] = found[0]
        return first

    wait(lambda: num_rounds(folder) > 0, PATIENCE, lambda: fleet.log("server"))
    fleet.device(2)
    whole = later(lambda row: answered(row) == {0, 1, 2})
    assert any("client 2 arrived" in str(row["events"]) for row in records(folder))
    sizes = np.array([20 + 7 * device for device in ALL])
    for client, one in whole["clients"].items():
        assert one["outcome"] == "partial"
        assert 0 < one["local_steps"] < one["asked_steps"] == 20_000
        expected = sizes[client] / sizes.sum() * one["asked_steps"] / one["local_steps"]
        assert one["coefficient"] == pytest.approx(expected)
    send(fleet.pid("device-0"), signal.SIGKILL)
    send(fleet.pid("device-1"), signal.SIGSTOP)
    alone = later(lambda row: row["asked"] == 3 and answered(row) == {2}, since=whole["round"])
    assert {alone["clients"][client]["outcome"] for client in (0, 1)} <= {"late", "lost"}
    send(fleet.pid("device-1"), signal.SIGCONT)
    back = later(lambda row: answered(row) == {1, 2}, since=alone["round"])
    os.kill(fleet.pid("device-2"), signal.SIGTERM)
    left = later(lambda row: "client 2 left and is excluded" in row["events"], since=back["round"])
    fleet.device(2)
    again = later(lambda row: "client 2 arrived" in row["events"], since=left["round"])
    told = [event for row in records(folder) for event in row["events"] if "arrived" in event or " left" in event]
    assert told == ["client 2 arrived", "client 2 left and is excluded", "client 2 arrived"]
    fleet.kill_server_app(folder)
    check_replay(folder, again["round"])


def check_replay(folder: Folder, rounds: int) -> None:
    """Assert that a replay of the recorded devices has the same clients, with as many steps, in every round."""
    hooks = runpy.run_path(str(folder.app / "device.py"))
    study = Study(
        data=from_clients([hooks["load_data"](number)["train"] for number in ALL], num_classes=3),
        model=Softmax(),
        local=SGD(lr=1e-6, steps=20_000, batch_size=5),
        aggregation=SchemeC(),
        turnover=Turnover(on_departure="exclude", reboot="vanilla"),
        fleet=replay(run=folder.run, deadline_seconds=0.2),
        rounds=rounds,
    )
    found = study.run(progress=False).loaded
    recorded = load(folder.run)
    for round in range(1, rounds + 1):
        there, here = (
            loaded.clients[(loaded.clients["round"] == round) & (loaded.clients["local_steps"] > 0)]
            for loaded in (recorded, found)
        )
        assert here["client"].tolist() == there["client"].tolist()
        assert here["local_steps"].tolist() == there["local_steps"].tolist()
    shares = found.rounds["replay_recorded"].dropna()
    assert len(shares)
    assert (shares == 1.0).all()
