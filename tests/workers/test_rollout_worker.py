"""A replica generates with the weights that each request tells of."""

from pathlib import Path
from typing import Any

import pytest
import torch
from worker_builders import NEW_TOKENS, a_worker, actor_batch, actor_settings, an_actor, at

from rlhf_runtime.engines.weight_sync import ThroughState, WeightSyncError, receive, version_of
from rlhf_runtime.errors import StateCorruptError, WeightsLostError
from rlhf_runtime.resilience.state_store import MemoryStateStore
from rlhf_runtime.worker import WorkerContext, constructing
from rlhf_runtime.workers.actor import ActorWorker
from rlhf_runtime.workers.generating import GenerationSettings
from rlhf_runtime.workers.rollout import RolloutWorker


def a_replica(policy: Path, *, engine: str = "cached", state: MemoryStateStore | None = None) -> RolloutWorker:
    with constructing(WorkerContext(role="rollout", seed=7, state=state)):
        return RolloutWorker(str(policy), GenerationSettings(max_new_tokens=NEW_TOKENS, engine=engine))


def trained(policy: Path, prompts: list[str], **changes: Any) -> ActorWorker:
    """An actor after one update."""
    from dataclasses import replace

    with constructing(WorkerContext(role="actor", seed=7, state=changes.pop("state", None))):
        actor = ActorWorker(str(policy), replace(actor_settings(), **changes))
    actor.update(actor_batch(actor.generate(prompts)))
    return at(actor, version=1)


@pytest.mark.parametrize("sync", ["objects", "state", "collective"])
@pytest.mark.parametrize("engine", ["cached", "transformers"])
def test_a_replica_generates_what_the_actor_would(policy: Path, prompts: list[str], engine: str, sync: str) -> None:
    store = MemoryStateStore("sync")
    actor = trained(policy, prompts, weight_sync=sync, state=store)
    replica = a_replica(policy, engine=engine, state=store)
    told = actor.publish_weights()["weights"]
    got, want = at(replica, iteration=3).generate(prompts, told), at(actor, iteration=3, version=1).generate(prompts)
    assert torch.equal(got["responses"], want["responses"])
    torch.testing.assert_close(got["log_probs"], want["log_probs"], atol=1e-5, rtol=1e-4)
    assert got["policy_version"].tolist() == [1] * len(prompts)
    assert got["texts"] != an_actor(policy).generate(prompts)["texts"]
    answers = got["texts"]
    assert replica.evaluate(prompts, answers, told) == actor.evaluate(prompts, answers)


def test_each_request_says_which_version_it_is_for(policy: Path, prompts: list[str]) -> None:
    actor, first = trained(policy, prompts), an_actor(policy)
    replica = a_replica(policy)
    old = at(first, version=0).publish_weights()["weights"]
    new = actor.publish_weights()["weights"]
    made = [replica.generate(prompts, told) for told in (old, new, old)]  # such as a part that is asked for again
    assert [int(one["policy_version"][0]) for one in made] == [0, 1, 0]
    assert torch.equal(made[0]["responses"], made[2]["responses"])
    assert torch.equal(made[0]["log_probs"], made[2]["log_probs"])
    assert not torch.equal(made[0]["log_probs"], made[1]["log_probs"])


def test_weights_are_not_loaded_twice(policy: Path, prompts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    replica, told = a_replica(policy), trained(policy, prompts).publish_weights()["weights"]
    loads: list[Any] = []
    monkeypatch.setattr(replica._engine, "refresh", loads.append)
    for _ in range(3):
        replica.generate(prompts, told)
    assert len(loads) == 1


def test_the_newest_two_versions_stay_in_the_state_and_others_are_gone() -> None:
    store = MemoryStateStore("few")
    sync = ThroughState(store)
    tolds = [sync.publish({"w": torch.full((2, 3), float(version))}, version) for version in range(4)]
    for version in (2, 3):
        assert version_of(tolds[version]) == version
        assert receive(tolds[version], store)["w"].tolist() == [[float(version)] * 3] * 2
    with pytest.raises(WeightsLostError, match=r"weights of version 1 are gone: .*v000000000001"):
        receive(tolds[1], store)
    again = sync.publish({"w": torch.zeros(1)}, 3)  # a run that was resumed makes the version anew
    assert receive(again, store)["w"].tolist() == [0.0]
    assert len(store.list("weights/")) == 2


def test_weights_that_cannot_be_had_are_named(policy: Path, prompts: list[str]) -> None:
    store = MemoryStateStore("torn")
    told = ThroughState(store).publish({"w": torch.zeros(2)}, 5)
    with pytest.raises(WeightSyncError, match="weights of version 5 lie in a state store"):
        receive(told)
    store.write(told["key"], store.read(told["key"])[:-3])
    with pytest.raises(StateCorruptError, match="torn"):
        receive(told, store)
    with pytest.raises(WeightSyncError, match="this run has none"):
        trained(policy, prompts, weight_sync="state").publish_weights()


def test_weights_of_another_model_are_refused(policy: Path, prompts: list[str]) -> None:
    with pytest.raises(ValueError, match="the weights are those of another model"):
        a_replica(policy).generate(prompts, {"version": 1, "tensors": {"other.weight": torch.zeros(1)}})


def test_it_says_what_it_generates_with(policy: Path) -> None:
    assert a_worker(RolloutWorker, str(policy), GenerationSettings(max_new_tokens=2)).engines == {"rollout": "cached"}
