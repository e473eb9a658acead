"""The server's side of a run: enrol devices, then let turnout's coordinator run the study and write its journal."""

import json
import secrets
import time
from dataclasses import replace
from typing import Any

from turnout.deploy.deployed_study import federation_of, load_deployed_study, server_samples
from turnout.deploy.folder import Folder
from turnout.errors import ConfigError, TurnoutError
from turnout.requests import Record
from turnout.safe_files import written
from turnout.study.running import Result, run_study
from turnout.study.study import Study
from turnout.world.deployment import DeviceFacts, Limits, Mailbox, Transport, deployed

STATUS = "status.json"


def serve(folder: Folder, transport: Transport, *, poll_seconds: float = 0.5, rounds: int | None = None) -> Result:
    """Run a deployment's study on the devices of a transport, from its beginning or from its journal."""
    mailbox = Mailbox(transport, poll_seconds=poll_seconds)
    try:
        return _serve(folder, mailbox, rounds)
    except TurnoutError as error:  # whoever started the run may not see what this process says
        _Status(folder, mailbox, rounds or 0).write(None, str(error))
        raise


def _serve(folder: Folder, mailbox: Mailbox, rounds: int | None) -> Result:
    settings, study = folder.settings(), load_deployed_study(folder.study)
    study = study if rounds is None else replace(study, rounds=min(rounds, study.rounds))
    own = server_samples(folder.hooks())
    run, facts = _enrolled(folder, mailbox, settings.limits, _least(study, settings.devices, settings.limits))
    study = replace(study, data=federation_of(settings.devices, facts, own))
    world = deployed(mailbox, settings.limits, run, has_test="test" in own)
    tell = _Status(folder, mailbox, study.rounds)
    tell.write(None)
    return run_study(study, out=folder.run, engine="sequential", on_progress=tell, progress=False, world=world)


def _least(study: Study, devices: int, limits: Limits) -> int:
    """Return how many devices must be connected before the first round."""
    return devices if study.fleet.membership is None else (limits.start_with or devices)


def _enrolled(folder: Folder, mailbox: Mailbox, limits: Limits, least: int) -> tuple[str, dict[int, DeviceFacts]]:
    """Return the run's name and its devices; a run that was begun has both already."""
    known = folder.enrolled()
    if known is not None and folder.run.is_dir():
        mailbox.facts |= known[1]
        mailbox.last_seen |= dict.fromkeys(known[1], mailbox.clock())  # as if just seen: nobody left while it was off
        return known
    found = mailbox.wait_for(least, limits.wait_seconds)
    if len(found) < least:
        refused = "".join(f" Device {number} {reason}." for number, reason in mailbox.refused.items())
        raise ConfigError(
            f"The first round needs {least} devices; {len(found)} were connected after {limits.wait_seconds:.0f} s."
            f"{refused} Start the others, or lower limits.start_with in deployment.toml."
        )
    run = secrets.token_hex(8)
    folder.enrol(run, mailbox.facts)
    return run, dict(mailbox.facts)


class _Status:
    """Writes who is connected and what the last round was, for `turnout deploy status`."""

    def __init__(self, folder: Folder, mailbox: Mailbox, rounds: int) -> None:
        self.folder, self.mailbox, self.rounds = folder, mailbox, rounds

    def __call__(self, arm: str, seed: int, record: Record) -> None:
        """Write the status after a round."""
        self.write(record)

    def write(self, record: Record | None, error: str = "") -> None:
        """Write the status."""
        values: dict[str, Any] = {
            "at": time.time(),
            "error": error,
            "round": 0 if record is None else record.round,
            "rounds": self.rounds,
            "connected": self.mailbox.connected(),
            "busy": sorted(self.mailbox.busy()),
            "refused": {str(number): reason for number, reason in self.mailbox.refused.items()},
        }
        with written(self.folder.path / STATUS) as file:
            file.write(json.dumps(values).encode())
