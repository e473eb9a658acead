"""Masked labels: logits of labels that a client does not hold are 0 in training, and their rows are not averaged."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.support.width_checks import (
    assert_one_masked_step_is_that_of_plain_autograd,
)
from tests.support.width_runs import TASKS, federation_of, mlp, slices_of, task_of, width_run
from turnout.coordinator import Trust
from turnout.data.federation import Federation, from_clients
from turnout.engine import Sequential, Task
from turnout.engine.vectorised.engine import Vectorised
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.models import MLP
from turnout.models.slices import Slices
from turnout.selection import Uniform
from turnout.submodels import Labels, Parts, Submodel
from turnout.width import Nested, Ordered, Random, Rolling

RATES = (1.0, 0.5)
RULES: dict[str, Any] = {"nested": Nested, "rolling": Rolling, "random": Random, "ordered": Ordered}
HELD = ((0, 1), (1, 2), (0, 1, 2), (0,), (1,), (0, 1, 2))  # labels of each client; nobody holds 3


def few_labels(name: str = "mlp") -> Task:
    """Return a task with four labels in which clients hold some of the first three."""
    rng, whole = np.random.default_rng(1), TASKS[name]()
    shape, text = whole.federation.example_shape, 7 if name == "lstm" else 0

    def samples(labels: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        x = rng.integers(0, text, (8, *shape)) if text else rng.normal(size=(8, *shape))
        return torch.tensor(x), torch.tensor(np.resize(labels, 8))

    held = HELD[: whole.federation.num_clients]
    federation: Federation = from_clients([samples(labels) for labels in held], num_classes=4, holdout=0.0)
    module = whole.module
    head = [layer for layer in module.modules() if isinstance(layer, nn.Linear)][-1]
    head.out_features, generator = 4, torch.Generator().manual_seed(3)
    head.weight = nn.Parameter(0.3 * torch.randn(4, head.in_features, generator=generator))
    head.bias = nn.Parameter(0.3 * torch.randn(4, generator=generator))
    return task_of(module, federation)


@pytest.mark.parametrize("rule", RULES)
def test_identity_clients_that_hold_every_label_train_as_without_the_mask(rule: str) -> None:
    rng = np.random.default_rng(0)
    clients = [(torch.tensor(rng.normal(size=(6, 5))), torch.tensor([0, 1, 2, 0, 1, 2])) for _ in range(5)]
    task = task_of(
        MLP(hidden=(8, 6)).build((5,), 3, torch.Generator().manual_seed(1)),
        from_clients(clients, num_classes=3, holdout=0.0),
    )
    plain, records = width_run(task, RULES[rule](rates=RATES))
    masked, others = width_run(task, RULES[rule](rates=RATES, mask_labels=True))
    assert torch.equal(plain.model, masked.model)
    assert [record.costs for record in records] == [record.costs for record in others]


@pytest.mark.parametrize("engine", [Sequential(), Vectorised(block=2)], ids=["sequential", "vectorised"])
def test_golden_one_step_of_two_clients_is_that_of_plain_autograd(engine: Any) -> None:
    assert_one_masked_step_is_that_of_plain_autograd(engine)


@pytest.mark.parametrize("rule", RULES)
def test_property_a_row_of_a_label_that_nobody_holds_stays_as_it_was(rule: str) -> None:
    task = few_labels()
    local = SGD(lr=0.1, epochs=1, batch_size=4, weight_decay=0.1)
    before = task.layout.views(task.layout.flatten(task.module).clone())
    final, _ = width_run(task, RULES[rule](rates=RATES, mask_labels=True), local=local)
    after = task.layout.views(final.model)
    for name in ("5.weight", "5.bias"):
        assert torch.equal(after[name][3], before[name][3])
        assert (after[name][:3] != before[name][:3]).all()


def test_golden_the_weights_of_a_label_are_those_of_the_clients_that_hold_it() -> None:
    """Parameters 0 to 3: of no label, of label 0, of label 1, and of label 0 in the wide submodel alone."""
    narrow, whole = Submodel((1,), torch.arange(3), 0.5, False), Submodel((2,), torch.arange(4), 1.0, True)
    labels = Labels(np.array([[True, False], [True, True], [False, True]]), torch.tensor([-1, 0, 1, 0]))
    parts = Parts(clients=np.arange(3), submodels=(narrow, whole), which=np.array([0, 1, 1]), size=4, labels=labels)
    balance = parts.balance(np.arange(3), np.array([0.5, 0.3, 0.2]))
    assert balance.tolist() == pytest.approx([1.0, 1 / 0.8, 1 / 0.5, 1 / 0.3])
    later = parts.keep(np.array([0, 2]))
    assert later.balance(np.array([0, 2]), np.array([0.5, 0.2])).tolist() == pytest.approx([1.0, 1.4, 3.5, 0.0])


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("rule", RULES)
def test_engine_both_engines_agree_on_masked_labels(name: str, rule: str) -> None:
    local = SGD(lr=0.05, steps=3, batch_size=4, prox_strength=0.1, weight_decay=0.01)
    made = RULES[rule](rates=RATES, mask_labels=True)
    one, records = width_run(few_labels(name), made, rounds=2, local=local, engine=Sequential())
    other, others = width_run(few_labels(name), made, rounds=2, local=local, engine=Vectorised(block=2))
    torch.testing.assert_close(one.model, other.model)
    np.testing.assert_allclose(records[-1].losses, others[-1].losses, rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_contract_rows_and_their_sum_give_the_same_model_with_masked_labels(rule: str) -> None:
    made, some = RULES[rule](rates=RATES, mask_labels=True), Uniform(cohort_size=4)
    summed, _ = width_run(few_labels(), made, selection=some)
    rows, _ = width_run(few_labels(), made, selection=some, trust=Trust(max_norm=1e6))
    torch.testing.assert_close(summed.model, rows.model)


def test_golden_norms_count_what_is_sent() -> None:
    """Weight decay moves rows of masked labels at the client; a limit on norms does not see them."""
    task, local = few_labels(), SGD(lr=0.1, steps=1, weight_decay=1.0)
    with torch.no_grad():
        dict(task.module.named_parameters())["5.weight"][3] = 1e4
    final, records = width_run(
        task, Nested(rates=(1.0,), mask_labels=True), rounds=1, local=local, trust=Trust(max_norm=50.0)
    )
    assert records[-1].answered.tolist() == list(range(6))
    assert torch.isfinite(final.model).all()


def test_property_the_mask_changes_training_and_nothing_else_of_a_round() -> None:
    plain, records = width_run(few_labels(), Nested(rates=RATES))
    masked, others = width_run(few_labels(), Nested(rates=RATES, mask_labels=True))
    assert not torch.equal(plain.model, masked.model)
    assert [record.costs for record in records] == [record.costs for record in others]


class _LogSoftmax(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(self.head(torch.relu(self.a(x))), 1)


def test_error_a_model_without_a_last_linear_layer_says_so() -> None:
    with pytest.raises(ConfigError, match="mask_labels needs a model that ends with a linear layer, one"):
        Slices.of(_LogSoftmax(), torch.randn(1, 5, generator=torch.Generator().manual_seed(0))).label_columns()


def test_error_data_without_labels_are_refused() -> None:
    rng = np.random.default_rng(0)
    clients = [(torch.tensor(rng.normal(size=(6, 5))), torch.tensor(rng.normal(size=(6, 3)))) for _ in range(3)]
    task = task_of(MLP(hidden=(4,)).build((5,), 3, torch.Generator()), from_clients(clients, holdout=0.0))
    with pytest.raises(ConfigError, match="mask_labels = true needs to know how many samples of each label"):
        width_run(task, Nested(rates=(1.0,), mask_labels=True))


def test_golden_the_last_layer_has_a_row_per_label() -> None:
    task = mlp(hidden=(4,))
    of_column = slices_of(task).label_columns()
    views = task.layout.views(of_column)
    assert (views["1.weight"] == -1).all()
    assert views["3.weight"].tolist() == [[label] * 4 for label in range(3)]
    assert views["3.bias"].tolist() == [0, 1, 2]
    assert federation_of((5,)).num_classes == 3
