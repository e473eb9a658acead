"""Progress of `study.run` on standard error: a live table in a terminal, a few lines elsewhere."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console

from turnout.engine import Watch
from turnout.requests import Record
from turnout.study.progress import MISSING, ProgressBoard, live
from turnout.study.study import OnProgress, Study
from turnout.study.user_models import initial_weights_note

QUIET_SECONDS = 2.0  # a shorter study shows nothing
LINE_SECONDS = 5.0  # between two lines
MOST_ARMS = 6  # in one line


@contextmanager
def show_progress(
    study: Study, watch: Watch, where: str, finished: Iterable[tuple[str, int]], started: float, tell: OnProgress | None
) -> Iterator[OnProgress]:
    """Yield a function to call after each round: it shows the progress and then calls `tell`.

    Args:
        study: the study.
        watch: the engine's watch, which reports the current activity.
        where: the engine and the folder, for the title.
        finished: the (arm, seed) of runs that were finished before.
        started: start of the run on the monotonic clock.
        tell: the user's own function, or None.
    """
    console = Console(stderr=True, force_jupyter=False)  # a notebook gets lines, because its stream is no terminal
    note = initial_weights_note(study)
    if note is not None and len(study.all_seeds) > 1:
        console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    board = ProgressBoard(study, where)
    for arm, _ in finished:
        board.skipped, board.finished = board.skipped + board.rounds[arm], board.finished + 1
    after = max(0.0, started + QUIET_SECONDS - time.monotonic())
    with (live if console.is_terminal else lines)(board, console, after) as show:
        watch.tell, watch.advance = board.tell, board.advance

        def on_progress(arm: str, seed: int, record: Record) -> None:
            show(arm, seed, record)
            if tell is not None:
                tell(arm, seed, record)

        yield on_progress


@contextmanager
def lines(board: ProgressBoard, console: Console, after: float = 0.0) -> Iterator[OnProgress]:
    """Print one line every few seconds, the first after a delay in seconds, and one at the end."""
    due_at, is_shown = time.monotonic() + after, False

    def line() -> None:
        console.print(progress_line(board), markup=False, highlight=False, soft_wrap=True)

    def on_progress(arm: str, seed: int, record: Record) -> None:
        nonlocal due_at, is_shown
        board.update(arm, seed, record)
        if time.monotonic() < due_at:
            return
        if not is_shown:
            console.print(board.title, markup=False, highlight=False, soft_wrap=True)
        line()
        due_at, is_shown = time.monotonic() + LINE_SECONDS, True

    yield on_progress
    if is_shown:
        line()


def progress_line(board: ProgressBoard) -> str:
    """Return the progress of all arms in one line: rounds, the last accuracy or loss, and the time left."""
    shown = []
    for arm in list(board.rounds)[:MOST_ARMS]:
        name, round, _, _, _, loss, accuracy, *_ = board.cells(arm)
        shown.append(f"{name} {round} {f'loss {loss}' if accuracy == MISSING else f'acc {accuracy}'}")
    more = f"; {len(board.rounds) - MOST_ARMS} more arms" if len(board.rounds) > MOST_ARMS else ""
    return f"{'; '.join(shown)}{more}   {board.finished} of {board.runs} runs done   {board.time_left} left"
