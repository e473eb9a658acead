"""The live pages: a folder of studies in a browser, updated while they run."""

from turnout.ui.server import Server

__all__ = ["Server"]
