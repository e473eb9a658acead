"""A server in a thread, a study in another process, and a browser that visits an address."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.support.browser import Browser, Tab
from tests.support.study_texts import SMALL
from turnout.journal.schema import FILE
from turnout.ui import Server

PATIENCE_SECONDS = 120
COMMAND = (sys.executable, "-c", "from turnout.cli import main; main()")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


@contextmanager
def serving(root: Path) -> Iterator[Server]:
    """Serve a folder, at a free port."""
    with Server(root) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: Server, path: str, method: str = "GET", host: str | None = None) -> Answer:
    """Send a request as it is: nothing in the path is tidied up."""
    where = urlsplit(server.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=PATIENCE_SECONDS)
    try:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", where.netloc if host is None else host)
        connection.endheaders()
        found = connection.getresponse()
        return Answer(found.status, dict(found.getheaders()), found.read().decode())
    finally:
        connection.close()


def rows(answer: Answer) -> dict[str, dict[str, Any]]:
    """Return the lines that a list carries, by name."""
    (text,) = re.findall(r"<script type=application/json id=data>(.*?)</script>", answer.text)
    return {row["name"]: row for row in json.loads(text)["rows"]}


def start(folder: Path, out: Path, *settings: str) -> "subprocess.Popen[str]":
    """Start the small study, with other settings, in another process."""
    file = folder / "small.toml"
    file.write_text(SMALL.replace("FedProx", "<script>alert(1)</script>"), encoding="utf-8")
    changes = [part for setting in settings for part in ("--set", setting)]
    return subprocess.Popen(
        [*COMMAND, "run", str(file), "--out", str(out), *changes],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def run(folder: Path, out: Path, *settings: str) -> Path:
    """Run the small study to its end, in another process."""
    process = start(folder, out, *settings)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said
    return out


def linked(study: Path, to: Path) -> None:
    """Put the same journal into another folder, at no cost."""
    to.mkdir()
    os.link(study / FILE, to / FILE)


def wait_for(what: Callable[[], Any]) -> Any:
    """Return the first answer that is not empty."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := what()):
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.05)
    return found


def visit(browser: Browser, address: str, *, width: int = 1400, dark: bool = False) -> Tab:
    """Open an address and wait until its script has run."""
    target = browser.call("Target.createTarget", url="about:blank")["targetId"]
    tab = Tab(browser, browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
    for domain in ("Page", "Runtime", "Log", "Network"):
        tab.call(f"{domain}.enable")
    tab.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    tab.call("Emulation.setEmulatedMedia", features=[scheme])
    tab.call("Page.navigate", url=address)
    wait_for(lambda: is_ready(tab))
    return tab


def is_ready(tab: Tab) -> bool:
    return bool(tab.run("document.documentElement?.dataset.ready === 'yes'"))


def asked_for(browser: Browser) -> list[str]:
    """Return every address that any page of the browser asked for, but for data in the pages."""
    events = [event for event in browser.events if event["method"] == "Network.requestWillBeSent"]
    urls = [event["params"]["request"]["url"] for event in events]
    return [url for url in urls if not url.startswith("data:")]
