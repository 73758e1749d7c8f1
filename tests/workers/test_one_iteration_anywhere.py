"""One PPO iteration by hand, in processes of their own and colocated: the same numbers to the bit.

The hosts here are the in-process backend's; real processes are `tests/ray`'s business.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from builders import Recorder
from worker_builders import SEQUENCE, a_worker, actor_settings, at, batch, critic_settings, same_state

from rlhf_runtime.algorithms.on_policy import FlowSettings
from rlhf_runtime.algorithms.ppo import PPOController
from rlhf_runtime.backends.inprocess import InProcessBackend
from rlhf_runtime.control.settings import EngineSettings
from rlhf_runtime.executor import to_proto
from rlhf_runtime.role import Role
from rlhf_runtime.tasks.base import Task
from rlhf_runtime.tasks.metadata import pack
from rlhf_runtime.worker import Dispatch, register
from rlhf_runtime.workers.actor import ActorWorker
from rlhf_runtime.workers.critic import CriticWorker
from rlhf_runtime.workers.reference import ReferenceWorker
from rlhf_runtime.workers.rule import RuleWorker

SEED = 7
ITERATIONS = 2
LEARNING = ("actor", "critic")

Result = tuple[dict[str, dict[str, Any]], list[dict[str, float]]]


class OpenActor(ActorWorker):
    """Shows its weights."""

    @register(dispatch=Dispatch.RANK_ZERO)
    def weights(self) -> dict[str, Any]:
        return {"weights": self.state_dict()["model"]}


class OpenCritic(CriticWorker):
    """Shows its weights."""

    @register(dispatch=Dispatch.RANK_ZERO)
    def weights(self) -> dict[str, Any]:
        return {"weights": self.state_dict()["model"]}


def vowels_of_level(response: str, answer: str, metadata: dict[str, Any]) -> float:
    return sum(letter in "aeiou" for letter in response) + 0.25 * metadata["level"] + 0.5 * (response == answer)


@pytest.fixture
def task(prompts: list[str], answers: list[str]) -> Task:
    return Task(
        name="t",
        train_prompts=tuple(prompts),
        train_answers=tuple(answers),
        train_metadata=tuple(pack({"level": level}) for level in range(len(prompts))),
        heldout_prompts=(),
        heldout_answers=(),
    )


def classes(policy: Path) -> dict[str, tuple[type, dict[str, Any]]]:
    return {
        "actor": (OpenActor, {"model": str(policy), "settings": actor_settings()}),
        "critic": (OpenCritic, {"model": str(policy), "settings": critic_settings()}),
        "reward": (RuleWorker, {"function": vowels_of_level}),
        "reference": (ReferenceWorker, {"model": str(policy)}),
    }


def on_the_engine(policy: Path, task: Task, *, colocated: bool) -> Result:
    flow = FlowSettings(prompts_per_step=4, seed=SEED, critic="critic", reference="reference")
    settings = EngineSettings(seed=SEED, state_location=f"memory:anywhere-{colocated}-{policy.name}")
    controller = PPOController(backend=InProcessBackend(), settings=settings, observer=Recorder())
    controller.configure(task=task, flow=flow, parameters={})
    for name, (cls, arguments) in classes(policy).items():
        shared = "actor" if colocated and name != "actor" else None
        controller.register_role(Role(name=name, worker_class=cls, init_kwargs=arguments, colocate_with=shared))
    try:
        metrics = []
        for iteration in range(ITERATIONS):
            controller.begin_iteration(iteration)
            given = controller.build_dag()
            metrics.append(
                {f"{part}/{name}": value for part, each in given.items() for name, value in each.get().items()}
            )
            controller.finish()
        weights = {role: dict(controller.step(role=role, method="weights")["weights"].get()) for role in LEARNING}
        return weights, metrics
    finally:
        controller.close()


def by_hand(policy: Path, task: Task) -> Result:
    actor, critic, reward, reference = (
        a_worker(cls, seed=SEED, **arguments) for cls, arguments in classes(policy).values()
    )
    flow = PPOController()
    flow.configure(task=task, flow=FlowSettings(prompts_per_step=4, seed=SEED), parameters={})
    metrics = []
    for iteration in range(ITERATIONS):
        flow.iteration = iteration
        for worker in (actor, critic, reward, reference):
            at(worker, iteration=iteration)
        rows = list(flow.rows())
        samples = actor.generate([task.train_prompts[row] for row in rows])
        sequences = batch(samples, *SEQUENCE)
        columns = {"answers": [task.train_answers[row] for row in rows]}
        columns |= {"metadata": [task.train_metadata[row] for row in rows]}
        scores = reward.compute_scores(to_proto({"texts": samples["texts"], **columns}))
        references, values = reference.compute_log_probs(sequences), critic.compute_values(sequences)
        judged = actor.compute_advantages(
            batch(samples, "response_mask", "log_probs", **scores, **references, **values)
        )
        moved = actor.update(batch(samples, *SEQUENCE, "log_probs", advantages=judged["advantages"]))
        fitted = critic.update(batch(samples, *SEQUENCE, **values, returns=judged["returns"]))
        parts = {"": judged, "actor": moved, "critic": fitted}
        metrics.append({f"{part}/{name}": x for part, each in parts.items() for name, x in each["metrics"].items()})
    return {"actor": actor.weights()["weights"], "critic": critic.weights()["weights"]}, metrics


def test_where_roles_run_changes_no_number(policy: Path, task: Task) -> None:
    want_weights, want_metrics = by_hand(policy, task)
    for colocated in (False, True):
        weights, metrics = on_the_engine(policy, task, colocated=colocated)
        assert metrics == want_metrics
        assert same_state(weights, want_weights)


def test_the_iteration_did_change_the_weights(policy: Path, task: Task) -> None:
    before = a_worker(OpenActor, str(policy), actor_settings()).weights()["weights"]
    after = by_hand(policy, task)[0]["actor"]
    assert all(not torch.equal(before[name], after[name]) for name in before)
