"""Any module: however it shares, freezes, draws or changes in place, it is trained as PyTorch would train it."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.engine_plans import SOLVERS, plan
from tests.support.engine_requests import LOCAL, answered, by_hand, request
from tests.support.runs import run
from tests.support.tasks import LastStep, blob_federation, seeded, text_federation
from turnout import losses
from turnout.data import Federation
from turnout.data.federation import from_clients
from turnout.engine import Sequential, Task, Vectorised
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.models.layout import Layout
from turnout.streams import Streams


class Two(nn.Module):
    """Two linear layers, for others to use in their own ways."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.rectify, self.second = nn.Linear(4, 20), nn.ReLU(inplace=True), nn.Linear(20, 3)

    def forward(self, x: Any) -> Any:
        return self.second(self.rectify(self.first(x)))


class InPlace(Two):
    def forward(self, x: Any) -> Any:
        before = self.first(x)
        return self.second(self.rectify(before) + before)  # both have been rectified


class FunctionInPlace(Two):
    def forward(self, x: Any) -> Any:
        before = self.first(x)
        return self.second(F.relu(before, inplace=True) + before)


class Doubled(Two):
    def forward(self, x: Any) -> Any:
        return self.second(torch.add(self.first(x), torch.tanh(self.first(x)), alpha=2))


class Weighed(Two):
    def forward(self, x: Any) -> Any:
        first = self.first(x)
        return self.second(torch.add(first, torch.tanh(first), alpha=2))


class Tempered(Two):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Any) -> Any:
        return super().forward(x) * self.temperature


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.again.weight = self.first.weight

    def forward(self, x: Any) -> Any:
        return self.head(torch.relu(self.again(torch.relu(self.first(x)))))


class Half(Two):
    def __init__(self) -> None:
        super().__init__()
        self.first.requires_grad_(False)


class LastState(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 5, 2, batch_first=True, dropout=dropout), nn.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        _, (hidden, _) = self.lstm(x)
        return self.head(hidden[-1])


class WhileTraining(Two):
    def forward(self, x: Any) -> Any:
        return super().forward(2 * x if self.training else x)


class FunctionalDropout(Two):
    def forward(self, x: Any) -> Any:
        return self.second(F.dropout(self.first(x), 0.5, self.training))


def centred_chain() -> Any:
    return nn.Sequential(nn.Linear(4, 20), Centred(), nn.Linear(20, 3))


class Centred(nn.Module):
    """As BatchNorm without running statistics: no buffers, and every sample feels the others of its batch."""

    def forward(self, x: Any) -> Any:
        return x - x.mean(0)


class Words(nn.Module):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(6, 4, **settings), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.embed(x).mean(1))


def sparse_words() -> Any:
    return Words(sparse=True)


def words_by_frequency() -> Any:
    return Words(scale_grad_by_freq=True)


def tied_chain() -> Any:
    first, again = nn.Linear(4, 4), nn.Linear(4, 4)
    again.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), again, nn.ReLU(), nn.Linear(4, 3))


def frozen_chain() -> Any:
    chain = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 3))
    chain[0].weight.requires_grad_(False)
    return chain


def sequences() -> Federation:
    rng = np.random.default_rng(0)
    pairs = [(torch.tensor(rng.normal(size=(9 + i, 5, 4))), torch.tensor(rng.integers(0, 3, 9 + i))) for i in range(6)]
    return from_clients(pairs, num_classes=3)


def task_of(module: Any) -> Task:
    federation = blob_federation()
    if isinstance(module, LastState | LastStep | Words):
        federation = sequences() if isinstance(module, LastState) else text_federation()
    return Task(federation=federation, module=seeded(module), loss=losses.cross_entropy)


KINDS = [Two, InPlace, FunctionInPlace, Doubled, Weighed, Tempered, Tied, Half, LastState, WhileTraining]


pytestmark = pytest.mark.filterwarnings("ignore:.*cannot be stacked")  # said once, and tested elsewhere
CHAINS = [tied_chain, frozen_chain, centred_chain, sparse_words, words_by_frequency]


