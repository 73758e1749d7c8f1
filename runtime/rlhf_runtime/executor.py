"""One worker of a role inside its process: calls its methods, keeps its version, log and snapshots.

A write is compare-and-set: it names the version it expects and an id of its own. Its inputs go to the durable log
first, then the method runs, then the version moves. So a process that dies at any point can be replaced: the next one
loads the newest snapshot, replays the log up to the version that the controller has committed, and the write that was
in flight is made again, on the state it was meant for. A write that is asked for twice in one life is answered from
the remembered reply.

    received ─► fence ─► (write) log inputs ─► method ─► version + 1 ─► reply
"""

from __future__ import annotations

import importlib
import inspect
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rlhf_runtime import wire
from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.errors import (
    BufferLostError,
    FencedError,
    PeerLostError,
    RefusedError,
    RemoteError,
    RlhfError,
    StateCorruptError,
    StateDiscardedError,
    StateMissingError,
    VersionMovedError,
    WorkerClassError,
)
from rlhf_runtime.messages import SNAPSHOT, Assignment, CallRequest, Reply, WorkerClass
from rlhf_runtime.resilience.checkpoint import SnapshotStore, newest_epoch
from rlhf_runtime.resilience.state_store import StateStore
from rlhf_runtime.resilience.update_log import LogEntry, UpdateLog, packed_chunks
from rlhf_runtime.worker import CallInfo, Effect, WorkerContext, constructing, method_spec

Answer = tuple[Reply, np.ndarray | None]
FaultHook = Callable[[str, CallRequest], None]


