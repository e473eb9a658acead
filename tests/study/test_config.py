"""A study file: what it means, and what is said when it is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.study_texts import GOOD
from turnout.aggregation import FedAvg
from turnout.coordinator import Cadence
from turnout.data.digits import Digits
from turnout.data.partition import Dirichlet, Iid
from turnout.errors import ConfigError
from turnout.fleet import Always, Bernoulli, Fleet
from turnout.local import SGD
from turnout.losses import cross_entropy, squared_error
from turnout.models import MLP
from turnout.selection import Uniform, Weighted
from turnout.server import SGD as ServerSGD
from turnout.study import Study, arm, load_study, resolved_settings, shipped_studies, to_toml

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a study file in a folder of its own and go there."""
    monkeypatch.chdir(tmp_path)

    def put(text: str, name: str = "study.toml") -> Path:
        Path(name).write_text(dedent(text), encoding="utf-8")
        return Path(name)

    return put


def complaints(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_study(path, overrides)
    return str(caught.value).splitlines()


def test_golden_a_file_is_the_study_that_python_writes(write: Write) -> None:
    local = SGD(lr=0.1, batch_size=10, epochs=(2, 5))
    data = Digits(clients=40, partition=Dirichlet(concentration=0.1))
    assert load_study(write(GOOD)) == Study(
        name="phones",
        rounds=20,
        seeds=3,
        target={"accuracy": 0.9},
        data=data,
        model=MLP(hidden=(64,)),
        fleet=Fleet(availability=Bernoulli(prob=0.6)),
        selection=Uniform(cohort_size=10),
        local=local,
        arms=(
            arm("FedAvg", aggregation=FedAvg(), server=ServerSGD()),
            arm(
                "FedProx",
                aggregation=FedAvg(),
                local=SGD(lr=0.1, batch_size=10, epochs=(2, 5), prox_strength=0.01),
            ),
            arm(
                "drawn by size",
                selection=Weighted(cohort_size=5),
                local=SGD(lr=0.1, batch_size=10, steps=4),
                fleet=Fleet(availability=Always()),
                data=Digits(clients=40, partition=Iid()),
                data_seed=3,
            ),
        ),
    )


def test_contract_an_arm_merges_into_a_section_key_by_key(write: Write) -> None:
    study = load_study(write(GOOD + '[[arm]]\nname = "more"\nselection = { replacement = true }\n'))
    assert study.versions()["more"].selection == Uniform(cohort_size=10, replacement=True)


def test_contract_naming_the_same_rule_still_merges(write: Write) -> None:
    text = GOOD + '[[arm]]\nname = "more"\nselection = { use = "uniform", replacement = true }\n'
    assert load_study(write(text)).versions()["more"].selection == Uniform(cohort_size=10, replacement=True)


def test_contract_an_arm_that_names_another_rule_replaces_the_section(write: Write) -> None:
    lines = complaints(write(GOOD + '[[arm]]\nname = "w"\nselection = "weighted"\n'))
    assert lines == ["study.toml:42: Weighted needs cohort_size. Set selection.cohort_size."]


def test_contract_an_arms_own_setting_beats_its_recipes(write: Write) -> None:
    text = GOOD + '[[arm]]\nname = "p"\nrecipe = "fedprox"\nlocal.prox_strength = 1\n'
    assert load_study(write(text)).versions()["p"].local == SGD(lr=0.1, batch_size=10, epochs=(2, 5), prox_strength=1.0)


def test_contract_a_section_that_every_arm_completes_need_not_be_whole(write: Write) -> None:
    whole = GOOD[: GOOD.index("[[arm]]")].replace("lr         = 0.1\n", "")
    arms = "".join(f'[[arm]]\nname = "{lr}"\nlocal = {{ lr = {lr} }}\n' for lr in (0.1, 0.2))
    versions = load_study(write(whole + arms)).versions()
    assert [version.local.lr for version in versions.values()] == [0.1, 0.2]  # type: ignore[attr-defined]
    assert complaints(write(whole)) == ["study.toml:21: SGD needs lr. Set local.lr."]


@pytest.mark.parametrize(
    ("name", "loss"),
    [("auto", None), ("squared-error", squared_error), ("turnout.losses:cross_entropy", cross_entropy)],
)
def test_golden_losses_go_by_name(write: Write, name: str, loss: object) -> None:
    assert load_study(write(f'loss = "{name}"\n' + GOOD)).loss is loss


def test_contract_the_file_names_the_study_that_has_no_name(write: Write) -> None:
    text = GOOD.replace('name   = "phones"\n', "")
    assert load_study(write(text, "tablets.toml")).name == "tablets"
    assert load_study(write(text, ".hidden.toml")).name == "study"


def test_error_everything_is_told_at_once_with_its_line(write: Write) -> None:
    path = write("""\
        name = "a/b"
        rounds = 0
        rond = 3
        [data]
        use = "digits"
        clints = 10
        partition = { use = "dirichlett" }
        [model]
        use = "mlp"
        hidden = [32, "a"]
        [fleet]
        availability = { prob = 1.5, use = "bernoulli" }
        speed = 3
        [selection]
        use = "unifrom"
        [local]
        lr = true
        epochs = 1
        rounds = 5
        [evaluate]
        every = 0
        [[arm]]
        name = "A"
        recipe = "fedproxx"
        [[arm]]
        name = "A"
        aggregation = { weighting = "men" }
        serve = { lr = 1 }
        [[arm]]
        local.momentum = 2
        """)
    starts = [
        "study.toml:1: A study's name also names its folder",
        "study.toml:2: A study needs rounds >= 1, a whole number; got 0. Change rounds.",
        "study.toml:3: A study has no section rond. Did you mean rounds?",
        "study.toml:6: Digits has no setting clints. Did you mean clients?",
        "study.toml:7: There is no data.partition rule 'dirichlett'. Did you mean dirichlet?",
        'study.toml:10: MLP needs hidden to be a list of whole numbers; got [32, "a"]. Change model.hidden.',
        "study.toml:12: Bernoulli needs prob in [0, 1]; got 1.5",
        "study.toml:13: Fleet has no setting speed. It has availability, work",
        "study.toml:15: There is no selection rule 'unifrom'. Did you mean uniform?",
        "study.toml:17: SGD needs lr to be a number; got true. Change local.lr.",
        "study.toml:19: SGD has no setting rounds. rounds belongs at the top of the file, before the first [section].",
        "study.toml:21: Cadence needs every >= 1; got 0. Change evaluate.every.",
        "study.toml:23: Arms need names of their own; 'A' is used 2 times.",
        "study.toml:24: There is no recipe 'fedproxx'. Did you mean fedprox?",
        "study.toml:26: Arms need names of their own; 'A' is used 2 times.",
        'study.toml:27: FedAvg needs weighting to be one of "mean", "ht", "ht-fleet", "ratio", "measured"',
        "study.toml:28: An arm has no section serve. Did you mean server?",
        'study.toml:29: An arm needs a name. Set name = "…" in this [[arm]].',
        "study.toml:30: SGD needs momentum in [0, 1); got 2. Change local.momentum.",
    ]
    lines = complaints(path)
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("rounds = 20\n", ""), "study.toml:1: A study needs rounds. Set rounds = 100, for example, at the top."),
        (
            ('[model]\nuse    = "mlp"\nhidden = [64]\n', ""),
            "study.toml:1: A study needs a [model] section: see `turnout",
        ),
        (("clients   = 40", "clients = true"), "study.toml:8: Digits needs clients to be a whole number; got true."),
        (("clients   = 40", "clients = 40.0"), "study.toml:8: Digits needs clients to be a whole number; got 40.0."),
        (("seeds  = 3", "seeds = 0"), "study.toml:3: A study needs 1 to 100000 seeds; got 0. Change seeds."),
        (("seeds  = 3", "seeds = [1, 1]"), "study.toml:3: Seeds must differ from each other; got [1, 1]."),
        (("seeds  = 3", 'seeds = "all"'), "study.toml:3: A study needs seeds to be a whole number or a list of whole"),
        (("lr         = 0.1", "lr = -1"), "study.toml:22: SGD needs lr > 0; got -1. Change local.lr."),
        (("lr         = 0.1", "lr = 1" + "0" * 400), "study.toml:22: A whole number must fit into 64 bits; this one"),
        (("lr         = 0.1", "lr = nan"), "study.toml:22: SGD needs lr to be a number; got nan."),
        (
            ("epochs     = [2, 5]", "epochs = [2]"),
            "study.toml:24: SGD needs epochs to be a whole number or a list of 2",
        ),
        (("epochs     = [2, 5]", ""), "study.toml:21: SGD needs epochs or steps, one of the two; got neither."),
        (("[selection]", "[selection]\nuse = 3"), "study.toml:19: selection.use must be the name of a rule; got 3."),
        (('"mlp"', '"turnout.selection:Uniform"'), "study.toml:12: turnout.selection:Uniform is not a rule for model"),
        (("cohort_size = 10", "cohort_size = 41"), "study.toml:19: Uniform needs cohort_size <= the number of clients"),
        (("cohort_size = 5", "cohort_size = 5, x = 1"), "study.toml:36: Weighted has no setting x. It has cohort_size"),
        (("seed = 3", "seed = -1"), "study.toml:39: data.seed must be a whole number from 0 up; got -1."),
        (
            ('partition = "iid"', "partition = 4"),
            "study.toml:39: data.partition must be a table, or the name of a rule",
        ),
        (('fleet     = { availability = "always" }', "fleet = 1"), "study.toml:38: fleet must be a table; got 1."),
    ],
)
def test_error_one_mistake_is_one_line(write: Write, change: tuple[str, str], message: str) -> None:
    lines = complaints(write(GOOD.replace(*change)))
    assert any(line.startswith(message) for line in lines), lines
    assert len(lines) == 1


