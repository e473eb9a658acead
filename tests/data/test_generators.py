from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.optional import present
from tests.support.tasks import held_out_test_set, holdout_of, train_of
from turnout.array_types import Floats
from turnout.data import Federation
from turnout.data.linear_regression import LinearRegression
from turnout.data.quadratics import Quadratics
from turnout.data.synthetic import (
    CLASSES,
    DIM,
    VARIANCES,
    Synthetic,
    lognormal_sizes,
    synthetic_clients,
)
from turnout.data.synthetic_iid import SyntheticIid, iid_clients
from turnout.data.synthetic_on_demand import Generated, SyntheticOnDemand, draw_distribution
from turnout.errors import ConfigError
from turnout.losses import quadratic, squared_error
from turnout.models import Point
from turnout.models.point import Vector
from turnout.streams import Streams

STREAMS = Streams(7)
SOURCES = [
    Synthetic(clients=8),
    SyntheticIid(clients=8),
    SyntheticOnDemand(clients=60, test_clients=5),
    Quadratics(),
    LinearRegression(clients=4, dim=50, samples=6),
]


def everything(federation: Federation) -> tuple[Tensor, Tensor]:
    slab = federation.train.fetch(np.arange(federation.num_clients))
    return slab.x, slab.y


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
def test_contract_same_seed_same_samples_and_another_seed_others(source: Any) -> None:
    once, again, other = (everything(source.build(Streams(seed))) for seed in (1, 1, 2))
    assert torch.equal(once[0], again[0])
    assert torch.equal(once[1], again[1])
    assert once[1].shape != other[1].shape or not torch.equal(once[1], other[1])


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
def test_contract_a_federation_has_a_test_set_and_an_example_of_its_inputs(source: Any) -> None:
    federation = source.build(STREAMS)
    x, y = everything(federation)
    assert federation.example.shape == (1, *federation.example_shape)
    assert federation.example.dtype == x.dtype == federation.test.x.dtype
    assert x.shape[1:] == federation.example_shape == federation.test.x.shape[1:]
    assert y.dtype == federation.test.y.dtype
    assert len(x) == federation.sizes.sum()


# SYNTHETIC


def authors_arrays(seed: int, alpha: float, beta: float, iid: bool) -> tuple[list[Floats], list[list[int]]]:
    """The published generators' draws, one sample at a time and in their order."""
    rng = np.random.RandomState(seed)
    sizes = rng.lognormal(4, 2, 30).astype(int) + 50
    if not iid:
        u, centres = rng.normal(0, alpha, 30), rng.normal(0, beta, 30)
    covariance = np.diag([np.power(j + 1, -1.2) for j in range(60)])
    if iid:
        v = np.zeros((30, 60))
        shared = rng.normal(0, 1, (60, 10)), rng.normal(0, 1, 10)
    else:
        v = np.array([rng.normal(centre, 1, 60) for centre in centres])
    xs, ys = [], []
    for i in range(30):
        weight, bias = shared if iid else (rng.normal(u[i], 1, (60, 10)), rng.normal(u[i], 1, 10))
        x = rng.multivariate_normal(v[i], covariance, sizes[i])
        logits = [np.dot(row, weight) + bias for row in x]
        ys.append([int(np.argmax(np.exp(z) / np.exp(z).sum())) for z in logits])
        xs.append(x)
    return xs, ys


@pytest.mark.parametrize("iid", [False, True])
def test_golden_legacy_seed_draws_what_the_authors_script_draws(iid: bool) -> None:
    xs, ys = authors_arrays(0, 0.5, 2.0, iid)
    rng = np.random.RandomState(0)
    sizes = lognormal_sizes(rng, 30)
    clients = list(iid_clients(rng, sizes) if iid else synthetic_clients(rng, sizes, 0.5, 2.0))
    for client, x, y in zip(clients, xs, ys, strict=True):
        assert np.array_equal(client.x, x)
        assert client.y.tolist() == y


