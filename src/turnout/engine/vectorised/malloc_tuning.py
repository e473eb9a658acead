"""Freed memory, kept for the next step.

A training step takes some megabytes for activations and gradients and gives them back, and the next takes them again.
glibc, left alone, returns large pieces to the system at once, and every page is then faulted in anew at every step:
a fifth of the time of a recurrent network, a tenth of a convolutional one's. So it is told to keep some. That holds
for the whole process; who has told glibc something by the environment is left alone.
"""

import ctypes
import os
import sys
from functools import lru_cache

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # glibc's names for them, in malloc.h
KEPT = {
    MMAP_THRESHOLD: 32 << 20,  # bytes: larger pieces are the system's own, and go back when they are freed
    TRIM_THRESHOLD: 256 << 20,  # so much may lie unused at the end of a heap
    TOP_PAD: 64 << 20,  # so much more is asked for when a heap grows, and none of it touched before it is used
}


@lru_cache(maxsize=1)
def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory, once; return whether it was told."""
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    if "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return all(mallopt(name, value) == 1 for name, value in KEPT.items())