class RoleExecutor:
    """Runs one worker.

    Args:
        assignment: Which role, rank and class.
        store: Where updates and snapshots are kept; None: writes cannot be restored (bare worker groups).
        at_point: Called at named points of a call, for scripted faults.
        clock: Wall-clock time in seconds.
    """

    def __init__(
        self,
        assignment: Assignment,
        *,
        store: StateStore | None = None,
        at_point: FaultHook = lambda point, request: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._assignment = assignment
        self._store = store
        role, rank, together = assignment.role, assignment.rank, assignment.process_group
        self._writes_log = rank == 0 or not together  # ranks that compute as one get the same inputs
        self._log = UpdateLog(store, role=role, rank=0 if together else rank) if store else None
        parts = assignment.world_size if together else None
        self._snapshots = SnapshotStore(store, role=role, rank=rank, parts=parts) if store else None
        self._at_point = at_point
        self._clock = clock
        self._epoch = assignment.epoch
        self._last_write: tuple[str, Answer] | None = None
        self._discarded: str | None = None
        self.context = WorkerContext(
            role=assignment.role,
            rank=assignment.rank,
            world_size=assignment.world_size,
            attempt=assignment.attempt,
            job=assignment.job,
            seed=assignment.seed,
            threads=assignment.threads,
            meeting_place=assignment.meeting_place,
            state=store,
        )
        with constructing(self.context):
            self.worker = _make(assignment.worker, role=assignment.role)

    @property
    def version(self) -> int:
        """How many updates the worker's state holds."""
        return self.context.version

    @property
    def has_log_file(self) -> bool:
        """Whether what the worker prints has a file of its own."""
        return self._assignment.log_file is not None

    @property
    def engines(self) -> dict[str, str]:
        """Which engines the worker says it has picked; a plain class says nothing."""
        return dict(getattr(self.worker, "engines", None) or {})

    def restore(self, version: int) -> int:
        """Bring the fresh worker to `version`: newest snapshot at or before it, then the logged updates.

        Returns:
            How many updates were replayed.

        Raises:
            StateStoreError: A snapshot or a log entry on the way is missing or torn.
            FencedError: The run belongs to a newer controller, whose log and snapshots must be left alone.
        """
        if self._log is None or self._snapshots is None:
            if version:
                raise StateDiscardedError(f"{self.context.worker_name} has no state store to restore from")
            return 0
        self._check_owner()
        if self._writes_log:
            self._snapshots.drop_after(version)
            self._log.drop_after(version)
        damage = self._load_newest_snapshot(version)
        try:
            entries = self._log.entries(self.version, version)
        except StateMissingError as missing:
            raise damage or missing from missing
        for entry in entries:
            self._replay(entry)
        return len(entries)

    def _load_newest_snapshot(self, newest: int) -> StateCorruptError | None:
        """Load the newest snapshot that is whole; gives what is wrong with a newer one: the log may lead past it."""
        assert self._snapshots is not None
        damage: StateCorruptError | None = None
        for version in reversed([known for known in self._snapshots.versions() if known <= newest]):
            try:
                state = self._snapshots.load(version)
            except StateCorruptError as error:
                print(f"{self.context.worker_name}: {error}; an older snapshot is tried", flush=True)
                damage = damage or error
                continue
            self.worker.load_state_dict(state)
            self.context.version = version
            break
        return damage

    def call(self, request: CallRequest, buffers: Sequence[np.ndarray | None]) -> Answer:
        """Answer one call.

        Raises:
            FencedError: `request` comes from an older epoch.
            VersionMovedError: The state is not at the version that the call was made for.
            StateDiscardedError: An earlier write failed half way.
            RemoteError: The method raised.
        """
        self._at_point("received", request)
        self.fence(request.epoch)
        if self._last_write and request.update_id == self._last_write[0]:
            return self._last_write[1]
        self._check_state(request)
        arguments = {name: _join(pieces, buffers) for name, pieces in request.arguments.items()}
        whole = {name for name, pieces in request.arguments.items() if pieces[0].spec.rows is None}
        if request.effect is not Effect.WRITE:
            return self._answer(request, arguments, whole)
        self._append(request, arguments, whole)
        self._at_point("logged", request)
        answer = self._answer(request, arguments, whole)
        self._at_point("applied", request)
        self._last_write = (request.update_id or "", answer)
        return answer

    def _snapshot(self, *, keep: int, committed_version: int) -> dict[str, Any]:
        """Write the worker's state at its version to the state store, and drop what no restart needs any more."""
        state = getattr(self.worker, "state_dict", lambda: None)()
        if state is None or self._snapshots is None or self._log is None:
            return {}
        self._check_owner()
        if self.version not in self._snapshots.versions():
            self._snapshots.save(self.version, state)
        self._snapshots.prune(keep=keep, needed=committed_version)
        oldest = min(self._snapshots.versions(), default=None)
        if self._writes_log and oldest is not None and oldest <= committed_version:
            self._log.prune_before(oldest + 1)  # not beyond it: a resumed run needs the log from there
        return {"snapshot_version": self.version}

    def fence(self, epoch: int) -> None:
        """Serve `epoch` and newer ones from now on.

        Raises:
            FencedError: A newer controller has already called.
        """
        if epoch < self._epoch:
            raise FencedError(
                f"{self.context.worker_name} belongs to epoch {self._epoch}; "
                f"epoch {epoch} is that of a controller that was replaced"
            )
        self._epoch = epoch

    def _check_owner(self) -> None:
        assert self._store is not None
        newest = newest_epoch(self._store)
        if newest > self._epoch:
            raise FencedError(
                f"{self.context.worker_name} serves epoch {self._epoch}; "
                f"a controller of epoch {newest} has taken over the run at {self._store.location}"
            )

    def _check_state(self, request: CallRequest) -> None:
        if self._discarded:
            raise StateDiscardedError(f"{self.context.worker_name} must be restored: {self._discarded}")
        if request.expected_version is not None and request.expected_version != self.version:
            raise VersionMovedError(
                f"{self.context.worker_name}: `{request.method}` was made for version "
                f"{request.expected_version}, the state is at {self.version}"
            )

    def _append(self, request: CallRequest, arguments: Mapping[str, Any], whole: set[str]) -> None:
        if self._log is None or not self._writes_log:
            return
        call = request.call
        packed = wire.encode({**arguments, "__call__": [call.iteration, call.ordinal, call.row_offset]}, whole=whole)
        self._log.append(
            LogEntry(
                version=self.version + 1,
                update_id=request.update_id or "",
                method=request.method,
                epoch=request.epoch,
                attempt=self._assignment.attempt,
                arguments=packed,
            )
        )

    def _replay(self, entry: LogEntry) -> None:
        packed = entry.arguments
        arguments = {name: wire.decode(spec, packed.buffer) for name, spec in packed.columns.items()}
        iteration, ordinal, row_offset = _integers(arguments.pop("__call__"))
        self.context.call = CallInfo(iteration=iteration, ordinal=ordinal, row_offset=row_offset)
        invoke(self.worker, entry.method, arguments, {n for n, spec in packed.columns.items() if spec.rows is None})
        self.context.version = entry.version

    def _answer(self, request: CallRequest, arguments: Mapping[str, Any], whole: set[str]) -> Answer:
        writes = request.effect is Effect.WRITE
        self.context.call = request.call
        self.context.world_size = request.world_size
        started = self._clock()
        try:
            if request.method == SNAPSHOT:
                result: Any = self._snapshot(**arguments)
            else:
                result = invoke(self.worker, request.method, arguments, whole)
            ended = self._clock()
            shape, values = flatten(result)
            packed = wire.encode(
                values,
                whole=result.meta_info if isinstance(result, DataProto) else (),
                pad={} if request.method == SNAPSHOT else method_spec(type(self.worker), request.method).pad,
            )
        except (Exception, SystemExit) as error:  # a role's process does not end because a user's code says so
            if isinstance(error, BufferLostError) and not writes:
                raise  # the controller has the input made again
            changed = writes and not isinstance(error, RefusedError)
            if changed:
                self._discarded = f"`{request.method}` raised {type(error).__name__}"
            if self.context.meeting_place and _lost_a_peer(error):
                raise PeerLostError(f"`{request.method}` broke off: {_text_of(error)}") from error
            raise remote_error(error, poisoned=changed) from error
        if writes:
            self.context.version += 1
        if request.durable_key and self._store is not None:
            self._store.write(request.durable_key, packed_chunks(packed))
        buffer = packed.buffer if packed.buffer.nbytes else None
        reply = Reply(
            columns=packed.columns,
            shape=shape,
            version=self.version,
            started=started,
            ended=ended,
            nbytes=packed.buffer.nbytes,
        )
        return reply, buffer


def invoke(worker: object, method: str, arguments: Mapping[str, Any], whole: Collection[str] = ()) -> Any:
    """Call `worker.method`; the arguments named in `whole` have no rows.

    A method whose one parameter is a `DataProto`, or says no type and is not named by an argument, gets all arguments
    as one batch; any other gets them by name.
    """
    function = getattr(worker, method)
    parameters = list(inspect.signature(function).parameters.values())
    if arguments and len(parameters) == 1 and parameters[0].name not in arguments:
        annotation = parameters[0].annotation
        if annotation in (inspect.Parameter.empty, DataProto) or str(annotation).endswith(DataProto.__name__):
            return function(to_proto(arguments, whole))
    return function(**arguments)


def to_proto(values: Mapping[str, Any], whole: Collection[str] = ()) -> DataProto:
    """Batched tensors, batched lists and everything else become tensor batch, non-tensor batch and meta."""
    kinds: dict[str, dict[str, Any]] = {"tensors": {}, "non_tensors": {}, "meta_info": {}}
    for name, value in values.items():
        is_meta = name in whole or wire.row_count(value) is None
        kind = "meta_info" if is_meta else "tensors" if isinstance(value, torch.Tensor) else "non_tensors"
        kinds[kind][name] = value
    return DataProto.from_dict(**kinds)


def flatten(result: Any) -> tuple[str, dict[str, Any]]:
    """A method's return value as named columns, and what it was."""
    if result is None:
        return "none", {}
    if isinstance(result, DataProto):
        return "proto", {**result.batch, **result.non_tensor_batch, **result.meta_info}
    if isinstance(result, Mapping):
        return "mapping", dict(result)
    return "value", {"value": result}


def import_object(path: str, *, what: str) -> Any:
    """The object at `package.module:name`.

    Raises:
        WorkerClassError: It cannot be imported; the message gives the import's own last words.
    """
    module_name, _, name = path.partition(":")
    if not name:
        raise WorkerClassError(f'{what} must be written "package.module:Name"; got "{path}"')
    try:
        return getattr(importlib.import_module(module_name), name)
    except Exception as error:  # an import runs anybody's code: any exception means the same here
        raise WorkerClassError(f'{what} "{path}" cannot be imported: {type(error).__name__}: {error}') from error


def _make(worker: WorkerClass, *, role: str) -> Any:
    cls = (
        import_object(worker.cls, what=f'worker class of role "{role}"') if isinstance(worker.cls, str) else worker.cls
    )
    try:
        return cls(**worker.kwargs)
    except RlhfError:
        raise
    except (Exception, SystemExit) as error:
        raise remote_error(error, poisoned=False) from error


def _join(pieces: Sequence[Any], buffers: Sequence[np.ndarray | None]) -> Any:
    parts = [
        wire.decode(piece.spec, _bytes(buffers[piece.buffer]), rows=None if piece.rows is None else slice(*piece.rows))
        for piece in pieces
    ]
    spec = pieces[0].spec
    return parts[0] if len(parts) == 1 else wire.concat(parts, whole=spec.rows is None, pad=spec.pad)


def _bytes(buffer: np.ndarray | None) -> np.ndarray:
    return np.empty(0, dtype=np.uint8) if buffer is None else buffer


def _integers(value: Any) -> tuple[int, int, int]:
    first, second, third = value
    return int(first), int(second), int(third)


def _text_of(error: BaseException) -> str:
    try:
        return f"exit code {error.code}" if isinstance(error, SystemExit) else str(error)
    except Exception as broken:  # a user's `__str__` may raise too
        return f"(its message cannot be shown: {type(broken).__name__})"


def _lost_a_peer(error: BaseException) -> bool:
    """Whether a collective operation failed since another rank is gone; gloo says so in words only."""
    named = isinstance(error, torch.distributed.DistError)
    return named or (isinstance(error, RuntimeError) and "gloo" in str(error))


def remote_error(error: BaseException, *, poisoned: bool) -> RemoteError:
    """`error` as it can travel to the controller."""
    return RemoteError(
        kind=type(error).__name__,
        text=_text_of(error),
        traceback="".join(traceback.format_exception(error)),
        poisoned=poisoned,
    )
