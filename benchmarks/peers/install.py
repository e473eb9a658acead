"""One virtual environment per peer, with pinned versions, in an order that never pulls a CUDA build of PyTorch."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TORCH = "torch==2.13.0"
TORCHVISION = "torchvision==0.28.0"
NEEDS_COMPILED = ("_autograd_registrations", "_meta_registrations")  # modules that fail without torchvision's C++ part


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What to install, and what to try."""

    name: str
    requirement: str
    torch: bool = True
    torchvision: bool = False
    threads: tuple[int, ...] = (1, 2)  # operation threads to try; the better one counts


PEERS = {
    peer.name: peer
    for peer in (
        Peer(name="fedjax", requirement="fedjax==0.0.17", torch=False, threads=(2,)),  # XLA takes all cores by itself
        Peer(name="flwr", requirement="flwr[simulation]==1.41.0"),  # 1.42.0 wants a certifi that cannot be had
        Peer(name="pfl", requirement="pfl[pytorch]==0.6.0"),
        Peer(name="fluke", requirement="fluke-fl==0.8.1", torchvision=True),
        Peer(name="fedlab", requirement="fedlab==1.3.0", torchvision=True),
        Peer(name="flgo", requirement="flgo==0.4.4", torchvision=True),
    )
}


class InstallError(Exception):
    """A peer that cannot be installed here; the message says why."""


def python_of(venvs: Path, peer: Peer) -> Path:
    """Return the peer's interpreter, installing the peer first if it is not there yet."""
    home = (venvs / peer.name).absolute()
    python, done = home / "bin" / "python", home / "installed.txt"
    if done.exists() and done.read_text() == peer.requirement:
        return python
    venvs.mkdir(parents=True, exist_ok=True)
    (venvs / ".gitignore").write_text("*\n")
    _call([sys.executable, "-m", "venv", "--clear", str(home)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if peer.torch:
        _call([*pip, TORCH])
    if peer.torchvision:  # before the peer and without its dependencies: it would replace PyTorch otherwise
        _call([*pip, TORCHVISION, "--no-deps"])
        _drop_compiled_part(home)
    _call([*pip, peer.requirement])
    _call([str(python), "-c", "import torch, torchvision" if peer.torchvision else "import numpy"])
    done.write_text(peer.requirement)
    return python


def _drop_compiled_part(home: Path) -> None:
    """Let torchvision import beside a CPU build of PyTorch: its compiled operators are not used here."""
    (source,) = home.glob("lib/python*/site-packages/torchvision/__init__.py")
    lines = source.read_text().splitlines(keepends=True)
    source.write_text("".join(line for line in lines if line.strip().rstrip(",") not in NEEDS_COMPILED))


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise InstallError(f"{' '.join(command[1:])}: {said[-1] if said else f'exit code {done.returncode}'}")
