"""What a deployment is doing: who is connected, who was asked, what came back, how far and why not."""

import json
import time
from typing import Any

from turnout.deploy.folder import Folder
from turnout.deploy.serving import STATUS
from turnout.errors import TurnoutError
from turnout.journal import load


def status(folder: Folder) -> dict[str, Any]:
    """Return the status as plain values."""
    settings = folder.settings()
    found: dict[str, Any] = {"devices": settings.devices, "round": None, "clients": [], "events": []}
    try:
        said = json.loads((folder.path / STATUS).read_text())
        found |= {name: said[name] for name in ("connected", "refused", "error")}
        found["seconds_ago"] = time.time() - said["at"]
    except (OSError, ValueError, LookupError):
        found |= {"connected": [], "seconds_ago": None, "refused": {}, "error": ""}
    try:
        loaded = load(folder.run)
    except TurnoutError:
        return found
    last = loaded.rounds.iloc[-1]
    found |= {"round": int(last["round"]), "rounds": int(loaded.runs.iloc[0]["rounds"])}
    found["finished"] = bool(loaded.finished)
    people = loaded.clients
    rows = people[people["round"] == last["round"]]
    found["clients"] = [
        {
            "client": int(row["client"]),
            "outcome": str(row["outcome"]),
            "asked_steps": int(row["asked_steps"]),
            "local_steps": int(row["local_steps"]),
        }
        for _, row in rows.iterrows()
    ]
    found["events"] = [str(event) for event in last["events"]]
    return found


def as_text(found: dict[str, Any]) -> str:
    """Return the status for a terminal."""
    ago = "never" if found["seconds_ago"] is None else f"{found['seconds_ago']:.0f} s ago"
    lines = [f"connected: {_listed(found['connected'])} of {found['devices']} devices, as the server saw it {ago}"]
    lines += [f"device {number} cannot take part: {reason}" for number, reason in found["refused"].items()]
    lines += [f"stopped: {found['error']}"] if found["error"] else []
    if found["round"] is None:
        return "\n".join([*lines, "no round yet"])
    lines.append(f"round {found['round']} of {found['rounds']}{', finished' if found['finished'] else ''}")
    lines += [
        f"  device {c['client']}: {c['outcome']}, {c['local_steps']} of {c['asked_steps']} steps"
        for c in found["clients"]
    ]
    return "\n".join([*lines, *(f"  {event}" for event in found["events"])])


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
