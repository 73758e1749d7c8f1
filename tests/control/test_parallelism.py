"""What runs at the same time, and what waits, seen on the virtual timeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from builders import Run, a_run
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_workers import Counter, Echo

from rlhf_runtime.worker import Dispatch, Effect, Worker, register


def test_critic_and_reward_work_on_the_same_samples_at_the_same_time() -> None:
    run = (
        a_run()
        .role("actor", Echo)
        .role("critic", Echo)
        .role("reward", Echo)
        .lasting("actor.same", 4.0)
        .lasting("critic.same", 3.0)
        .lasting("reward.same", 2.0)
        .start()
    )
    samples = run.step("actor", "same", ["x"], x=[1])
    values = run.step("critic", "same", ["x"], x=samples["x"])
    rewards = run.step("reward", "same", ["x"], x=samples["x"])
    assert (values["x"].get(), rewards["x"].get()) == ([1], [1])
    assert run.timeline == {"actor.same": [(0, 4)], "reward.same": [(4, 6)], "critic.same": [(4, 7)]}


def test_roles_without_a_common_input_start_together() -> None:
    run = a_run().role("a", Echo).role("b", Echo).lasting("a.same", 5.0).lasting("b.same", 5.0).start()
    run.step("a", "same", ["x"], x=1)
    run.step("b", "same", ["x"], x=1)["x"].get()
    run.controller.finish()
    assert run.backend.now() == 5.0


def test_an_update_that_nobody_reads_comes_before_the_next_look() -> None:
    run = a_run().role("actor", Counter).lasting("actor.update", 2.0).lasting("actor.look", 1.0).start()
    before = run.step("actor", "look", ["total"])
    run.step("actor", "update", [], amount=5.0)
    after = run.step("actor", "look", ["total"])
    assert after["total"].get() == 5.0
    assert before["total"].get() == 0.0
    assert run.timeline == {"actor.look": [(0, 1), (3, 4)], "actor.update": [(1, 3)]}


def test_every_look_at_a_version_ends_before_the_next_update_begins() -> None:
    run = a_run().role("actor", Counter, replicas=3).role("slow", Echo).lasting("slow.same", 9.0).start()
    waiting = run.step("slow", "same", ["x"], x=1)
    late = run.step("actor", "look", ["total"], x=waiting["x"])  # its input comes at 9 s
    run.step("actor", "update", [], amount=1.0)
    run.controller.finish()
    assert late["total"].get() == 0.0
    assert run.timeline["actor.update"][0][0] >= 9.0


def test_what_touches_no_state_never_waits_for_it() -> None:
    run = a_run().role("actor", Echo, replicas=1).role("slow", Echo).lasting("slow.same", 9.0).start()
    waiting = run.step("slow", "same", ["x"], x=1)
    run.step("actor", "update", [], x=waiting["x"])
    aside = run.step("actor", "aside", ["done"])
    assert aside["done"].get() is True
    assert run.backend.now() == 0.0
    run.controller.finish()


@dataclass(frozen=True)
class Step:
    role: str
    effect: str  # "look", "update" or "aside"
    reads: tuple[int, ...]  # earlier steps whose output it takes


@st.composite
def step_sequences(draw: st.DrawFn) -> list[Step]:
    steps: list[Step] = []
    for index in range(draw(st.integers(2, 14))):
        role = draw(st.sampled_from(["a", "b", "c"]))
        effect = draw(st.sampled_from(["look", "update", "aside"]))
        reads = draw(st.lists(st.integers(0, index - 1), max_size=2, unique=True)) if index else []
        steps.append(Step(role, effect, tuple(reads)))
    return steps


class Mixer(Worker):
    """Its state and answers depend on the order of everything that it is asked."""

    def __init__(self) -> None:
        self.state = 1

    @register()
    def look(self, **given: int) -> dict[str, int]:
        return {"out": (self.state * 31 + sum(given.values())) % 1_000_003}

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self, **given: int) -> dict[str, int]:
        self.state = (self.state * 17 + sum(given.values()) + 1) % 1_000_003
        return {"out": self.state}

    @register(effect=Effect.NONE)
    def aside(self, **given: int) -> dict[str, int]:
        return {"out": (7 + 3 * sum(given.values())) % 1_000_003}


@dataclass
class Sequential:
    """The meaning of a control flow: one step after the other."""

    workers: dict[str, Mixer] = field(default_factory=dict)
    outs: list[int] = field(default_factory=list)

    def play(self, steps: list[Step]) -> list[int]:
        for step in steps:
            worker = self.workers.setdefault(step.role, Mixer())
            given = {f"x{i}": self.outs[i] for i in step.reads}
            self.outs.append(getattr(worker, step.effect)(**given)["out"])
        return self.outs


def _played(steps: list[Step], seconds: dict[str, float], replicas: int) -> tuple[Run, list[int]]:
    builder = a_run()
    for role in ("a", "b", "c"):
        builder = builder.role(role, Mixer, replicas=replicas)
        for effect in ("look", "update", "aside"):
            builder = builder.lasting(f"{role}.{effect}", seconds[effect] * (1 + ord(role) % 3))
    run = builder.start()
    channels = []
    for step in steps:
        given = {f"x{i}": channels[i]["out"] for i in step.reads}
        channels.append(run.step(step.role, step.effect, ["out"], **given))
    return run, [c["out"].get() for c in channels]


@settings(max_examples=60, deadline=None)
@given(
    steps=step_sequences(),
    seconds=st.fixed_dictionaries({name: st.sampled_from([0.0, 1.0, 2.5]) for name in ("look", "update", "aside")}),
    replicas=st.sampled_from([1, 2]),
)
def test_any_control_flow_means_what_it_means_one_step_after_the_other(
    steps: list[Step], seconds: dict[str, float], replicas: int
) -> None:
    run, outs = _played(steps, seconds, replicas)
    assert outs == Sequential().play(steps)
    for role in ("a", "b", "c"):
        spans = [e for e in run.seen.events if e.kind == "end" and e.role == role]
        writes = [e for e in spans if e.method == "update"]
        looks = [e for e in spans if e.method == "look"]
        for write in writes:
            for other in [*looks, *writes]:
                if other.ordinal != write.ordinal:
                    assert other.ended <= write.started or other.started >= write.ended
        by_program = sorted(writes, key=lambda e: e.ordinal)
        assert all(a.ended <= b.started for a, b in pairwise(by_program) if a.ordinal != b.ordinal)
        assert run.controller.engine.groups[role].version == len({w.ordinal for w in writes})