@pytest.mark.parametrize(
    "source", [Synthetic(legacy_seed=0), SyntheticIid(legacy_seed=0)], ids=lambda s: type(s).__name__
)
def test_golden_federation_holds_the_authors_samples_split_ninety_to_ten(source: SyntheticIid | Synthetic) -> None:
    xs, ys = authors_arrays(0, 1.0, 1.0, isinstance(source, SyntheticIid))
    federation = source.build(STREAMS)
    assert federation.sizes.tolist() == [int(0.9 * len(y)) for y in ys]
    for i in (0, 7, 29):
        train, held = train_of(federation).of(i), holdout_of(federation).of(i)
        ours = np.concatenate([np.column_stack([part.x, part.y]) for part in (train, held)])
        theirs = np.column_stack([xs[i].astype(np.float32), ys[i]]).astype(np.float32)
        assert np.array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])


def test_contract_legacy_seed_fixes_the_samples_but_not_the_hold_out() -> None:
    a, b = (Synthetic(clients=3, samples=50, legacy_seed=4).build(Streams(seed)) for seed in (0, 1))
    assert not torch.equal(held_out_test_set(a).x, held_out_test_set(b).x)
    rows = [np.concatenate([train_of(f).of(1).x, holdout_of(f).of(1).x]) for f in (a, b)]
    assert np.array_equal(*(r[np.lexsort(r.T)] for r in rows))  # type: ignore[arg-type]


def test_contract_synthetic_test_set_is_the_union_of_the_hold_outs() -> None:
    federation = Synthetic(clients=5).build(STREAMS)
    held = [holdout_of(federation).of(i) for i in range(5)]
    assert torch.equal(torch.cat([part.x for part in held]), held_out_test_set(federation).x)
    assert torch.equal(torch.cat([part.y for part in held]), held_out_test_set(federation).y)
    assert held_out_test_set(federation).x.data_ptr() == holdout_of(federation).x.data_ptr()
    assert (
        held_out_test_set(federation).x.untyped_storage().data_ptr()
        == train_of(federation).x.untyped_storage().data_ptr()
    )


def test_contract_samples_fixes_every_size() -> None:
    federation = Synthetic(clients=6, samples=40, holdout=0.25).build(STREAMS)
    assert federation.sizes.tolist() == [30] * 6
    assert holdout_of(federation).sizes.tolist() == [10] * 6
    assert Synthetic(clients=2, samples=9, holdout=0.0).build(STREAMS).test is None


def test_property_synthetic_models_and_inputs_have_the_moments_of_their_definition() -> None:
    sizes = np.full(200, 300)
    clients = list(synthetic_clients(np.random.RandomState(3), sizes, 2.0, 0.5))
    weights = np.stack([client.weight for client in clients])
    biases = np.stack([client.bias for client in clients])
    centres = weights.mean(axis=(1, 2))  # estimates u_k
    assert np.abs(weights.var(axis=(1, 2)) - 1).max() < 5 * np.sqrt(2 / 600)  # var 1 within a client
    assert abs(centres.std() / 2.0 - 1) < 0.2  # u_k ~ N(0, α), α a standard deviation
    assert np.abs(biases.mean(axis=1) - centres).max() < 5 * np.sqrt(1 / 10 + 1 / 600)  # b_k shares u_k
    means = np.stack([client.mean for client in clients])
    assert abs(means.mean(axis=1).std() / np.sqrt(0.5**2 + 1 / DIM) - 1) < 0.2  # B_k ~ N(0, β)
    noise = np.concatenate([client.x - client.mean for client in clients])
    assert np.abs(noise.var(axis=0) / VARIANCES - 1).max() < 5 * np.sqrt(2 / len(noise))
    correlation = np.corrcoef(noise.T) - np.eye(DIM)
    assert np.abs(correlation).max() < 6 / np.sqrt(len(noise))
    assert all(np.array_equal(c.y, np.argmax(c.x @ c.weight + c.bias, axis=1)) for c in clients)


