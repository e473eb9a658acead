"""Keyed randomness: every draw is a pure function of (seed, purpose, round, client).

All arms of a study share their draws, so that they can be compared in pairs. The one exception is the noise of
differential privacy, whose key includes the arm's name.

Intuition: there is no "next random number", so a draw that is added or left out changes no other draw.

    key   = mix(… mix(mix(seed) ⊕ purpose) ⊕ round) ⊕ client)
    draw_j = mix(key + j·γ)                       SplitMix64, a counter-based generator

Draws for many clients (the order of mini-batches, availability) are computed for thousands of clients in one numpy
call. Draws from a distribution use a `numpy.random.Generator` on Philox with the same key.

Reference: Steele, Lea, Flood. Fast splittable pseudorandom number generators. OOPSLA 2014.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.random.bit_generator import ISeedSequence

from turnout.array_types import Bits, Floats, Ids

GAMMA = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # multipliers of SplitMix64's finaliser
BY_30, BY_27, BY_31, BY_11 = (np.uint64(bits) for bits in (30, 27, 31, 11))  # made once: there are draws in every round
SERVER = -1  # client id of the server's draws
MOST_SHARED = 4096  # numbers of one draw that are kept for the arms that draw the same


def mix(bits: Bits) -> Bits:
    """Return SplitMix64's finaliser of each 64-bit word, in a new array."""
    out = bits ^ (bits >> BY_30)
    out *= FIRST
    out ^= out >> BY_27
    out *= SECOND
    out ^= out >> BY_31
    return out


@lru_cache(maxsize=4096)
def purpose_word(purpose: str) -> int:
    """Return the 64-bit hash of a purpose."""
    return int.from_bytes(blake2b(purpose.encode(), digest_size=8).digest(), "little")


WORD = 0xFFFFFFFFFFFFFFFF
STRIDE = int(GAMMA)


def _mix_one(word: int) -> int:
    """Return SplitMix64's finaliser of one 64-bit word as a Python integer."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


@lru_cache(maxsize=4096)  # all arms of a study use the same keys in a round
def _round_key(seed: int, purpose: str, round: int) -> int:
    """Return the key of one purpose in one round; a client's key is derived from it."""
    key = _mix_one(((seed & WORD) + STRIDE) & WORD)
    key = _mix_one(((key ^ purpose_word(purpose)) + STRIDE) & WORD)
    return _mix_one(((key ^ (round & WORD)) + STRIDE) & WORD)


class _FixedKey(ISeedSequence):
    """A generator's key of two words. With the argument `key` instead, Philox would also read the system's entropy."""

    def __init__(self, pair: Sequence[int]) -> None:
        self.pair = pair

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> Any:
        """Return the key."""
        return np.array(self.pair, dtype=dtype)


@dataclass(frozen=True, slots=True)
class Streams:
    """The randomness of one run."""

    seed: int  # seed of the run
    arm: str = ""  # name of the run's arm, for draws that arms must not share

    def keys(self, purpose: str, round: int = 0, clients: Ids | int = SERVER) -> Bits:
        """Return one key per client."""
        key = np.uint64(_round_key(self.seed, purpose, round))
        ids = np.atleast_1d(np.asarray(clients, dtype=np.int64)).astype(np.uint64)
        keys: Bits = mix((key ^ ids) + GAMMA)
        return keys

    def uniforms(self, purpose: str, round: int, clients: Ids, count: int = 1) -> Floats:
        """Return a (clients, count) table of uniform numbers in [0, 1)."""
        if len(clients) * count > MOST_SHARED:
            return unit(words(self.keys(purpose, round, clients), count))
        ids = np.asarray(clients, dtype=np.int64).tobytes()
        return _few_uniforms(self.seed, purpose, round, ids, count).copy()

    def places(self, purpose: str, round: int, count: int, size: int, *, replacement: bool = False) -> Ids:
        """Return `size` uniform draws from 0 … count − 1, in no particular order."""
        if size > MOST_SHARED:
            return _places(self, purpose, round, count, size, replacement)
        return _few_places(self.seed, purpose, round, count, size, replacement).copy()

    def generator(self, purpose: str, round: int = 0, client: int = SERVER) -> np.random.Generator:
        """Return a numpy generator for draws from a distribution."""
        key = _mix_one(((_round_key(self.seed, purpose, round) ^ (client & WORD)) + STRIDE) & WORD)
        pair = [_mix_one((key + step * STRIDE) & WORD) for step in (1, 2)]
        return np.random.Generator(np.random.Philox(_FixedKey(pair)))  # type: ignore[arg-type]  # missing in numpy's stubs

    def arm_generator(self, purpose: str, round: int = 0) -> np.random.Generator:
        """Return a numpy generator for draws that arms do not share: the key includes the arm's name."""
        return self.generator(f"{purpose} of arm {self.arm}", round)

    def torch_generator(self, purpose: str, round: int = 0, client: int = SERVER) -> torch.Generator:
        """Return a torch generator on the CPU, seeded by the key; torch uses 32 bits of it."""
        return torch.Generator().manual_seed(int(self.keys(purpose, round, client)[0] >> np.uint64(1)))


@lru_cache(maxsize=64)  # the arms of a study draw the same numbers one after another
def _few_uniforms(seed: int, purpose: str, round: int, ids: bytes, count: int) -> Floats:
    """Return a (clients, count) table of uniform numbers of a few clients, given as the bytes of their ids."""
    return unit(words(Streams(seed).keys(purpose, round, np.frombuffer(ids, dtype=np.int64)), count))


def _places(streams: Streams, purpose: str, round: int, count: int, size: int, replacement: bool) -> Ids:
    return streams.generator(purpose, round).choice(count, size, replace=replacement, shuffle=False)


@lru_cache(maxsize=64)
def _few_places(seed: int, purpose: str, round: int, count: int, size: int, replacement: bool) -> Ids:
    """Return a few uniform draws from 0 … count − 1."""
    return _places(Streams(seed), purpose, round, count, size, replacement)


def words(keys: Bits, count: int) -> Bits:
    """Return the first `count` 64-bit words of each key's stream, one row per key."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * GAMMA
    return mix(keys[:, None] + steps[None, :])


def unit(bits: Bits) -> Floats:
    """Return 64-bit words as numbers in [0, 1) with 53 bits."""
    return (bits >> BY_11).astype(np.float64) * (1.0 / (1 << 53))
