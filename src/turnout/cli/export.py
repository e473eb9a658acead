"""`turnout export`: write a run's last model as a safetensors file with PyTorch's names."""

import os
from pathlib import Path

import typer
from safetensors.torch import save
from torch import Tensor

from turnout.errors import ConfigError
from turnout.journal import Loaded, load
from turnout.journal.rebuild_model import finished_runs_text

SUFFIX = ".safetensors"


def export(
    folder: Path, run: tuple[str | None, int | None], client: tuple[int | None, str | None], out: Path, *, force: bool
) -> None:
    """Write the last model of one run, or that of one of its clients: of an (arm, seed), and a (client, kind)."""
    _check_name(out, force=force)
    loaded = load(folder)
    arm, seed = _select(loaded, *run, folder)
    id, which = client
    last = loaded.last_model(arm, seed)
    tensors = (last if id is None else last.of_client(id, which)).state_dict()
    _write(out, tensors)
    numbers = sum(tensor.numel() for tensor in tensors.values())
    whose = f"{arm}, seed {seed}" if id is None else f"client {id} of {arm}, seed {seed}"
    typer.echo(f"Wrote the last model of {whose}, to {out}: {len(tensors)} tensors, {numbers:,} numbers.")
    if id is not None and (note := last.note(id)) is not None:
        typer.echo(note)
    typer.echo(f'In PyTorch: module.load_state_dict(safetensors.torch.load_file("{out}"))')


def _check_name(out: Path, *, force: bool) -> None:
    if out.suffix != SUFFIX:
        raise ConfigError(
            f"export writes {SUFFIX} files, which run no code when they are loaded; got {out}. "
            f"Write -o {out.with_suffix(SUFFIX)}; to get another format, load that file and use torch.save."
        )
    if out.is_dir():
        raise ConfigError(f"{out} is a folder. Name a file with -o.")
    if out.exists() and not force:
        raise ConfigError(
            f"{out} exists; nothing was changed. Name another file with -o, or overwrite it with --force."
        )


def _select(loaded: Loaded, arm: str | None, seed: int | None, folder: Path) -> tuple[str, int]:
    """Return the one finished run that --arm and --seed select."""
    matches = [run for run in loaded.finished if arm in (None, run[0]) and seed in (None, run[1])]
    if len(matches) != 1:
        which = "several runs that match" if matches else "no finished run that matches"
        raise ConfigError(
            f"{folder} holds {which}. Choose one with --arm and --seed. {finished_runs_text(loaded.finished)}"
        )
    return matches[0]


def _write(out: Path, tensors: dict[str, Tensor]) -> None:
    """Write the file under another name first, so that it is complete or absent."""
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        try:
            aside.write_bytes(save(tensors, {"format": "pt"}))
            os.replace(aside, out)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror or error}. Name another file with -o.") from error