def test_identity_alpha_moves_every_logit_alike_and_so_no_label() -> None:
    sizes = np.full(20, 100)
    narrow, wide = (list(synthetic_clients(np.random.RandomState(0), sizes, alpha, 1.0)) for alpha in (0.0, 5.0))
    for a, b in zip(narrow, wide, strict=True):
        assert np.array_equal(a.y, b.y)
        assert np.ptp(b.weight - a.weight) < 1e-12
    assert np.ptp([b.weight[0, 0] - a.weight[0, 0] for a, b in zip(narrow, wide, strict=True)]) > 1


def test_contract_zero_spread_is_not_iid_but_the_iid_variant_is() -> None:
    literal = list(synthetic_clients(np.random.RandomState(0), np.array([20, 20]), 0.0, 0.0))
    iid = list(iid_clients(np.random.RandomState(0), np.array([20, 20])))
    assert not np.array_equal(literal[0].weight, literal[1].weight)
    assert np.array_equal(iid[0].weight, iid[1].weight)
    assert not iid[0].mean.any()


# on demand


def test_contract_a_generated_client_is_the_same_whoever_is_fetched_with_it() -> None:
    shares = SyntheticOnDemand(clients=10_000).build(STREAMS).train
    alone = shares.fetch(np.array([77]))
    among = shares.fetch(np.array([3, 77, 9999]))
    start, size = int(among.starts[1]), int(among.sizes[1])
    assert size == shares.sizes[77] == len(alone.y)
    assert torch.equal(among.x[start : start + size], alone.x)
    assert torch.equal(among.y[start : start + size], alone.y)


def test_contract_more_clients_do_not_change_the_first_ones() -> None:
    few, many = (SyntheticOnDemand(clients=n).build(STREAMS).train for n in (50, 5000))
    assert np.array_equal(few.sizes, many.sizes[:50])
    assert torch.equal(few.fetch(np.array([49])).x, many.fetch(np.array([49])).x)


def test_contract_a_million_clients_keep_only_their_sizes() -> None:
    federation = SyntheticOnDemand(clients=1_000_000).build(STREAMS)
    assert federation.num_clients == 1_000_000
    assert federation.sizes.nbytes == 8_000_000
    assert federation.sizes.min() >= 50
    assert federation.sizes.max() == 10_000
    assert abs(np.median(federation.sizes) / (np.exp(4) + 50) - 1) < 0.02
    assert len(held_out_test_set(federation)) == 2000
    slab = federation.train.fetch(np.array([0, 999_999]))
    assert len(slab.y) == slab.sizes.sum() == federation.sizes[[0, 999_999]].sum()


def test_property_generated_clients_have_the_moments_of_their_definition() -> None:
    shares = Generated(np.full(300, 400), STREAMS, 2.0, 0.5)
    drawn = [draw_distribution(STREAMS.generator("synthetic", client=i), 2.0, 0.5) for i in range(300)]
    weights = np.stack([own.weight for own in drawn])
    biases = np.stack([own.bias for own in drawn])
    centres = weights.mean(axis=(1, 2))
    assert np.abs(weights.var(axis=(1, 2)) - 1).max() < 5 * np.sqrt(2 / 600)
    assert abs(centres.std() / 2.0 - 1) < 0.2
    assert np.abs(biases.mean(axis=1) - centres).max() < 5 * np.sqrt(1 / 10 + 1 / 600)
    assert abs(np.stack([own.mean for own in drawn]).mean(axis=1).std() / np.sqrt(0.25 + 1 / DIM) - 1) < 0.2
    slab = shares.fetch(np.arange(300))
    x, y = slab.x.numpy().reshape(300, 400, DIM), slab.y.numpy().reshape(300, 400)
    noise = (x - np.stack([own.mean for own in drawn])[:, None]).reshape(-1, DIM)
    assert np.abs(noise.var(axis=0) / VARIANCES - 1).max() < 5 * np.sqrt(2 / len(noise))
    assert y.max() < CLASSES
    assert np.array_equal(y[5], np.argmax(x[5] @ drawn[5].weight + drawn[5].bias, axis=1))


