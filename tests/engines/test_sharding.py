"""Several ranks compute what one does, and hold less each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import over_ranks
import pytest
import torch
from rank_processes import RankProcesses

from rlhf_runtime.engines.ranks import RanksError, join_ranks
from rlhf_runtime.engines.trained import ShardingConfig
from rlhf_runtime.worker import WorkerContext

pytestmark = pytest.mark.job

TOLERANCE = {"atol": 1e-5, "rtol": 1e-4}  # float32 sums in another order, after ten updates
ROWS = 10


@pytest.fixture
def long_batch(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Ten rows of all lengths: no number of ranks that is tried divides them."""
    repeated = {name: value.repeat(3, 1)[:ROWS] for name, value in batch.items()}
    generator = torch.Generator().manual_seed(6)
    noise = torch.randn(ROWS, 5, generator=generator) * repeated["response_mask"]
    return {**repeated, "advantages": noise, "returns": noise.flip(0) * repeated["response_mask"]}


def assert_close(got: Any, want: Any, **tolerance: float) -> None:
    torch.testing.assert_close(got, want, **{**TOLERANCE, **tolerance})


def together(shares: list[torch.Tensor]) -> torch.Tensor:
    """The rows of all ranks in their order; rank r has every so many-th."""
    whole = torch.zeros(sum(map(len, shares)), *shares[0].shape[1:])
    for rank, share in enumerate(shares):
        whole[rank :: len(shares)] = share
    return whole


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_an_actor_on_several_ranks_learns_as_on_one(
    rank_processes: RankProcesses, long_batch: dict[str, torch.Tensor], ranks: int, tied: bool
) -> None:
    model = {"tie_word_embeddings": tied}
    (alone,) = rank_processes.run(1, over_ranks.train_actor, long_batch, None, 10, model)
    several = rank_processes.run(ranks, over_ranks.train_actor, long_batch, None, 10, model)
    for result in several:
        assert_close(result["metrics"], alone["metrics"], rtol=1e-3)
        assert_close(result["weights"], alone["weights"])
    assert_close(together([result["log_probs"] for result in several]), alone["log_probs"])
    held = [result["elements"] for result in several]
    assert sum(held) == alone["elements"]
    assert max(held) <= alone["elements"] / ranks + 100  # rows of small tensors do not divide evenly


def test_a_critic_on_two_ranks_learns_as_on_one(
    rank_processes: RankProcesses, long_batch: dict[str, torch.Tensor]
) -> None:
    (alone,) = rank_processes.run(1, over_ranks.train_critic, long_batch)
    several = rank_processes.run(2, over_ranks.train_critic, long_batch)
    for result in several:
        assert_close(result["metrics"], alone["metrics"], rtol=1e-3)
        assert_close(result["weights"], alone["weights"])
    assert_close(together([result["values"] for result in several]), alone["values"])


def test_more_ranks_than_rows(rank_processes: RankProcesses, long_batch: dict[str, torch.Tensor]) -> None:
    """Minibatches of one or two rows on four ranks: those without a row compute with the others."""
    few = {name: value[:3] for name, value in long_batch.items()}
    (alone,) = rank_processes.run(1, over_ranks.train_critic, few)
    assert len({str(result["metrics"]) for result in rank_processes.run(2, over_ranks.train_critic, few)}) == 1
    assert_close(rank_processes.run(2, over_ranks.train_critic, few)[0]["weights"], alone["weights"])


@pytest.mark.parametrize("ranks", [1, 2])
def test_computing_in_bfloat16_keeps_masters_in_float32(
    rank_processes: RankProcesses, long_batch: dict[str, torch.Tensor], ranks: int
) -> None:
    (exact,) = rank_processes.run(1, over_ranks.train_actor, long_batch, None, 3)
    half = rank_processes.run(ranks, over_ranks.train_actor, long_batch, ShardingConfig(compute_dtype="bfloat16"), 3)
    for result in half:
        assert result["masters"] == {"torch.float32"}
        assert {value.dtype for value in result["weights"].values()} == {torch.bfloat16}
        assert result["metrics"][0]["loss"] == pytest.approx(exact["metrics"][0]["loss"], rel=0.15)
    assert str(half[0]["metrics"]) != str(exact["metrics"])


def test_activations_that_are_computed_again_change_nothing(
    rank_processes: RankProcesses, long_batch: dict[str, torch.Tensor]
) -> None:
    kept, computed = (
        rank_processes.run(2, over_ranks.train_actor, long_batch, ShardingConfig(checkpoint_activations=again))[0]
        for again in (False, True)
    )
    assert_close(computed["weights"], kept["weights"])


@pytest.mark.parametrize("readers", [2, 4, 1])
def test_a_snapshot_of_two_ranks_goes_on_with_any_number(
    rank_processes: RankProcesses, long_batch: dict[str, torch.Tensor], tmp_path: Path, readers: int
) -> None:
    uninterrupted = rank_processes.run(2, over_ranks.train_and_save, long_batch, tmp_path, 3)
    resumed = rank_processes.run(readers, over_ranks.load_and_train, long_batch, tmp_path, 3)
    exact = {"atol": 0.0, "rtol": 0.0} if readers == 2 else TOLERANCE
    for weights in resumed:
        assert_close(weights, uninterrupted[0], **exact)


def test_a_rank_of_two_needs_less_memory_than_one_alone(
    rank_processes: RankProcesses, long_batch: dict[str, torch.Tensor]
) -> None:
    model = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8, "head_dim": 64}
    (alone,) = rank_processes.run(1, over_ranks.memory_to_train, long_batch, model)
    several = rank_processes.run(2, over_ranks.memory_to_train, long_batch, model)
    elements = 8 * (512 * 2048 * 3 + 512 * 64 * (2 + 1 + 1 + 2))
    assert alone > 15 * elements  # bytes; weight, gradient and AdamW's two means take 16 for each element
    assert max(several) < 0.8 * alone

    limit = (alone + max(several)) // 2
    with pytest.raises(AssertionError, match="can't allocate memory"):
        rank_processes.run(1, over_ranks.memory_to_train, long_batch, model, limit)
    rank_processes.run(2, over_ranks.memory_to_train, long_batch, model, limit)


def test_ranks_without_a_place_to_meet_say_what_is_missing() -> None:
    with pytest.raises(RanksError, match=r'the 2 ranks of role "actor" have no place to meet.*process_group=True'):
        join_ranks(WorkerContext(role="actor", world_size=2))


def test_a_rank_whose_others_do_not_come_says_who_and_where() -> None:
    context = WorkerContext(role="actor", rank=1, world_size=2, meeting_place="127.0.0.1:1")
    with pytest.raises(RanksError, match=r"actor-worker-001 did not meet the other 1 at 127.0.0.1:1 within 2 s"):
        join_ranks(context, seconds=2)
