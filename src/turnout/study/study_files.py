"""The study files that come with turnout."""

from importlib import resources
from pathlib import Path


def shipped_studies() -> dict[str, Path]:
    """Return the files of the shipped studies by name."""
    folder = Path(str(resources.files("turnout.study") / "shipped"))
    return {file.stem: file for file in sorted(folder.glob("*.toml"))}
