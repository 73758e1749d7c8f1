"""Random numbers as a pure function of counters.

A number depends only on the counters that name it (job seed, step, stream, sample, position), never on how
many were drawn before, so redone work, shards and replica counts do not change what a sample sees. The hash
is the finalizer of SplitMix64, applied once per counter: Steele, Lea and Flood, "Fast Splittable Pseudorandom
Number Generators" (OOPSLA 2014).
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

UInt64Array: TypeAlias = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)

SAMPLING_STREAM = 1
SHUFFLE_STREAM = 2
DATA_STREAM = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeed:
    """The counters that all random numbers of one training step share."""

    job: int
    step: int


def _mix(state: UInt64Array) -> UInt64Array:
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    return state ^ (state >> np.uint64(31))


def hash_counters(*counters: int | npt.NDArray[np.integer]) -> UInt64Array:
    """Hash counters to 64 bits each.

    Args:
        counters: integers or integer arrays that broadcast against each other.

    Returns:
        uint64 array of the broadcast shape (at least one dimension).
    """
    state = np.zeros(1, dtype=np.uint64)
    for counter in counters:
        word = np.asarray(counter % 2**64 if isinstance(counter, int) else counter).astype(np.uint64)
        state = _mix((state ^ word) + _GOLDEN)
    return state


def uniforms(seed: StepSeed, *, sample_ids: npt.NDArray[np.integer], length: int) -> npt.NDArray[np.float64]:
    """One uniform number in [0, 1) per sample and token position.

    Args:
        seed: the step's counters.
        sample_ids: (N,) global sample indices of the step.
        length: token positions.

    Returns:
        (N, length) float64.
    """
    positions = np.arange(length)
    bits = hash_counters(SAMPLING_STREAM, seed.job, seed.step, sample_ids[:, None], positions[None, :])
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(count: int, *, seed: StepSeed, stream: int = SHUFFLE_STREAM, epoch: int = 0) -> npt.NDArray[np.int64]:
    """A shuffle of ``range(count)`` that depends only on the counters.

    Returns:
        (count,) int64.
    """
    keys = hash_counters(stream, seed.job, seed.step, epoch, np.arange(count))
    return np.argsort(keys, kind="stable").astype(np.int64)
