"""A study as a value, and what running it promises."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.support.runs import models_of
from turnout import losses
from turnout.aggregation import FedAvg
from turnout.coordinator import Turnover
from turnout.data.digits import Digits
from turnout.data.federation import Federation, from_clients
from turnout.data.partition import Dirichlet
from turnout.errors import ConfigError, DataError, JournalError
from turnout.fleet import Bernoulli, Fleet, Scheduled
from turnout.local import SGD
from turnout.models import MLP, Softmax
from turnout.requests import Record
from turnout.selection import Uniform
from turnout.study import Arm, Study, arm, load_study, resolved_settings

SMALL: dict[str, Any] = {
    "data": Digits(clients=12, partition=Dirichlet(concentration=0.5, min_size=5)),
    "model": Softmax(),
    "local": SGD(lr=0.2, batch_size=16, epochs=1),
    "fleet": Fleet(availability=Bernoulli(prob=0.6)),
    "selection": Uniform(cohort_size=4),
    "rounds": 3,
}
ARMS = (arm("ratio"), arm("mean", aggregation=FedAvg(weighting="mean")))


def same(left: dict[Any, Tensor], right: dict[Any, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[key], right[key]) for key in left)


def own_clients() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(n, 4, generator=generator), torch.randint(0, 3, (n,), generator=generator)) for n in (5, 8, 13)
    ]


class Net(nn.Module):
    """A module that no shipped rule knows."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.layer = nn.Linear(4, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).tanh() * 3  # type: ignore[no-any-return]


def test_contract_arms_of_a_seed_meet_the_same_world() -> None:
    found = Study(**{**SMALL, "model": MLP(hidden=(4,))}, arms=ARMS, seeds=2).run(engine="sequential").loaded
    start = found.rounds[found.rounds["round"] == 0].set_index(["arm", "seed"])["loss"]
    for seed in (0, 1):
        assert start["ratio", seed] == start["mean", seed]
        for round in (1, 2, 3):
            assert np.array_equal(found.up("ratio", seed, round), found.up("mean", seed, round))
    assert start["ratio", 0] != start["ratio", 1]


def test_engine_how_many_advance_together_changes_nothing() -> None:
    study = Study(**SMALL, arms=ARMS, seeds=2)
    assert same(models_of(study.run(engine="sequential")), models_of(study.run(engine="sequential", together=1)))


def test_engine_both_engines_end_at_the_same_models() -> None:
    study = Study(**SMALL, arms=ARMS, seeds=2)
    one, other = (models_of(study.run(engine=engine)) for engine in ("sequential", "vectorised"))
    for place in one:
        torch.testing.assert_close(one[place], other[place], rtol=1e-4, atol=1e-5)


def test_contract_seeds_are_counted_from_zero_or_given() -> None:
    assert Study(**SMALL, seeds=3).all_seeds == (0, 1, 2)
    assert Study(**SMALL, seeds=(7, 3)).all_seeds == (7, 3)
    assert set(models_of(Study(**SMALL, seeds=(7, 3)).run())) == {("study", 7), ("study", 3)}


def test_contract_data_is_redrawn_with_each_seed_unless_it_has_its_own() -> None:
    def asked(study: Study) -> dict[int, dict[int, int]]:
        frame = study.run().loaded.clients
        return {seed: dict(zip(f["client"], f["asked_steps"], strict=True)) for seed, f in frame.groupby("seed")}  # type: ignore[misc]

    everyone = {**SMALL, "selection": Uniform(), "fleet": Fleet(), "rounds": 1, "seeds": 2}
    redrawn, fixed = asked(Study(**everyone)), asked(Study(**everyone, data_seed=0))
    assert redrawn[0] != redrawn[1]
    assert fixed[0] == fixed[1] == redrawn[0]


def test_contract_any_module_and_any_data_will_do() -> None:
    module = Net()
    before = [parameter.detach().clone() for parameter in module.parameters()]
    study = Study(
        data=from_clients(own_clients(), test=own_clients()[0]),
        model=module,
        loss=losses.cross_entropy,
        local=SGD(lr=0.1, batch_size=4, epochs=1),
        rounds=2,
        seeds=2,
    )
    result = study.run()
    starts = result.loaded.rounds.query("round == 0")["loss"]
    assert starts.nunique() == 1  # the module's present parameters are everyone's start
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert "study" in result.table()
    assert result.verdict().startswith("There is only one arm")


def test_contract_a_module_class_named_in_a_file_is_drawn_from_each_seed(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f"""rounds = 1
        data = {{ use = "{__name__}:Mine" }}
        model = {{ use = "{__name__}:Net", outputs = 3 }}
        local = {{ lr = 0.1, steps = 1 }}
        seeds = 2""")
    study = load_study(file, allow_code=True)
    assert resolved_settings(study)["model"] == {"use": f"{__name__}:Net", "outputs": 3}
    starts = study.run().loaded.rounds.query("round == 0")["loss"]
    assert starts.nunique() == 2
    assert study.run().loaded.rounds.query("round == 0")["loss"].tolist() == starts.tolist()


class Mine:
    """A source of one's own."""

    def build(self, streams: object) -> Federation:
        return from_clients(own_clients(), test=own_clients()[0])


def test_contract_regression_is_measured_by_the_squared_error() -> None:
    clients = [(x, x[:, :2].clone()) for x, _ in own_clients()]
    study = Study(data=from_clients(clients, test=clients[0]), model=Softmax(), local=SGD(lr=0.01, steps=2), rounds=2)
    found = study.run().loaded
    assert "loss" in found.metrics
    assert "accuracy" not in found.metrics


