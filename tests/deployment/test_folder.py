"""A deployment's folder: made, checked, tried, and served from its journal."""

import json
import stat
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.command import Said, Turnout
from tests.support.optional import present
from tests.support.runs import models_of
from turnout.aggregation import Appeal, FedNova
from turnout.coordinator import Turnover
from turnout.data.federation import from_clients
from turnout.deploy.apps import make_device
from turnout.deploy.check import check
from turnout.deploy.create import create, template
from turnout.deploy.deployed_study import load_deployed_study
from turnout.deploy.folder import Folder
from turnout.deploy.launch import check_server
from turnout.deploy.serving import serve
from turnout.errors import ConfigError, JournalError
from turnout.fleet import replay
from turnout.journal import load
from turnout.local import SGD
from turnout.models import Softmax
from turnout.study import Study
from turnout.world.deployment import Device, InProcess
from turnout.world.deployment.parcel import Parcel

without_flower = pytest.mark.skipif(
    find_spec("flwr") is None or find_spec("cryptography") is None,
    reason="flwr is not installed: pip install 'turnout[flower]'",
)


def needs_flower(test: Any) -> Any:
    """Mark a test that needs Flower."""
    return pytest.mark.flower(without_flower(test))


STUDY = """
name = "small"
rounds = 4
[model]
use = "softmax"
[local]
use = "sgd"
lr = 0.1
steps = 3
batch_size = 5
control = "average"
"""


def plain_folder(path: Path, study: str = STUDY, devices: int = 3) -> Folder:
    """Return a folder with an app and settings, but no keys: enough for devices in this process."""
    folder = Folder(path)
    folder.app.mkdir(parents=True)
    folder.study.write_text(study)
    (folder.app / "device.py").write_text(template("device.py").read_text())
    (path / "deployment.toml").write_text(f"devices = {devices}\n[limits]\nwait_seconds = 20\n")
    return folder


class Breaking(InProcess):
    """A server that dies when it hands out work for the n-th time."""

    left = 10**9
    joins_with: Device | None = None  # connects before the first work is handed out

    def push(self, parcels: Mapping[int, Parcel], seconds: float) -> dict[int, str]:
        if any(parcel.kind == "train" for parcel in parcels.values()):
            self.left -= 1
            if self.joins_with is not None and 2 not in self.devices:
                self.connect(2, self.joins_with)
            if self.left < 0:
                raise KeyboardInterrupt
        return super().push(parcels, seconds)


def devices_of(folder: Folder) -> dict[int, Any]:
    hooks = folder.hooks()
    return {
        n: make_device(hooks.load_data, folder.study, n, folder.path / f"state-{n}", ("losses",))
        for n in range(folder.settings().devices)
    }


def model_of(folder: Folder) -> torch.Tensor:
    loaded = load(folder.run)
    (place,) = loaded.finished
    return torch.cat([part.flatten() for part in loaded.state_dict(*place).values()])


def test_identity_a_served_study_is_the_simulation_and_goes_on_from_its_journal(tmp_path: Any) -> None:
    whole, broken = plain_folder(tmp_path / "whole"), plain_folder(tmp_path / "broken")
    with InProcess(devices_of(whole)) as transport:
        serve(whole, transport, poll_seconds=0.01)
    with Breaking(devices_of(broken)) as dying:
        dying.left = 2
        with pytest.raises(KeyboardInterrupt):
            serve(broken, dying, poll_seconds=0.01)
    assert len(load(broken.run).rounds) == 3
    with InProcess(devices_of(broken)) as transport:
        serve(broken, transport, poll_seconds=0.01)
    assert torch.equal(model_of(broken), model_of(whole))
    data = [whole.hooks().load_data(number) for number in range(3)]
    federation = from_clients([one["train"] for one in data], num_classes=10)
    local = SGD(lr=0.1, steps=3, batch_size=5, control="average")
    simulated = Study(data=federation, model=Softmax(), local=local, rounds=4).run(engine="sequential", progress=False)
    (expected,) = models_of(simulated).values()
    assert float((model_of(whole) - expected).abs().max()) < 1e-6
    assert load(whole.run).client_accuracy["accuracy"].notna().all()


