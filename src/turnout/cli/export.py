"""What `turnout export` does: one run's last model as a safetensors file with PyTorch's names."""

import os
from pathlib import Path

import typer
from safetensors.torch import save
from torch import Tensor

from turnout.errors import ConfigError
from turnout.journal import Loaded, load
from turnout.journal.rebuild_model import told_runs

SUFFIX = ".safetensors"


def export(folder: Path, arm: str | None, seed: int | None, out: Path, *, force: bool) -> None:
    """Write the last model of one run."""
    _check_name(out, force=force)
    loaded = load(folder)
    arm, seed = _chosen(loaded, arm, seed, folder)
    tensors = loaded.state_dict(arm, seed)
    _write(out, tensors)
    numbers = sum(tensor.numel() for tensor in tensors.values())
    typer.echo(f"{out} holds the last model of {arm}, seed {seed}: {len(tensors)} tensors, {numbers:,} numbers.")
    typer.echo(f'In PyTorch: module.load_state_dict(safetensors.torch.load_file("{out}"))')


def _check_name(out: Path, *, force: bool) -> None:
    if out.suffix != SUFFIX:
        raise ConfigError(
            f"export writes {SUFFIX} files, which run no code when they are read; got {out}. "
            f"Write -o {out.with_suffix(SUFFIX)}; torch.save makes another kind of file of what you load from it."
        )
    if out.is_dir():
        raise ConfigError(f"{out} is a folder. Name a file with -o.")
    if out.exists() and not force:
        raise ConfigError(
            f"{out} exists; nothing was changed. Name another file with -o, or overwrite it with --force."
        )


def _chosen(loaded: Loaded, arm: str | None, seed: int | None, folder: Path) -> tuple[str, int]:
    """Return the one finished run that is meant."""
    fits = [run for run in loaded.finished if arm in (None, run[0]) and seed in (None, run[1])]
    if len(fits) != 1:
        which = "several runs that fit" if fits else "no finished run that fits"
        raise ConfigError(f"{folder} holds {which}. Choose one with --arm and --seed. {told_runs(loaded.finished)}")
    return fits[0]


def _write(out: Path, tensors: dict[str, Tensor]) -> None:
    """Write the file under another name first: it is whole or not there."""
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        try:
            aside.write_bytes(save(tensors, {"format": "pt"}))
            os.replace(aside, out)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror or error}. Name another file with -o.") from error
