"""A browser driven over a pipe with the DevTools protocol: nothing to install but the browser itself."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
PATIENCE_SECONDS = 60


def browser_path() -> str | None:
    """Return a browser on the path; None if there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One headless browser; use it in a `with` block."""

    def __init__(self, path: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="turnout-browser-")
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        sandbox = [] if os.geteuid() else ["--no-sandbox"]
        command = [path, *FLAGS, *sandbox, f"--user-data-dir={self._profile}", "about:blank"]
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (to_child, from_child)]  # clear of 3 and 4
        self._process = subprocess.Popen(
            command,
            close_fds=False,  # every other end is closed on exec
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: [os.dup2(end, number) for end, number in zip(ends, (3, 4), strict=True)],
        )
        for end in (to_child, from_child, *ends):
            os.close(end)
        self._rest = b""
        self._last = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Ask the browser something and return its answer; what it says meanwhile goes to `events`."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self._next(until)
            if found.get("id") == self._last:
                assert "error" not in found, found["error"]
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self._read, 1 << 16)
            assert more, "the browser has gone"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, file: Path, *, width: int = 1400, dark: bool = False) -> "Tab":
        """Open a page and wait until its script has run."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        tab.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.call("Emulation.setEmulatedMedia", features=[scheme])
        tab.call("Page.navigate", url=file.absolute().as_uri())
        until = time.monotonic() + PATIENCE_SECONDS
        while tab.run("document.documentElement?.dataset.ready") != "yes":
            assert time.monotonic() < until, f"the page is not ready: {tab.complaints()}"
        return tab


class Tab:
    """One page in the browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask something of this page."""
        return self._browser.call(method, self._session, **params)

    def run(self, script: str) -> Any:
        """Return the value of an expression on the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def choose(self, picture: str, part: str, value: str) -> None:
        """Choose an entry of a list, as a reader would."""
        box = f"document.querySelector('[data-picture={picture}] [data-part={part}]')"
        self.run(f"{{ const c = {box}; c.value = '{value}'; c.dispatchEvent(new Event('change')); }}")

    def complaints(self) -> list[str]:
        """Return everything the console was told, and every exception."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self._mine() if event["method"] in kinds]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for, but for the page itself and data in it."""
        asked = [event["params"]["request"]["url"] for event in self._mine() if "requestWillBeSent" in event["method"]]
        return [url for url in asked if not url.startswith("data:") and not url.endswith(".html")]

    def _mine(self) -> list[dict[str, Any]]:
        return [event for event in self._browser.events if event.get("sessionId") == self._session]