def test_identity_a_replay_of_a_deployment_has_its_devices_steps_and_model(tmp_path: Any) -> None:
    folder = plain_folder(tmp_path / "one", STUDY.replace('control = "average"', '[aggregation]\nuse = "fednova"'))
    (folder.path / "deployment.toml").write_text("devices = 3\n[limits]\nwait_seconds = 20\ndeadline_seconds = 25\n")
    devices, ticks = devices_of(folder), iter(range(10**9))
    devices[1].clock = lambda: next(ticks) * 15.0  # the look after the second of three steps is past the deadline
    with InProcess(devices) as transport:
        serve(folder, transport, poll_seconds=0.01)
    recorded = load(folder.run).clients
    assert recorded["local_steps"].tolist() == [3, 2, 3] * 4
    data = [folder.hooks().load_data(number)["train"] for number in range(3)]
    study = Study(
        data=from_clients(data, num_classes=10), model=Softmax(), local=SGD(lr=0.1, steps=3, batch_size=5), rounds=4,
        aggregation=FedNova(), fleet=replay(run=folder.run, deadline_seconds=25),
    )  # fmt: skip
    result = study.run(engine="sequential", progress=False)
    assert result.loaded.clients["local_steps"].tolist() == recorded["local_steps"].tolist()
    assert (result.loaded.rounds["replay_recorded"].dropna() == 1).all()
    (model,) = models_of(result).values()
    assert float((model - model_of(folder)).abs().max()) < 1e-6
    longer = replace(study, fleet=replay(run=folder.run, deadline_seconds=50)).run(engine="sequential", progress=False)
    assert longer.loaded.clients["local_steps"].tolist() == [3, 3, 3] * 4  # 12.5 s a step
    assert (longer.loaded.rounds["replay_recorded"].dropna() == 2 / 3).all()  # how long the third takes is not known


def test_contract_who_joined_late_still_belongs_when_the_run_goes_on(tmp_path: Any) -> None:
    folder = plain_folder(tmp_path / "one", STUDY.replace('control = "average"', ""))
    limits = "[limits]\nwait_seconds = 20\nstart_with = 2\n"
    (folder.path / "deployment.toml").write_text(f"devices = 3\n{limits}")
    devices = devices_of(folder)
    with Breaking({number: devices[number] for number in (0, 1)}) as dying:
        dying.left = 1
        dying.joins_with = devices[2]
        with pytest.raises(KeyboardInterrupt):
            serve(folder, dying, poll_seconds=0.01)
    with InProcess(devices) as transport:
        serve(folder, transport, poll_seconds=0.01)
    loaded = load(folder.run)
    events = [event for told in loaded.rounds["events"] for event in told]
    assert [event for event in events if "arrived" in event or "left" in event] == ["client 2 arrived"]
    assert loaded.rounds["answered"].tolist()[-1] == 3
    assert present(folder.enrolled()).joined[2].num_examples == len(folder.hooks().load_data(2)["train"][1])


def test_contract_a_study_says_what_departures_mean(tmp_path: Any) -> None:
    text = STUDY.replace('control = "average"', "") + '[turnover]\non_departure = "exclude"\nreboot = "vanilla"\n'
    folder = plain_folder(tmp_path / "one", text)
    devices = devices_of(folder)

    class Emptying(InProcess):
        """A network that device 2 leaves when the second round is handed out."""

        def push(self, parcels: Mapping[int, Parcel], seconds: float) -> dict[int, str]:
            if any(parcel.values.get("round") == 2 for parcel in parcels.values()) and 2 in self.devices:
                self.disconnect(2, says_goodbye=True)
            return super().push(parcels, seconds)

    with Emptying(devices) as transport:
        serve(folder, transport, poll_seconds=0.01)
    recorded = load(folder.run)
    events = [event for told in recorded.rounds["events"] for event in told]
    assert "client 2 left and is excluded" in events
    study = Study(
        data=from_clients([folder.hooks().load_data(number)["train"] for number in range(3)], num_classes=10),
        model=Softmax(), local=SGD(lr=0.1, steps=3, batch_size=5), rounds=4,
        turnover=Turnover(on_departure="exclude", reboot="vanilla"), fleet=replay(run=folder.run, deadline_seconds=60),
    )  # fmt: skip
    again = study.run(engine="sequential", progress=False)
    for name in ("round", "client", "local_steps"):
        assert again.loaded.clients[name].tolist() == recorded.clients[name].tolist()
    assert (again.loaded.rounds["replay_recorded"].dropna() == 1).all()
    (model,) = models_of(again).values()
    assert float((model - model_of(folder)).abs().max()) < 1e-6
    folder.study.write_text(text + '[asynchrony]\nuse = "fedbuff"\n')
    with pytest.raises(ConfigError, match="arrivals, departures and server rounds need rounds that all clients share"):
        load_deployed_study(folder.study)


