"""Wait until other processes leave the machine alone, so that a measurement is of the code. Standard library alone."""

import os
import resource
import time

TICKS = os.sysconf("SC_CLK_TCK")


def machine_seconds() -> float:
    """Return the CPU seconds the whole machine has been busy, or 0 where the system does not say."""
    try:
        with open("/proc/stat") as file:
            user, nice, system, _idle, _wait, *rest = (int(word) for word in file.readline().split()[1:8])
    except OSError:
        return 0.0
    return (user + nice + system + sum(rest)) / TICKS


def own_seconds() -> float:
    """Return the CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def wait_until_quiet(most_others: float = 0.25, longest: float = 10.0, window: float = 0.2) -> bool:
    """Return True once others use less than `most_others` of a core; False when `longest` seconds were not enough."""
    deadline = time.perf_counter() + longest
    while time.perf_counter() < deadline:
        busy, own = machine_seconds(), own_seconds()
        time.sleep(window)
        if machine_seconds() - busy - (own_seconds() - own) < most_others * window:
            return True
    return False
