"""`turnout ui`."""

import ipaddress
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.error_messages import clear_errors

PORT = 8018


def ui(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="the folder with the runs")] = Path("runs"),
    host: Annotated[str, typer.Option("--host", help="the address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="the port; 0 picks a free one")] = PORT,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="open the page in a browser")] = False,
) -> None:
    """Serve live pages of a folder of runs to a browser; Ctrl-C stops it."""
    from turnout.ui import Server

    with clear_errors(), Server(folder, host, port) as server:
        if not _is_loopback(str(server.server_address[0])):
            typer.echo(f"note: anyone who can reach this machine at {host} can read the runs below {folder}", err=True)
        typer.echo(f"serving {folder} at {server.url}; press Ctrl-C to stop")
        if open_page:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("stopped", err=True)


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
