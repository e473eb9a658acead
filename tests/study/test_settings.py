"""Every setting of every rule is checked when the rule is made, in Python as in a study file."""

import contextlib
import math
import pickle
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import numpy as np
import pytest

from turnout.aggregation import FedAvg, FedNova, FedVARP
from turnout.algorithms import fedavg
from turnout.assist import Safari
from turnout.asynchrony import FedBuff
from turnout.axes import AXES
from turnout.catalogue import catalogue
from turnout.checkpoint import Checkpoint
from turnout.coordinator import Cadence, Trust, Turnover
from turnout.data.partition import Pareto
from turnout.errors import ConfigError
from turnout.filtering import Greedy
from turnout.fleet import Bernoulli, Deadline, Fleet, Lognormal, Phones, Scheduled
from turnout.local import SGD
from turnout.local.schedule import Inverse, Step
from turnout.models import MLP
from turnout.parameters import Parameter, parameters
from turnout.reproduce import direction, filfl, phones, tasks
from turnout.reproduce import safari as even
from turnout.selection import Optimal, PowerOfChoice, Uniform
from turnout.settings import GIVEN, Count, MismatchError, Range, When, fitted, members, rule
from turnout.study import load_study
from turnout.study.config_tree import Problems, Where, tree_from_value
from turnout.study.typed_values import Reader

SHIPPED = [made for axis in AXES for made in catalogue(axis).values()]
OTHERS = [Cadence, Trust, Checkpoint, Fleet, Lognormal, Phones, Pareto]
OF_PAPERS = [
    *(direction.Sampled, filfl.PooledCifar10, filfl.RolesAndProse, filfl.Exhaustive, phones.RankedPhones),
    *(phones.LeastAsked, phones.UniformOverTime, even.EvenLabels),
    *(tasks.RandomQuadratics, tasks.ParetoSynthetic, tasks.Regions),
]
EVERY_SETTING = [
    pytest.param(made, given, id=f"{made.__module__.removeprefix('turnout.')}-{given.name}")
    for made in [*SHIPPED, *OTHERS, *OF_PAPERS]
    for given in parameters(made).values()
]


def numbers_of(hint: Any) -> Iterator[tuple[type, Range | None]]:
    """Yield every kind of number that a hint allows, with its range, in lists too."""
    notes = hint.__metadata__ if get_origin(hint) is Annotated else ()
    inner = get_args(hint)[0] if notes else hint
    if inner in (int, float):
        yield inner, next((note for note in notes if isinstance(note, Range)), None)
    elif get_origin(inner) is not Literal:
        for argument in get_args(inner):
            yield from numbers_of(argument)


def in_place(hint: Any, number: Any) -> Any:
    """Return a number as a hint asks for it: by itself, or in a list of as many as needed."""
    for member in members(hint):
        if member in (int, float):
            return number
    (listed,) = [member for member in members(hint) if get_origin(member) is tuple]
    inner = get_args(listed)
    once = in_place(inner[0], number)
    return (once,) if Ellipsis in inner else (once,) * len(inner)


def wrong_values(given: Parameter) -> Iterator[Any]:
    """Yield values that a setting cannot have."""
    kinds = members(given.hint)
    yield object()
    if str not in kinds and not any(getattr(kind, "_is_protocol", False) for kind in kinds):
        yield "no such choice"
    if bool not in kinds:
        yield True
    for kind, bounds in numbers_of(given.hint):
        if dict in map(get_origin, kinds):  # type: ignore[operator]
            continue  # moves of members, which have a check of their own
        yield in_place(given.hint, math.nan)
        yield in_place(given.hint, "1")
        if kind is int and float not in kinds:
            yield in_place(given.hint, 1.5)
            yield in_place(given.hint, 1.0)
        assert bounds is not None, "a number needs a range"
        yield from (in_place(given.hint, kind(number)) for number in outside(kind, bounds))


def outside(kind: type, bounds: Range) -> Iterator[float]:
    """Yield numbers beside a range, at each end."""
    step = 1 if kind is int else 1e-9
    if bounds.above is not None:
        yield bounds.above
    elif bounds.least > -math.inf:
        yield bounds.least - step
    if bounds.most is not None:
        yield bounds.most + step
    if bounds.below is not None:
        yield bounds.below
    if bounds.ceiling < math.inf:
        yield 2 * bounds.ceiling
        yield 10**18 if kind is int else 1e308


def test_contract_there_are_settings_to_try() -> None:
    assert len(EVERY_SETTING) > 250


