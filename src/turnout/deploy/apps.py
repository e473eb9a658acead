"""The two Flower apps of a deployment: the ServerApp runs the coordinator, the ClientApp is one device."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnout.data.federation import as_samples
from turnout.deploy.deployed_study import load_deployed_study
from turnout.deploy.folder import Folder
from turnout.engine import Task
from turnout.errors import ConfigError
from turnout.models.user_modules import build_module
from turnout.streams import Streams
from turnout.study.task_parts import loss_of, num_outputs
from turnout.world.deployment import Device
from turnout.world.deployment.device_samples import own_federation


def server_app() -> Any:
    """Return the ServerApp; the run's configuration names the deployment's folder."""
    from flwr.serverapp import ServerApp

    from turnout.deploy.credentials import public_pem
    from turnout.deploy.serving import serve
    from turnout.world.deployment.flower_grid import FlowerGrid

    app = ServerApp()

    def main(grid: Any, context: Any) -> None:
        folder = Folder(Path(str(context.run_config["folder"])))
        devices = range(folder.settings().devices)
        keys = {public_pem(folder.public_key(number)): number for number in devices}
        serve(folder, FlowerGrid(grid, keys))

    app.main()(main)
    return app


def client_app(load_data: Callable[[int], Any], study: Path) -> Any:
    """Return the ClientApp of a device; the SuperNode's own configuration says which, and what it allows."""
    from flwr.app import Message
    from flwr.clientapp import ClientApp

    from turnout.world.deployment.flower_grid import from_record, to_record
    from turnout.world.deployment.parcel import BadParcelError, refusal

    app = ClientApp()

    def answer(message: Any, context: Any) -> Any:
        config = context.node_config
        try:
            number, folder = int(config["device"]), Path(str(config["state"]))
            allows = str(config.get("allow", "")).split(",") if config.get("allow") else ()
            device = make_device(load_data, study, number, folder, [kind.strip() for kind in allows])
            reply = device.answer(from_record(message.content))
        except (BadParcelError, ConfigError, KeyError) as error:
            reply = refusal(f"{error}")
        return Message(to_record(reply), reply_to=message)

    app.query("turnout")(answer)
    return app


def make_device(load_data: Callable[[int], Any], study: Path, number: int, folder: Path, allows: Any) -> Device:
    """Return a device with what the user's load_data gives it."""
    given = load_data(number)
    if not isinstance(given, dict) or "train" not in given or set(given) - {"train", "holdout", "num_classes"}:
        raise ConfigError(
            'load_data(device) in device.py must return a table with "train" = (x, y), and may add "holdout" = (x, y) '
            'and "num_classes".'
        )
    holdout = given.get("holdout")
    samples = as_samples(given["train"], "The device's")
    held = None if holdout is None else as_samples(holdout, "The device's hold-out")
    federation = own_federation(samples, held, given.get("num_classes"))
    plan = load_deployed_study(study)
    generator = Streams(plan.all_seeds[0]).torch_generator("init")
    module = build_module(plan.model, federation.example_shape, num_outputs(federation), generator)
    task = Task(federation=federation, module=module, loss=loss_of(plan, federation))
    return Device(task, plan.plan.local, folder, allows)
