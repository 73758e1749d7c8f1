"""Where groups live must not change a single bit of what they compute."""

import pytest
import torch
from group_workers import ActorRolloutWorker, CriticWorker, prompts

from rlhf_runtime.api import Controller, RayClassWithInitArgs, RayResourcePool, RayWorkerGroup


def train(backend, *, colocated, steps=3, places=2):
    """The weights' bits after some steps, and what each step generated."""
    with Controller(backend=backend) as controller:
        count = 2 if colocated else 1
        pools = [RayResourcePool([1] * places, use_gpu=False, max_colocate_count=count) for _ in range(3 - count)]
        actor, critic = [
            RayWorkerGroup(pool, RayClassWithInitArgs(cls), controller=controller)
            for pool, cls in zip(pools * count, (ActorRolloutWorker, CriticWorker), strict=True)
        ]
        seats = [seat for group in controller.engine.groups.values() for seat in group.seats]
        assert len({id(seat.process) for seat in seats}) == len(pools) * places
        made = []
        for step in range(steps):
            controller.begin_iteration(step)
            batch = prompts().union(actor.generate_sequences(prompts()))
            batch = batch.union(critic.compute_values(batch))
            made.append(batch["responses"])
            actor.update_actor(batch)
        return [*made, *[weights["weights"] for weights in actor.execute_all("weights").get()]]


@pytest.mark.parametrize("backend", ["in-process", "simulated"])
def test_colocated_and_dedicated_groups_give_the_same_bits(backend):
    dedicated = train(backend, colocated=False)
    colocated = train(backend, colocated=True)
    assert all(torch.equal(a, b) for a, b in zip(dedicated, colocated, strict=True))
    assert not torch.equal(dedicated[0], dedicated[1])
    assert torch.equal(dedicated[-1], dedicated[-2])
