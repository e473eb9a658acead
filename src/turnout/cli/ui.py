"""What `turnout ui` does."""

import ipaddress
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.error_messages import said_plainly

PORT = 8018


def ui(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="a folder of runs")] = Path("runs"),
    host: Annotated[str, typer.Option("--host", help="the address to listen at")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="the port; 0 finds a free one")] = PORT,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="open the page in a browser")] = False,
) -> None:
    """Show a folder of runs in a browser, while they run; Ctrl-C ends it."""
    from turnout.ui import Server

    with said_plainly(), Server(folder, host, port) as server:
        if not _is_loopback(str(server.server_address[0])):
            typer.echo(f"note: whoever reaches this machine at {host} can read what is below {folder}", err=True)
        typer.echo(f"{folder} is at {server.url} until Ctrl-C")
        if open_page:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("stopped", err=True)


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