def test_error_a_shared_mistake_is_told_once_for_all_arms(write: Write) -> None:
    text = GOOD + "".join(f'[[arm]]\nname = "{n}"\nrecipe = "fedprox"\n' for n in range(5))
    lines = complaints(write(text.replace("batch_size = 10", "batch_sise = 10")))
    assert len(lines) == 1
    assert lines[0].startswith("study.toml:23: SGD has no setting batch_sise. Did you mean batch_size? It has lr, ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nb = = 2\n", "study.toml:2: This is not valid TOML: Invalid value at column 5."),
        ('a = 1\n\nb = "x', "study.toml:3: This is not valid TOML: "),
        ("a = 1\na = 2\n", "study.toml:2: This is not valid TOML: Cannot overwrite a value"),
        ("", "study.toml:1: The file is empty. See `turnout check demo` for a study to start from."),
        ("# nothing\n", "study.toml:1: The file is empty."),
        ("arm = 3\n", "study.toml:1: Arms are written as [[arm]] tables; got 3."),
    ],
)
def test_error_what_is_no_study_is_told_with_its_line(write: Write, text: str, message: str) -> None:
    assert any(line.startswith(message) for line in complaints(write(text)))


def test_error_files_that_cannot_be_read_are_named(write: Write, tmp_path: Path) -> None:
    assert complaints(Path("nosuch.toml"))[0].startswith("There is no file nosuch.toml and no shipped study")
    assert complaints(Path("demoo"))[0].startswith("There is no file demoo and no shipped study of that name. Did you")
    assert complaints(tmp_path)[0].endswith("must be a study file; it is a folder. Name the file itself.")
    Path("latin.toml").write_bytes(b'name = "caf\xe9"\n')
    assert complaints(Path("latin.toml")) == ["latin.toml: This is not a text in UTF-8. Save it as UTF-8."]


