"""One server of processes for all tests of faults: it imports turnout once."""

from collections.abc import Iterator

import pytest

from tests.support.fault_injection import Turnout, turnouts


@pytest.fixture(scope="session")
def turnout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Turnout]:
    with turnouts(tmp_path_factory.mktemp("faults")) as server:
        yield server