def test_contract_test_samples_come_from_clients_own_models_but_are_not_trained_on() -> None:
    federation = SyntheticOnDemand(clients=3, samples=30, test_clients=3, test_samples=25).build(STREAMS)
    train = federation.train.fetch(np.arange(3)).x
    x, y = held_out_test_set(federation).x.reshape(3, 25, DIM), held_out_test_set(federation).y.reshape(3, 25)
    for i in range(3):
        own = draw_distribution(STREAMS.generator("synthetic", client=i), 1.0, 1.0)
        assert torch.equal(y[i], torch.from_numpy(np.argmax(x[i].numpy() @ own.weight + own.bias, axis=1)))
    assert not (held_out_test_set(federation).x[:, None] == train[None]).all(-1).any()


# quadratics


GIVEN = Quadratics(curvatures=(1.0, 3.0), targets=((2.0, 0.0), (0.0, 6.0)), num_examples=(3, 1))


def float64_point(dim: int) -> Vector:
    return Point(dim=dim, dtype="float64").build((1,), dim, torch.Generator())  # type: ignore[return-value]


def local_steps(problem: Quadratics, client: int, point: Tensor, lr: float, steps: int) -> Tensor:
    """Gradient descent on one client with autograd, through the shipped loss and model."""
    federation = problem.build(STREAMS)
    x, y = train_of(federation).of(client)
    model = float64_point(len(point))
    with torch.no_grad():
        model.point.copy_(point)
    for _ in range(steps):
        (gradient,) = torch.autograd.grad(quadratic(model(x), y).mean(), model.point)
        with torch.no_grad():
            model.point -= lr * gradient  # type: ignore[misc]
    return model.point.detach()


def test_golden_quadratics_optimum_by_hand() -> None:
    assert GIVEN.optimum().tolist() == pytest.approx([1.0, 1.0])  # (¾·2, ¼·6) / (¾·1 + ¼·3)
    assert GIVEN.optimum((0.5, 0.5)).tolist() == pytest.approx([0.5, 1.5])


def test_golden_quadratics_fixed_point_by_hand() -> None:
    # pull: ¾(1 − 0.9) = 0.075 and ¼(1 − 0.7²) = 0.1275; e/h: (2, 0) and (0, 2)
    expected = [0.075 * 2 / 0.2025, 0.1275 * 2 / 0.2025]
    assert GIVEN.fedavg_fixed_point(None, 0.1, (1, 2)).tolist() == pytest.approx(expected)


def test_identity_quadratics_one_step_each_stops_at_the_optimum() -> None:
    problem = Quadratics(clients=6, dim=3).drawn(STREAMS)
    assert problem.fedavg_fixed_point(None, 0.05, np.ones(6)) == pytest.approx(problem.optimum())


def test_convergence_quadratics_gradient_of_the_objective_is_zero_at_the_optimum() -> None:
    problem = Quadratics(clients=5, dim=4, num_examples=(1, 2, 3, 4, 5)).drawn(STREAMS)
    federation = problem.build(STREAMS)
    model = float64_point(4)
    with torch.no_grad():
        model.point.copy_(torch.from_numpy(problem.optimum()))
    (gradient,) = torch.autograd.grad(
        quadratic(model(held_out_test_set(federation).x), held_out_test_set(federation).y).mean(), model.point
    )
    assert gradient.abs().max() < 1e-14
    assert federation.weights == pytest.approx(problem.weights)


def test_convergence_quadratics_local_steps_stay_at_the_fixed_point() -> None:
    problem, steps, lr = Quadratics(clients=4, dim=2, num_examples=(1, 2, 3, 4)).drawn(STREAMS), (1, 5, 2, 9), 0.2
    point = torch.from_numpy(problem.fedavg_fixed_point(problem.weights, lr, steps))
    ends = [local_steps(problem, i, point, lr, steps[i]) for i in range(4)]
    moved = sum(p * (point - end) for p, end in zip(problem.weights, ends, strict=True))
    assert moved.abs().max() < 1e-14
    assert max((point - end).abs().max() for end in ends) > 1e-3  # each client pulls; the pulls cancel


