"""Fleets in which nobody ever comes, at the command: the run ends normally and says so; and what check refuses."""

import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

from tests.support.command import Turnout
from turnout.cli import main
from turnout.cli.run_study import carry_out
from turnout.coordinator.records import NOBODY_EVER
from turnout.data.federation import from_clients
from turnout.fleet import Bernoulli, Fleet
from turnout.journal import load
from turnout.local import SGD
from turnout.models import Softmax
from turnout.study import Study

STUDY = """
    name = "quiet"
    rounds = 3
    seeds = 2

    [data]
    use = "digits"
    clients = 20

    [model]
    use = "softmax"

    [local]
    use = "sgd"
    lr = 0.1
    steps = 1
"""
NOBODY = 'availability = { use = "bernoulli", prob = 0.0 }'


@pytest.fixture
def turnout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Call the command with a study of these lines more; return the exit code and what it said."""
    monkeypatch.chdir(tmp_path)

    def call(command: str, more: str, study: str = STUDY) -> tuple[int, str, str]:
        (tmp_path / "quiet.toml").write_text(dedent(study) + dedent(more), encoding="utf-8")
        with pytest.raises(SystemExit) as left:
            main([command, "quiet.toml"])
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err

    return call


def test_contract_a_run_in_which_nobody_ever_comes_ends_normally_and_says_so(turnout: Turnout) -> None:
    code, out, err = turnout("run", f"[fleet]\n{NOBODY}\n")
    assert (code, err) == (0, "")
    assert "quiet: no client took part in 2 of 2 seeds" in out
    assert "No client took part in any arm or seed" in out
    rounds = load("runs/quiet").rounds
    assert rounds["answered"].sum() == 0
    assert [NOBODY_EVER in events for events in rounds["events"]] == [False, False, False, True] * 2


def test_contract_an_arm_to_which_nobody_comes_is_named_beside_the_others(turnout: Turnout) -> None:
    arms = f'[[arm]]\nname = "all"\n[[arm]]\nname = "none"\nfleet = {{ {NOBODY} }}\n'
    code, out, _ = turnout("run", arms)
    assert code == 0
    assert "none: no client took part in 2 of 2 seeds" in out
    assert "all: no client" not in out
    assert "No client took part in any arm" not in out
    assert "all, " in out or "all ends" in out or "all:" in out  # the verdict is about the arms


@pytest.mark.parametrize(("prob", "said"), [(0.0, True), (1.0, False)])
def test_contract_it_is_said_where_nothing_was_measured_too(
    prob: float, said: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = Study(
        data=from_clients([(torch.zeros(2, 3), torch.tensor([0, 1]))] * 4),  # no test set
        model=Softmax(),
        local=SGD(lr=0.1, steps=1),
        fleet=Fleet(availability=Bernoulli(prob=prob)),
        rounds=2,
    )
    carry_out(study, tmp_path / "run", "sequential")
    out = capsys.readouterr().out
    assert "Nothing was measured" in out
    assert ("No client took part in any round." in out) == said


@pytest.mark.parametrize(
    ("more", "line", "message"),
    [
        ('[selection]\nuse = "power-of-choice"\ncohort_size = 5\npool_size = 2\n', 20, "Set selection.pool_size to 5"),
        (
            '[fleet]\navailability = { use = "cyclic", groups = 30 }\n',
            18,
            "groups <= the number of clients; got 30 > 20",
        ),
        (
            '[fleet]\navailability = { use = "resampled", size = 30 }\n',
            18,
            "size <= the number of clients; got 30 > 20",
        ),
        ('[fleet]\navailability = { use = "never", clients = [3, 20] }\n', 18, "Never needs clients in 0…19; got 20"),
        ('[fleet]\nwork = { use = "fraction", fraction = [0.5, 0.7] }\n', 18, "got 2 for 20 clients"),
        ('[fleet]\nclock = { use = "deadline", seconds_per_step = [1.0] }\n', 18, "got 1 for 20 clients"),
        ('[fleet]\nmembership = { use = "scheduled", arrivals = { 20 = 3 } }\n', 18, "clients in 0…19; got 20"),
        (
            '[fleet]\navailability = { use = "recorded", trace = "bad.csv", round_seconds = 60.0 }\n',
            18,
            "bad.csv, line 3: time goes backwards for client 0",
        ),
        (
            '[selection]\nuse = "oort"\ncohort_size = 5\npreferred_seconds = 9.0\n',
            20,
            "preferred_seconds needs a clock",
        ),
        ('[filtering]\nuse = "greedy"\n', 6, "needs samples at the server to score models on"),
        ('[filtering]\nuse = "greedy"\non = "client"\n', 6, "needs samples that clients hold out"),
        ('[assist]\nuse = "safari"\nlr = 0.1\n', 6, "Safari needs samples at the server"),
    ],
)
def test_error_check_refuses_what_cannot_be_with_the_way_out(
    more: str, line: int, message: str, turnout: Turnout, tmp_path: Path
) -> None:
    (tmp_path / "bad.csv").write_text("client,start,end,state\n0,50,60,up\n0,0,10,up\n")
    code, out, err = turnout("check", more)
    assert (code, out) == (2, "")
    assert err.startswith(f"quiet.toml:{line}: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_contract_the_fleet_of_the_documentation_is_a_study(turnout: Turnout, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "fleets.md").read_text(encoding="utf-8")
    (trace,) = re.findall(r"```text\n(client,start.*?)```", page, re.DOTALL)
    (tmp_path / "phones.csv").write_text(trace)
    more, *_ = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    study = STUDY.replace("clients = 20", 'clients = 20\n    server_samples = 50\n    server_from = "test"')
    code, out, err = turnout("check", more, study)
    assert (code, err) == (0, "")
    assert "preferred_seconds = 120" in out
    code, out, err = turnout("run", more, study)
    assert (code, err) == (0, "")


def test_error_check_refuses_a_matrix_of_distances_for_a_million_clients(turnout: Turnout) -> None:
    study = STUDY.replace('use = "digits"\n    clients = 20', 'use = "synthetic-on-demand"\n    clients = 1000000')
    code, _, err = turnout("check", '[selection]\nuse = "divfl"\ncohort_size = 5\n', study)
    assert code == 2
    assert 'at most 10000 clients; got 1000000. Select with "power-of-choice" or "oort"' in err
