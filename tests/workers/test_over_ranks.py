"""An actor on two ranks: each computes its share, and what they give is put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rank_processes import RankProcesses
from worker_builders import actor_batch, actor_settings, an_actor, at

from rlhf_runtime import wire
from rlhf_runtime.engines.trained import ShardingConfig
from rlhf_runtime.executor import to_proto
from rlhf_runtime.worker import CallInfo, WorkerContext, constructing, method_spec
from rlhf_runtime.workers.actor import ActorWorker

pytestmark = pytest.mark.job


def generate_and_learn(context: WorkerContext, policy: Path, prompts: list[str], given: Any) -> dict[str, Any]:
    """Generate for this rank's share of the prompts, learn from `given`, and generate again."""
    from dataclasses import replace

    with constructing(context):
        actor = ActorWorker(str(policy), replace(actor_settings(samples=2), sharding=ShardingConfig()))
    edges = [len(prompts) * rank // context.world_size for rank in range(context.world_size + 1)]
    first, end = edges[context.rank : context.rank + 2]

    def generated() -> dict[str, Any]:
        actor.context.call = CallInfo(iteration=1, row_offset=first)
        return actor.generate(prompts[first:end])

    before = generated()
    metrics = actor.update(to_proto(given))["metrics"]
    return {"before": before, "metrics": metrics, "after": generated()}


def joined(shares: list[dict[str, Any]], name: str) -> Any:
    return wire.concat([share[name] for share in shares], pad=method_spec(ActorWorker, "generate").pad.get(name, ""))


def test_two_ranks_generate_and_learn_as_one(rank_processes: RankProcesses, policy: Path, prompts: list[str]) -> None:
    prompts = sorted(prompts, key=len)  # so that the shares differ in width
    alone = an_actor(policy, samples=2)
    before = at(alone, iteration=1).generate(prompts)
    batch = actor_batch(before)
    ranks = rank_processes.run(2, generate_and_learn, policy, prompts, dict(batch.batch))
    first = [rank["before"] for rank in ranks]
    assert first[0]["prompt_ids"].shape[1] != first[1]["prompt_ids"].shape[1]
    for name in ("prompt_mask", "responses", "response_mask"):
        assert torch.equal(joined(first, name), before[name]), name
    mask = before["prompt_mask"].bool()
    assert torch.equal(joined(first, "prompt_ids")[mask], before["prompt_ids"][mask])
    assert joined(first, "texts") == before["texts"]

    metrics = at(alone, iteration=1).update(batch)["metrics"]
    for rank in ranks:
        assert rank["metrics"] == pytest.approx(metrics, rel=1e-3, abs=1e-5)
    after = at(alone, iteration=1).generate(prompts)
    assert joined([rank["after"] for rank in ranks], "texts") == after["texts"]
    assert after["texts"] != before["texts"]
