"""Keyed randomness: the published generator, frozen values, and draws that do not disturb one another."""

import random
from collections.abc import Callable
from hashlib import blake2b
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from turnout.streams import SERVER, Streams, mix, purpose_word, unit, words

WORD = 2**64
FROZEN = {
    "purpose": 562185340623281794,
    "keys": [17980493557676315259, 12856344825606926560],
    "server": [16585382351331993447],
    "uniforms": [0.20677698976503978, 0.09430484660279381, 0.4479852295342698],
    "philox": [5398178945579388180, 4650769846006215554],
    "torch": 466036642215596924,
}
seeds = st.integers(-(2**63), 2**64 - 1)
purposes = st.text(max_size=12)
rounds = st.integers(0, 2**40)
ids = st.integers(-1, 2**40)
unhurried = settings(max_examples=50)


def splitmix(state: int) -> int:
    """Return SplitMix64's finaliser of one word, in Python's own integers."""
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) % WORD
    return state ^ (state >> 31)


def key_by_hand(seed: int, purpose: str, round: int, client: int) -> int:
    """Return the key as the module's formula has it."""
    key, word = 0, int.from_bytes(blake2b(purpose.encode(), digest_size=8).digest(), "little")
    for part in (seed, word, round, client):
        key = splitmix(((key ^ (part % WORD)) + 0x9E3779B97F4A7C15) % WORD)
    return key


def bits(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


@pytest.mark.parametrize(
    ("state", "outputs"),
    [
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]),
        (1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]),
    ],
)
def test_golden_words_are_the_published_splitmix64_sequence(state: int, outputs: list[int]) -> None:
    assert words(bits(state), len(outputs))[0].tolist() == outputs


def test_golden_a_row_of_words_belongs_to_its_key() -> None:
    table = words(bits(0, 1234567, 0), 2)
    assert table.shape == (3, 2)
    assert table.tolist() == [words(bits(key), 2)[0].tolist() for key in (0, 1234567, 0)]


def test_golden_draws_are_frozen() -> None:
    """These values make every journal comparable with every later one; they must never change."""
    streams = Streams(2024)
    assert purpose_word("batches") == FROZEN["purpose"]
    assert streams.keys("batches", 3, np.array([0, 7])).tolist() == FROZEN["keys"]
    assert streams.keys("selection", 1).tolist() == FROZEN["server"]
    assert streams.uniforms("work", 2, np.array([5]), 3)[0].tolist() == FROZEN["uniforms"]
    assert streams.generator("partition").bit_generator.random_raw(2).tolist() == FROZEN["philox"]
    assert streams.torch_generator("model").initial_seed() == FROZEN["torch"]


@unhurried
@given(seed=seeds, purpose=purposes, round=rounds, client=ids)
def test_identity_keys_follow_the_formula(seed: Any, purpose: Any, round: Any, client: Any) -> None:
    assert Streams(seed).keys(purpose, round, client).tolist() == [key_by_hand(seed, purpose, round, client)]


@unhurried
@given(values=st.lists(st.integers(0, WORD - 1), min_size=1, max_size=20))
def test_property_mix_is_one_to_one_and_leaves_its_input(values: list[int]) -> None:
    given_words = bits(*values)
    mixed = mix(given_words)
    assert given_words.tolist() == values
    assert mixed.tolist() == [splitmix(value) for value in values]
    assert len(set(mixed.tolist())) == len(set(values))


@unhurried
@given(value=st.integers(0, WORD - 1))
def test_property_uniforms_lie_below_one_and_keep_53_bits(value: int) -> None:
    (uniform,) = unit(bits(value))
    assert 0.0 <= uniform < 1.0
    assert uniform * 2**53 == value >> 11


def test_golden_uniforms_reach_both_ends() -> None:
    assert unit(bits(0, WORD - 1)).tolist() == [0.0, 1.0 - 2.0**-53]


def test_property_every_part_of_the_key_counts() -> None:
    grid = product((-1, 0, 1, 2**32), ("batches", "work", "up", ""), range(10), (np.arange(-1, 99),))
    keys = np.concatenate([Streams(seed).keys(purpose, round, clients) for seed, purpose, round, clients in grid])
    assert len(keys) == 4 * 4 * 10 * 100
    assert len(np.unique(keys)) == len(keys)
    assert len(np.unique(words(keys, 4))) == 4 * len(keys)  # and no stream runs into another


@unhurried
@given(seed=seeds, purpose=purposes, round=rounds, client=ids)
def test_property_a_neighbouring_key_is_another_stream(seed: int, purpose: str, round: int, client: int) -> None:
    here = Streams(seed).keys(purpose, round, client)[0]
    others = (
        Streams(seed + 1).keys(purpose, round, client)[0],
        Streams(seed).keys(purpose + "'", round, client)[0],
        Streams(seed).keys(purpose, round + 1, client)[0],
        Streams(seed).keys(purpose, round, client + 1)[0],
    )
    assert here not in others
    # one flipped input bit flips about half of the 64 output bits; 8 or fewer has probability 3·10⁻¹⁰
    assert all(int(here ^ other).bit_count() > 8 for other in others)