def test_contract_label_counts_are_kept_where_every_device_allows_them(tmp_path: Any) -> None:
    for allows, is_known in ((("labels",), True), ((), False)):
        folder = plain_folder(tmp_path / str(is_known), STUDY.replace("rounds = 4", "rounds = 1"))
        hooks = folder.hooks()
        devices = {
            number: make_device(hooks.load_data, folder.study, number, tmp_path / f"state-{number}", kinds)
            for number, kinds in enumerate((("labels",), ("labels",), allows))
        }
        with InProcess(devices) as transport:
            serve(folder, transport, poll_seconds=0.01)
        loaded = load(folder.run)
        facts: Any = loaded.holdings(*next(iter(loaded.finished)))
        assert (facts.label_counts is not None) == is_known
        if is_known:
            labels = hooks.load_data(1)["train"][1]
            assert facts.label_counts[1].tolist() == [int((labels == label).sum()) for label in range(10)]


def test_error_a_journal_of_another_study_is_not_continued(tmp_path: Any) -> None:
    folder = plain_folder(tmp_path / "one", STUDY.replace("rounds = 4", "rounds = 1"))
    with InProcess(devices_of(folder)) as transport:
        serve(folder, transport, poll_seconds=0.01)
        folder.study.write_text(STUDY.replace("lr = 0.1", "lr = 0.2"))
        with pytest.raises(JournalError, match="already holds the study 'small' with other settings") as refused:
            serve(folder, transport, poll_seconds=0.01)
        assert str(refused.value).endswith(f"is {folder.run}: rename it, and the next run begins anew.")
        assert "--out" not in str(refused.value)
        folder.run.rename(folder.path / "earlier")
        serve(folder, transport, poll_seconds=0.01)
    assert [len(load(place).rounds) for place in (folder.run, folder.path / "earlier")] == [5, 2]


def test_error_too_few_devices_is_told_with_the_setting(tmp_path: Any) -> None:
    folder = plain_folder(tmp_path / "few")
    (folder.path / "deployment.toml").write_text("devices = 4\n[limits]\nwait_seconds = 0.2\n")
    three = {number: device for number, device in devices_of(folder).items() if number < 3}
    with (
        InProcess(three) as transport,
        pytest.raises(ConfigError, match=r"needs 4 devices; 3 were .* limits.start_with"),
    ):
        serve(folder, transport, poll_seconds=0.01)


def test_error_what_only_a_simulation_has_is_refused_in_one_message(tmp_path: Any) -> None:
    file = tmp_path / "study.toml"
    sections = '[data]\nuse = "digits"\n[fleet]\navailability = "always"\n[attack]\nuse = "sign-flip"\nfraction = 0.1\n'
    file.write_text(STUDY + sections)
    with pytest.raises(ConfigError) as refused:
        load_deployed_study(file)
    lines = str(refused.value).splitlines()
    assert [line.partition(": ")[2][:32] for line in lines] == [
        "A deployment has no [data]: devi",
        "A deployment has no [fleet]: dev",
        "A deployment has no [attack]: a ",
    ]
    assert all(line.startswith(f"{file}:") for line in lines)


def test_error_devices_do_not_train_a_second_model(tmp_path: Any) -> None:
    file = tmp_path / "study.toml"
    file.write_text(STUDY + '[aggregation]\nuse = "appeal"\n')
    with pytest.raises(ConfigError, match=r'requirement = "alone" .* Set aggregation.requirement to the loss'):
        load_deployed_study(file)
    file.write_text(STUDY + '[aggregation]\nuse = "appeal"\nrequirement = 0.5\n')
    assert load_deployed_study(file).aggregation == Appeal(requirement=0.5)


@pytest.mark.parametrize("more", ["seeds = 3\n", "[[arm]]\nname = 'a'\n[[arm]]\nname = 'b'\nrounds = 2\n"])
def test_error_a_deployment_is_one_run(tmp_path: Any, more: Any) -> None:
    file = tmp_path / "study.toml"
    file.write_text(more + STUDY if more.startswith("seeds") else STUDY + more)
    with pytest.raises(ConfigError, match="A deployment is one run; got"):
        load_deployed_study(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("devices = 3\nport = 'x'", "port"),
        ("devices = 3\npotr = 1", "There is no setting potr. Did you mean port?"),
        ("devices = 3\n[limits]\ndeadline_secs = 3", "limits.There is no setting deadline_secs"),
        ("devices = 3\n[limits]\ndeadline_seconds = -1", "deadline_seconds"),
        ("port = 1", "needs devices"),
        ("devices = ", "This is not valid TOML"),
    ],
)
def test_error_settings_name_the_file_and_the_setting(tmp_path: Any, text: Any, message: Any) -> None:
    folder = plain_folder(tmp_path / "one")
    (folder.path / "deployment.toml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        folder.settings()
    assert message in str(refused.value)
    assert "deployment.toml" in str(refused.value)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("", "needs a function load_data"),
        ("1/0", "cannot be imported: ZeroDivisionError"),
        ("def load_data(device):\n    return 3", "must return a table"),
    ],
)
def test_error_device_py_is_told_what_is_wrong_with_it(tmp_path: Any, code: Any, message: Any) -> None:
    folder = plain_folder(tmp_path / "one")
    (folder.app / "device.py").write_text(code)
    with pytest.raises(ConfigError, match=message):
        devices_of(folder)


