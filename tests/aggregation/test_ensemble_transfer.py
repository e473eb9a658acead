"""Fed-ET: what the server learns from models of different architectures."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from tests.support.families import LOCAL, family_run, family_task, members_of
from tests.support.runs import run
from turnout import aggregation, attacks, filtering, selection, server
from turnout.aggregation import EnsembleTransfer, FedAvg
from turnout.aggregation.ensemble_transfer import _outputs, confidence_weights, ensemble_targets
from turnout.coordinator import Plan
from turnout.coordinator.compatibility import problems
from turnout.distillation import Distil, Predicted
from turnout.engine import Sequential, Task, Vectorised
from turnout.engine.distillation import soft_loss
from turnout.errors import ConfigError
from turnout.generators import relay
from turnout.local import SGD
from turnout.models import MLP, Family
from turnout.models.layout import Layout
from turnout.selection import Uniform
from turnout.streams import SERVER, Streams
from turnout.width import Architectures, Nested

FEW = EnsembleTransfer(steps=6, lr=0.05, batch_size=5)


def outputs_of(seed: int, clients: int = 3, samples: int = 4, classes: int = 3) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=(clients, samples, classes)))


def test_golden_two_clients_that_disagree() -> None:
    outputs = torch.tensor([[[2.0, 0.0]], [[0.0, 6.0]]])
    weights = confidence_weights(outputs, torch.ones(2), "logits")
    assert torch.allclose(weights, torch.tensor([[0.1], [0.9]]))  # variances 1 and 9
    target = ensemble_targets(outputs, weights, 0.5)
    opinion = torch.tensor([2.0, 0.0]).softmax(0)  # of the first client, which alone disagrees
    assert torch.allclose(target, torch.tensor([[0.0, 1.0]]) + 0.5 * opinion)


def test_golden_the_variance_of_probabilities_does_not_grow_with_the_outputs() -> None:
    outputs = torch.tensor([[[0.0, 50.0]], [[0.0, 5000.0]]])
    assert torch.allclose(confidence_weights(outputs, torch.ones(2), "softmax"), torch.full((2, 1), 0.5))


@given(seed=st.integers(0, 99), factor=st.floats(1.1, 5.0))
@settings(max_examples=20)
def test_property_weights_sum_to_one_and_grow_with_the_square_of_the_outputs(seed: int, factor: float) -> None:
    outputs, votes = outputs_of(seed), torch.ones(3, dtype=torch.float64)
    before = confidence_weights(outputs, votes, "logits")
    assert torch.allclose(before.sum(0), torch.ones(4, dtype=torch.float64))
    louder = torch.cat([outputs[:1] * factor, outputs[1:]])
    after = confidence_weights(louder, votes, "logits")
    ratio = (after[0] / after[1]) / (before[0] / before[1])
    assert torch.allclose(ratio, torch.full_like(ratio, factor**2))
    twice = confidence_weights(outputs, torch.tensor([2.0, 1.0, 1.0]).double(), "logits")
    again = confidence_weights(torch.cat([outputs[:1], outputs]), torch.ones(4).double(), "logits")
    assert torch.allclose(twice[0], again[:2].sum(0))


def test_identity_one_client_gives_its_own_labels_and_no_diversity_term() -> None:
    outputs = outputs_of(1, clients=1)
    target = ensemble_targets(outputs, confidence_weights(outputs, torch.ones(1), "logits"), 0.7)
    assert torch.equal(target, F.one_hot(outputs[0].argmax(1), 3).double())


def test_identity_where_all_agree_or_nobody_is_sure_nothing_is_nan() -> None:
    agreed = torch.tensor([[[3.0, 1.0, 0.0]], [[2.0, 0.0, 1.0]]])
    target = ensemble_targets(agreed, confidence_weights(agreed, torch.ones(2), "logits"), 0.7)
    assert torch.equal(target, torch.tensor([[1.0, 0.0, 0.0]]))
    unsure = torch.zeros(2, 1, 3)
    weights = confidence_weights(unsure, torch.ones(2), "logits")
    assert torch.equal(weights, torch.full((2, 1), 0.5))
    assert torch.equal(ensemble_targets(unsure, weights, 0.7), torch.tensor([[1.0, 0.0, 0.0]]))


@pytest.mark.parametrize("diversity", [0.0, 0.05, 2.0])
def test_identity_one_soft_cross_entropy_has_the_gradient_of_the_formula(diversity: float) -> None:
    outputs, z = outputs_of(3), torch.tensor(np.random.default_rng(7).normal(size=(4, 3)), requires_grad=True)
    weights = confidence_weights(outputs, torch.ones(3).double(), "logits")
    labels = torch.einsum("is,isc->sc", weights, outputs).argmax(1)
    disagree = outputs.argmax(2) != labels
    assert disagree.any(0).tolist() != [False] * 4
    total = F.cross_entropy(z, labels, reduction="sum")
    for sample in range(4):
        who = disagree[:, sample]
        if who.any():
            share = weights[who, sample] / weights[who, sample].sum()
            opinion = (share[:, None] * outputs[who, sample]).sum(0)
            kl = F.kl_div(z[sample].log_softmax(0), opinion.softmax(0), reduction="sum")
            total = total + diversity * kl
    (written_out,) = torch.autograd.grad(total / 4, z)
    (found,) = torch.autograd.grad(soft_loss(z, ensemble_targets(outputs, weights, diversity), "cross-entropy"), z)
    assert torch.allclose(found, written_out, rtol=0, atol=1e-12)


def test_contract_labels_of_clients_play_no_part_in_distillation() -> None:
    """A rule that weighed clients by their accuracy on labels could not be written: it is handed none."""
    assert not {"labels", "y"} & set(Distil.__dataclass_fields__)
    task = family_task()
    assert isinstance(task.federation.public, Tensor)


# runs


def test_identity_without_steps_one_architecture_of_one_layer_is_fedavg() -> None:
    task = family_task(Family(server=MLP(hidden=()), clients=(MLP(hidden=()),)))
    plan: dict[str, Any] = {"selection": Uniform(cohort_size=3)}
    state, records = family_run(task, width=Architectures(), aggregation=EnsembleTransfer(steps=0), **plan)
    members = members_of(task)
    module = members.cut((0,))
    start = task.layout.flatten(task.module)[members.parts.members[0].columns]
    alone = Task(federation=task.federation, module=Layout.of(module).load(module, start), loss=task.loss)
    single, plain = run(alone, Plan(local=LOCAL, rounds=3, aggregation=FedAvg(weighting="mean"), **plan))
    for part in (members.parts.server, members.parts.members[0]):
        assert torch.allclose(state.model[part.columns], single.model, rtol=0, atol=1e-12)
    assert [r.costs for r in records] == [r.costs for r in plain]
    assert records[-1].metrics["loss"] == pytest.approx(plain[-1].metrics["loss"])


@pytest.mark.parametrize("weighting", ["mean", "ratio"])
@pytest.mark.parametrize("drawn", [Uniform(), selection.Weighted(cohort_size=9)], ids=["everyone", "drawn twice"])
def test_identity_without_steps_and_last_layers_each_architecture_is_averaged_over_its_clients(
    weighting: Any, drawn: Any
) -> None:
    rule = Architectures(assign="listed", numbers=(0, 1, 0, 1, 1, 0))
    transfer = EnsembleTransfer(steps=0, representation="none", weighting=weighting)
    state, _ = family_run(family_task(), width=rule, aggregation=transfer, selection=drawn)
    plain, records = family_run(family_task(), width=rule, aggregation=FedAvg(weighting=weighting), selection=drawn)
    assert torch.allclose(state.model, plain.model, rtol=0, atol=1e-14)
    assert max(record.multiplicity.max() for record in records[1:]) == (1 if drawn == Uniform() else 5)


def test_golden_the_distillation_has_the_rules_settings() -> None:
    asked = list[Distil]()

    class Watching(Sequential):
        def answer(self, questions: Any) -> Any:
            asked.extend(request for _, request in questions if isinstance(request, Distil))
            return super().answer(questions)

    rule = EnsembleTransfer(steps=6, lr=0.05, momentum=0.4, batch_size=5)
    family_run(family_task(), rounds=1, width=Architectures(), aggregation=rule, engine=Watching())
    (request,) = asked
    assert request.settings == {"lr": 0.05, "momentum": 0.4}
    assert (request.steps, request.batch_size, request.strength, request.loss) == (6, 5, 1.0, "cross-entropy")


def test_golden_a_client_whose_outputs_are_not_finite_has_no_opinion() -> None:
    task = family_task()
    family = members_of(task).parts
    models = task.layout.flatten(task.module).repeat(2, 1)

    def reply(request: Any) -> Any:
        yield from ()
        outputs = torch.ones(len(request.models), 2, 3)
        outputs[0, 1, 0] = torch.inf
        return Predicted(outputs=outputs)

    steps = _outputs(models, np.array([1, 0]), family, np.arange(2), 1)
    found = list[Tensor]()

    def kept() -> Any:
        found.append((yield from relay(steps, reply)))

    assert list(kept()) == []
    assert found[0].tolist() == [[[1.0] * 3, [0.0] * 3]] * 2


def test_golden_last_layers_are_shared_and_bytes_are_those_of_the_members() -> None:
    task, numbers = family_task(), (0, 1, 0, 1, 1, 0)
    rule = Architectures(assign="listed", numbers=numbers)
    state, records = family_run(task, rounds=1, width=rule, aggregation=FEW)
    first, *others = members_of(task).parts.last_layers
    for layer in others:
        assert torch.allclose(state.model[layer], state.model[first], rtol=0, atol=1e-15)
    sizes = np.array(members_of(task).sizes)[list(numbers)]
    assert (records[1].costs.bytes_down, records[1].costs.bytes_up) == (8 * sizes.sum(), 8 * sizes.sum())
    assert records[1].costs.probe_evaluations == 6 * 12
    assert records[0].events == ()
    without, _ = family_run(task, rounds=1, width=rule, aggregation=EnsembleTransfer(steps=6, representation="none"))
    assert not torch.allclose(without.model[others[0]], without.model[first])


def test_golden_distillation_is_sgd_on_the_soft_cross_entropy() -> None:
    task, rng = family_task(MLP(hidden=(4,))), np.random.default_rng(0)
    targets = torch.tensor(rng.uniform(size=(1, 12, 3)))
    request = Distil(
        round=1, streams=Streams(0), models=task.layout.flatten(task.module)[None], samples=np.arange(12),
        targets=targets, clients=np.array([SERVER]), batch_size=None, steps=3, settings={"lr": 0.1, "momentum": 0.5},
    )  # fmt: skip
    params = {name: value.detach().clone() for name, value in task.module.named_parameters()}
    velocity = {name: torch.zeros_like(value) for name, value in params.items()}
    for _ in range(3):
        leaves = {name: value.requires_grad_() for name, value in params.items()}
        z = torch.func.functional_call(task.module, leaves, (task.federation.public,))
        loss = -(targets[0] * z.log_softmax(1)).sum(1).mean()
        grads = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        velocity = {name: 0.5 * velocity[name] + grads[name] for name in params}
        params = {name: (value - 0.1 * velocity[name]).detach() for name, value in params.items()}
    for engine in (Sequential(), Vectorised("cpu")):
        (answer,) = engine.answer([(task, request)])
        found = task.layout.views(request.rows(answer)[0])
        assert all(torch.allclose(found[name], params[name], rtol=0, atol=1e-12) for name in params)


def test_engine_engines_agree_and_a_run_goes_on_from_its_state() -> None:
    task: Task = family_task()
    how: dict[str, Any] = {"width": Architectures(), "aggregation": EnsembleTransfer(steps=4, samples=7, batch_size=3)}
    one, _ = family_run(task, engine=Sequential(), **how)
    other, _ = family_run(task, engine=Vectorised("cpu"), **how)
    assert torch.allclose(one.model, other.model, rtol=0, atol=1e-12)
    half, _ = family_run(task, rounds=2, engine=Sequential(), **how)
    assert torch.equal(family_run(task, state=half, **how)[0].model, one.model)


def test_error_a_public_set_that_is_missing_or_too_small() -> None:
    with pytest.raises(
        ConfigError, match=r"needs a public set; this federation has none. Set data.public_samples to 100"
    ):
        family_run(family_task(public=0), width=Architectures(), aggregation=FEW)
    with pytest.raises(
        ConfigError, match=r"public set of 13 samples or more; this federation has 12. Set data.public_s"
    ):
        family_run(family_task(), width=Architectures(), aggregation=EnsembleTransfer(samples=13))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": None}, r'these clients train one model. Set model.use = "family" and width.use = "architectures"'),
        ({"width": Nested(rates=(0.5,))}, r"these clients train one model"),
        ({"server": server.SGD(lr=0.5)}, r"a point that the server moves to.*SGD would leave it"),
        ({"server": server.FedAdam(lr=0.1)}, r"a point that the server moves to.*FedAdam would leave it"),
        ({"server": server.FedExP()}, r"FedExP"),
        ({"aggregation": aggregation.Krum(num_attackers=1)}, r"Krum combines whole updates"),
        ({"aggregation": aggregation.Median()}, r"Median combines whole updates"),
        ({"local": SGD(lr=0.1, steps=2, control="average")}, r"what SGD keeps between rounds is of the whole model"),
        (
            {"selection": selection.PowerOfChoice(cohort_size=2, pool_size=4)},
            r"asks clients for losses or gradients at",
        ),
        ({"attack": attacks.SignFlip(fraction=0.2)}, r"forges updates of the whole model"),
        ({"filtering": filtering.DataSize(least=3)}, r"DataSize may average updates"),
    ],
)
def test_error_what_does_not_go_together(change: dict[str, Any], message: str) -> None:
    rules: dict[str, Any] = {"local": LOCAL, "rounds": 1, "width": Architectures(), "aggregation": FEW} | change
    found = " ".join(problem.message for problem in problems(Plan(**rules)))
    assert_matches(message, found)


def assert_matches(pattern: str, text: str) -> None:
    with pytest.raises(ConfigError, match=pattern):
        raise ConfigError(text)
