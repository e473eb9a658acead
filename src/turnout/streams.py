"""Keyed randomness: every draw is a pure function of (seed, purpose, round, client).

Arms of a study share all draws, so that they can be compared in pairs, but those that must be secret from each other:
the noise of differential privacy is keyed by the arm's name as well.

Intuition: nothing is ever "the next number", so leaving one draw out never moves another.

    key   = mix(… mix(mix(seed) ⊕ purpose) ⊕ round) ⊕ client)
    draw_j = mix(key + j·γ)                       SplitMix64, a counter-based generator

Bulk draws (mini-batch orders, who is up) are computed for thousands of clients at once with numpy; anything that
needs a distribution takes a `numpy.random.Generator` on Philox with the same key.

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
SERVER = -1  # the client id of draws that belong to the server


def mix(bits: Bits) -> Bits:
    """Return SplitMix64's finaliser of each word; the input is not changed."""
    out = bits ^ (bits >> np.uint64(30))
    out *= np.uint64(0xBF58476D1CE4E5B9)
    out ^= out >> np.uint64(27)
    out *= np.uint64(0x94D049BB133111EB)
    out ^= out >> np.uint64(31)
    return out


@lru_cache(maxsize=4096)
def purpose_word(purpose: str) -> int:
    """Return the 64-bit word that stands for a purpose."""
    return int.from_bytes(blake2b(purpose.encode(), digest_size=8).digest(), "little")


WORD = 0xFFFFFFFFFFFFFFFF
STRIDE = int(GAMMA)


def _mix_one(word: int) -> int:
    """Return SplitMix64's finaliser of one word, without an array."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


@lru_cache(maxsize=4096)  # the arms of a study share a round's; earlier rounds' are not asked for again
def _stem(seed: int, purpose: str, round: int) -> int:
    """Return the key of all clients' draws for one purpose in one round, before the client is mixed in."""
    key = _mix_one(((seed & WORD) + STRIDE) & WORD)
    key = _mix_one(((key ^ purpose_word(purpose)) + STRIDE) & WORD)
    return _mix_one(((key ^ (round & WORD)) + STRIDE) & WORD)


class _Given(ISeedSequence):
    """Two words as a generator's key. Given as `key` they would cost it a look at the system's entropy, unused."""

    def __init__(self, pair: Sequence[int]) -> None:
        self.pair = pair

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> Any:
        """Return the key."""
        return np.array(self.pair, dtype=dtype)


@dataclass(frozen=True, slots=True)
class Streams:
    """All the randomness of one run."""

    seed: int
    arm: str = ""  # the name of the run's arm, for draws that arms must not share

    def keys(self, purpose: str, round: int = 0, clients: Ids | int = SERVER) -> Bits:
        """Return one key per client."""
        key = np.uint64(_stem(self.seed, purpose, round))
        ids = np.atleast_1d(np.asarray(clients, dtype=np.int64)).astype(np.uint64)
        keys: Bits = mix((key ^ ids) + GAMMA)
        return keys

    def uniforms(self, purpose: str, round: int, clients: Ids, count: int = 1) -> Floats:
        """Return a (clients, count) table of uniforms in [0, 1)."""
        return unit(words(self.keys(purpose, round, clients), count))

    def generator(self, purpose: str, round: int = 0, client: int = SERVER) -> np.random.Generator:
        """Return a generator for draws that need a distribution."""
        key = _mix_one(((_stem(self.seed, purpose, round) ^ (client & WORD)) + STRIDE) & WORD)
        pair = [_mix_one((key + step * STRIDE) & WORD) for step in (1, 2)]
        return np.random.Generator(np.random.Philox(_Given(pair)))  # type: ignore[arg-type]  # stubs leave it out

    def arm_generator(self, purpose: str, round: int = 0) -> np.random.Generator:
        """Return a generator for draws that no other arm shares: its purpose has the arm's name in it."""
        return self.generator(f"{purpose} of arm {self.arm}", round)

    def torch_generator(self, purpose: str, round: int = 0, client: int = SERVER) -> torch.Generator:
        """Return a torch generator (on the CPU) seeded by the key; torch keeps 32 bits of it."""
        return torch.Generator().manual_seed(int(self.keys(purpose, round, client)[0] >> np.uint64(1)))


def words(keys: Bits, count: int) -> Bits:
    """Return the first `count` words of each key's stream, one row a key."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * GAMMA
    return mix(keys[:, None] + steps[None, :])


def unit(bits: Bits) -> Floats:
    """Map words to [0, 1) with 53 bits."""
    return (bits >> np.uint64(11)).astype(np.float64) * (1.0 / (1 << 53))