@pytest.mark.parametrize(("made", "given"), EVERY_SETTING)
def test_error_a_wrong_value_names_the_setting(made: type, given: Parameter) -> None:
    tried = list(wrong_values(given))
    for value in tried:
        with pytest.raises(
            ConfigError, match=rf"^{made.__name__} needs {given.name} .*; got .*\. Change .*{given.name}"
        ):
            made(**{given.name: value})


@pytest.mark.parametrize(("made", "given"), EVERY_SETTING)
def test_identity_a_study_file_gets_the_message_that_python_gets(made: type, given: Parameter) -> None:
    section = rule_section(made, given)
    for value in wrong_values(given):
        if not isinstance(value, str | bool | int | float | tuple) or section is None:
            continue
        noted = Problems()
        Reader(noted).setting(made.__name__, given, tree_from_value(value, Where(1, "file:1")), section)
        (told,) = {message for _, message in noted.found}
        if told.startswith((made.__name__,)):
            with pytest.raises(ConfigError) as failure:
                made(**{given.name: value})
            assert failure.value.problems[0].message == told


def rule_section(made: type, given: Parameter) -> str | None:
    """Return the section that a rule's own message names."""
    with pytest.raises(ConfigError) as failure:
        made(**{given.name: object()})
    return failure.value.problems[0].setting.rpartition(".")[0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: FedAvg(weighting="uniform"),  # type: ignore[arg-type]
            'weighting to be one of "mean", "ht", "ht-fleet", "ratio", "measured"; got "uniform".',
        ),
        (lambda: Deadline(incomplete="keep"), 'Deadline needs incomplete to be one of "deliver", "drop"; got "keep".'),  # type: ignore[arg-type]
        (lambda: SGD(lr=1, epochs=1, batches="whole"), 'one of "shuffled", "replaced", "full"; got "whole".'),  # type: ignore[arg-type]
        (lambda: FedNova(effective="tau"), 'FedNova needs effective to be one of "work", "steps"; got "tau".'),  # type: ignore[arg-type]
        (
            lambda: FedVARP(weighting="ratio"),  # type: ignore[arg-type]
            'FedVARP needs weighting to be one of "mean", "ht", "ht-fleet"; got "ratio".',
        ),
        (
            lambda: Turnover(on_departure="excluded"),  # type: ignore[arg-type]
            'one of "include", "exclude", "auto"; got "excluded". Change turnover.on_departure.',
        ),
        (lambda: SGD(lr="0.1", epochs=1), 'SGD needs lr to be a number; got "0.1". Change local.lr.'),  # type: ignore[arg-type]
        (lambda: SGD(lr=0.1, epochs=1.5), 'a whole number or a list of 2 whole numbers or "none"; got 1.5.'),  # type: ignore[arg-type]
        (lambda: SGD(lr=0.1, epochs=1, batch_size=10.0), 'batch_size to be a whole number or "none"; got 10.0. Change'),  # type: ignore[arg-type]
        (lambda: SGD(lr=1e308, epochs=1), "SGD needs lr <= 1,000,000,000,000; got 1e+308. Change local.lr."),
        (lambda: SGD(lr=0.1, steps=10**18), "SGD needs steps <= 1,000,000; got 1000000000000000000. Change local."),
        (lambda: Uniform(cohort_size=10**12), "Uniform needs cohort_size <= 100,000,000; got 1000000000000. Change"),
        (lambda: Fleet(availability=Bernoulli), "to be a rule with the method up; got the class Bernoulli."),  # type: ignore[arg-type]
        (
            lambda: SGD(lr=0.1, epochs=1, schedule=3),  # type: ignore[arg-type]
            "to be a rule with the method factor; got 3. Change local.schedule.",
        ),
        (lambda: Bernoulli(prob=(0.2, 1.5)), "Bernoulli needs prob in [0, 1]; got 1.5. Change fleet.availability."),
    ],
)
def test_error_the_message_says_what_is_needed_what_came_and_what_to_change(make: Any, message: str) -> None:
    with pytest.raises(ConfigError) as failure:
        make()
    assert message in str(failure.value)


def conditions() -> Iterator[Any]:
    """Yield every setting that another one can make void."""
    for made in [*SHIPPED, *OTHERS, *OF_PAPERS]:
        for given in parameters(made).values():
            for note in getattr(given.hint, "__metadata__", ()):
                if isinstance(note, When):
                    yield pytest.param(made, given, note, id=f"{made.__name__}-{given.name}")


