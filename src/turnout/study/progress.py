"""Progress of a study: a live table in a terminal, a few aligned lines elsewhere.

The title and the current activity are shown at once: loading data and the first evaluation may take minutes.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from turnout.requests import Record
from turnout.study.study import OnProgress, Study

MOST_LINES = 20
MEGABYTE = 1e6
MISSING = "–"
HEADINGS = ("arm", "round", "up", "asked", "answered", "loss", "acc", "MB", "left")
BAR_WIDTH = 30
PAUSE_SECONDS = 0.25  # between two updates of the live table


@dataclass(slots=True)
class RunProgress:
    """The latest values of one run."""

    round: int = 0
    up: int = 0
    asked: int = 0
    answered: int = 0
    loss: float | None = None
    accuracy: float | None = None
    bytes: int = 0

    def take(self, record: Record) -> None:
        """Update the values; what a round did not measure stays the same."""
        self.round, self.up, self.asked = record.round, len(record.up), len(record.asked)
        self.answered = len(record.answered)
        self.loss = record.metrics.get("loss", self.loss)
        self.accuracy = record.metrics.get("accuracy", self.accuracy)
        self.bytes += record.costs.bytes_down + record.costs.bytes_up


class ProgressBoard:
    """The progress of all runs: one line per arm, with means over the running seeds."""

    def __init__(self, study: Study, where: str) -> None:
        versions = study.versions()
        self.rounds = {arm: version.rounds for arm, version in versions.items()}
        self.seeds = len(study.looks[0])
        self._looks, self._seeds_text = study.looks, study.seeds_text
        self.runs = len(versions) * self.seeds
        self.finished = 0
        self.skipped = 0  # rounds that were finished before
        self.started: float | None = None
        self.last_round = 0
        self.tell: Callable[[str], None] = _say_nothing  # called with the current activity; a view sets it
        self.advance: Callable[[float], None] = _show_nothing  # called with the finished share of the activity
        self._name, self._where = study.name, where
        self._done = 0
        self._is_first_group = True
        self._seen: dict[tuple[str, int], RunProgress] = {}

    @property
    def title(self) -> str:
        """The study, its arms, seeds and rounds, in one line."""
        arms = f"{len(self.rounds)} arm{'s'[: len(self.rounds) > 1]} x {self._seeds_text}"
        counts = sorted(set(self.rounds.values()))
        rounds = "-".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        return f"{self._name}   {arms}   {rounds} rounds   {self._where}"

    def update(self, arm: str, seed: int, record: Record) -> None:
        """Update the progress with one round of one run."""
        if self.started is None:
            self.started = time.monotonic()
        if (arm, seed) not in self._seen:
            self.skipped += max(record.round - 1, 0)  # resumed from a checkpoint
            unfinished = {key: seen for key, seen in self._seen.items() if seen.round < self.rounds[key[0]]}
            if (
                len(unfinished) < len(self._seen) and record.round != self.last_round
            ):  # a new group of seeds: ended runs leave the means
                self._seen, self._is_first_group = unfinished, False
            self._count_seeds(seed)
        self.last_round = record.round
        seen = self._seen.setdefault((arm, seed), RunProgress())
        seen.take(record)
        self._done += record.round > 0
        if record.finished:
            self.finished += 1

    def _count_seeds(self, seed: int) -> None:
        """Count with the seeds of the first look that has this seed, because looks add seeds."""
        known = next((len(look) for look in self._looks if seed in look), self.seeds)
        self.seeds = max(self.seeds, known)
        self.runs = len(self.rounds) * self.seeds

    def is_due(self, arm: str, round: int) -> bool:
        """Whether the plain view prints a line for this round; later groups of seeds get one line, at their end."""
        rounds = self.rounds[arm]
        if not self._is_first_group or round == rounds:
            return round == rounds
        lines = max(1, MOST_LINES // len(self.rounds))
        return round > 0 and (round == 1 or (round - 1) * lines // rounds > (round - 2) * lines // rounds)

    @property
    def time_left(self) -> str:
        """The estimated time for the remaining rounds."""
        total = sum(self.rounds.values()) * self.seeds - self.skipped
        if self.started is None or self._done == 0:
            return MISSING
        return duration((time.monotonic() - self.started) * (total - self._done) / self._done)

    def cells(self, arm: str) -> list[str]:
        """Return the cells of an arm's line."""
        runs = [seen for (name, _), seen in self._seen.items() if name == arm] or [RunProgress()]
        return [
            arm,
            f"{max(seen.round for seen in runs)}/{self.rounds[arm]}",
            *(f"{fmean(getattr(seen, name) for seen in runs):.0f}" for name in ("up", "asked", "answered")),
            _mean([seen.loss for seen in runs], 4),
            _mean([seen.accuracy for seen in runs], 3),
            f"{fmean(seen.bytes for seen in runs) / MEGABYTE:.1f}",
            self.time_left,
        ]