def test_contract_quadratics_given_and_drawn_agree_with_what_is_built() -> None:
    assert GIVEN.drawn(STREAMS) is GIVEN
    federation = GIVEN.build(STREAMS)
    assert train_of(federation).of(0).y.tolist() == [[1.0, 2.0, 0.0]] * 3
    assert train_of(federation).of(1).y.tolist() == [[3.0, 0.0, 6.0]]
    assert train_of(federation).y.dtype == train_of(federation).x.dtype == torch.float64
    drawn = Quadratics(clients=3, dim=5).drawn(STREAMS)
    built = Quadratics(clients=3, dim=5).build(STREAMS)
    assert torch.equal(train_of(built).y[:, 0], torch.tensor(drawn.curvatures, dtype=torch.float64))
    assert min(present(drawn.curvatures)) >= 0.5


# linear regression


def test_contract_linear_regression_is_normalised_and_has_an_exact_solution() -> None:
    federation = LinearRegression().build(STREAMS)
    x, y = train_of(federation).x.double(), train_of(federation).y.double()
    assert federation.sizes.tolist() == [30] * 20
    assert x.shape == (600, 1000)
    assert (x.norm(dim=1) - 1).abs().max() < 1e-6
    assert (y.reshape(20, 30).norm(dim=1) - 1).abs().max() < 1e-6
    solution = torch.linalg.lstsq(x, y).solution
    assert squared_error(x @ solution, y).mean() < 1e-12
    assert squared_error(torch.zeros(600, 1), train_of(federation).y).mean() == pytest.approx(1 / 30)


def test_property_linear_regression_clients_disagree_on_the_way() -> None:
    federation = LinearRegression(clients=5, dim=200, samples=10).build(STREAMS)
    gradients = torch.stack([s.x.T @ s.y[:, 0] for s in (train_of(federation).of(i) for i in range(5))])
    cosines = torch.nn.functional.normalize(gradients) @ torch.nn.functional.normalize(gradients).T
    assert cosines.fill_diagonal_(0).abs().max() < 0.9


# messages


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Synthetic(clients=0), r"Synthetic needs clients >= 1; got 0\. Change data\.clients"),
        (lambda: Synthetic(samples=0), r"Synthetic needs samples >= 1; got 0\. Change data\.samples"),
        (lambda: SyntheticIid(holdout=1.0), r"SyntheticIid needs holdout in \[0, 1\); got 1\.0\. Change data\.holdout"),
        (lambda: Synthetic(alpha=-1), r"alpha >= 0; got -1\. Change data\.alpha"),
        (lambda: SyntheticOnDemand(max_samples=0), r"SyntheticOnDemand needs max_samples >= 1; got 0\. Change data"),
        (
            lambda: Quadratics(curvatures=(1.0,), targets=((0.0,),), clients=5),
            r"clients = 1 by its targets; got clients = 5\. Drop data\.clients, or data\.targets",
        ),
        (lambda: Quadratics(curvatures=(1.0,)), r"curvatures and targets together; got only one of them\. Set both"),
        (lambda: Quadratics(dim=0), r"dim >= 1; got 0\. Change data\.dim"),
        (
            lambda: Quadratics(curvatures=(0.0,), targets=((1.0,),)),
            r"curvatures > 0; got 0\.0\. Change data\.curvatures",
        ),
        (
            lambda: Quadratics(curvatures=(1.0, 2.0), targets=((1.0,), (1.0, 2.0))),
            r"one target per curvature, all of one length; got 2 curvatures and targets of lengths \[1, 2\]",
        ),
        (lambda: Quadratics(num_examples=(1,)), r"num_examples for each of 10 clients; got \(1,\)\. Change data"),
        (
            lambda: Quadratics().optimum(),
            r"no closed form before curvatures and targets are drawn\. Call drawn\(streams\) first",
        ),
        (lambda: LinearRegression(dim=0), r"LinearRegression needs dim >= 1; got 0\. Change data\.dim"),
    ],
)
def test_error_impossible_settings_are_refused_at_once(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
