"""Make a deployment's folder: the Flower app around a study, certificates, keys, scripts and a README."""

import shutil
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from turnout.deploy.credentials import write_certificates, write_device_key
from turnout.deploy.deployed_study import check_plan, load_deployed_study
from turnout.deploy.folder import SUPERLINK, Folder
from turnout.errors import ConfigError

DEVICE_PORT = 9094  # of the first device's own process; those that share a machine need one each
PUBLIC_PORT = 443
BODY_LIMIT = "64m"
APP = ("server_app.py", "client_app.py", "device.py", "pyproject.toml")


def create(path: Path, study: Path | None, devices: int, hosts: tuple[str, ...], port: int) -> Folder:
    """Write a new folder; a study that cannot be deployed is refused before anything is written."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"turnout deploy init needs a new or an empty folder; {path} has something in it.")
    require_flower()
    folder = Folder(path.absolute())
    source = template("study.toml") if study is None else study
    check_plan(load_deployed_study(source), devices, server_size=1)
    folder.app.mkdir(parents=True)
    for name in APP:
        shutil.copyfile(template(name), folder.app / name)
    shutil.copyfile(source, folder.study)
    example = (folder.app / "device.py").read_text().replace("DEVICES = 3", f"DEVICES = {devices}")
    (folder.app / "device.py").write_text(example)
    listed = ", ".join(f'"{host}"' for host in hosts)
    (folder.path / "deployment.toml").write_text(
        f"devices = {devices}\nhosts = [{listed}]\nport = {port}\n\n"
        "[limits]\ndeadline_seconds = 60  # for a round's local work\ngrace_seconds = 30  # for messages beside it\n"
        f"start_with = {devices}  # devices that must be connected before the first round\n"
    )
    write_certificates(folder.certificates, hosts)
    _write_devices(folder, devices, port)
    _write_server(folder, hosts, port)
    return folder


def _write_devices(folder: Folder, devices: int, port: int) -> None:
    """Write one folder per device, with all it needs."""
    (folder.path / "keys").mkdir()
    for number in range(devices):
        own = folder.device(number)
        own.mkdir(parents=True, mode=0o700)
        write_device_key(own / "device.key", folder.public_key(number))
        shutil.copyfile(folder.certificates / "ca.crt", own / "ca.crt")
        filled = {"PORT": port, "DEVICE": number, "DEVICE_PORT": DEVICE_PORT + number}
        _write_script(own / "start.sh", "start-device.sh", filled)


def _write_server(folder: Folder, hosts: tuple[str, ...], port: int) -> None:
    folder.flower_home.mkdir(mode=0o700)
    (folder.flower_home / "config.toml").write_text(
        f'[superlink]\ndefault = "{SUPERLINK}"\n\n[superlink.{SUPERLINK}]\naddress = "127.0.0.1:{port}"\n'
        f'root-certificates = "{folder.certificates / "ca.crt"}"\n'
    )
    filled = {"PORT": port, "FOLDER": folder.path, "HOSTS": " ".join(hosts)}
    filled |= {"PUBLIC_PORT": PUBLIC_PORT, "BODY_LIMIT": BODY_LIMIT}
    _write_script(folder.path / "start-server.sh", "start-server.sh", filled)
    (folder.path / "nginx.conf").write_text(_filled("nginx.conf", filled))
    shutil.copyfile(template("README.md"), folder.path / "README.md")


def template(name: str) -> Path:
    """Return a file that a new folder is made of."""
    return Path(str(files("turnout.deploy") / "template" / name))


def _filled(name: str, values: Mapping[str, object]) -> str:
    text = template(name).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def _write_script(path: Path, name: str, values: Mapping[str, object]) -> None:
    path.write_text(_filled(name, values))
    path.chmod(0o700)


def require_flower() -> None:
    """Raise if Flower is not installed, or in a version that turnout does not know."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise ConfigError(
            f"A deployment needs Flower; {sys.executable} has none. Install it with: pip install 'turnout[flower]'"
        ) from None
    if not found.startswith(("1.40.", "1.41.")):
        raise ConfigError(
            f"A deployment needs Flower 1.40 or 1.41; got {found}. Install it with: pip install 'turnout[flower]'"
        )
