"""A server of processes: it has imported turnout, and forks one process per line it reads, to be killed by others.

Each process runs the command as `turnout` does. It may be told to end itself with SIGKILL around the n-th call of a
system function: that is how a kill lands inside the writing of a checkpoint.
"""

import json
import os
import pkgutil
import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def die_at(point: str, number: int) -> None:
    """Let this process kill itself around the n-th call of os.fsync, or of os.replace or Path.unlink on tensors."""
    when, _, name = point.partition(" ")
    owner: Any = {"fsync": os, "replace": os, "unlink": Path}[name]
    real: Callable[..., Any] = getattr(owner, name)
    left = number

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        if name != "fsync" and ".safetensors" not in str(arguments[0]):
            return real(*arguments, **named)
        left -= 1
        if left == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **named)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, counted)


def child(order: dict[str, Any]) -> None:
    """Run the command in this process, and end it."""
    from turnout.cli import main

    out = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(order["folder"])
    if order["limit"] is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (order["limit"], order["limit"]))
    if order["die"] is not None:
        die_at(*order["die"])
    try:
        main(order["arguments"])
    except SystemExit as left:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(left.code or 0))
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


EXTRAS = ("flwr", "ray", "cryptography")  # packages of extras, which need not be installed


def import_everything() -> None:
    """Import what any command imports when it needs it, so that no process has to."""
    import sklearn.datasets  # noqa: F401

    import turnout

    for module in pkgutil.walk_packages(turnout.__path__, "turnout."):
        if module.name.endswith("__main__"):
            continue
        try:
            import_module(module.name)
        except ModuleNotFoundError as missing:
            if missing.name is None or missing.name.partition(".")[0] not in EXTRAS:
                raise
    assert threading.active_count() == 1, "a process with threads cannot be forked safely"


def serve() -> None:
    """Fork a process for each line of standard input; tell its id, and how it ended."""
    import_everything()
    print("ready", flush=True)
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            child(json.loads(line))
        print(process, flush=True)
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)  # its id stays taken until the next line is read
        _ = sys.stdin.readline()
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
