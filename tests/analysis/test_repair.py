"""Repair: coefficients that meet the objective on the same participation, their price, and what cannot be repaired."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnout as to
from tests.support.audited_runs import run_quadratics
from turnout.aggregation import FedAvg
from turnout.analysis.audit import repair
from turnout.analysis.audit.repair import nearest_frequencies
from turnout.analysis.audit.words import repair_sentences
from turnout.errors import ConfigError

AWAY = to.Fleet(
    availability=to.fleet.Bernoulli(prob=(0.3, 0.9, 0.5, 0.7, 1.0, 0.4)),
    work=to.fleet.Fraction(fraction=(1.0, 0.25, 0.5, 1.0, 0.75, 0.25)),
)


def test_convergence_the_repaired_run_meets_the_objective() -> None:
    before = run_quadratics(rounds=80, fleet=AWAY)
    found = repair(before.found)
    assert before.found.total_variation > 0.1
    after = run_quadratics(
        rounds=80, fleet=AWAY, aggregation=FedAvg(weighting="measured", frequencies=tuple(found.frequencies))
    )
    assert after.found.total_variation < 1e-9
    assert found.remaining == pytest.approx(0, abs=1e-12)
    assert after.found.weights.noise / before.found.weights.noise == pytest.approx(found.noise_factor)


def test_golden_with_equal_work_the_frequencies_are_how_often_updates_were_used() -> None:
    fleet = to.Fleet(availability=AWAY.availability)
    found = run_quadratics(rounds=50, fleet=fleet).found
    assert np.allclose(repair(found).frequencies, found.weights.draws / 50)


def test_golden_clients_that_were_never_up_cannot_be_repaired() -> None:
    fleet = to.Fleet(availability=to.fleet.Bernoulli(prob=(0.0, 1.0, 1.0, 1.0, 1.0, 0.0)))
    found = repair(run_quadratics(rounds=10, fleet=fleet).found)
    assert found.never_used.tolist() == [0, 5]
    assert found.remaining == pytest.approx(4 / 12)
    assert found.frequencies[[0, 5]].tolist() == [0.1, 0.1]
    said = repair_sentences("FedAvg", found)
    assert said[0].startswith("No weighting can repair FedAvg fully: of 2 clients no update was ever used, and 33.3 %")


def test_golden_selection_fills_clients_that_are_rarely_available() -> None:
    # p = (½, ¼, ¼), a = (0.4, 1, 1), one draw a round: client 0 is full at 0.4, the others share 0.6
    found = nearest_frequencies(np.array([0.5, 0.25, 0.25]), np.array([0.4, 1.0, 1.0]), 1.0)
    assert np.allclose(found, [0.4, 0.3, 0.3])


def test_golden_selection_is_by_how_often_a_client_is_drawn_when_it_is_available() -> None:
    one = to.selection.Uniform(cohort_size=1)
    weights = run_quadratics(rounds=60, fleet=to.Fleet(availability=AWAY.availability), selection=one).found
    found, available = repair(weights), weights.weights.times_up / 60
    a_round = weights.weights.draws.sum() / 60  # nobody may be available
    assert available.min() > 0.25 >= weights.weights.asked.max()  # so every client can be drawn in proportion
    assert np.allclose(found.selection * available, a_round * weights.weights.asked)
    assert found.remaining_by_selection == pytest.approx(0, abs=1e-12)


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=8), st.integers(0, 2**32 - 1))
def test_property_selection_uses_as_many_draws_as_there_are(raw: list[float], seed: int) -> None:
    asked, available = np.array(raw) / sum(raw), np.random.default_rng(seed).random(len(raw))
    draws = 0.7 * available.sum()
    found = nearest_frequencies(asked, available, draws)
    assert found.sum() == pytest.approx(draws)
    assert (found <= available + 1e-12).all()
    free = found < available - 1e-9
    assert np.ptp(found[free] / asked[free]) < 1e-9 if free.any() else True  # in proportion to p where there is room


def test_error_measured_weights_need_a_frequency_for_every_client() -> None:
    with pytest.raises(ConfigError, match=r'FedAvg with weighting = "measured" needs frequencies; got none\.'):
        FedAvg(weighting="measured")
    with pytest.raises(ConfigError, match=r"FedAvg needs one frequency per client; got 2 for 6 clients\."):
        run_quadratics(rounds=2, aggregation=FedAvg(weighting="measured", frequencies=(0.5, 1.0)))
