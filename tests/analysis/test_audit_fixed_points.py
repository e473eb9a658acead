"""On quadratics the minimiser of the audited objective is where the run ends, up to the order of the learning rate."""

from typing import Any

import numpy as np
import pytest

import turnout as to
from tests.support.audited_runs import PROBLEM, Ended, run_arms, run_quadratics
from turnout.aggregation import MIFA, ClusterFedVARP, FedAvg, FedNova, FedVARP, SchemeA, SchemeB, SchemeC

ROUNDS, LR = 100, 0.04
UNEVEN = to.Fleet(work=to.fleet.Fraction(fraction=(1.0, 0.25, 0.5, 1.0, 0.75, 0.25)))
AWAY = to.Fleet(availability=to.fleet.Bernoulli(prob=(0.3, 0.9, 0.5, 0.7, 1.0, 0.4)))
CYCLIC = to.Fleet(availability=to.fleet.Cyclic(groups=2, grouping="ids"))
LEAVES = to.Fleet(membership=to.fleet.Scheduled(departures={0: 20, 4: 20}))
CASES: dict[str, tuple[dict[str, Any], bool]] = {  # the plan, and whether it misses the optimum
    "FedAvg": ({"aggregation": FedAvg(), "fleet": UNEVEN}, True),
    "FedNova": ({"aggregation": FedNova(), "fleet": UNEVEN}, False),
    "scheme A": ({"aggregation": SchemeA(), "fleet": UNEVEN}, True),
    "scheme B": ({"aggregation": SchemeB(), "fleet": UNEVEN}, True),
    "scheme C": ({"aggregation": SchemeC(), "fleet": UNEVEN}, False),
    "FedVARP": ({"aggregation": FedVARP(), "fleet": AWAY}, True),
    "ClusterFedVARP": ({"aggregation": ClusterFedVARP(num_clusters=6), "fleet": AWAY}, True),
    "MIFA": ({"aggregation": MIFA(weighting="ratio"), "fleet": AWAY}, False),
    "SCAFFOLD": ({"fleet": UNEVEN}, False),
    "power-of-choice": ({"selection": to.selection.PowerOfChoice(cohort_size=2, pool_size=6)}, True),
    "cyclic": ({"fleet": CYCLIC}, False),
    "cyclic, half the work": ({"fleet": to.Fleet(availability=CYCLIC.availability, work=UNEVEN.work)}, True),
    "departing": ({"fleet": LEAVES}, True),
    "departing, excluded": ({"fleet": LEAVES, "turnover": to.Turnover(on_departure="exclude")}, False),
}


def ended(lr: float) -> dict[str, Ended]:
    """Run every case with this learning rate, for as long as it needs, and audit the second half."""
    rounds = round(ROUNDS * LR / lr)
    arms = {}
    for case, (sections, _) in CASES.items():
        plain, controlled = (to.local.SGD(lr=lr, steps=4, batches="full", control=c) for c in ("none", "average"))
        local = controlled if case == "SCAFFOLD" else plain
        arms[case] = {"local": local, **sections}
    return run_arms(arms, rounds=rounds, since=rounds // 2)


@pytest.fixture(scope="module")
def runs() -> tuple[dict[str, Ended], dict[str, Ended]]:
    """Every case, with a learning rate and with a quarter of it."""
    return ended(LR), ended(LR / 4)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_convergence_the_run_ends_where_the_audit_says(
    case: str, runs: tuple[dict[str, Ended], dict[str, Ended]]
) -> None:
    coarse, fine = (each[case] for each in runs)
    assert fine.error < 0.08
    assert fine.error < 0.5 * coarse.error or coarse.error < 0.02  # it is of the order of the learning rate
    misses = CASES[case][1]
    if misses:
        asked = PROBLEM.optimum(fine.found.weights.asked)
        assert np.linalg.norm(fine.model - asked) > 4 * fine.error  # the prediction is not the optimum asked for
        assert fine.found.total_variation > 0.05
    else:
        assert fine.found.total_variation < 0.02


@pytest.mark.slow
def test_convergence_with_random_availability_the_end_is_near_the_prediction() -> None:
    found = [run_quadratics(rounds=300, since=100, seed=seed, lr=0.01, fleet=AWAY) for seed in range(2)]
    errors = np.array([each.model - each.predicted for each in found])
    assert np.linalg.norm(errors.mean(0)) < 0.3
    assert min(each.bias for each in found) > 0.3
    causes = {cause.name: cause.adds for cause in found[0].found.causes}
    assert causes["availability"] == pytest.approx(found[0].found.total_variation)


def test_identity_one_cluster_per_client_reuses_what_fedvarp_does() -> None:
    one, other = (
        run_quadratics(rounds=30, fleet=AWAY, aggregation=rule).found.weights.effective
        for rule in (FedVARP(), ClusterFedVARP(num_clusters=6))
    )
    assert np.allclose(one, other)


def test_identity_one_cluster_reuses_nothing() -> None:
    found = run_quadratics(rounds=30, fleet=AWAY, aggregation=ClusterFedVARP(num_clusters=1)).found
    memory = next(cause for cause in found.causes if cause.name == "memory")
    assert memory.moves < 1e-12


def test_identity_control_variates_give_every_client_its_weight_once_all_have_answered() -> None:
    local = to.local.SGD(lr=0.02, steps=4, batches="full", control="average")
    found = run_quadratics(rounds=40, since=2, fleet=UNEVEN, local=local).found
    assert np.allclose(found.weights.effective, found.weights.asked)
    causes = {cause.name: cause.moves for cause in found.causes}
    assert causes["memory"] == pytest.approx(causes["local work"])


def test_golden_fedexp_counts_rounds_by_its_server_rate() -> None:
    run = run_quadratics(rounds=12, fleet=CYCLIC, server=to.server.FedExP())
    rates = run.loaded.rounds.query("round > 0")["server_lr"].to_numpy()
    first = np.arange(6) < 3
    assert rates.min() >= 1
    assert len(set(rates)) > 2
    share = rates[::2].sum() / rates.sum()  # of the rounds in which clients 0, 1 and 2 are up
    assert run.found.weights.effective[first].sum() == pytest.approx(share)
