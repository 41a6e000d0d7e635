"""Random numbers with an address.

The key is (seed, name), the counter (output, round, position, slot).

A counter-based generator (Philox 4x32-10, Salmon et al. 2011) has no state to carry along, so an
output draws the same numbers whatever the batch size, the number of workers, or the place where a
run was interrupted. It is vectorised over addresses, because a sampler asks for thousands at once.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_MASK32 = np.uint64(0xFFFFFFFF)
_SHIFT32 = np.uint64(32)
_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

RACE_EPSILON = 1e-10
"""The public code's guard of its exponential clocks, inside both logarithm and quotient."""

Words = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> Words:
    """Philox 4x32-10: four 32-bit words (held in uint64 arrays) for each broadcast counter."""
    words = np.empty((4, *np.broadcast(*counter).shape), np.uint64)
    words[0], words[2], words[1], words[3] = counter
    even, odd = words.reshape(2, 2, -1)  # the two that are multiplied, and the other two
    product = np.empty_like(even)
    crossed = product[::-1]  # what comes of one half goes over to the other
    for keys in _keys(key):
        np.multiply(even, _MULTIPLIERS, out=product)
        np.right_shift(crossed, _SHIFT32, out=even)
        np.bitwise_xor(even, odd, out=even)
        np.bitwise_xor(even, keys, out=even)
        np.bitwise_and(crossed, _MASK32, out=odd)
    return words[0], words[2], words[1], words[3]


@functools.lru_cache(maxsize=64)
def _keys(key: tuple[int, int]) -> tuple[NDArray[np.uint64], ...]:
    """The words of the key in each round, one for each half."""
    rounds = (
        [[(k + n * w) & 0xFFFFFFFF] for k, w in zip(key, _WEYL, strict=True)]
        for n in range(_ROUNDS)
    )
    return tuple(np.array(words, np.uint64) for words in rounds)


def _digest(*parts: object) -> bytes:
    return hashlib.sha256("/".join(map(str, parts)).encode()).digest()


def derive_seed(seed: int, name: str, *where: int) -> int:
    """A 63-bit seed for a generator that keeps its own state, e.g. torch's, one per batch."""
    return int.from_bytes(_digest("strop", name, seed, *where)[:8], "big") >> 1


class Stream:
    """All random numbers of one purpose under one root seed."""

    def __init__(self, seed: int, name: str) -> None:
        digest = _digest("strop", name, seed)
        self._key = (int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big"))

    def words(
        self, output: ArrayLike, round_: ArrayLike, position: ArrayLike, slot: ArrayLike
    ) -> Words:
        """Four independent 32-bit words at each address; every coordinate is below 2**32."""
        return philox((output, round_, position, slot), self._key)

    def uniform(
        self, output: ArrayLike, round_: ArrayLike, position: ArrayLike, slot: ArrayLike
    ) -> NDArray[np.float64]:
        """One number in [0, 1) with 53 random bits at each address."""
        high, low, _, _ = self.words(output, round_, position, slot)
        return unit53(high, low)


def unit53(high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Two 32-bit words as a multiple of 2**-53 in [0, 1)."""
    bits = (high << np.uint64(21)) | (low >> np.uint64(11))
    return bits.astype(np.float64) * 2.0**-53
