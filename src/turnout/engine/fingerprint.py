"""What decides the last bits of a result: the software, the processor, and how many threads an operation uses."""

import platform
from importlib.metadata import version
from typing import Any

import torch

from turnout.engine.vectorised.autotune import cores, processor


def machine_fingerprint(device: torch.device) -> dict[str, Any]:
    """Return the device, the versions and the machine, as plain values."""
    versions = {name: version(name) for name in ("turnout", "torch", "numpy")}
    return {
        "device": str(device),
        "versions": {"python": platform.python_version(), **versions},
        "machine": {
            "system": platform.platform(),
            "processor": processor(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "cores": cores(),  # that this process may use
            "threads": torch.get_num_threads(),  # of one operation
        },
    }
