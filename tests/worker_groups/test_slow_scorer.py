"""A scorer that takes its time holds up nobody but those who read its scores."""

import threading

import torch
from group_workers import ActorRolloutWorker, CriticWorker, prompts
from thread_backend import ThreadBackend

from rlhf_runtime.api import (
    BaseWorker,
    Controller,
    DataProto,
    Effect,
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    register,
)
from rlhf_runtime.backends.simulated import SimulatedBackend


class APIScoreWorker(BaseWorker):
    @register(effect=Effect.NONE)
    def score(self, batch):
        return DataProto.from_dict({"score": batch.batch["responses"].sum(dim=1)})


def group(cls, controller):
    return RayWorkerGroup(RayResourcePool([1]), RayClassWithInitArgs(cls), controller=controller)


def test_the_actor_goes_on_while_a_score_takes_five_seconds():
    backend = SimulatedBackend(durations={"api-score.score": 5.0, "actor-rollout.generate_sequences": 1.0})
    with Controller(backend=backend) as controller:
        actor, critic, scorer = [group(cls, controller) for cls in (ActorRolloutWorker, CriticWorker, APIScoreWorker)]
        made = [actor.generate_sequences(prompts())]
        score = scorer.score(made[0])
        values = critic.compute_values(made[0])
        made += [actor.generate_sequences(prompts()) for _ in range(3)]
        made[-1].wait()
        values.wait()
        assert backend.now() == 4.0
        batch = prompts().union(made[0]).union(score)
        assert backend.now() == 6.0
        assert torch.allclose(batch["score"], batch["responses"].sum(dim=1))
    labels = [label for label, _, _ in backend.timeline]
    assert labels.index("api-score.score") > labels.index("critic.compute_values")


RELEASE = threading.Event()


class PatientWorker(BaseWorker):
    @register(effect=Effect.NONE)
    def score(self, batch):
        assert RELEASE.wait(timeout=60)
        return DataProto.from_dict({"score": batch.batch["responses"].sum(dim=1)})


def test_the_actor_goes_on_while_a_real_scorer_has_not_answered():
    RELEASE.clear()
    with Controller(backend=ThreadBackend()) as controller:
        pool = RayResourcePool([1] * 3, use_gpu=False)
        actor, critic, scorer = [
            RayWorkerGroup(pool, RayClassWithInitArgs(cls), controller=controller)
            for cls in (ActorRolloutWorker, CriticWorker, PatientWorker)
        ]
        try:
            batch = prompts().union(actor.generate_sequences(prompts()))
            score = scorer.score(batch)
            for _ in range(3):
                values = critic.compute_values(actor.generate_sequences(prompts())).get()
                actor.update_actor(batch.union(values)).wait()
            assert score.channels.node.state.value == "running"
        finally:
            RELEASE.set()
        assert len(score.get()) == len(batch)