def init(turnout: Turnout, *more: Any) -> Said:
    return turnout("deploy", "init", "here", "--devices", 2, *more)


@needs_flower
def test_contract_a_new_folder_is_complete_and_passes_its_check(turnout: Turnout, tmp_path: Path) -> None:
    said = init(turnout, "--host", "fl.example.org")
    assert said.code == 0, said.err
    folder = Folder(tmp_path / "here")
    for secret in (folder.certificates / "server.key", folder.certificates / "ca.key", folder.device(0) / "device.key"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert not any(b"PRIVATE KEY" in file.read_bytes() for file in folder.app.rglob("*") if file.is_file())
    for script in (folder.path / "start-server.sh", folder.device(1) / "start.sh"):
        assert "@" not in script.read_text().replace('"$@"', "")
    checked = turnout("deploy", "check", "here", "--trial")
    assert checked.code == 0, checked.err
    assert "2 devices answered the last one; sent 2 evaluate, 2 hello, 4 train" in checked.out
    assert "devices must allow losses: ALLOW=losses ./start.sh" in checked.out
    assert "no round yet" in turnout("deploy", "status", "here").out
    assert json.loads(turnout("deploy", "status", "here", "--json").out)["devices"] == 2
    assert not folder.run.exists()


@needs_flower
def test_contract_only_fleet_paths_are_open_to_the_outside(tmp_path: Path) -> None:
    folder = create(tmp_path / "here", None, 1, ("fl.example.org", "127.0.0.1"), 9092)
    lines = [line.strip() for line in (folder.path / "nginx.conf").read_text().splitlines()]
    assert [line for line in lines if line.startswith("location")] == ["location /v1/fleet/ {", "location / {"]
    assert "client_max_body_size 64m;" in lines
    assert "return 404;" in lines
    assert "--host 127.0.0.1" in (folder.path / "start-server.sh").read_text()
    assert "--enable-supernode-auth" in (folder.path / "start-server.sh").read_text()


@needs_flower
def test_error_a_folder_that_is_not_sound_is_told_everything(tmp_path: Path) -> None:
    folder = create(tmp_path / "here", None, 2, ("127.0.0.1",), 9092)
    (folder.app / "mine.key").write_text("-----BEGIN PRIVATE KEY-----")
    (folder.device(0) / "device.key").chmod(0o644)
    folder.public_key(1).write_bytes(folder.public_key(0).read_bytes())
    (folder.path / "deployment.toml").write_text('devices = 2\nhosts = ["fl.example.org"]\n')
    with pytest.raises(ConfigError) as refused:
        check(folder)
    told = str(refused.value).splitlines()
    for reason in ("is a private key", "can be read by others", "same key", "does not cover fl.example.org"):
        assert sum(reason in line for line in told) == 1
    folder.public_key(1).unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        check(folder)


@needs_flower
def test_error_init_writes_nothing_for_a_study_that_cannot_be_deployed(turnout: Turnout, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY + "[fleet]\n")
    said = init(turnout, "--study", "study.toml")
    assert said.code == 2
    assert "A deployment has no [fleet]" in said.err
    assert not (tmp_path / "here").exists()
    (tmp_path / "study.toml").write_text(STUDY.replace('control = "average"', "") + "[selection]\ncohort_size = 5\n")
    assert "cohort_size <= the number of clients; got 5 > 2" in init(turnout, "--study", "study.toml").err
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.txt").write_text("")
    assert "needs a new or an empty folder" in init(turnout).err


def test_error_a_server_that_is_not_up_is_told_with_the_command(tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "one")
    (folder.path / "deployment.toml").write_text("devices = 1\nport = 1\n")
    with pytest.raises(ConfigError, match=r"must be up on 127.0.0.1:1 .*start-server.sh"):
        check_server(folder)


@pytest.mark.skipif(find_spec("flwr") is not None, reason="flwr is installed")
def test_error_without_flower_the_message_says_what_to_install(turnout: Turnout) -> None:
    assert "pip install 'turnout[flower]'" in init(turnout).err
