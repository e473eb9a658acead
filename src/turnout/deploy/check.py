"""Check a deployment's folder before it is used, and try it with all devices in this process."""

import stat
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from turnout.deploy.apps import make_device
from turnout.deploy.create import require_flower
from turnout.deploy.credentials import covered_hosts, public_pem
from turnout.deploy.deployed_study import check_plan, load_deployed_study, server_samples
from turnout.deploy.folder import Folder
from turnout.deploy.serving import serve
from turnout.errors import ConfigError, Problem
from turnout.world.deployment import Device, InProcess
from turnout.world.deployment.device import KINDS
from turnout.world.deployment.parcel import Parcel

MOST_APP_BYTES = 10 * 1024 * 1024  # what Flower takes
NEEDS = {"probe loss": "losses", "probe gradient": "gradients", "score": "losses", "evaluate": "losses"}


def check(folder: Folder) -> list[str]:
    """Return what the folder is, line by line; raise ConfigError with everything that is wrong with it."""
    require_flower()
    settings, study = folder.settings(), load_deployed_study(folder.study)
    own = server_samples(folder.hooks())
    check_plan(study, settings.devices, server_size=len(own["server"]) if "server" in own else 0)
    problems = [*_app_problems(folder), *_key_problems(folder, settings.devices, settings.hosts)]
    if problems:
        raise ConfigError.of(Problem(message) for message in problems)
    limits = settings.limits
    return [
        f"{study.name}: {study.rounds} rounds, {settings.devices} devices, server on 127.0.0.1:{settings.port}",
        f"a device has {limits.deadline_seconds:g} s for a round, the server waits {limits.round_seconds:g} s",
        f"models are measured on {'the test set of the server' if 'test' in own else 'the hold-outs of the devices'}",
    ]


def _app_problems(folder: Folder) -> list[str]:
    found = []
    for name in ("pyproject.toml", "server_app.py", "client_app.py"):
        if not (folder.app / name).is_file():
            found.append(f"{folder.app / name} is missing. Copy it from a new folder.")
    files = [file for file in folder.app.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    size = sum(file.stat().st_size for file in files)
    if size > MOST_APP_BYTES:
        found.append(f"Flower sends apps of at most 10 MiB; {folder.app} has {size / 2**20:.1f}. Move data elsewhere.")
    secret = [file for file in files if file.suffix in (".key", ".pem") or b"PRIVATE KEY" in file.read_bytes()[:200]]
    found += [f"{file} is a private key, and the app is sent to every device. Move it elsewhere." for file in secret]
    return found


def _key_problems(folder: Folder, devices: int, hosts: Sequence[str]) -> list[str]:
    certificate, found = folder.certificates / "server.crt", []
    try:
        covered, until = covered_hosts(certificate)
        if missing := sorted(set(hosts) - covered):
            found.append(f"{certificate} does not cover {', '.join(missing)}. Make a new folder with --host for each.")
        if until < datetime.now(UTC):
            found.append(f"{certificate} was good until {until:%Y-%m-%d}. Make a new folder, or a new certificate.")
        keys = [public_pem(folder.public_key(number)) for number in range(devices)]
    except (OSError, ValueError) as error:
        return [*found, f"A certificate or a key cannot be read: {error}. Bring it back, or make a new folder."]
    if len(set(keys)) < devices:
        found.append(f"Two devices have the same key in {folder.path / 'keys'}. Give each its own.")
    secrets = [folder.certificates / "server.key", *(folder.device(n) / "device.key" for n in range(devices))]
    for file in secrets:
        if file.is_file() and stat.S_IMODE(file.stat().st_mode) & 0o077:
            found.append(f"{file} can be read by others on this machine. Run: chmod 600 {file}")
    return found


class _Noting(InProcess):
    """Devices in this process; notes what kinds of messages they get."""

    def __init__(self, devices: Mapping[int, Device]) -> None:
        super().__init__(devices)
        self.kinds: Counter[str] = Counter()

    def push(self, parcels: Mapping[int, Parcel], seconds: float) -> dict[int, str]:
        """Note the kinds, and pass the parcels on."""
        for parcel in parcels.values():
            self.kinds[f"{parcel.kind} {parcel.values['what']}" if parcel.kind == "probe" else parcel.kind] += 1
        return super().push(parcels, seconds)


def trial(folder: Folder, rounds: int = 2) -> list[str]:
    """Run a few rounds with all devices in this process; return what came of it and what devices must allow."""
    settings, hooks = folder.settings(), folder.hooks()
    with tempfile.TemporaryDirectory() as scratch:
        copy = Folder(Path(scratch) / "deployment")
        copy.path.mkdir()
        for name in ("app", "deployment.toml"):
            (copy.path / name).symlink_to((folder.path / name).absolute())
        devices = {
            number: make_device(hooks.load_data, folder.study, number, Path(scratch) / f"state-{number}", KINDS)
            for number in range(settings.devices)
        }
        transport = _Noting(devices)
        with transport:
            result = serve(copy, transport, poll_seconds=0.01, rounds=rounds)
        last = result.loaded.rounds.iloc[-1]
        needed = sorted({NEEDS[kind] for kind in transport.kinds if kind in NEEDS})
    sent = ", ".join(f"{count} {kind}" for kind, count in sorted(transport.kinds.items()))
    lines = [
        f"trial of {int(last['round'])} rounds: {int(last['answered'])} devices answered the last one; sent {sent}"
    ]
    if needed:
        lines.append(f"devices must allow {', '.join(needed)}: ALLOW={','.join(needed)} ./start.sh")
    return lines
