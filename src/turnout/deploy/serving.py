"""The server's side of a run: enrol devices, then let turnout's coordinator run the study and write its journal."""

import json
import secrets
import time
from dataclasses import replace
from typing import Any

from turnout.deploy.deployed_study import federation_of, load_deployed_study, server_samples
from turnout.deploy.folder import Enrolment, Folder
from turnout.errors import ConfigError, JournalError, TurnoutError
from turnout.requests import Record
from turnout.safe_files import written
from turnout.study.running import Result, run_study
from turnout.study.study import Study
from turnout.world.deployment import Limits, Mailbox, Transport, deployed

STATUS = "status.json"


def serve(folder: Folder, transport: Transport, *, poll_seconds: float = 0.5, rounds: int | None = None) -> Result:
    """Run a deployment's study on the devices of a transport, from its beginning or from its journal."""
    mailbox = Mailbox(transport, poll_seconds=poll_seconds)
    try:
        try:
            return _serve(folder, mailbox, rounds)
        except JournalError as error:
            raise JournalError(
                f"{error} The output folder of a deployment is {folder.run}: rename it, and the next run begins anew."
            ) from error
    except TurnoutError as error:  # whoever started the run may not see what this process says
        _Status(folder, mailbox, rounds or 0).write(None, str(error))
        raise


def _serve(folder: Folder, mailbox: Mailbox, rounds: int | None) -> Result:
    settings, study = folder.settings(), load_deployed_study(folder.study)
    study = study if rounds is None else replace(study, rounds=min(rounds, study.rounds))
    own = server_samples(folder.hooks())
    enrolment = _enrolled(folder, mailbox, settings.limits, _least(study, settings.devices, settings.limits))
    study = replace(study, data=federation_of(settings.devices, enrolment.devices, own))
    world = deployed(mailbox, settings.limits, enrolment.run, has_test="test" in own)
    tell = _Status(folder, mailbox, study.rounds)
    tell.write(None)
    return run_study(study, out=folder.run, engine="sequential", on_progress=tell, progress=False, world=world)


def _least(study: Study, devices: int, limits: Limits) -> int:
    """Return how many devices must be connected before the first round."""
    return devices if study.fleet.membership is None else (limits.start_with or devices)


def _enrolled(folder: Folder, mailbox: Mailbox, limits: Limits, least: int) -> Enrolment:
    """Return what is known of the run's devices; a run that was begun has it already."""
    known = folder.enrolled()
    if known is not None and folder.run.is_dir():
        mailbox.facts |= known.devices | known.joined
        mailbox.last_seen |= dict.fromkeys(mailbox.facts, mailbox.clock())  # as if just seen: nobody left meanwhile
        return known
    found = mailbox.wait_for(least, limits.wait_seconds)
    if len(found) < least:
        refused = "".join(f" Device {number} {reason}." for number, reason in mailbox.refused.items())
        raise ConfigError(
            f"The first round needs {least} devices; {len(found)} were connected after {limits.wait_seconds:.0f} s."
            f"{refused} Start the others, or lower limits.start_with in deployment.toml."
        )
    enrolment = Enrolment(secrets.token_hex(8), dict(mailbox.facts), {})
    folder.enrol(enrolment)
    return enrolment


class _Status:
    """Writes who is connected and what the last round was, for `turnout deploy status`."""

    def __init__(self, folder: Folder, mailbox: Mailbox, rounds: int) -> None:
        self.folder, self.mailbox, self.rounds = folder, mailbox, rounds

    def __call__(self, arm: str, seed: int, record: Record) -> None:
        """Write the status after a round, and who has joined."""
        self.write(record)
        known = self.folder.enrolled()
        if known is not None and (new := self.mailbox.facts.keys() - known.devices.keys() - known.joined.keys()):
            joined = known.joined | {number: self.mailbox.facts[number] for number in new}
            self.folder.enrol(known._replace(joined=joined))

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
