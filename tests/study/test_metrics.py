"""What is measured follows from the labels and the model's outputs, whatever the loss is."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.journal_records import add_run, journal
from tests.support.runs import run
from tests.support.tasks import blob_federation, blob_task
from turnout.aggregation import FedAvg
from turnout.asynchrony import FedBuff
from turnout.coordinator import Cadence, Plan
from turnout.data.federation import Federation, from_clients
from turnout.engine import Engine, Sequential, Task
from turnout.engine.task import Question
from turnout.errors import ConfigError, DataError
from turnout.fleet import Fleet
from turnout.fleet.clock import Deadline
from turnout.journal import frames
from turnout.local import SGD
from turnout.losses import Loss, cross_entropy
from turnout.metrics import EVALUATED, RESERVED, measurable
from turnout.protocols import Combined
from turnout.requests import Answer, Evaluated
from turnout.study import Study, resolved_settings


def focal(output: Tensor, target: Tensor, power: float = 2.0) -> Tensor:
    """Cross-entropy that counts less what the model already knows."""
    entropy = F.cross_entropy(output, target, reduction="none")
    return (1 - torch.exp(-entropy)) ** power * entropy


def one_against_all(output: Tensor, target: Tensor) -> Tensor:
    """Squared distance from the label written as one and zeros."""
    return (output - F.one_hot(target, output.shape[1])).square().sum(1)


LOSSES: dict[str, Loss] = {
    "module": nn.CrossEntropyLoss(reduction="none"),
    "smoothed": nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1),
    "weighted": nn.CrossEntropyLoss(reduction="none", weight=torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)),
    "focal": focal,
    "partial": partial(focal, power=1.0),
    "squares": one_against_all,
}
SMALL: dict[str, Any] = {
    "data": blob_federation(),
    "model": nn.Linear(4, 3).double(),
    "local": SGD(lr=0.1, steps=1),
    "rounds": 2,
}


def binary() -> Federation:
    generator = torch.Generator().manual_seed(0)
    pairs = [(torch.randn(9, 4, generator=generator), torch.randint(0, 2, (9,), generator=generator)) for _ in range(3)]
    return from_clients(pairs, test=pairs[0], num_classes=2)


def one_logit(output: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(output.flatten(), target.float(), reduction="none")


def measured(metrics: Iterable[str]) -> tuple[str, ...]:
    """Return the metrics that are evaluated, leaving out what rules report."""
    return tuple(name for name in EVALUATED if name in metrics)


@pytest.mark.parametrize("loss", list(LOSSES))
def test_engine_accuracy_is_measured_under_any_loss(loss: str, any_engine: Callable[[], Engine]) -> None:
    known = blob_task()
    own = Task(federation=known.federation, module=known.module, loss=LOSSES[loss])
    model, records = run(own, Plan(local=SGD(lr=0.1, steps=2), rounds=2), engine=any_engine())
    assert measured(records[-1].metrics) == EVALUATED
    assert records[-1].metrics["accuracy"] == pytest.approx(share_right(own, model.model))


def share_right(task: Task, model: Tensor) -> float:
    test = task.federation.test
    assert test is not None
    with torch.no_grad():
        output = torch.func.functional_call(task.module, task.layout.views(model), (test.x,))
    return float((output.argmax(1) == test.y).double().mean())


def test_engine_runs_that_advance_together_measure_under_a_loss_of_their_own() -> None:
    result = Study(**SMALL, loss=LOSSES["smoothed"], seeds=3).run(together=3)
    assert measured(result.loaded.metrics) == EVALUATED
    assert result.loaded.rounds["accuracy"].between(0, 1).all()
    assert result.comparison().metric == "accuracy"


def test_golden_what_can_be_measured_follows_from_labels_and_outputs() -> None:
    labels, numbers = torch.zeros(5, dtype=torch.int64), torch.zeros(5)
    assert measurable(torch.zeros(5, 3), labels, 3) == EVALUATED
    assert measurable(torch.zeros(5, 4), labels, 3) == EVALUATED  # an output that no label has
    alone = ("loss",)
    assert measurable(torch.zeros(5, 3), labels, None) == alone  # whole numbers that are no classes
    assert measurable(torch.zeros(5, 3), numbers, 3) == alone
    assert measurable(torch.zeros(5, 1), labels, 2) == alone  # a logit, or a probability?
    assert measurable(torch.zeros(5), labels, 2) == alone
    assert measurable(torch.zeros(5, 3), torch.zeros(5, 7, dtype=torch.int64), 3) == alone  # several labels a sample
    assert measurable(torch.zeros(5, 3, 7), torch.zeros(5, 7, dtype=torch.int64), 3) == alone
    assert measurable(torch.zeros(5, 7, 3), torch.zeros(5, 7, dtype=torch.int64), 3) == alone


def test_golden_one_output_for_two_classes_has_a_loss_and_no_accuracy() -> None:
    study: dict[str, Any] = {**SMALL, "data": binary(), "model": nn.Linear(4, 1), "loss": one_logit}
    assert measured(Study(**study).run().loaded.metrics) == ("loss",)
    message = r"names accuracy, which cannot be measured on clients: accuracy needs one class index per sample"
    with pytest.raises(ConfigError, match=rf"evaluate.metrics {message}"):
        Study(**study, evaluate=Cadence(metrics=("accuracy",))).run()
    with pytest.raises(ConfigError, match=rf"target {message}"):
        Study(**study, target={"accuracy": 0.8}).run()


def test_golden_metrics_can_be_named() -> None:
    with_accuracy = Study(**SMALL, evaluate=Cadence(metrics=("accuracy",))).run()
    assert measured(with_accuracy.loaded.metrics) == EVALUATED
    without = Study(**SMALL, evaluate=Cadence(metrics=("loss",))).run()
    assert measured(without.loaded.metrics) == ("loss",)


def test_error_metrics_that_are_not_there_or_contradict() -> None:
    with pytest.raises(ConfigError, match=r'needs metrics to be a list, each one of "loss", "accuracy"; got \["f1"\]'):
        Cadence(metrics=("f1",))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"evaluate.clients_every measures the accuracy of every client"):
        Cadence(clients_every=2, metrics=("loss",))


@pytest.mark.parametrize("loss", [None, LOSSES["module"], LOSSES["smoothed"], focal, cross_entropy])
def test_error_a_model_with_too_few_outputs_is_said_under_any_loss(loss: Loss | None) -> None:
    data = from_clients([(torch.randn(4, 4).double(), torch.tensor([0, 1, 2, 4]))], num_classes=5)
    with pytest.raises(DataError, match=r"lie in 0…4, but Linear has 3 outputs. Give the model 5 outputs"):
        Study(**{**SMALL, "data": data}, loss=loss).run()


def test_golden_losses_made_in_python_are_told_apart_in_the_record() -> None:
    names = [resolved_settings(Study(**SMALL, loss=loss))["loss"] for loss in LOSSES.values()]
    assert len({str(name) for name in names}) == len(names)
    assert names[0] == resolved_settings(Study(**SMALL, loss=nn.CrossEntropyLoss(reduction="none")))["loss"]
    assert (names[0]["made_in_python"], names[0]["name"]) == ("loss", "CrossEntropyLoss")
    assert names[3] == "tests.study.test_metrics:focal"


class Reports:
    """FedAvg that reports a number of itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def combine(self, rows: Any, memory: Any, view: Any, ask: Any) -> Combined:
        coefficients = FedAvg().coefficients(rows.facts)
        direction = rows.delta.new_tensor(coefficients) @ rows.delta
        return Combined(direction=direction, coefficients=coefficients, memory=memory, metrics={self.name: 1.0})