def test_golden_flags_are_read_as_toml_and_beat_the_file(write: Write) -> None:
    flags = (
        "selection.cohort_size=7",
        "model.hidden=[8, 8]",
        "fleet.availability=always",
        "arm.FedProx.local.prox_strength=0.5",
        "arm.0.server.lr=0.5",
        'arm."drawn by size".selection.cohort_size=2',
        "evaluate.every=4",
        "seeds=2",
    )
    study = load_study(write(GOOD), flags)
    arms = study.versions()
    assert (study.seeds, study.evaluate, study.model) == (2, Cadence(every=4), MLP(hidden=(8, 8)))
    assert study.fleet.availability == Always()
    assert arms["FedProx"].selection == Uniform(cohort_size=7)
    assert arms["FedProx"].local == SGD(lr=0.1, batch_size=10, epochs=(2, 5), prox_strength=0.5)
    assert arms["FedAvg"].server == ServerSGD(lr=0.5)
    assert arms["drawn by size"].selection == Weighted(cohort_size=2)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("local.lr=fast", '--set local.lr=fast: SGD needs lr to be a number; got "fast". Change local.lr.'),
        ("local.lrr=1", "--set local.lrr=1: SGD has no setting lrr. Did you mean lr?"),
        ("lr", "--set lr: A setting is written as section.key=value, for example --set local.lr=0.1."),
        ("=1", "--set =1: A setting is written as section.key=value"),
        ("arm.Nobody.local.lr=1", "--set arm.Nobody.local.lr=1: There is no arm Nobody. The arms are FedAvg, FedProx"),
        ("rounds.x=1", "--set rounds.x=1: x can only be set in a table; got 20 instead of a table."),
        ("selection.cohort_size=99", "--set selection.cohort_size=99: Uniform needs cohort_size <= the number of"),
        ("selction.cohort_size=9", "--set selction.cohort_size=9: A study has no section selction. Did you mean"),
    ],
)
def test_error_a_wrong_flag_is_named(write: Write, flag: str, message: str) -> None:
    lines = complaints(write(GOOD), flag)
    assert lines[0].startswith(message)
    assert len(lines) == 1


def test_identity_the_resolved_study_loads_back_to_itself(write: Write) -> None:
    study = load_study(write(GOOD))
    plain = resolved_settings(study)
    assert load_study(write(to_toml(plain), "again.toml")) == study
    assert json.loads(json.dumps(plain)) == plain
    assert plain["local"]["momentum"] == 0.0  # defaults are there
    assert plain["arm"][2]["data"]["seed"] == 3


@pytest.mark.parametrize("name", shipped_studies())
def test_contract_shipped_studies_are_right_and_load_back(name: str, write: Write) -> None:
    study = load_study(name)
    assert study.name == name
    assert load_study(write(to_toml(resolved_settings(study)))) == study


def test_contract_none_takes_away_what_the_study_shares(write: Write) -> None:
    text = (
        GOOD.replace("[selection]", '[selection]\nuse = "uniform"')
        + '[[arm]]\nname = "all"\nselection.cohort_size = "none"\n'
    )
    assert load_study(write(text)).versions()["all"].selection == Uniform()