def test_contract_a_finished_folder_is_read_and_not_run_again(tmp_path: Path) -> None:
    study = Study(**SMALL, arms=ARMS)
    first = study.run(tmp_path / "out")
    again = study.run(tmp_path / "out")
    assert (first.was_finished, again.was_finished) == (False, True)
    assert again.table() == first.table()


def test_contract_more_seeds_of_another_study_do_not_share_a_folder(tmp_path: Path) -> None:
    Study(**SMALL).run(tmp_path / "out")
    with pytest.raises(JournalError, match="already holds"):
        Study(**{**SMALL, "rounds": 4}).run(tmp_path / "out")


def test_contract_a_stopped_study_keeps_what_is_finished_and_goes_on(tmp_path: Path) -> None:
    study = Study(**SMALL, arms=ARMS, seeds=2)

    def stop(arm: str, seed: int, record: Record) -> None:
        if seed == 1 and record.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.run(tmp_path / "out", engine="sequential", on_progress=stop, together=2)
    rest = study.run(tmp_path / "out", engine="sequential")
    whole = study.run(engine="sequential")
    assert rest.table() == whole.table()
    assert same(models_of(rest), models_of(whole))
    again = study.run(tmp_path / "out", engine="sequential")  # read back, not run again
    assert same(models_of(again), models_of(whole))


def test_contract_progress_tells_every_round_of_every_run() -> None:
    told: list[tuple[str, int, int]] = []
    Study(**SMALL, arms=ARMS, seeds=2).run(on_progress=lambda arm, seed, record: told.append((arm, seed, record.round)))
    assert sorted(told) == sorted((arm.name, seed, r) for arm in ARMS for seed in (0, 1) for r in range(4))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"selection": Uniform(cohort_size=13)},
            ConfigError,
            "needs cohort_size <= the number of clients; got 13 > 12",
        ),
        ({"data": Digits(clients=5000)}, DataError, "5000"),
        (
            {"model": Net()},
            ConfigError,
            r"Net with the loss cross_entropy fails on a sample of digits, of shape \(64,\)",
        ),
        ({"loss": nn.functional.cross_entropy}, ConfigError, r"A loss must return one value per sample; .* shape \(\)"),
        (
            {"data": from_clients(own_clients(), num_classes=5), "model": Net(), "selection": Uniform()},
            DataError,
            r"labels of clients lie in 0…4, but Net has 3 outputs. Give the model 5 outputs",
        ),
    ],
)
def test_error_what_cannot_run_is_said_before_a_folder_is_made(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Study(**{**SMALL, **changes}).run(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_error_an_unknown_engine_lists_the_engines() -> None:
    with pytest.raises(
        ConfigError, match=r"no engine 'vectorized'. Did you mean vectorised\? There are vectorised, sequential and ray"
    ):
        Study(**SMALL).run(engine="vectorized")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": 0}, "A study needs rounds >= 1"),
        ({"seeds": True}, "seeds must be a number of seeds, or a list of whole numbers"),
        ({"seeds": [0, -1]}, "seeds must be a number of seeds, or a list of whole numbers from 0 up"),
        ({"name": "../up"}, "A study's name also names its folder"),
        ({"arms": (Arm("a"), Arm("a"))}, "Arms need names of their own; 'a' is used 2 times"),
    ],
)
def test_error_impossible_values_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Study(**{**SMALL, **changes})


def test_error_turnover_without_members_that_change_is_refused_unless_an_arm_has_some() -> None:
    leaves = {"fleet": Fleet(membership=Scheduled(departures={1: 2}))}
    given = Turnover(on_departure="exclude")
    for changes in ({"turnover": given}, {"arms": (arm("a"), arm("b", turnover=given))}):
        with pytest.raises(ConfigError, match=r"turnover has an effect only if clients arrive and depart, and no arm"):
            Study(**{**SMALL, **changes})
    Study(**SMALL, turnover=given, arms=(arm("fixed"), arm("changing", **leaves)))
    Study(**{**SMALL, **leaves}, arms=(arm("a", turnover=given),))


def test_error_an_arm_changes_sections_that_exist() -> None:
    with pytest.raises(ConfigError, match=r"Arm 'a' cannot change selektion. Did you mean selection\?"):
        arm("a", selektion=Uniform())


def test_contract_data_and_modules_made_in_python_are_told_apart() -> None:
    federation, other = from_clients(own_clients()), from_clients(own_clients()[::-1])
    make: Callable[..., Any] = lambda data, model: Study(**{**SMALL, "data": data, "model": model})  # noqa: E731
    net = Net()
    plain = resolved_settings(make(federation, net))
    assert plain == resolved_settings(make(from_clients(own_clients()), net))
    assert plain["data"] != resolved_settings(make(other, net))["data"]
    assert plain["model"] != resolved_settings(make(federation, Net()))["model"]


def test_bad_input_a_study_with_unknown_missing_or_unnamed_settings_is_one_message() -> None:
    with pytest.raises(ConfigError, match=r"Study has no setting round\. Did you mean rounds\?") as error:
        Study(data=Digits(), model=MLP(), local=SGD(lr=0.1, epochs=1), round=3)  # type: ignore[call-arg]
    assert "Study needs rounds. Pass rounds=… to it." in str(error.value)
    with pytest.raises(ConfigError, match="Study needs its settings by name"):
        Study(Digits())  # type: ignore[call-arg]
