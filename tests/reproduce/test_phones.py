"""Recorded phones dealt to clients, and the rules of the study of them."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from turnout.aggregation.fedavg import participation_weights
from turnout.errors import ConfigError
from turnout.journal.load import Loaded
from turnout.protocols import Population, View
from turnout.reproduce.phones import LeastAsked, RankedPhones, UniformOverTime
from turnout.reproduce.studies.phones import BASE, HOURS, at_worst, reached, spent, times_base
from turnout.rows import Facts
from turnout.selection import Uniform
from turnout.streams import Streams

TIMES = np.arange(0, 144, 3) * 3600.0
ASK: Any = None  # these rules ask nothing

needs_data = pytest.mark.skipif(
    not os.environ.get("TURNOUT_DATA"), reason="set TURNOUT_DATA to the folder that holds availability-traces"
)


def view(clients: int, *, round: int = 1, seconds: float = 0.0, memory: dict[str, Any] | None = None) -> View:
    return View(
        round=round,
        rounds=100,
        streams=Streams(0),
        population=Population.of(np.full(clients, 10)),
        model=torch.zeros(1),
        memory=memory or {},
        sim_seconds=seconds,
    )


def times_up(rule: RankedPhones, clients: int) -> np.ndarray:
    counts = np.zeros(clients, dtype=np.int64)
    for seconds in TIMES:
        counts[rule.up(view(clients, seconds=seconds))] += 1
    return counts


@needs_data
def test_contract_low_ids_are_up_most_and_the_same_phones_are_dealt_either_way() -> None:
    by_id, drawn = (times_up(RankedPhones(deal=deal), 300) for deal in ("by-id", "drawn"))
    assert np.sort(by_id).tolist() == np.sort(drawn).tolist()
    assert by_id[:150].sum() > 2 * by_id[150:].sum()
    assert 0.7 < drawn[:150].sum() / drawn[150:].sum() < 1.4


@needs_data
def test_contract_a_recording_starts_again_at_its_end() -> None:
    rule = RankedPhones()
    first, again = (rule.up(view(300, seconds=3600.0 + lap * 518_400.0)) for lap in (0, 1))
    assert len(first) > 0
    assert first.tolist() == again.tolist()


@needs_data
def test_contract_fewer_clients_have_phones_of_all_ranks() -> None:
    few = times_up(RankedPhones(deal="by-id"), 30)
    assert few[:3].mean() > 4 * few[-10:].mean()


@needs_data
def test_error_more_clients_than_phones_names_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"RankedPhones needs at most 300 clients; got 301\. Change data\.clients\."):
        RankedPhones().up(view(301))


def test_error_without_the_recording_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNOUT_DATA", raising=False)
    with pytest.raises(ConfigError, match=r"TURNOUT_DATA is not set\. Set fleet\.availability\.folder"):
        RankedPhones().up(view(3))


def test_golden_those_asked_least_often_go_first() -> None:
    asked = np.array([5, 0, 2, 9, 1])
    choice = LeastAsked(cohort_size=2).choose(np.array([0, 2, 3, 4]), view(5, memory={"asked": asked}), ASK)
    assert choice.clients.tolist() == [2, 4]
    assert choice.memory["asked"].tolist() == [5, 0, 3, 9, 2]
    assert asked.tolist() == [5, 0, 2, 9, 1]  # what was handed in is not touched


def test_property_everyone_is_asked_once_before_anyone_is_asked_twice() -> None:
    memory: dict[str, Any]
    rule, memory, asked = LeastAsked(cohort_size=3), {}, np.zeros(12, dtype=np.int64)
    for round in range(1, 5):
        choice = rule.choose(np.arange(12), view(12, round=round, memory=memory), ASK)
        memory = choice.memory
        asked[choice.clients] += 1
    assert asked.tolist() == [1] * 12


def test_golden_being_up_counts_as_part_of_being_asked() -> None:
    """Up in 1 of 4 rounds before and up now: 2 of 5; one of two is drawn: π = 2/5 · 1/2."""
    memory = {"up": np.array([1, 1, 4])}
    choice = UniformOverTime(cohort_size=1).choose(np.array([0, 1]), view(3, round=5, memory=memory), ASK)
    assert choice.inclusion_prob is not None
    assert choice.inclusion_prob.tolist() == pytest.approx([2 / 5 * 1 / 2])
    assert choice.memory["up"].tolist() == [2, 2, 4]


def test_identity_when_everyone_is_always_up_it_is_uniform() -> None:
    memory: dict[str, Any]
    pool, memory = np.arange(6), {}
    for round in (1, 2, 3):
        seen = view(6, round=round, memory=memory)
        mine, plain = (
            rule.choose(pool, seen, ASK) for rule in (UniformOverTime(cohort_size=2), Uniform(cohort_size=2))
        )
        memory = mine.memory
        assert mine.clients.tolist() == plain.clients.tolist()
        assert mine.inclusion_prob is not None
        assert plain.inclusion_prob is not None
        assert mine.inclusion_prob.tolist() == plain.inclusion_prob.tolist()


def test_property_over_many_rounds_ht_weights_add_up_to_everyones_share() -> None:
    """Client 0 is up in every second round, the others always: with π over time each gets its p_i in the mean."""
    memory: dict[str, Any]
    rule, memory, totals, rounds = UniformOverTime(cohort_size=2), {}, np.zeros(4), 4000
    for round in range(1, rounds + 1):
        pool = np.arange(round % 2, 4)
        choice = rule.choose(pool, view(4, round=round, memory=memory), ASK)
        memory = choice.memory
        weights = participation_weights(facts(choice.clients, choice.inclusion_prob), "ht")
        totals[choice.clients] += weights
    assert (totals / rounds).tolist() == pytest.approx([0.25] * 4, abs=0.02)


def facts(clients: np.ndarray, inclusion_prob: np.ndarray | None) -> Facts:
    ones = np.ones(len(clients), dtype=np.int64)
    return Facts(
        clients=clients,
        weights=np.full(len(clients), 0.25),
        num_examples=10 * ones,
        asked_steps=ones,
        local_steps=ones,
        local_work=ones.astype(np.float64),
        local_lr=np.full(len(clients), 0.1),
        multiplicity=ones,
        inclusion_prob=inclusion_prob,
        num_clients=4,
    )


@pytest.mark.parametrize("rule", [LeastAsked, UniformOverTime])
def test_error_an_empty_cohort_names_the_setting(rule: type[LeastAsked] | type[UniformOverTime]) -> None:
    with pytest.raises(ConfigError, match=r"needs cohort_size >= 1; got 0\. Change selection\.cohort_size\."):
        rule(cohort_size=0)


def two_seeds() -> Loaded:
    """Uniform reaches 0.9 in its second round in both seeds; FedBuff in its first in seed 0, and never in seed 1."""
    accuracy = {BASE: ((0.5, 0.9, 0.95), (0.5, 0.92, 0.94)), "FedBuff, mean": ((0.91, 0.8, 0.9), (0.5, 0.6, 0.7))}
    hours = {BASE: (2.0, 4.0, 10.0), "FedBuff, mean": (1.0, 2.0, 3.0)}
    rows = [
        {"arm": arm, "seed": seed, "round": round + 1, "evaluated": True, "accuracy": values[seed][round], HOURS: at}
        for arm, values in accuracy.items()
        for seed in (0, 1)
        for round, at in enumerate(3600.0 * np.array(hours[arm]))
    ]
    runs = pd.DataFrame([{"arm": arm, "seed": seed} for arm in accuracy for seed in (0, 1)])
    config = {"config": {"target": {"accuracy": 0.9}}}
    return Loaded(study=config, runs=runs, rounds=pd.DataFrame(rows), metrics=(), source=Path("nowhere"))


def test_golden_hours_are_those_of_the_first_round_at_the_target() -> None:
    study = two_seeds()
    assert spent(study, BASE, HOURS).tolist() == [4.0, 4.0]
    assert spent(study, "FedBuff, mean", HOURS).tolist() == [1.0, 3.0]
    assert reached(study, "FedBuff, mean").tolist() == [True, False]


def test_golden_who_never_got_there_counts_against_the_claim_either_way() -> None:
    study = two_seeds()
    assert times_base(study, "FedBuff, mean", HOURS).tolist() == [0.25, 0.75]  # "spent more": all it spent
    assert at_worst(study, "FedBuff, mean", HOURS).tolist() == [0.25, 2.5]  # "spent less": all that uniform was given
