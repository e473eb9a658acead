"""A deployment's folder and its settings, `deployment.toml`."""

import dataclasses
import importlib.util
import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from turnout.errors import ConfigError, did_you_mean
from turnout.safe_files import written
from turnout.settings import Clients, Count, rule
from turnout.world.deployment.limits import Limits
from turnout.world.deployment.mailbox import DeviceFacts

SUPERLINK = "turnout"  # name of the connection in Flower's configuration
SWITCHES = {  # Flower sends nothing home, and installs nothing at run time
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


@rule("deployment")
class DeploymentSettings:
    """Where the server is, how many devices there are, and how long it waits for them."""

    devices: Clients  # number of devices that have keys, 1 or more
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1")  # names and addresses in the server's certificate
    port: Count = 9092  # port of the SuperLink on this machine
    limits: Limits = field(default_factory=Limits)


class Enrolment(NamedTuple):
    """The run's name on the devices, and what devices said of themselves."""

    run: str
    devices: dict[int, DeviceFacts]  # before the first round
    joined: dict[int, DeviceFacts]  # since then


@dataclass(frozen=True, slots=True)
class Folder:
    """The paths of a deployment's folder."""

    path: Path

    @property
    def app(self) -> Path:
        """The Flower app, which is sent to devices: nothing secret may be in it."""
        return self.path / "app"

    @property
    def study(self) -> Path:
        """The study file."""
        return self.app / "study.toml"

    @property
    def certificates(self) -> Path:
        """The certificates, and the server's key."""
        return self.path / "certificates"

    @property
    def flower_home(self) -> Path:
        """Flower's own folder."""
        return self.path / "flower"

    @property
    def run(self) -> Path:
        """The journal, as of any run."""
        return self.path / "run"

    @property
    def enrolment(self) -> Path:
        """What the devices said of themselves before the first round."""
        return self.path / "enrolment.json"

    def device(self, number: int) -> Path:
        """The folder to copy to one device."""
        return self.path / "devices" / f"device-{number}"

    def public_key(self, number: int) -> Path:
        """A device's public key."""
        return self.path / "keys" / f"device-{number}.pub"

    def settings(self) -> DeploymentSettings:
        """Return the settings; raise ConfigError with what is wrong with them."""
        file = self.path / "deployment.toml"
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(
                f"{file} cannot be read: {error.strerror}. Make the folder with: turnout deploy init {self.path} "
                "--study study.toml"
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: This is not valid TOML: {error}.") from error
        limits = _made(Limits, values.pop("limits", {}), f"{file}: limits.")
        if isinstance(values.get("hosts"), list):
            values["hosts"] = tuple(values["hosts"])
        made: DeploymentSettings = _made(DeploymentSettings, {**values, "limits": limits}, f"{file}: ")
        return made

    def enrolled(self) -> Enrolment | None:
        """Return what is known of the run's devices; None if it has not begun."""
        if not self.enrolment.is_file():
            return None
        try:
            saved = json.loads(self.enrolment.read_text(encoding="utf-8"))
            parts = [{int(n): _facts(values) for n, values in saved[name].items()} for name in ("devices", "joined")]
            return Enrolment(str(saved["run"]), *parts)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{self.enrolment} is damaged ({error}). Bring back a good copy, or remove it and {self.run} to begin "
                "anew."
            ) from error

    def enrol(self, enrolment: Enrolment) -> None:
        """Write what is known of the run's devices."""
        devices, joined = (
            {str(number): _plain(fact) for number, fact in sorted(facts.items())}
            for facts in (enrolment.devices, enrolment.joined)
        )
        with written(self.enrolment) as file:
            file.write(json.dumps({"run": enrolment.run, "devices": devices, "joined": joined}, indent=1).encode())

    def hooks(self) -> ModuleType:
        """Return the module device.py."""
        file = self.app / "device.py"
        spec = importlib.util.spec_from_file_location("device", file)
        if spec is None or spec.loader is None or not file.is_file():
            raise ConfigError(f"A deployment needs {file}, with load_data(device). Bring it back.")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # whatever the user's own code raises
            raise ConfigError(f"{file} cannot be imported: {type(error).__name__}: {error}. Correct it.") from error
        if not callable(getattr(module, "load_data", None)):
            raise ConfigError(
                f"{file} needs a function load_data(device). Write it, as in the example of a new folder."
            )
        return module


def _made(kind: Any, values: Any, where: str) -> Any:
    """Return settings made of a table; raise ConfigError for unknown keys and wrong values."""
    if not isinstance(values, dict):
        raise ConfigError(f"{where.rstrip('. ')} must be a table.")
    known = [entry.name for entry in dataclasses.fields(kind)]
    if unknown := next((key for key in values if key not in known), None):
        raise ConfigError(f"{where}There is no setting {unknown}.{did_you_mean(unknown, known)}")
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from error
    except TypeError as error:
        raise ConfigError(f"{where}A setting is missing: {error}.") from error


def _plain(facts: DeviceFacts) -> dict[str, Any]:
    counts = None if facts.label_counts is None else facts.label_counts.tolist()
    values = {entry.name: getattr(facts, entry.name) for entry in dataclasses.fields(facts)}
    return {**values, "allows": sorted(facts.allows), "label_counts": counts}


def _facts(values: dict[str, Any]) -> DeviceFacts:
    import numpy as np

    counts = values["label_counts"]
    shapes = {name: tuple(values[name]) for name in ("shape", "target_shape")}
    labels = None if counts is None else np.array(counts, dtype=np.int64)
    return DeviceFacts(**{**values, **shapes, "allows": frozenset(values["allows"]), "label_counts": labels})
