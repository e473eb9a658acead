"""A study file names rules; it runs no code unless the reader has said that it may."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.command import Turnout
from tests.support.report_journals import write as write_journal
from turnout.catalogue import find, loss_named, rule_named
from turnout.errors import ConfigError
from turnout.losses import cross_entropy
from turnout.selection import Uniform
from turnout.study import load_study
from turnout.study.load import study_of

TRAP = """\
    from pathlib import Path
    Path("sprung").touch()
    from turnout.selection import Uniform
    class Mine(Uniform): ...
    def loss(output, target): ...
    """
STUDY = """\
    rounds = 1
    data = { use = "digits", clients = 4 }
    model = "softmax"
    local = { lr = 0.1, steps = 1 }
    """
PLACES = {
    "a rule": 'selection = { use = "trap_for_test:Mine" }',
    "a bare name": 'selection = "trap_for_test:Mine"',
    "a loss": 'loss = "trap_for_test:loss"',
    "a model": 'model = "trap_for_test:Mine"',
    "a rule within a rule": 'fleet = { availability = "trap_for_test:Mine" }',
    "an arm": '[[arm]]\nname = "x"\nselection.use = "trap_for_test:Mine"',
}


@pytest.fixture
def trap(turnout: Turnout) -> Path:
    """A module, beside the study, that leaves a file behind when it is imported."""
    Path("trap_for_test.py").write_text(dedent(TRAP))
    sys.modules.pop("trap_for_test", None)
    return Path("sprung")


def study_with(line: str) -> Path:
    kept = [mine for mine in dedent(STUDY).splitlines() if mine.split()[0] != line.split()[0]]
    Path("study.toml").write_text("\n".join([*kept, line]))
    return Path("study.toml")


@pytest.mark.parametrize("line", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("command", ["run", "check"])
def test_error_a_dotted_name_is_refused_before_anything_is_imported(
    turnout: Turnout, trap: Path, command: str, line: str
) -> None:
    sys.path.append(".")  # even where Python would find it
    said = turnout(command, study_with(line))
    place = len(Path("study.toml").read_text().splitlines())
    assert said.code == 2
    assert said.err.startswith(f"study.toml:{place}: 'trap_for_test:")
    assert "is code: it would import 'trap_for_test' and so run it" in said.err
    assert "--allow-code" in said.err
    assert len(said.err.splitlines()) == 1
    assert not trap.exists()
    assert "trap_for_test" not in sys.modules
    assert sorted(path.name for path in Path().iterdir()) == ["study.toml", "trap_for_test.py"]


def test_contract_code_runs_where_it_is_allowed(turnout: Turnout, trap: Path) -> None:
    assert turnout("check", study_with(PLACES["a rule"]), "--allow-code").code == 0
    assert trap.exists()


def test_contract_python_may_load_its_own_code(turnout: Turnout, trap: Path) -> None:
    sys.path.append(".")
    with pytest.raises(ConfigError, match=r"load_study\(…, allow_code=True\)"):
        load_study(study_with(PLACES["a rule"]))
    assert type(load_study(study_with(PLACES["a rule"]), allow_code=True).selection).__name__ == "Mine"


def test_contract_a_flag_is_no_way_around(turnout: Turnout, trap: Path) -> None:
    said = turnout("run", study_with("seeds = 1"), "--set", 'selection.use="trap_for_test:Mine"')
    assert said.code == 2
    assert "--set selection.use" in said.err
    assert not trap.exists()


@pytest.mark.parametrize(
    "address",
    [
        "os:system",
        "turnout.data.files:os",  # a name in turnout, but not turnout's
        "turnout.data.files:os.system",
        "turnout.data.files:tarfile",
        "turnout.losses:Tensor",
        "turnout/../os:system",
        "turnout.:x",
        "turnoutx:y",
    ],
)
def test_error_only_what_turnout_itself_defines_is_its_own(address: str) -> None:
    with pytest.raises(ConfigError, match=r"is code|cannot be imported"):
        find(address, allow_code=False)


def test_contract_turnouts_own_rules_may_be_named_by_address() -> None:
    assert rule_named("selection", "turnout.selection:Uniform", allow_code=False) is Uniform
    assert loss_named("turnout.losses:cross_entropy", allow_code=False) is cross_entropy


@pytest.mark.parametrize("command", ["report", "compare", "resume"])
def test_contract_reading_a_strangers_folder_runs_none_of_its_code(turnout: Turnout, trap: Path, command: str) -> None:
    sys.path.append(".")
    config = {
        "data": {"use": "digits", "clients": 12, "partition": {"use": "trap_for_test:Mine"}},
        "selection": {"use": "trap_for_test:Mine"},
        "loss": "trap_for_test:loss",
        "model": {"use": "softmax"},
        "local": {"use": "sgd", "lr": 0.1, "steps": 1},
    }
    write_journal(Path("theirs"), config=config, finished=command != "resume")
    said = turnout(command, "theirs")
    assert said.code == (2 if command == "resume" else 0)
    assert ("--allow-code" in said.err) == (command == "resume")
    assert not trap.exists()
    assert "trap_for_test" not in sys.modules


def test_error_a_kept_study_is_no_way_around(turnout: Turnout, trap: Path) -> None:
    sys.path.append(".")
    config = {"rounds": 1, "selection": {"use": "trap_for_test:Mine"}, "loss": "trap_for_test:loss"}
    with pytest.raises(ConfigError, match="is code"):
        study_of(config, "theirs")
    assert not trap.exists()


def test_contract_no_module_is_found_in_the_folder_of_a_strangers_study(tmp_path: Path) -> None:
    """A pyarrow.py beside the data must not be what pandas imports when it looks for pyarrow."""
    program = dedent("""\
        import sys
        from turnout.cli import main
        before = list(sys.path)
        try:
            main(["check", "study.toml"])
        except SystemExit:
            pass
        sys.exit(sys.path != before)
        """)
    (tmp_path / "study.toml").write_text(dedent(STUDY))
    ended = subprocess.run([sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
