"""The command `turnout`."""

from turnout.cli.app import main

__all__ = ["main"]
