"""The live page: a folder of studies in a browser, while they run."""

from turnout.ui.server import Server

__all__ = ["Server"]
