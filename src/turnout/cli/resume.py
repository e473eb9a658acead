"""What `turnout resume` does."""

from pathlib import Path

from turnout.cli.carrying_out import carry_out
from turnout.journal import load
from turnout.study import study_of


def go_on(folder: Path, *, allow_code: bool) -> None:
    """Go on with the study that a folder holds, on the engine it was begun with."""
    held = load(folder).study
    study = study_of(held["config"], str(folder), allow_code=allow_code)
    carry_out(study, folder, str(held["facts"].get("engine", "vectorised")))
