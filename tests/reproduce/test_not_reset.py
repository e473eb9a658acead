"""Clients that are never reset: each follows its own path, and the global model is their mean."""

import numpy as np
import pytest

import turnout as to
from turnout.data.quadratics import Quadratics
from turnout.reproduce.not_reset import NotReset

RATE, CURVATURES, TARGETS = 0.1, (1.0, 4.0), ((1.0,), (-2.0,))


def final_point(local: to.local.SGD, rounds: int, engine: str) -> float:
    """Return where two parabolas ½h x² − e x, weighted alike, end."""
    study = to.Study(
        data=Quadratics(curvatures=CURVATURES, targets=TARGETS, num_examples=(1, 1)),
        model=to.models.Point(dim=1, dtype="float64"),
        loss=to.losses.quadratic,
        local=local,
        rounds=rounds,
    )
    result = study.run(progress=False, engine=engine)
    (tensor,) = result.state_dict("study", 0).values()
    return float(tensor.reshape(-1)[0])


@pytest.mark.parametrize("engine", ["vectorised", "sequential"])
def test_golden_each_client_goes_on_from_its_own_model(engine: str) -> None:
    """Without a pull, x_i(T) = (e/h)(1 − (1 − ηh)^{2T}) after T rounds of two steps from 0."""
    rounds, steps = 3, 2
    own = [
        target[0] / h * (1 - (1 - RATE * h) ** (rounds * steps)) for h, target in zip(CURVATURES, TARGETS, strict=True)
    ]
    assert final_point(NotReset(lr=RATE, steps=steps), rounds, engine) == pytest.approx(np.mean(own))
    assert final_point(to.local.SGD(lr=RATE, steps=steps), rounds, engine) != pytest.approx(np.mean(own), abs=1e-3)


@pytest.mark.parametrize("engine", ["vectorised", "sequential"])
def test_golden_the_proximal_term_pulls_towards_the_global_model(engine: str) -> None:
    """One step a round: x_i ← x_i − η(h x_i − e + μ(x_i − x)), x ← mean of x_i."""
    pull, x, own = 2.0, 0.0, [0.0, 0.0]
    for _ in range(3):
        own = [
            mine - RATE * (h * mine - target[0] + pull * (mine - x))
            for mine, h, target in zip(own, CURVATURES, TARGETS, strict=True)
        ]
        x = float(np.mean(own))
    local = NotReset(lr=RATE, steps=1, prox_strength=pull)
    assert final_point(local, 3, engine) == pytest.approx(x)


def test_identity_one_round_is_plain_sgd() -> None:
    """Nobody has a model of its own yet."""
    first = final_point(NotReset(lr=RATE, steps=3), 1, "vectorised")
    assert first == pytest.approx(final_point(to.local.SGD(lr=RATE, steps=3), 1, "vectorised"))
