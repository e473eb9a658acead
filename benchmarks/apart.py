"""Competitors in processes of their own, as they would be run: what one asks of memory or threads is not another's.

Each does one thing at a time, when it is told to, so nobody runs beside anybody else.
"""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Protocol


class Competitor(Protocol):
    """A way to do the workload's rounds."""

    def round(self) -> None:
        """Do one round."""

    def loss(self) -> float:
        """Return the training loss of the model so far."""


class Apart:
    """One competitor, made and timed in its own process."""

    def __init__(self, name: str, make: Callable[..., Competitor], *args: object) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, make, args), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.recv()  # it is ready

    def seconds(self, rounds: int) -> float:
        """Return the mean seconds of so many rounds in a row."""
        seconds: float = self.ask("seconds", rounds)
        return seconds

    def ask(self, method: str, *args: object) -> Any:
        """Call a method there and return what it returns."""
        self.pipe.send((method, args))
        return self.pipe.recv()

    def close(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.join()


def _serve(pipe: Connection, make: Callable[..., Competitor], args: tuple[object, ...]) -> None:
    competitor = make(*args)
    pipe.send(None)
    while True:
        try:
            method, given = pipe.recv()
        except EOFError:
            break
        if method == "seconds":
            pipe.send(seconds_a_round(competitor.round, *given))
        else:
            pipe.send(getattr(competitor, method)(*given))


def seconds_a_round(round: Callable[[], object], rounds: int) -> float:
    """Return the mean seconds of so many rounds in a row."""
    start = time.perf_counter()
    for _ in range(rounds):
        round()
    return (time.perf_counter() - start) / rounds
