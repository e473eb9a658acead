"""The server of the live pages, for browsers on this machine. It answers GET and HEAD only, and writes nothing."""

import errno
import ipaddress
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from turnout import number_format
from turnout.errors import ConfigError, TurnoutError
from turnout.ui.events import Source
from turnout.ui.find_journals import stamp_of
from turnout.ui.journal_watch import Watcher
from turnout.ui.pages import Page, list_page, live_page, message_page, report_page
from turnout.ui.single_flight import Once
from turnout.ui.study_cache import CachedStudy, StudyCache
from turnout.ui.study_summary import RUNNING, UNREADABLE
from turnout.untrusted_input import in_brief

MOST_SELECTED = 30  # studies on one page
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)  # handles or memory have run out
PAUSE_SECONDS = 0.5  # until a handle may be free again
PATIENCE_SECONDS = 60  # for a browser that does not take what it is sent
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Server(ThreadingHTTPServer):
    """Serves the studies below one folder; use it in a `with` block, and call `serve_forever`."""

    daemon_threads = True

    def __init__(self, root: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        if not root.is_dir():
            raise ConfigError(f"There is no folder {root}. Name a folder that holds runs, such as runs.")
        self.cache = StudyCache(root)
        self.watcher = Watcher(self.cache)
        self.source = Source(self.cache, self.watcher, secrets.token_hex(4))
        self._reports: Once[Page] = Once(4)
        self._names = {"localhost", host.lower(), socket.gethostname().lower()}
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"Nothing can be served at {host}, port {port}: {error}. Choose another with --host or --port; "
                "--port 0 finds a free one."
            ) from error
        self.watcher.start()

    def server_bind(self) -> None:
        """Take the port; unlike the parent's, ask no name server who we are."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    @property
    def url(self) -> str:
        """Where the list is."""
        host, port = self.server_address[:2]
        return f"http://[{host!s}]:{port}/" if self.address_family == socket.AF_INET6 else f"http://{host!s}:{port}/"

    def server_close(self) -> None:
        """Free the port, and end all connections."""
        super().server_close()
        self.watcher.stop()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept the next connection; wait if file handles ran out, because it would be retried at once."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in NO_ROOM:
                time.sleep(PAUSE_SECONDS)
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error, unless a browser just closed its connection."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def knows(self, host: str) -> bool:
        """Return whether a request's host name is this server's; another name may be a DNS rebinding attack."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)  # a name can be made to point here, an address cannot
        except ValueError:
            return name in self._names
        return True

    def index(self) -> Page:
        """Return the list as it is now."""
        self.cache.refresh()
        count, lines = self.cache.lines()
        return list_page(self.cache.root, self.source.since(count), lines.values())

    def show(self, names: list[str]) -> Page:
        """Return the page of a running study, or the report of one or several studies."""
        self.cache.refresh()
        found: list[CachedStudy] = []
        for name in dict.fromkeys(names):
            kept = self.cache.get(name)
            if kept is None:
                return message_page(f"There is no run called {name} here.", 404)
            if kept.summary.state == UNREADABLE:
                return message_page(f"{name} cannot be read: {kept.summary.problem}", 500)
            found.append(kept)
        if not 1 <= len(found) <= MOST_SELECTED:
            count = number_format.number(len(found))
            wanted = f"A page shows 1 to {MOST_SELECTED} runs; got {count}. Select at least one and at most that many."
            return message_page(wanted, 400)
        if len(found) == 1 and found[0].summary.state == RUNNING:
            line = found[0].summary
            return live_page(line, self.source.live_study(line))
        key = tuple((kept.folder, stamp_of(kept.folder)) for kept in found)
        return self._reports.get(key, lambda: report_page([kept.folder for kept in found]))


class Handler(BaseHTTPRequestHandler):
    """Answers one browser."""

    server: Server
    timeout = PATIENCE_SECONDS
    server_version, sys_version = "turnout", ""
    error_message_format, error_content_type = "%(code)d: %(message)s\n", "text/plain; charset=utf-8"

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def do_GET(self) -> None:
        """Answer with a page or with events."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not self.server.knows(hosts[0]):
            self.send_error(403, "This is not the host that was asked for")
            return
        asked = urlsplit(self.path)
        query = parse_qs(asked.query, keep_blank_values=True)
        if asked.path == "/events":
            names = query.get("run")
            source = self.server.source
            self._send_events(source.of_study(names[0]) if names else source.of_list(query.get("since", [""])[0]))
        else:
            self._send(self._page(asked.path, query.get("run", [])))

    do_HEAD = do_GET  # noqa: N815

    def _page(self, path: str, names: list[str]) -> Page:
        try:
            if path == "/":
                return self.server.index()
            if path == "/show":
                return self.server.show(names)
        except TurnoutError as error:
            return message_page(str(error), 500)
        except Exception as error:  # of one page: the others go on
            return message_page(f"This cannot be shown ({in_brief(error)}). Go back to all runs.", 500)
        return message_page("There is no such page.", 404)

    def _send(self, page: Page) -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Content-Security-Policy", page.policy)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(page.body)

    def _send_events(self, events: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()
        if self.command == "GET":
            for message in events:
                self.wfile.write(message)

    def _refuse(self) -> None:
        self.send_error(405, "Only GET and HEAD are allowed: this server is read-only")

    def end_headers(self) -> None:
        """Add what every answer carries."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet: the terminal belongs to the user."""
