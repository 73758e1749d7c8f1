"""The engine: runs the graph's nodes as soon as they can run, and repairs what dies under them.

    step() ─► WAITING ─(inputs there, its turn)─► READY ─(worker ready)─► RUNNING ─► DONE
                 │                                  ▲                       │
                 │ something it needs failed        └── worker restored ◄───┤ death, hang, half-done write
                 ▼                                                          ▼
              SKIPPED                                                     FAILED  a bug, or a budget used up

| loop or callback | consumes | produces | waits for |
|---|---|---|---|
| the caller's thread | control flow text | nodes; dispatches what can start | `wait_for`, `read` |
| `pump` (own thread on Ray) | answers of hosts, timers | finished nodes, restarts | the backend's news |

Everything that changes state happens under one lock; backends deliver news only inside `pump`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from rlhf_api.enums import FailureReason
from rlhf_runtime import wire
from rlhf_runtime.backends.base import Backend, Outcome
from rlhf_runtime.control import requests, routing
from rlhf_runtime.control.deadlines import Deadlines
from rlhf_runtime.control.events import Observer, event_of
from rlhf_runtime.control.graph import ColumnPiece, ColumnRef, EffectOrder, Node, NodeState, Shard, skipped
from rlhf_runtime.control.live import LiveChanges
from rlhf_runtime.control.memory import PeakMemory
from rlhf_runtime.control.processes import ProcessPool, RoleGroup, WorkerSeat, processes_for, slow_imports
from rlhf_runtime.control.recovery import Recovery
from rlhf_runtime.control.settings import EngineSettings
from rlhf_runtime.errors import (
    BufferLostError,
    DeadlockError,
    InterruptedRunError,
    RlhfError,
    StepError,
)
from rlhf_runtime.messages import Assignment, Reply
from rlhf_runtime.resilience.incidents import describe
from rlhf_runtime.role import Role
from rlhf_runtime.worker import Effect, MethodSpec, shares_parts

_Value = TypeVar("_Value")
_POLL_SECONDS = 0.2
EMPTY = np.empty(0, dtype=np.uint8)


class Engine:
    """Runs steps on the roles' workers.

    Args:
        backend: Where role processes live.
        settings: Job name, seed, epoch, state location and the like.
        observer: Told of every event and incident, under the engine's lock; it must be quick.
    """

    def __init__(self, backend: Backend, settings: EngineSettings, observer: Observer | None = None) -> None:
        self.backend = backend
        self.settings = settings
        self.groups: dict[str, RoleGroup] = {}
        self.bytes_read = 0
        self.bytes_sent = 0
        self.observer = observer or Observer()
        self._orders: dict[str, EffectOrder] = {}
        self.active: dict[tuple[int, int], Node] = {}
        self._failed: list[Node] = []
        self._done: list[Node] = []
        self._turns = itertools.count(1)
        self._fatal: BaseException | None = None
        self.closed = False
        self.iteration = 0  # the newest that a step was declared in
        self.recovery = Recovery(self)
        self.live = LiveChanges(self)
        self._deadlines = Deadlines(self)
        self._news = threading.Condition(threading.RLock())
        self.pool = ProcessPool(
            backend,
            spares=settings.spares,
            preload=lambda: slow_imports(self.groups),
            assign=self._assignment,
            on_joined=self.recovery.seat_joined,
            on_failed=self.recovery.seat_failed,
            guard=self.guard,
        )
        self._thread: threading.Thread | None = None
        if backend.threaded:
            self._thread = threading.Thread(target=self._pump_forever, name="rlhf-engine", daemon=True)
            self._thread.start()

    # ---- roles

    def add_role(self, role: Role) -> RoleGroup:
        """Begin to start the role's workers; does not wait for them.

        Raises:
            ValueError: The name is taken, or `colocate_with` names no role registered before.
            WorkerClassError: The worker class cannot be imported.
        """
        version = self.settings.restore_versions.get(role.name, 0)
        cls = role.resolve()
        group = RoleGroup(
            role=role,
            cls=cls,
            replicas=role.replicas,
            shares_parts=shares_parts(cls),
            version=version,
            restored=version,
        )
        with self._news:
            if role.name in self.groups:
                raise ValueError(f'two roles cannot both be named "{role.name}"')
            processes = processes_for(role, self.groups)
            for rank, process in enumerate(processes):
                seat = WorkerSeat(group=group, rank=rank, process=process)
                group.seats.append(seat)
                process.seats.append(seat)
            self.groups[role.name] = group
            self._orders[role.name] = EffectOrder(lag=self.settings.lag)
            for seat, process in zip(group.seats, processes, strict=True):
                if process.host is None:
                    self.pool.start(process)
                else:
                    self.pool.join(seat)
        return group

    def wait_ready(self, progress: Callable[[RoleGroup], None] = lambda group: None) -> None:
        """Wait until every role's workers are ready.

        Raises:
            StepError: A role could not be started; the message names it and the cause.
        """
        for group in list(self.groups.values()):
            self._wait(functools.partial(_settled, group))
            if group.failed is not None:
                raise StepError(f'role "{group.role.name}" could not be started: {group.failed}') from group.failed
            progress(group)
        with self._news:
            self.pool.fill_spares()

    # ---- changes while the run goes on; from any thread

    def restart_role(self, name: str, *, reason: str, counted: bool = False) -> None:
        """End a role's processes and start them anew, at the version that they have.

        Args:
            name: The role; those that share its processes are restarted with it.
            reason: Why: a `FailureReason`, or words for people.
            counted: Whether it uses up the role's restart budget.

        Raises:
            UnknownRoleError: There is no such role.
            RlhfError: The role has failed for good.
        """
        with self._changing():
            self.live.restart_role(name, reason=reason, counted=counted)

    def expect_loss(self, name: str, *, reason: FailureReason, seconds: float) -> None:
        """A role's processes are about to be ended on purpose: deaths within `seconds` do not count.

        Raises:
            UnknownRoleError: There is no such role.
        """
        with self._changing():
            self.live.expect_loss(name, reason=reason, seconds=seconds)

    def scale_role(self, name: str, replicas: int) -> list[str]:
        """Change how many workers a role has. It may be asked again, for the same number too.

        Returns:
            The role's pods that hold no worker any more, or none once it has answered what it was asked.

        Raises:
            UnknownRoleError: There is no such role.
            ScalingRefusedError: The role has state or shares its processes, or `replicas` is below 1.
        """
        with self._changing():
            return self.live.scale_role(name, replicas)

    def waiting_for(self) -> list[str]:
        """What is missing until every worker of every role can be called, in words for people."""
        with self._news:
            return self.live.waiting_for()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with self._news:
            if self.closed:
                raise InterruptedRunError("the controller is closed")
            yield
            self._news.notify_all()

    # ---- steps

    def submit(self, node: Node) -> Node:
        """Take a new node: it runs as soon as what it needs is there."""
        with self._news:
            if self.closed:
                raise InterruptedRunError("the controller is closed")
            self.iteration = max(self.iteration, node.iteration)
            needs = {*node.sources, *self._orders[node.role].place(node), *self.recovery.computing_again(node)}
            self.active[node.id] = node
            broken = [n for n in needs if n.state in (NodeState.FAILED, NodeState.SKIPPED) and node.hinges_on(n)]
            node.needs = {n for n in needs if not n.finished}
            for needed in node.needs:
                needed.dependents.append(node)
            if broken:
                self._finish(node, NodeState.SKIPPED, error=skipped(node, broken[0]))
            elif not node.needs:
                self._start(node)
        return node

    def wait_for(self, node: Node) -> Node:
        """Wait until `node` is done.

        Raises:
            StepError: It failed, or was skipped since something that it needs failed.
        """
        self._wait(lambda: node.finished)
        if node.error is not None:
            node.error_seen = True
            raise node.error
        return node

    def column(self, node: Node, name: str) -> ColumnRef:
        """References to an output of `node`; waits for it, moves no data."""
        self.wait_for(node)
        if name not in node.results:
            have = ", ".join(f'"{n}"' for n in node.results) or "nothing"
            raise StepError(f'{node} gave no output "{name}"; it gave: {have}')
        return node.results[name]

    def read(self, node: Node, name: str, *, rank: int | None = None) -> Any:
        """The value of an output of `node`, or one rank's part of it, brought here."""
        while True:
            ref = self.column(node, name)
            if rank is not None:
                ref = ColumnRef(tuple(p for p in ref.pieces if p.shard is not None and p.shard.rank == rank))
            try:
                return self._fetch(ref)
            except BufferLostError as lost:
                with self._news:
                    self.recovery.recompute(ref, lost)

    def wait_all(self, iteration: int | None = None) -> None:
        """Wait until no node is left to run; of one iteration, or until one of its nodes failed."""
        if iteration is None:
            self._wait(lambda: not self.active)
            return
        self._wait(
            lambda: (
                all(node.iteration != iteration for node in self.active.values())
                or any(node.iteration == iteration for node in self._failed)
            )
        )

    def retire(self, iteration: int) -> None:
        """A committed iteration's nodes let go of their inputs, or the graph would keep every batch for ever."""
        with self._news:
            for node in self._done:
                if node.iteration <= iteration and node.finished:
                    node.let_go()
            self._done = [node for node in self._done if node.iteration > iteration or not node.finished]
            for group in self.groups.values():
                group.forget_versions(before=iteration)

    def unseen_failures(self, iteration: int | None = None) -> list[Node]:
        """Failed nodes, of all iterations or those up to one, whose error nobody has read yet."""
        return [n for n in self._failed if not n.error_seen and (iteration is None or n.iteration <= iteration)]

    def peak_memory(self, *, limit: float = 2.0) -> dict[str, int]:
        """The most memory each role's largest process ever held, in bytes; without those that do not answer in time."""
        with self._news:
            ask = PeakMemory(self, limit=limit)
        self._wait(lambda: ask.answered)
        return ask.answers

    def close(self) -> None:
        """Stop: no more nodes, and every process ended."""
        with self._news:
            if self.closed:
                return
            self.closed = True
            self._news.notify_all()
        self.backend.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    # ---- waiting

    def _wait(self, condition: Callable[[], bool]) -> None:
        while True:
            with self._news:
                if self._fatal is not None:
                    raise RlhfError(f"the engine stopped: {self._fatal!r}") from self._fatal
                if condition():
                    return
                if self.closed:
                    raise InterruptedRunError("the controller was closed while a step was awaited")
                if self.backend.threaded:
                    self._news.wait()
                    continue
            if not self.backend.pump(_POLL_SECONDS):
                with self._news:
                    if not condition():
                        waiting = ", ".join(str(node) for node in self.active.values()) or "nothing"
                        raise DeadlockError(f"nothing runs and nothing can start; unfinished: {waiting}")

    def _pump_forever(self) -> None:
        while not self.closed:
            try:
                self.backend.pump(_POLL_SECONDS)
            except Exception as error:  # a bug of ours: whoever waits must hear of it
                with self._news:
                    if not self.closed:
                        self._fatal = error
                        self._news.notify_all()
                return

    def guard(self, callback: Callable[[_Value], None]) -> Callable[[_Value], None]:
        """`callback` as a backend may call it: under the lock, not after the end, and waking whoever waits."""

        @functools.wraps(callback)
        def locked(value: _Value) -> None:
            with self._news:
                if not self.closed:
                    callback(value)
                self._news.notify_all()

        return locked

    # ---- running a node

    def _start(self, node: Node) -> None:
        group = self.groups[node.role]
        if group.failed is not None:
            self.fail(node, group.failed)
            return
        node.state = NodeState.READY
        node.version = group.version
        self._tell("ready", node)
        try:
            node.columns = requests.columns_of(node)
            node.shards = requests.split(node, workers=[seat.rank for seat in group.seats])
        except RlhfError as error:
            self.fail(node, error)
            return
        for shard in node.shards:
            self.attempt(shard)

    def attempt(self, shard: Shard) -> None:
        """Send the shard's call, unless it must wait, runs or is answered; who ends its waiting tries again."""
        node = shard.node
        group = self.groups[node.role]
        if shard.running or shard.reply is not None or node.redo_waits or node.finished:
            return
        seat = routing.seat_for(self, shard)
        if seat is None:
            return
        shard.worker = seat.rank
        process = seat.process
        if not seat.ready or process.restart_when_free is not None:
            return
        if group.meets and not group.ready:
            return  # all ranks get the same calls in the same order, or they wait for each other for ever
        durable, world_size = self.needs_second_copy(node), len(node.shards)
        request, buffers = requests.build(shard, self.settings, durable=durable, world_size=world_size)
        shard.running = True
        shard.token += 1
        shard.turn = next(self._turns)
        shard.started = self.backend.now()
        token = shard.token
        node.state = NodeState.RUNNING
        host = process.host
        assert host is not None

        def done(outcome: Outcome) -> None:
            if shard.token == token and shard.running:
                shard.running = False
                process.heard = self.backend.now()
                self._shard_done(shard, outcome)
                for member in process.seats:
                    routing.feed(self, member.group)
                self._deadlines.settle()
                self.live.settle(group)

        self.backend.submit(host, "call", (request,), buffers, self.guard(done))
        self._deadlines.arm()

    def needs_second_copy(self, node: Node) -> bool:
        """Whether the node's outputs go to the state store before they count as there."""
        return node.spec.durable and not self.backend.buffers_outlive_hosts

    def _shard_done(self, shard: Shard, outcome: Outcome) -> None:
        if outcome.error is not None:
            self.recovery.shard_failed(shard, outcome.error)
            return
        node = shard.node
        assert isinstance(outcome.value, Reply)
        shard.reply, shard.buffer = outcome.value, outcome.buffer
        seat = self.groups[node.role].seat(shard.worker)
        self._tell("end", node, seat=seat, reply=shard.reply)
        if all(s.reply is not None for s in node.shards):
            self._complete(node)

    def _complete(self, node: Node) -> None:
        try:
            node.shape, node.results = requests.gather(node)
        except StepError as error:
            self.fail(node, error)
            return
        if node.spec.effect is Effect.WRITE:
            self.groups[node.role].wrote(node.iteration)
        self._finish(node, NodeState.DONE)

    def _finish(self, node: Node, state: NodeState, *, error: BaseException | None = None) -> None:
        endings = deque([(node, state, error)])  # not by recursion: a script may have thousands of steps in a row
        roles = set()
        while endings:
            node, state, error = endings.popleft()
            if node.finished:
                continue
            node.state, node.error = state, error
            roles.add(node.role)
            self.active.pop(node.id, None)
            self._done.append(node)
            if state is not NodeState.DONE:
                self._failed.append(node)
                self._tell(state.value, node, message=str(error))
            dependents, node.dependents = node.dependents, []
            for dependent in dependents:
                redone = node in dependent.redo_waits
                dependent.needs.discard(node)
                dependent.redo_waits.discard(node)
                if dependent.finished:
                    continue
                if state is not NodeState.DONE and (redone or dependent.hinges_on(node)):
                    endings.append((dependent, NodeState.SKIPPED, skipped(dependent, node)))
                elif redone:
                    self.recovery.inputs_are_there(dependent)
                elif not dependent.needs and dependent.state is NodeState.WAITING:
                    self._start(dependent)
        for name in roles:
            self.live.settle(self.groups[name])

    def fail(self, node: Node, cause: BaseException, *, worker: str | None = None) -> None:
        """The node failed for good; what needs it is skipped, everything else goes on."""
        for shard in node.shards:
            shard.running = False
        where = f" on {worker}" if worker else ""
        error = cause if isinstance(cause, StepError) else StepError(f"{node} failed{where}: {describe(cause)}")
        if error is not cause:
            error.__cause__ = cause
        self._finish(node, NodeState.FAILED, error=error)

    # ---- the rest

    def _assignment(self, seat: WorkerSeat) -> Assignment:
        return requests.assignment(seat, self.settings)

    def _fetch(self, ref: ColumnRef) -> Any:
        parts = []
        for piece in ref.pieces:
            if piece.spec.has_inline:
                parts.append(piece.spec.inline)
                continue
            self.bytes_read += piece.spec.total_bytes
            buffer = self.backend.fetch(piece.buffer) if piece.spec.total_bytes else EMPTY
            parts.append(wire.decode(piece.spec, buffer))
        spec = ref.pieces[0].spec
        return parts[0] if len(parts) == 1 else wire.concat(parts, whole=spec.rows is None, pad=spec.pad)

    def constants(self, values: Mapping[str, Any], whole: Collection[str] = ()) -> dict[str, ColumnRef]:
        """Give plain values of the controller's to the hosts; those named in `whole` have no rows."""
        if not values:
            return {}
        packed = wire.encode(values, where="inputs", whole=whole)
        self.bytes_sent += packed.buffer.nbytes
        buffer = self.backend.put(packed.buffer) if packed.buffer.nbytes else None
        return {
            name: ColumnRef((ColumnPiece(spec=spec, buffer=buffer, shard=None),))
            for name, spec in packed.columns.items()
        }

    def _tell(
        self,
        kind: str,
        node: Node,
        *,
        seat: WorkerSeat | None = None,
        reply: Reply | None = None,
        message: str = "",
    ) -> None:
        joined = seat.joined if seat else None
        place = f"{joined.pod}/{joined.pid}" if joined else ""
        worker = seat.name if seat else ""
        now = self.backend.now()
        self.observer.event(event_of(kind, node, now=now, worker=worker, place=place, reply=reply, message=message))

    def method_spec(self, role: str, method: str) -> MethodSpec:
        """What a registered role's class declares of a method."""
        return requests.spec_of(self.groups, role, method)


def _settled(group: RoleGroup) -> bool:
    return group.ready or group.failed is not None
