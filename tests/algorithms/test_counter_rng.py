import numpy as np
import pytest

from rlhf_runtime.algorithms.counter_rng import StepSeed, hash_counters, permutation, uniforms

SEED = StepSeed(job=7, step=3)


def test_a_sample_sees_the_same_numbers_in_any_shard():
    whole = uniforms(SEED, sample_ids=np.arange(10), length=6)
    shard = uniforms(SEED, sample_ids=np.array([8, 2]), length=4)
    np.testing.assert_array_equal(shard, whole[[8, 2], :4])


@pytest.mark.parametrize("other", [StepSeed(job=8, step=3), StepSeed(job=7, step=4), StepSeed(job=3, step=7)])
def test_another_job_or_step_sees_other_numbers(other):
    ids = np.arange(100)
    assert not np.isin(uniforms(SEED, sample_ids=ids, length=8), uniforms(other, sample_ids=ids, length=8)).any()


def test_the_numbers_look_uniform_and_independent():
    numbers = uniforms(SEED, sample_ids=np.arange(20_000), length=8)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts, _ = np.histogram(numbers, bins=50, range=(0, 1))
    expected = numbers.size / 50
    assert ((counts - expected) ** 2 / expected).sum() < 95  # chi-square with 49 degrees, p about 1e-4
    correlations = np.corrcoef(numbers.T) - np.eye(8)
    assert np.abs(correlations).max() < 0.03


def test_the_hash_of_known_counters_never_changes():
    # A stored run is replayed by later versions: these must stay.
    assert hash_counters(1, 2, np.array([3, 4])).tolist() == [15020427595393229491, 14056738641343212577]


def test_negative_and_huge_counters_are_fine():
    assert hash_counters(-1, 2**63).shape == (1,)
    assert hash_counters(-1).tolist() == hash_counters(np.array([-1])).tolist()


def test_a_permutation_is_one_and_depends_on_its_counters_alone():
    first = permutation(500, seed=SEED)
    assert sorted(first.tolist()) == list(range(500))
    np.testing.assert_array_equal(first, permutation(500, seed=SEED))
    assert (first != permutation(500, seed=SEED, epoch=1)).mean() > 0.9
    assert (first != np.arange(500)).mean() > 0.9