@pytest.mark.parametrize("name", ["asked", "bytes", "cumulative_bytes", "accuracy", "a\nb", ""])
def test_error_a_rule_cannot_report_under_a_name_that_is_taken(name: str) -> None:
    with pytest.raises(ConfigError, match=r"A rule reports a metric named .*which is reserved or not 1 to"):
        Study(**SMALL, aggregation=Reports(name)).run()
    assert "drift" in Study(**SMALL, aggregation=Reports("drift")).run().loaded.metrics


def test_error_a_rule_of_a_server_that_does_not_wait_cannot_either() -> None:
    fleet = Fleet(clock=Deadline())
    with pytest.raises(ConfigError, match=r"A rule reports a metric named 'asked'"):
        Study(**SMALL, aggregation=Reports("asked"), fleet=fleet, asynchrony=FedBuff(buffer_size=2)).run()


class Misnames(Sequential):
    """An engine that measures under a name that is taken."""

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        return [
            replace(answer, metrics={"asked": 1.0}) if isinstance(answer, Evaluated) else answer
            for answer in super().answer(questions)
        ]


def test_contract_what_an_engine_measures_under_a_name_that_is_taken_is_left_out() -> None:
    rounds = Study(**SMALL).run(engine=Misnames()).loaded.rounds
    assert not rounds["evaluated"].any()
    assert all("the model could not be evaluated" in events for events in rounds["events"])


def test_contract_the_names_that_are_taken_are_the_columns_of_the_rounds() -> None:
    with journal() as out:
        add_run(out, "A", 0, [0.1, 0.2])
        assert {*frames(out).rounds.columns} - {*EVALUATED} == RESERVED
