"""The simulated backend must leave what a real process leaves: no more, and no less."""

from __future__ import annotations

import numpy as np
import pytest
from builders import STATE, Run, a_run
from toy_workers import Counter, Echo

from rlhf_runtime.backends.base import Outcome
from rlhf_runtime.backends.simulated import Fault, SimulatedBackend
from rlhf_runtime.errors import BufferLostError, HostDiedError
from rlhf_runtime.messages import Assignment, CallRequest, Joined, Reply, WorkerClass
from rlhf_runtime.resilience.state_store import MemoryStateStore
from rlhf_runtime.resilience.update_log import UpdateLog
from rlhf_runtime.worker import CallInfo, Effect


class Bench:
    """One host, driven by hand as the engine would drive it."""

    def __init__(self, *faults: Fault, cls: type = Counter) -> None:
        self.store = MemoryStateStore()
        self.backend = SimulatedBackend(faults=faults, stores={STATE: self.store}, buffers_outlive_hosts=False)
        self.host = self.backend.start_host("host")
        self.outcomes: list[Outcome] = []
        assignment = Assignment(
            role="r",
            rank=0,
            world_size=1,
            attempt=0,
            epoch=1,
            job="j",
            seed=0,
            threads=1,
            worker=WorkerClass(cls=cls),
            state_location=STATE,
            restore_version=0,
        )
        assert isinstance(self.ask("assign", assignment).value, Joined)

    def ask(self, operation: str, argument: object) -> Outcome:
        before = len(self.outcomes)
        self.backend.submit(self.host, operation, (argument,), (), self.outcomes.append)
        while self.backend.pump(0.0):
            pass
        return self.outcomes[before] if len(self.outcomes) > before else Outcome(value="no answer")

    def call(self, method: str, effect: Effect, version: int = 0) -> Outcome:
        return self.ask(
            "call",
            CallRequest(
                role="r",
                method=method,
                call=CallInfo(iteration=version),
                epoch=1,
                effect=effect,
                arguments={},
                expected_version=version,
                update_id=f"r/{version}" if effect is Effect.WRITE else None,
            ),
        )

    @property
    def logged(self) -> list[int]:
        return UpdateLog(self.store, role="r", rank=0).versions()

    @property
    def applied(self) -> list[str]:
        return self.host.worker_host._executors["r"].worker.applied


@pytest.mark.parametrize(
    ("at", "want_logged", "want_applied", "want_answer"),
    [
        pytest.param("received", [], [], False, id="received: nothing was done"),
        pytest.param("logged", [1], [], False, id="logged: the inputs are durable, the weights as before"),
        pytest.param("applied", [1], ["0.0"], False, id="applied: the weights have changed, nobody knows"),
        pytest.param("answered", [1], ["0.0"], True, id="answered: the answer is out"),
    ],
)
@pytest.mark.parametrize("kind", ["die", "hang", "lose"])
def test_what_a_fault_leaves(
    at: str, want_logged: list[int], want_applied: list[str], want_answer: bool, kind: str
) -> None:
    bench = Bench(Fault(role="r", method="update", at=at, kind=kind))
    answer = bench.call("update", Effect.WRITE)
    assert bench.logged == want_logged
    assert bench.applied == want_applied
    if want_answer:
        assert isinstance(answer.value, Reply)
    elif kind == "hang":
        assert answer.value == "no answer"
    else:
        assert isinstance(answer.error, HostDiedError)
    after = bench.call("look", Effect.READ, version=1)
    if kind == "hang":
        assert after.value == "no answer"  # a process that hangs does nothing else either
    else:
        assert isinstance(after.error, HostDiedError)
    assert bench.applied == want_applied


@pytest.mark.parametrize(("kind", "want_lost"), [("die", False), ("lose", True)])
def test_what_becomes_of_the_buffers(kind: str, want_lost: bool) -> None:
    class Big(Counter):
        def look(self, **_: object) -> dict[str, object]:
            return {"big": np.arange(1000.0)}

    bench = Bench(Fault(role="r", method="update", kind=kind), cls=Big)
    buffer = bench.call("look", Effect.READ).buffer
    bench.call("update", Effect.WRITE)
    if want_lost:
        with pytest.raises(BufferLostError):
            bench.backend.fetch(buffer)
    else:
        assert bench.backend.fetch(buffer).nbytes == 8000


def test_an_answer_cannot_be_changed_by_who_reads_it() -> None:
    run: Run = a_run().role("echo", Echo).start()
    node = run.step("echo", "big", ["big"], rows=2).wait().node
    buffer = node.results["big"].pieces[0].buffer
    with pytest.raises(ValueError, match="read-only"):
        run.backend.fetch(buffer)[0] = 1


def test_operations_wait_for_each_other_on_one_host_and_not_on_two() -> None:
    run = a_run().role("a", Echo).role("b", Echo).lasting("a.same", 2.0).lasting("b.same", 3.0).start()
    for _ in range(2):
        run.step("a", "same", ["x"], x=1)
        run.step("b", "same", ["x"], x=1)
    run.controller.finish()
    assert run.timeline == {"a.same": [(0, 2), (2, 4)], "b.same": [(0, 3), (3, 6)]}


def test_events_tell_the_virtual_time_in_which_a_method_ran() -> None:
    run = a_run().role("a", Echo).lasting("a.same", 2.0).start()
    run.step("a", "same", ["x"], x=1)["x"].get()
    (end,) = [e for e in run.seen.events if e.kind == "end"]
    assert (end.started, end.ended, end.time, end.place) == (0.0, 2.0, 2.0, "simulated/1000")


def test_faults_of_one_method_count_every_call() -> None:
    faults = [Fault(role="a", method="same", call=call) for call in (1, 3)]
    run = a_run().role("a", Echo).hit_by(*faults).start()
    for value in range(3):
        assert run.step("a", "same", ["x"], x=value)["x"].get() == value
    assert run.restarts == {"a": 2}


def test_a_script_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="needs `buffers_outlive_hosts=False`"):
        SimulatedBackend(faults=[Fault(role="a", method="b", kind="lose")])