@unhurried
@given(data=st.data())
def test_property_a_clients_draw_does_not_depend_on_who_else_is_asked(data: st.DataObject) -> None:
    everyone = np.arange(40)
    some = np.array(data.draw(st.lists(st.integers(0, 39), min_size=1, max_size=12)))  # any order, repeats too
    streams = Streams(data.draw(seeds))
    table = streams.uniforms("up", 4, everyone, 5)
    assert np.array_equal(streams.uniforms("up", 4, some, 5), table[some])
    assert np.array_equal(streams.keys("up", 4, int(some[0])), streams.keys("up", 4, everyone)[some[:1]])


@unhurried
@given(key=st.integers(0, WORD - 1), few=st.integers(0, 6), more=st.integers(0, 6))
def test_property_asking_for_more_words_keeps_the_first(key: int, few: int, more: int) -> None:
    assert np.array_equal(words(bits(key), few), words(bits(key), few + more)[:, :few])


def test_golden_server_draws_have_the_key_of_client_minus_one() -> None:
    streams = Streams(5)
    assert streams.keys("selection", 2).tolist() == streams.keys("selection", 2, SERVER).tolist()
    assert streams.keys("selection", 2)[0] not in streams.keys("selection", 2, np.arange(1000))


def test_property_no_draw_is_the_next_number() -> None:
    streams, clients = Streams(3), np.arange(4)
    draw: Callable[..., Any] = lambda: (  # noqa: E731
        streams.uniforms("up", 1, clients).tolist(),
        streams.generator("selection", 1).random(3).tolist(),
        torch.rand(3, generator=streams.torch_generator("model")).tolist(),
    )
    before = (torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate())  # type: ignore[index] # noqa: NPY002
    first = draw()
    streams.generator("other", 1).random(100)
    assert draw() == first
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # type: ignore[index] # noqa: NPY002
    assert before[2] == random.getstate()


def test_property_generators_of_different_keys_differ() -> None:
    streams = Streams(3)
    firsts = [streams.generator("a", round, client).random() for round in range(20) for client in range(-1, 20)]
    assert len(set(firsts)) == len(firsts)
    seeds_used = {
        streams.torch_generator("a", round, client).initial_seed() for round in range(20) for client in range(20)
    }
    assert len(seeds_used) == 400


def columns() -> dict[str, np.ndarray]:
    """Return uniforms gathered along each direction in which streams are read."""
    streams, clients = Streams(7), np.arange(40_000)
    return {
        "along a stream": streams.uniforms("up", 1, np.array([3]), 40_000)[0],
        "over clients": streams.uniforms("up", 1, clients)[:, 0],
        "over rounds": np.concatenate([streams.uniforms("up", t, np.array([3])) for t in range(4000)])[:, 0],
        "over seeds": np.concatenate([Streams(seed).uniforms("up", 1, np.array([3])) for seed in range(4000)])[:, 0],
    }


@pytest.mark.parametrize("direction", ["along a stream", "over clients", "over rounds", "over seeds"])
def test_property_uniforms_are_even_in_every_direction(direction: str) -> None:
    values = columns()[direction]
    counts = np.bincount((values * 50).astype(int), minlength=50)
    assert 1e-4 < stats.chisquare(counts).pvalue < 1 - 1e-4  # too even is as wrong as too uneven
    pairs = np.bincount((values[:-1:2] * 8).astype(int) * 8 + (values[1::2] * 8).astype(int), minlength=64)
    assert 1e-4 < stats.chisquare(pairs).pvalue < 1 - 1e-4


def test_property_low_bits_are_even_too() -> None:
    table = words(Streams(7).keys("up", 1, np.arange(4000)), 8)
    counts = np.bincount((table & np.uint64(63)).ravel().astype(int), minlength=64)
    assert 1e-4 < stats.chisquare(counts).pvalue < 1 - 1e-4


def test_property_streams_are_pairwise_uncorrelated() -> None:
    length = 4000
    streams = Streams(7)
    rows = [
        streams.uniforms("up", 1, np.arange(30), length),
        streams.uniforms("up", 2, np.arange(10), length),
        streams.uniforms("work", 1, np.arange(10), length),
        Streams(8).uniforms("up", 1, np.arange(10), length),
    ]
    correlation = np.corrcoef(np.concatenate(rows))
    off = np.asarray(correlation)[~np.eye(len(correlation), dtype=bool)]  # type: ignore[arg-type, index, misc, type-var]
    assert np.abs(off).max() < 5 / np.sqrt(length)  # 1770 pairs: five standard errors
    assert off.std() == pytest.approx(1 / np.sqrt(length), rel=0.1)
