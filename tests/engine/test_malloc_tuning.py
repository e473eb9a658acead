"""An engine on the processor keeps what a step frees for the next one, unless the user has told glibc otherwise."""

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep memory")

STEPS = """
import resource, torch
from turnout.engine import Vectorised
from turnout.engine.vectorised.malloc_tuning import keep_freed_memory

def step():
    held = [torch.ones(1 << 20) for _ in range(6)]

Vectorised("cpu")
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, keep_freed_memory())
"""


def faults(**environment: str) -> tuple[int, str]:
    """Return how many pages were faulted in over twenty steps of 24 MiB, and whether glibc was told to keep memory."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_") and k != "GLIBC_TUNABLES"}
    command = [sys.executable, "-c", STEPS]
    done = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, check=True)
    count, told = done.stdout.split()
    return int(count), told


def test_engine_freed_memory_is_kept_from_step_to_step() -> None:
    kept, told = faults()
    assert told == "True"
    assert kept < 1024


@pytest.mark.parametrize(
    "environment", [{"MALLOC_MMAP_THRESHOLD_": "131072"}, {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"}]
)
def test_contract_what_the_user_told_glibc_stands(environment: dict[str, str]) -> None:
    returned, told = faults(**environment)  # every piece of 4 MiB goes back, and its pages are faulted in again
    assert told == "False"
    assert returned > 20 * 1024
