"""A PPO iteration in miniature: four roles with real state, and arithmetic that depends on every order of events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from builders import STATE, Run, RunBuilder, a_run

from rlhf_runtime.control.controller import Controller
from rlhf_runtime.control.loop import LoopSettings, StepRecord, TrainingLoop
from rlhf_runtime.resilience.checkpoint import Commit, CommitLog
from rlhf_runtime.worker import Dispatch, Effect, Worker, register

ROWS, SIZE = 6, 4
ROLES = ("actor", "critic", "reward", "reference")


class Learner(Worker):
    """A float vector, and the ids of the updates that were applied to it."""

    def __init__(self, start: float) -> None:
        self.weights = torch.full((SIZE,), start, dtype=torch.float64)
        self.applied: list[str] = []

    def learn(self, gradient: torch.Tensor) -> dict[str, Any]:
        self.weights = 0.9 * self.weights + 0.1 * gradient
        call = self.context.call
        self.applied.append(f"{call.iteration}.{call.ordinal}")
        return {"norm": float(self.weights.norm()), "version": self.context.version}

    @register()
    def show(self) -> dict[str, Any]:
        return {"weights": self.weights, "applied": list(self.applied)}

    def state_dict(self) -> Mapping[str, Any]:
        return {"weights": self.weights, "applied": list(self.applied)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.weights, self.applied = state["weights"].clone(), list(state["applied"])


class Actor(Learner):
    @register()
    def generate(self, prompts: torch.Tensor) -> dict[str, Any]:
        call = self.context.call
        noise = torch.Generator().manual_seed(1000 * self.context.seed + call.iteration)
        return {"samples": torch.sin(prompts @ self.weights).outer(torch.rand(SIZE, generator=noise).double())}

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self, samples: torch.Tensor, values: torch.Tensor, rewards: torch.Tensor, logs: torch.Tensor) -> Any:
        return self.learn(((rewards - values - 0.1 * logs)[:, None] * samples).sum(0))


class Critic(Learner):
    @register()
    def values(self, samples: torch.Tensor) -> dict[str, Any]:
        return {"values": samples @ self.weights}

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self, samples: torch.Tensor, rewards: torch.Tensor) -> Any:
        return self.learn((rewards[:, None] * samples).mean(0))


class Reward(Learner):
    """Scores against a baseline that it keeps up to date."""

    @register()
    def score(self, samples: torch.Tensor) -> dict[str, Any]:
        rewards = samples.square().sum(1) - self.weights.mean()
        return {"rewards": rewards, "mean": float(rewards.mean())}

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self, rewards: torch.Tensor) -> Any:
        return self.learn(rewards[:SIZE])


class Reference(Learner):
    """Follows the actor slowly."""

    @register()
    def log_probs(self, samples: torch.Tensor) -> dict[str, Any]:
        return {"logs": torch.tanh(samples @ self.weights)}

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self, weights: torch.Tensor) -> Any:
        return self.learn(weights)


CLASSES: Mapping[str, type[Learner]] = dict(zip(ROLES, (Actor, Critic, Reward, Reference), strict=True))


def durable(cls: type[Learner]) -> type[Learner]:
    """The same class with durable outputs."""
    methods = [n for n in ("generate", "values", "score", "log_probs", "show") if hasattr(cls, n)]
    wrapped = {name: register(durable=True)(_calling(cls, name)) for name in methods}
    return type(f"Durable{cls.__name__}", (cls,), wrapped)


def _calling(cls: type[Learner], name: str) -> Any:
    plain = getattr(cls, name)
    if name == "show":
        return lambda self: plain(self)
    if name == "generate":
        return lambda self, prompts: plain(self, prompts)
    return lambda self, samples: plain(self, samples)


class ToyPPO(Controller):
    def _build_dag(self) -> Mapping[str, Any]:
        prompts = torch.arange(ROWS * SIZE, dtype=torch.float64).view(ROWS, SIZE) / 10 + self.iteration
        drawn = self.step(role="actor", method="generate", inputs={"prompts": prompts}, outputs=["samples"])
        logs = self.step(role="reference", method="log_probs", inputs=drawn, outputs=["logs"])
        values = self.step(role="critic", method="values", inputs=drawn, outputs=["values"])
        rewards = self.step(role="reward", method="score", inputs=drawn, outputs=["rewards", "mean"])
        scored = {"rewards": rewards["rewards"]}
        inputs = drawn | scored | values | logs
        actor = self.step(role="actor", method="update", inputs=inputs, outputs=["norm", "version"])
        critic = self.step(role="critic", method="update", inputs=drawn | scored, outputs=["norm"])
        self.step(role="reward", method="update", inputs=scored, outputs=[])
        weights = self.step(role="actor", method="show", outputs=["weights"])
        self.step(role="reference", method="update", inputs={"weights": weights["weights"]}, outputs=[])
        return {
            "reward": rewards["mean"],
            "actor": actor["norm"],
            "critic": critic["norm"],
            "version": actor["version"],
        }


class Outcome:
    """What a run came to: to be compared bit for bit with another's."""

    def __init__(self, run: Run, records: list[StepRecord]) -> None:
        self.run = run
        self.metrics = [(r.step, dict(r.metrics)) for r in records]
        store = run.backend.open_store(STATE)
        self.commits = [CommitLog(store)._read(key) for key in store.list("commits/")]
        shown = {name: run.step(name, "show", ["weights", "applied"]) for name in ROLES}
        self.weights = {name: out["weights"].get().tolist() for name, out in shown.items()}
        self.applied = {name: out["applied"].get() for name, out in shown.items()}

    @property
    def committed(self) -> list[tuple[int, dict[str, int], dict[str, float]]]:
        return [(c.iteration, c.versions, c.metrics) for c in self.commits]


def a_ppo(*, with_durable_outputs: bool = False, **fields: Any) -> RunBuilder:
    builder = a_run().running(ToyPPO).settings(seed=7)
    for index, name in enumerate(ROLES):
        cls = durable(CLASSES[name]) if with_durable_outputs else CLASSES[name]
        builder = builder.role(name, cls, init_kwargs={"start": 1.0 + index}, **fields)
    return builder


def train(
    builder: RunBuilder, *, steps: int, start: Commit | None = None, epoch: int = 1, **settings: Any
) -> tuple[Run, list[StepRecord]]:
    """Run a loop to its end, from a commit if one is given."""
    restored = {"restore_versions": start.versions} if start else {}
    run = builder.settings(epoch=epoch, lag=settings.get("lag", 0), **restored).start()
    run.controller.engine.wait_ready()
    records: list[StepRecord] = []
    options = {"snapshot_every": 2, "keep": 2, **settings}
    store = run.backend.open_store(STATE)
    loop = TrainingLoop(
        run.controller,
        store,
        LoopSettings(total_steps=steps, epoch=epoch, **options),
        start=start,
        on_step=records.append,
    )
    try:
        loop.run()
    except BaseException as error:
        error.run = run  # type: ignore[attr-defined]  # for the test to look at
        raise
    return run, records


def outcome(builder: RunBuilder, *, steps: int, **options: Any) -> Outcome:
    run, records = train(builder, steps=steps, **options)
    return Outcome(run, records)