def another(hint: Any, *but: Any) -> Any:
    """Return a value that a hint allows and that is none of these."""
    for value in (False, True, 2, 3, 0.01, 0.3, 5.5, Phones(), Path("runs"), (0.5,), ("layer",), (1,)):
        with contextlib.suppress(MismatchError):
            if fitted(hint, value) not in but:
                return value
    return next(choice for member in members(hint) for choice in get_args(member) if choice not in but)


@pytest.mark.parametrize(("made", "given", "when"), list(conditions()))
def test_error_what_another_setting_makes_void_is_refused(made: type, given: Parameter, when: When) -> None:
    (other, allowed), *_ = when.needs.items()
    values = {given.name: another(given.hint, given.default)}
    if GIVEN in allowed:
        hint = parameters(made)[other].hint
        values[other] = next(nothing for nothing in (None, (), 0) if may_be(hint, nothing))
    else:
        values[other] = another(parameters(made)[other].hint, *allowed)
    needed = {name: another(entry.hint) for name, entry in parameters(made).items() if entry.is_required}
    with pytest.raises(ConfigError, match=rf"^{made.__name__} uses {given.name} only with.*\. Drop .*\.{given.name}"):
        made(**needed | values)


def may_be(hint: Any, value: Any) -> bool:
    """Whether a hint allows a value."""
    with contextlib.suppress(MismatchError):
        fitted(hint, value)
        return True
    return False


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: SGD(lr=0.1, epochs=1, batches="full", batch_size=5),
            'SGD uses batch_size only with batches = "shuffled" or "replaced"; got batch_size = 5 and batches = "full".'
            ' Drop local.batch_size, or set local.batches = "shuffled" or "replaced".',
        ),
        (
            lambda: Greedy(mode="randomised", ties=True),
            'Greedy uses ties only with mode = "deterministic"; got ties = true and mode = "randomised". '
            'Drop filtering.ties, or set filtering.mode = "deterministic".',
        ),
        (
            lambda: Optimal(cohort_size=2, pool_size=3, iterations=7),
            'Optimal uses iterations only with probabilities = "iterative"; got iterations = 7 and probabilities = '
            '"exact". Drop selection.iterations, or set selection.probabilities = "iterative".',
        ),
        (
            lambda: Safari(lr=0.1, participants=3),
            'Safari uses participants only with client_prob = "theory"; got participants = 3 and client_prob = 0.5. '
            'Drop assist.participants, or set assist.client_prob = "theory".',
        ),
        (
            lambda: Deadline(phones=Phones(), up_bandwidth=1e5),
            "Deadline uses up_bandwidth only without phones; got up_bandwidth = 100000.0 and phones = "
            "Phones(folder=None). Drop fleet.clock.up_bandwidth or fleet.clock.phones.",
        ),
        (
            lambda: Deadline(incomplete="drop"),
            'Deadline uses incomplete only with deadline_seconds; got incomplete = "drop" and deadline_seconds = '
            '"none". Drop fleet.clock.incomplete, or give fleet.clock.deadline_seconds a value.',
        ),
    ],
)
def test_error_a_setting_without_effect_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError) as failure:
        make()
    assert str(failure.value) == message


def test_contract_a_void_setting_at_its_default_is_accepted() -> None:
    assert Optimal(cohort_size=2, pool_size=3, iterations=4) == Optimal(cohort_size=2, pool_size=3)


def test_contract_values_become_what_the_hint_says() -> None:
    solver = SGD(lr=np.float32(0.5), epochs=np.int64(2), momentum=0)  # type: ignore[arg-type]
    assert [type(value) for value in (solver.lr, solver.epochs, solver.momentum)] == [float, int, float]
    assert MLP(hidden=[8, np.int64(4)]) == MLP(hidden=(8, 4)) == MLP(hidden=np.array([8, 4]))  # type: ignore[arg-type]
    assert hash(MLP(hidden=[8])) == hash(MLP(hidden=(8,)))  # type: ignore[arg-type]
    assert Step(milestones=range(1, 3)).milestones == (1, 2)  # type: ignore[arg-type]
    assert Scheduled(arrivals={"3": 4}).arrivals == {3: 4}  # type: ignore[dict-item] # a study file has texts


def test_contract_a_rule_stays_a_frozen_dataclass_that_can_be_copied() -> None:
    solver = SGD(lr=0.1, epochs=1)
    assert replace(solver, lr=0.2).lr == 0.2
    assert pickle.loads(pickle.dumps(solver)) == solver
    with pytest.raises(FrozenInstanceError):
        solver.lr = 3.0  # type: ignore[misc]
    with pytest.raises(ConfigError, match="lr > 0"):
        replace(solver, lr=-1)


