"""What `turnout resume` does."""

from pathlib import Path

from turnout.cli.run_study import carry_out
from turnout.journal import load
from turnout.study import study_of


def go_on(
    folder: Path, *, allow_code: bool, allow_network: bool, deterministic: bool, accept_changed_data: bool
) -> None:
    """Go on with the study that a folder holds, on the engine it was begun with."""
    held = load(folder).study
    study = study_of(held["config"], str(folder), allow_code=allow_code, allow_network=allow_network)
    engine = str(held["facts"].get("engine", "vectorised"))
    deterministic = deterministic or held["facts"].get("deterministic") is True
    carry_out(study, folder, engine, deterministic=deterministic, accept_changed_data=accept_changed_data)