@pytest.mark.parametrize("make", [*KINDS, *CHAINS], ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "engine", [Sequential(), Vectorised("cpu", block=3), Vectorised("cpu", stack=False, workers=2)]
)
def test_engine_any_module_is_trained_as_pytorch_trains_it(make: type[Any], engine: Sequential) -> None:
    task = task_of(make())
    task.module.eval()  # whatever it comes as, clients train
    asked = request(task, None, LOCAL)
    answer = answered(engine, task, asked)
    task.module.train()
    for place in range(len(asked.clients)):
        assert torch.allclose(answer.delta[place], by_hand(task, asked, place), rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [Tempered, Tied, Half, sparse_words], ids=lambda make: make.__name__)
@pytest.mark.parametrize("local", SOLVERS.values(), ids=SOLVERS.keys())
def test_engine_every_solver_gives_the_same_model_of_odd_parameters(make: type[Any], local: SGD) -> None:
    task = task_of(make())
    reference, _ = run(task, plan(local))
    stacked, _ = run(task, plan(local), engine=Vectorised("cpu", block=3))
    assert not torch.equal(reference.model, task.layout.flatten(task.module))
    assert torch.allclose(stacked.model, reference.model, rtol=0, atol=1e-11)


@pytest.mark.parametrize("make", [FunctionalDropout, lambda: LastState(dropout=0.5)], ids=["F.dropout", "LSTM"])
def test_engine_what_is_drawn_globally_is_keyed_by_client(make: Callable[..., Any] | type[Any]) -> None:
    task = task_of(make())
    asked = request(task, None, SGD(lr=0.1, steps=2, batches="full"))  # nothing else is drawn
    torch.manual_seed(1)
    reference = answered(Sequential(), task, asked)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    again = answered(Vectorised("cpu", workers=2), task, asked)
    assert torch.equal(torch.get_rng_state(), before)  # what the user draws is as if nobody had
    assert torch.allclose(again.delta, reference.delta, rtol=0, atol=1e-12)
    other = answered(Sequential(), task, replace(asked, streams=Streams(1)))
    assert not torch.allclose(other.delta, reference.delta)


def test_engine_outputs_and_states_of_an_lstm_are_lowered() -> None:
    for make in (LastStep, LastState):
        task = task_of(make())
        assert [kernel.name for kernel in Vectorised("cpu")._prepare(task).kernels] == ["lowered"]


def test_golden_what_is_frozen_is_neither_trained_nor_sent() -> None:
    module = Half()
    layout = Layout.of(module)
    assert [slot.name for slot in layout.slots] == ["second.weight", "second.bias"]
    assert layout.size == 63
    before = copy.deepcopy(module.first.state_dict())
    layout.load(module, torch.zeros(63))
    assert all(torch.equal(before[name], value) for name, value in module.first.state_dict().items())


def test_error_a_model_with_nothing_to_train() -> None:
    with pytest.raises(
        ConfigError, match=r"needs a model with parameters that can change; Two has none. Give it some, or"
    ):
        task_of(Two().requires_grad_(False))


def test_error_a_batch_of_one_that_batch_norm_cannot_take() -> None:
    task = task_of(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)))
    local = SGD(lr=0.1, batch_size=int(task.federation.sizes[0]) - 1, epochs=1)
    asked = replace(request(task, None, local), buffers=task.layout.flatten_buffers(task.module))
    said = (
        r"gave client 0 one of 1 \(ValueError: Expected more than 1 value per channel.*\). Change local.batch_size so"
    )
    for engine in (Sequential(), Vectorised("cpu", workers=2)):
        with pytest.raises(ConfigError, match=said):
            engine.answer([(task, asked)])


def test_error_a_batch_that_the_loss_cannot_take_names_the_client() -> None:
    def refuses(out: Tensor, y: Tensor) -> None:
        raise RuntimeError("no loss for you\nand more lines")

    task = Task(federation=blob_federation(), module=seeded(nn.Linear(4, 3)), loss=refuses)  # type: ignore[arg-type]
    said = r"Linear needs batches .* client 0 one of 4 \(RuntimeError: no loss for you\). Look at what the model or"
    with pytest.raises(ConfigError, match=said):
        Sequential().answer([(task, request(task, None, LOCAL))])