def _say_nothing(what: str) -> None:
    pass


def _show_nothing(share: float) -> None:
    pass


def _mean(values: list[float | None], digits: int) -> str:
    known = [value for value in values if value is not None]
    return f"{fmean(known):.{digits}f}" if known else MISSING


@contextmanager
def live(board: ProgressBoard, console: Console, after: float = 0.0) -> Iterator[OnProgress]:
    """Show the current activity and a table that is updated in place, after a delay in seconds."""
    spinner, drawn_at, due_at = Spinner("dots"), -PAUSE_SECONDS, time.monotonic() + after
    bar, doing = ProgressBar(total=1.0, width=BAR_WIDTH, pulse=True), Table.grid(padding=(0, 2))
    doing.add_row(spinner, bar)
    screen = Live(Group(Text(board.title), doing), console=console)  # the spinner and the bar are animated

    def tell(what: str) -> None:
        spinner.update(text=what)
        bar.pulse = True  # until the finished share is known

    def advance(share: float) -> None:
        bar.pulse = False
        bar.update(completed=share)

    with _started(screen, after):
        board.tell, board.advance = tell, advance

        def on_progress(arm: str, seed: int, record: Record) -> None:
            nonlocal drawn_at
            board.update(arm, seed, record)
            if time.monotonic() >= due_at:
                screen.start()
            if time.monotonic() - drawn_at >= PAUSE_SECONDS:
                screen.update(Group(_table(board), doing))
                drawn_at = time.monotonic()

        try:
            yield on_progress
        finally:
            screen.update(_table(board) if board.started else Text(board.title))


@contextmanager
def _started(screen: Live, after: float) -> Iterator[None]:
    """Start the screen after a delay in seconds; a study that ends before shows nothing."""
    timer = threading.Timer(after, screen.start, [True])
    timer.daemon = True
    try:
        if after > 0:
            timer.start()
        else:
            screen.start(refresh=True)
        yield
    finally:
        timer.cancel()
        if timer.is_alive():
            timer.join()
        screen.stop()


def _table(board: ProgressBoard) -> Table:
    table = Table(title=board.title, title_justify="left", box=None, pad_edge=False)
    for place, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if place == 0 else "right")
    for arm in board.rounds:
        table.add_row(*board.cells(arm))
    return table


@contextmanager
def plain(board: ProgressBoard, console: Console) -> Iterator[OnProgress]:
    """Print the title and the activity until the first round ends, then a heading and about twenty lines."""
    width = max(map(len, (*board.rounds, HEADINGS[0])))
    reported: list[str] = []  # arms with a line to print for this round
    printed: set[str] = set()  # activities before the first round ended
    has_lines = False

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    def tell(what: str) -> None:
        if what not in printed and board.last_round == 0:
            printed.add(what)
            say(what)

    def line(cells: Sequence[str]) -> str:
        return f"{cells[0]:{width}}  {cells[1]:>9}" + "".join(f"{cell:>10}" for cell in cells[2:])

    def flush() -> None:
        nonlocal has_lines
        if reported and not has_lines:
            has_lines = True
            say(line(HEADINGS))
        for arm in reported:
            say(line(board.cells(arm)))
        reported.clear()

    def on_progress(arm: str, seed: int, record: Record) -> None:
        if record.round != board.last_round:
            flush()
        board.update(arm, seed, record)
        if arm not in reported and board.is_due(arm, record.round):
            reported.append(arm)

    say(board.title)
    board.tell = tell
    yield on_progress
    flush()


def duration(seconds: float) -> str:
    """Return a duration as text: 42 s, 3m 05s, 2h 10m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}m {rest:02d}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60:02d}m"
