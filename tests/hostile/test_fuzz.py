"""Every reader of strangers' bytes, fed with damaged files: a result or a TurnoutError, and nothing else.

`benchmarks/fuzz.py` does the same for minutes, steered by coverage; what it found is in `found/` and read here again.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.damaged_files import SLOW, damaged, outcome
from tests.support.untrusted_readers import GOOD, READERS
from turnout.errors import TurnoutError

QUICK = [name for name in READERS if name not in SLOW]
FOUND = sorted(path for path in (Path(__file__).parent / "found").glob("*/*") if path.is_file())


@pytest.mark.parametrize("name", READERS)
def test_contract_the_files_that_are_damaged_are_good_ones(name: str, tmp_path: Path) -> None:
    for data in GOOD[name]:
        assert not isinstance(outcome(name, data, tmp_path), TurnoutError)


def times(count: int) -> settings:
    """Settings for a test that is given so many files, in one folder."""
    mixed = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
    return settings(max_examples=count, suppress_health_check=mixed)


@pytest.mark.parametrize("name", QUICK)
@given(chooser=st.data())
@times(60)
def test_property_a_damaged_file_is_read_or_refused(name: str, tmp_path: Path, chooser: st.DataObject) -> None:
    outcome(name, chooser.draw(damaged(name)), tmp_path)


@pytest.mark.parametrize("name", SLOW)
@given(chooser=st.data())
@times(10)
def test_property_a_damaged_journal_is_shown_or_refused(name: str, tmp_path: Path, chooser: st.DataObject) -> None:
    outcome(name, chooser.draw(damaged(name)), tmp_path)


@pytest.mark.parametrize("name", QUICK)
@given(data=st.binary(max_size=200))
@times(25)
def test_property_any_bytes_are_read_or_refused(name: str, tmp_path: Path, data: bytes) -> None:
    outcome(name, data, tmp_path)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_contract_what_was_once_found_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    outcome(path.parent.name, path.read_bytes(), tmp_path)
