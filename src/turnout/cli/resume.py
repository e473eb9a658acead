"""`turnout resume`."""

from pathlib import Path

from turnout.cli.run_study import carry_out
from turnout.journal import load
from turnout.study import study_of


def resume_study(
    folder: Path,
    *,
    address: str | None,
    allow_code: bool,
    allow_network: bool,
    deterministic: bool,
    accept_changed_data: bool,
) -> None:
    """Resume the study in a folder, on the engine that it was started with."""
    study_facts = load(folder).study
    study = study_of(study_facts["config"], str(folder), allow_code=allow_code, allow_network=allow_network)
    engine = str(study_facts["facts"].get("engine", "vectorised"))
    deterministic = deterministic or study_facts["facts"].get("deterministic") is True
    how = {"deterministic": deterministic, "accept_changed_data": accept_changed_data}
    carry_out(study, folder, engine, address=address, **how)
