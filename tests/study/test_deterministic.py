"""A deterministic run has the same bits on any number of cores; a run that goes on elsewhere says what has changed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import turnout as to
from tests.support.command import Turnout
from tests.support.fault_injection import contents, differences
from turnout.engine import Vectorised
from turnout.errors import ConfigError
from turnout.journal import Journal, load

STUDY = """
name      = "bits"
rounds    = 3
data      = { use = "digits", clients = 60, holdout = 0.2 }
model     = { use = "mlp", hidden = [300] }
local     = { lr = 0.1, batch_size = 16, steps = 3 }
selection = { cohort_size = 50 }
evaluate  = { every = 1, clients_every = 2 }

[[arm]]
name = "FedAvg"
[[arm]]
name = "DivFL"
selection = { use = "divfl", cohort_size = 50 }
server = { use = "fedadam", lr = 0.01 }
"""


def run_on(cores: str, threads: int, study: Path, out: Path, *more: str) -> dict[str, Any]:
    """Run a study in a process of its own on these cores; return all it found, every round and every tensor."""
    room = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    room["TURNOUT_CACHE"] = str(out / "cache")  # nothing is remembered from elsewhere
    command = [
        sys.executable,
        "-c",
        "from turnout.cli import main; main()",
        "run",
        str(study),
        "--out",
        str(out / "run"),
    ]
    done = subprocess.run(
        ["taskset", "-c", cores, *command, *more], env=room, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = contents(out / "run")
    return {name: found[name] for name in found if name not in ("study", "run")}  # which name the machine


def two_cores() -> bool:
    return hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1


@pytest.mark.slow
@pytest.mark.skipif(not two_cores(), reason="needs taskset and two cores")
@pytest.mark.parametrize("engine", ["vectorised", "sequential"])
def test_identity_a_deterministic_run_gives_the_same_bits_on_any_number_of_cores(tmp_path: Path, engine: str) -> None:
    study = tmp_path / "bits.toml"
    study.write_text(STUDY)
    one, two, *_ = sorted(os.sched_getaffinity(0))
    ways = [(str(one), 1), (f"{one},{two}", 2), (f"{one},{two}", 1), (f"{one},{two}", 4)]
    found = [
        run_on(cores, threads, study, tmp_path / str(at), "--deterministic", "--engine", engine)
        for at, (cores, threads) in enumerate(ways)
    ]
    assert [differences(other, found[0]) for other in found[1:]] == [[], [], []]
    with Journal.open(tmp_path / "0" / "run") as journal:
        assert journal.facts["deterministic"] is True
        assert "tuning" not in journal.facts
        assert journal.facts["machine"]["threads"] == 1


def study() -> to.Study:
    local = to.local.SGD(lr=0.1, batch_size=8, steps=2)
    return to.Study(data=to.data.Digits(clients=4), model=to.models.MLP(hidden=(4,)), local=local, rounds=2)


def test_contract_the_journal_knows_all_that_decides_the_order_of_sums(tmp_path: Path) -> None:
    study().run(tmp_path)
    facts = load(tmp_path).study["facts"]
    assert set(facts["machine"]) == {"system", "processor", "instructions", "cores", "threads"}
    assert facts["machine"]["cores"] == len(os.sched_getaffinity(0))
    assert facts["deterministic"] is False


def test_contract_a_resumed_run_says_what_has_changed(turnout: Turnout, tmp_path: Path) -> None:
    def stop(arm: str, seed: int, record: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        study().run(out, on_progress=stop)
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        with pytest.warns(UserWarning, match=rf"machine.threads was {before} and is {before + 1}\)") as told:
            study().run(out)
    finally:
        torch.set_num_threads(before)
    assert len(told) == 1
    assert "the last digits may differ" in str(told[0].message)


def test_contract_threads_are_put_back_after_a_deterministic_run() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        seen: list[int] = []
        study().run(deterministic=True, on_progress=lambda *_: seen.append(torch.get_num_threads()))
        assert set(seen) == {1}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_contract_resume_goes_on_as_deterministic_as_it_began(turnout: Turnout, tmp_path: Path) -> None:
    def stop(arm: str, seed: int, record: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        study().run(out, on_progress=stop, deterministic=True)
    assert turnout("resume", out).code == 0
    assert load(out).study["facts"]["deterministic"] is True


def test_error_an_engine_that_measures_is_not_deterministic() -> None:
    with pytest.raises(ConfigError, match=r"got a Vectorised with it. Pass Vectorised\(deterministic=True\)"):
        study().run(engine=Vectorised(), deterministic=True)
    study().run(engine=Vectorised(deterministic=True), deterministic=True)
