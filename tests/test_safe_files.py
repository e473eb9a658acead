"""Files in a stranger's folder are created, never opened: a link that appears at the last moment is not followed."""

import os
from pathlib import Path

import pytest

from turnout.safe_files import ASIDE, written


def plant(aside: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a link in the place of a temporary file right after it was looked at."""
    looked = os.path.lexists

    def look(path: Path) -> bool:
        found = looked(path)
        if path == aside and not found:
            aside.symlink_to(target)
        return found

    monkeypatch.setattr(os.path, "lexists", look)


@pytest.mark.parametrize("name", ["precious.txt", "not-there.txt"])
@pytest.mark.parametrize("was_left", [False, True], ids=["free", "left by a killed process"])
def test_contract_a_link_that_takes_the_place_of_a_temporary_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, was_left: bool
) -> None:
    path, mine = tmp_path / "theirs" / "0-1.safetensors", tmp_path / "mine"
    aside = path.with_name(path.name + ASIDE)
    path.parent.mkdir()
    mine.mkdir()
    (mine / "precious.txt").write_text("precious")
    if was_left:
        aside.write_text("half")
        unlink = Path.unlink
        monkeypatch.setattr(Path, "unlink", lambda file: (unlink(file), file.symlink_to(mine / name)))
    else:
        plant(aside, mine / name, monkeypatch)
    with pytest.raises(FileExistsError), written(path) as file:
        file.write(b"ours")
    assert not path.exists()
    assert {each.name: each.read_text() for each in mine.iterdir()} == {"precious.txt": "precious"}


def test_contract_a_link_left_under_a_temporary_name_is_removed_and_its_target_kept(tmp_path: Path) -> None:
    path, target = tmp_path / "0-1.safetensors", tmp_path / "precious.txt"
    target.write_text("precious")
    path.with_name(path.name + ASIDE).symlink_to(target)
    with written(path) as file:
        file.write(b"ours")
    assert (path.read_bytes(), target.read_text()) == (b"ours", "precious")
    assert not path.is_symlink()
