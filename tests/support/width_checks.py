"""What must be true of narrow models; the tests of widths use it, and mistakes made on purpose must fail it."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.width_runs import mlp, slices_of, task_of, width_run
from turnout.aggregation import FedAvg
from turnout.data.federation import from_clients
from turnout.fleet import Fleet
from turnout.local import SGD
from turnout.models import MLP
from turnout.models.layout import Layout
from turnout.protocols import Population, View
from turnout.streams import Streams
from turnout.submodels import Parts, Submodel
from turnout.width import Nested, Ordered, Random, Rolling


def view(round: int = 1, clients: int = 12, seed: int = 0) -> View:
    """Return what a rule sees in a round."""
    people = Population.of(np.full(clients, 10))
    return View(round=round, rounds=9, streams=Streams(seed), population=people, model=torch.zeros(1))


class Only:
    """One client is available."""

    def __init__(self, client: int) -> None:
        self.client = client

    def up(self, view: Any) -> Any:
        return np.array([self.client])


def assert_the_scaler_divides_hidden_outputs_in_training(engine: Any) -> None:
    """One full step of one client at rate 1/2 with hidden outputs times two, against plain autograd."""
    task = mlp(hidden=(8,))
    local, fleet = SGD(lr=0.1, steps=1), Fleet(availability=Only(2))
    final, records = width_run(
        task, Nested(rates=(0.5,), scaler=True), rounds=1, local=local, fleet=fleet, engine=engine
    )
    at = dict(task.module.named_parameters())
    whole = (at["1.weight"][:4], at["1.bias"][:4], at["3.weight"][:, :4], at["3.bias"])
    kept = [parameter.detach().clone().requires_grad_() for parameter in whole]
    slab = task.federation.train.fetch(np.array([2]))
    mine = slice(int(slab.starts[0]), int(slab.starts[0] + slab.sizes[0]))
    x, y = slab.x[mine], slab.y[mine]
    loss = torch.nn.functional.cross_entropy(torch.relu((x @ kept[0].T + kept[1]) / 0.5) @ kept[2].T + kept[3], y)
    gradients = torch.autograd.grad(loss, kept)
    moved = task.layout.views(final.model)
    after = (moved["1.weight"][:4], moved["1.bias"][:4], moved["3.weight"][:, :4], moved["3.bias"])
    for before, gradient, now in zip(kept, gradients, after, strict=True):
        torch.testing.assert_close(now, before.detach() - 0.1 * gradient)
    assert records[-1].losses == pytest.approx([float(loss.detach())])


def assert_a_parameter_is_averaged_over_the_clients_that_train_it() -> None:
    """Three clients with coefficients 1/2, 1/4, 1/4; client 0 trains all, 1 the first two, 2 the first alone."""
    columns = (torch.arange(4), torch.arange(2), torch.arange(1))
    submodels = tuple(Submodel((len(c),), c, 1.0, len(c) == 4) for c in columns)
    parts = Parts(clients=np.array([3, 5, 9]), submodels=submodels, which=np.arange(3), size=5)
    balance = parts.balance(np.array([3, 5, 9]), np.array([0.5, 0.25, 0.25]))
    deltas = torch.tensor([[1.0, 2.0, 3.0, 4.0, 0.0], [5.0, 6.0, 0.0, 0.0, 0.0], [9.0, 0.0, 0.0, 0.0, 0.0]]).double()
    direction = balance * (torch.tensor([0.5, 0.25, 0.25]).double() @ deltas)
    expected = [0.5 + 1.25 + 2.25, (0.5 * 2 + 0.25 * 6) / 0.75, 3.0, 4.0, 0.0]
    assert direction.tolist() == pytest.approx(expected)
    without_the_widest = parts.balance(np.array([5, 9]), np.array([0.25, 0.25]))
    assert without_the_widest.tolist() == pytest.approx([1.0, 2.0, 0.0, 0.0, 0.0])


def assert_one_round_is_the_mean_of_what_clients_do_alone() -> None:
    """Fail unless one round is the mean of what clients do alone."""
    task, rates = mlp(), (1.0, 0.5, 0.5, 0.25, 0.25, 0.25)
    slices, start = slices_of(task), task.layout.flatten(task.module)
    total, weight = torch.zeros_like(start), torch.zeros_like(start)
    sizes = task.federation.sizes
    for client, rate in enumerate(rates):
        alone, _ = width_run(
            task, Nested(rates=(rate,)), rounds=1, fleet=Fleet(availability=Only(client)), aggregation=FedAvg()
        )
        columns = slices.submodel([np.arange(int(np.ceil(rate * size))) for size in slices.sizes]).columns
        total[columns] += float(sizes[client]) * (start - alone.model)[columns]
        weight[columns] += float(sizes[client])
    together, _ = width_run(task, Nested(rates=rates, assign="listed"), rounds=1)
    expected = start - torch.where(weight > 0, total / weight.clamp(min=1), torch.zeros_like(total))
    torch.testing.assert_close(together.model, expected)


def assert_a_proximal_term_pulls_each_client_towards_what_it_was_sent() -> None:
    """One round of random units with a strong pull is the mean, per parameter, of what clients do alone."""
    task, rule = mlp(), Random(rates=(0.5,))
    local = SGD(lr=0.1, steps=6, batch_size=4, prox_strength=4.0)
    slices, start, sizes = slices_of(task), task.layout.flatten(task.module), task.federation.sizes
    total, weight = torch.zeros_like(start), torch.zeros_like(start)
    for client in range(len(sizes)):
        fleet = Fleet(availability=Only(client))
        alone, _ = width_run(task, rule, rounds=1, local=local, fleet=fleet)
        units = [rule.units(g, size, 0.5, np.array([client]), view())[0] for g, size in enumerate(slices.sizes)]
        columns = slices.submodel(units).columns
        total[columns] += float(sizes[client]) * (start - alone.model)[columns]
        weight[columns] += float(sizes[client])
    together, _ = width_run(task, rule, rounds=1, local=local)
    torch.testing.assert_close(together.model, start - total / weight.clamp(min=1))


def assert_decay_and_momentum_act_inside_the_slice_alone() -> None:
    """Client 0 trains all, the others half: what is outside of the half ends where client 0 alone takes it."""
    task, local = mlp(), SGD(lr=0.1, steps=3, batch_size=4, momentum=0.9, weight_decay=0.5)
    together, _ = width_run(task, Nested(rates=(1.0,) + (0.5,) * 5, assign="listed"), rounds=1, local=local)
    fleet = Fleet(availability=Only(0))
    alone, _ = width_run(task, Nested(rates=(1.0,)), rounds=1, local=local, fleet=fleet)
    outside = torch.ones(len(alone.model), dtype=torch.bool)
    outside[slices_of(task).submodel([np.arange(4), np.arange(3)]).columns] = False
    torch.testing.assert_close(together.model[outside], alone.model[outside])
    assert (together.model[~outside] != alone.model[~outside]).any()


def assert_evaluation_is_not_scaled() -> None:
    """A narrow model with the scaler computes in evaluation what it computes without, and so it is measured."""
    task, rule = mlp(), Nested(rates=(0.5,), scaler=True)
    final, records = width_run(task, rule, rounds=1)
    slices, test = slices_of(task), task.federation.test
    assert test is not None
    narrow = final.model[slices.submodel([np.arange(4), np.arange(3)]).columns]
    scaled, plain = slices.cut((4, 3), scaled=True).eval(), slices.cut((4, 3)).eval()
    for module in (scaled, plain):
        Layout.of(module).load(module, narrow)
    with torch.no_grad():
        torch.testing.assert_close(scaled(test.x), plain(test.x))
        loss = nn.functional.cross_entropy(plain(test.x), test.y)
    assert records[-1].metrics["loss_at_width_0.5"] == pytest.approx(float(loss))


def assert_clients_of_a_round_share_the_window() -> None:
    """In round 2, units 1 to 4 of 8 and 1 to 3 of 6 are trained, whoever trains: everything else stays as it was."""
    task, rule = mlp(), Rolling(rates=(0.5,))
    (before, _), (after, _) = (width_run(task, rule, rounds=rounds) for rounds in (1, 2))
    window = slices_of(task).submodel([np.arange(1, 5), np.arange(1, 4)]).columns
    outside = torch.ones(len(after.model), dtype=torch.bool)
    outside[window] = False
    assert torch.equal(before.model[outside], after.model[outside])
    assert not torch.equal(before.model[window], after.model[window])


def assert_bytes_and_gradients_count_the_slice() -> None:
    """Fail unless bytes and gradients count the slice."""
    task = mlp()  # 5 → 8 → 6 → 3 in float64
    _, records = width_run(task, Nested(rates=(1.0, 0.5, 0.5, 0.25, 0.25, 0.25), assign="listed"), rounds=1)
    numbers = {(8, 6): 48 + 54 + 21, (4, 3): 24 + 15 + 12, (2, 2): 12 + 6 + 9}
    sent = 8 * (numbers[8, 6] + 2 * numbers[4, 3] + 3 * numbers[2, 2])
    assert records[-1].costs.bytes_down == records[-1].costs.bytes_up == sent
    products = np.array([5 * 8 + 8 * 6 + 6 * 3, 5 * 4 + 4 * 3 + 3 * 3, 5 * 2 + 2 * 2 + 2 * 3])
    work = (task.federation.sizes * (products / products[0])[[0, 1, 1, 2, 2, 2]]).sum()
    assert records[-1].costs.gradient_evaluations == round(work)


def assert_a_window_that_stands_still_is_nested() -> None:
    """Fail unless a window that stands still is nested."""
    for round in range(1, 9):
        still = Rolling(rates=(0.5,), stride=0).units(0, 6, 0.5, np.arange(2), view(round))
        assert still.tolist() == Nested(rates=(0.5,)).units(0, 6, 0.5, np.arange(2), view(round)).tolist()


def assert_steps_draw_every_rate_equally_often() -> None:
    """Fail unless steps draw every rate equally often."""
    rule, own = Ordered(rates=(1.0, 0.5, 0.25)), np.array([1.0, 0.5, 0.25])
    drawn = rule.step_rates(np.arange(3), own, 3000, view())
    shares = [[(row == rate).mean() for rate in (0.25, 0.5, 1.0)] for row in drawn]
    assert abs(np.array(shares) - [[1 / 3] * 3, [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]).max() < 0.05
    shorter = rule.step_rates(np.array([1]), own[1:2], 10, view())
    assert np.array_equal(shorter[0], drawn[1, :10])


def assert_one_masked_step_is_that_of_plain_autograd(engine: Any) -> None:
    """Client 0 holds labels 0 and 1, client 1 label 1 alone; logits of the others are 0, not left out."""
    rng = np.random.default_rng(2)
    clients = [
        (torch.tensor(rng.normal(size=(4, 5))), torch.tensor([0, 1, 1, 0])),
        (torch.tensor(rng.normal(size=(2, 5))), torch.tensor([1, 1])),
    ]
    module = MLP(hidden=(4,)).build((5,), 3, torch.Generator().manual_seed(1))
    task = task_of(module, from_clients(clients, num_classes=3, holdout=0.0))
    with torch.no_grad():
        dict(module.named_parameters())["3.bias"].copy_(torch.tensor([0.5, -1.0, 2.0]))
    local = SGD(lr=0.1, steps=1, weight_decay=0.5)
    final, _ = width_run(task, Nested(rates=(1.0,), mask_labels=True), rounds=1, local=local, engine=engine)

    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    ends = []
    for (x, y), held in zip(clients, ([1.0, 1.0, 0.0], [0.0, 1.0, 0.0]), strict=True):
        at = {name: p.clone().requires_grad_() for name, p in before.items()}
        logits = torch.relu(x @ at["1.weight"].T + at["1.bias"]) @ at["3.weight"].T + at["3.bias"]
        loss = nn.functional.cross_entropy(logits * torch.tensor(held).double(), y)
        gradients = dict(zip(at, torch.autograd.grad(loss, list(at.values())), strict=True))
        ends.append({name: before[name] - 0.1 * (gradients[name] + 0.5 * before[name]) for name in at})
    after = task.layout.views(final.model)
    for name in ("1.weight", "1.bias"):
        torch.testing.assert_close(after[name], (4 * ends[0][name] + 2 * ends[1][name]) / 6)
    for name in ("3.weight", "3.bias"):
        torch.testing.assert_close(after[name][0], ends[0][name][0])  # client 0 alone holds label 0
        torch.testing.assert_close(after[name][1], (4 * ends[0][name][1] + 2 * ends[1][name][1]) / 6)
        assert torch.equal(after[name][2], before[name][2])  # nobody holds label 2