def test_error_an_unknown_setting_names_the_rule_the_nearest_and_all_settings() -> None:
    expected = r"^SGD has no setting momentun\. Did you mean momentum\? It has lr, .*momentum"
    with pytest.raises(ConfigError, match=expected) as refused:
        SGD(lr=0.1, epochs=1, momentun=0.9)  # type: ignore[call-arg]
    assert [problem.setting for problem in refused.value.problems] == ["local.momentun"]


def test_error_unknown_and_missing_settings_are_one_message() -> None:
    with pytest.raises(ConfigError) as refused:
        SGD(learning=0.1, epochs=1)  # type: ignore[call-arg]
    unknown, missing = str(refused.value).splitlines()
    assert unknown.startswith("SGD has no setting learning.")
    assert missing == "SGD needs lr. Set local.lr."
    with pytest.raises(ConfigError, match=r"^PowerOfChoice needs cohort_size\. Set selection\.cohort_size\."):
        PowerOfChoice()  # type: ignore[call-arg]


def test_error_a_setting_without_a_name_says_how_to_write_it() -> None:
    with pytest.raises(ConfigError, match=r"^SGD needs its settings by name; got 0\.1\. Write SGD\(lr=0\.1\)\.$"):
        SGD(0.1)  # type: ignore[call-arg]


def test_error_a_recipe_refuses_unknown_and_missing_settings_like_a_rule() -> None:
    with pytest.raises(ConfigError, match=r"^fedavg has no setting epoch\. Did you mean epochs\? It has lr, epochs"):
        fedavg(lr=0.1, epoch=1)  # type: ignore[call-arg]


def test_contract_a_rule_given_by_name_or_table_is_read_as_that_rule() -> None:
    assert SGD(lr=0.1, epochs=1, schedule="inverse").schedule == Inverse()  # type: ignore[arg-type]
    table = {"use": "step", "milestones": [3]}
    assert SGD(lr=0.1, epochs=1, schedule=table).schedule == Step(milestones=(3,))  # type: ignore[arg-type]


def test_contract_classes_of_ones_own_are_checked_only_if_they_ask_for_it() -> None:
    @dataclass(frozen=True)
    class Plain:
        cohort_size: int = 1

    @rule("selection")
    class Checked:
        cohort_size: Count = 1

    class Inherited(SGD):
        """A solver of one's own."""

    assert Plain(cohort_size=0.5).cohort_size == 0.5  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^Checked needs cohort_size >= 1; got 0\. Change selection\.cohort_size\.$"):
        Checked(cohort_size=0)
    with pytest.raises(ConfigError, match=r"^Inherited needs lr > 0; got 0\. Change local\.lr\.$"):
        Inherited(lr=0, epochs=1)


def test_contract_an_error_carries_the_path_of_the_setting_to_change() -> None:
    with pytest.raises(ConfigError) as caught:
        SGD(lr=-1.0, epochs=1)
    (problem,) = pickle.loads(pickle.dumps(caught.value)).problems
    assert (problem.setting, problem.message) == ("local.lr", str(caught.value))
    with pytest.raises(ConfigError) as caught:
        FedBuff(buffer_size=5, concurrency=2)
    assert [problem.setting for problem in caught.value.problems] == ["asynchrony.buffer_size"]


def test_contract_the_line_comes_from_the_path_and_not_from_the_text(tmp_path: Path) -> None:
    (tmp_path / "own_rule_text.py").write_text(
        "from dataclasses import dataclass\n"
        "from turnout.errors import ConfigError\n"
        "@dataclass\nclass Own:\n    first: int = 1\n    second: int = 2\n"
        "    def __post_init__(self):\n"
        "        raise ConfigError('Set selection.first to less.', setting='selection.second')\n"
        "    def choose(self, pool, view, ask): ...\n"
    )
    file = tmp_path / "study.toml"
    file.write_text(
        'rounds = 1\ndata = { use = "digits", clients = 4 }\nmodel = "softmax"\nlocal = { lr = 0.1, epochs = 1 }\n'
        '[selection]\nuse = "own_rule_text:Own"\nfirst = 1\nsecond = 2\n'
    )
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(ConfigError, match=r"study\.toml:8: Set selection\.first to less\."):
            load_study(file, allow_code=True)
    finally:
        sys.path.remove(str(tmp_path))
