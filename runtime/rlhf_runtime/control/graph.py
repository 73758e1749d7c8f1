"""The graph of steps: nodes, the columns they make, and the order that data and effects impose.

A node is one step of the control flow. It waits for the nodes whose outputs it reads and, within its role, for those
that its declared effect orders it after:

    reads of a role ──► its next write ──► the reads after that one ──► ...

so an update whose outputs nobody reads still comes before the next generation. A schedule relaxes exactly one kind of
edge: a read may miss the writes of the last `lag` iterations. A failed read only ordered the write after it, which
goes on; a failed write leaves a state that is not what the control flow says, so nothing that sees it runs.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rlhf_runtime.backends.base import BufferRef
from rlhf_runtime.control.channels import DataChannel
from rlhf_runtime.errors import SkippedStepError
from rlhf_runtime.messages import Reply
from rlhf_runtime.wire import ColumnSpec
from rlhf_runtime.worker import Effect, MethodSpec


class NodeState(enum.Enum):
    """Where a node stands."""

    WAITING = "waiting"  # for inputs or for its turn
    READY = "ready"  # its worker is starting, being restored or busy
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # something it needs failed


@dataclass(frozen=True, slots=True)
class ColumnPiece:
    """A column as one worker made it."""

    spec: ColumnSpec
    buffer: BufferRef
    shard: Shard | None  # None: the controller made it


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column on the controller: references to its pieces, in row order, never the data."""

    pieces: tuple[ColumnPiece, ...]

    @property
    def rows(self) -> int | None:
        """Number of rows; None for a value without rows."""
        counts = [piece.spec.rows for piece in self.pieces]
        known = [count for count in counts if count is not None]
        return sum(known) if known and len(known) == len(counts) else None

    @property
    def nbytes(self) -> int:
        """Size of the data referred to."""
        return sum(piece.spec.nbytes for piece in self.pieces)


@dataclass(eq=False, slots=True, kw_only=True)
class Shard:
    """The part of a node that one worker answers.

    `rank` is its place among the node's shards, `worker` the rank of whom it is asked: they differ where a role has
    been scaled.
    """

    node: Node
    rank: int
    worker: int
    rows: tuple[int, int] | None
    token: int = 0  # moves with every try, so that the answer to an older one is not taken
    turn: int = 0  # place of the newest try among all calls of the engine
    running: bool = False
    started: float = 0.0
    reply: Reply | None = None
    buffer: BufferRef = None
    failures: list[str] = field(default_factory=list)


@dataclass(eq=False, slots=True, kw_only=True)
class Node:
    """One step. `id` is (iteration, ordinal)."""

    iteration: int
    ordinal: int
    role: str
    method: str
    spec: MethodSpec
    inputs: Mapping[str, Any]  # DataChannel or ColumnRef, as the control flow gave them
    outputs: tuple[str, ...] | None
    state: NodeState = NodeState.WAITING
    needs: set[Node] = field(default_factory=set)
    dependents: list[Node] = field(default_factory=list)
    shards: list[Shard] = field(default_factory=list)
    columns: dict[str, ColumnRef] = field(default_factory=dict)  # the inputs, once they are there
    results: dict[str, ColumnRef] = field(default_factory=dict)
    shape: str = "none"
    version: int | None = None
    error: BaseException | None = None
    error_seen: bool = False
    redo_waits: set[Node] = field(default_factory=set)

    @property
    def id(self) -> tuple[int, int]:
        """Unique within a run, and the same when the iteration is built again."""
        return self.iteration, self.ordinal

    @property
    def finished(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state in (NodeState.DONE, NodeState.FAILED, NodeState.SKIPPED)

    @property
    def sources(self) -> list[Node]:
        """The nodes whose outputs it reads."""
        return list(dict.fromkeys(v.node for v in self.inputs.values() if isinstance(v, DataChannel)))

    def hinges_on(self, other: Node) -> bool:
        """Whether a failure of `other`, which it waits for, is one for it too; else they were only put in order."""
        return other in self.sources or (other.role == self.role and other.spec.effect is Effect.WRITE)

    def let_go(self) -> None:
        """Keep the results and nothing that they were made from: it will not be run again."""
        self.inputs, self.columns, self.shards = {}, {}, []
        self.results = {
            name: ColumnRef(tuple(replace(p, shard=None) for p in r.pieces)) for name, r in self.results.items()
        }

    def __str__(self) -> str:
        return f"step {self.iteration}.{self.ordinal} {self.role}.{self.method}"


def skipped(node: Node, cause: Node) -> SkippedStepError:
    """The error of a node that was not run since `cause`, or what that one needed, failed."""
    root: BaseException | None = cause.error
    while isinstance(root, SkippedStepError) and root.__cause__ is not None:
        root = root.__cause__
    error = SkippedStepError(f"{node} was not run: {root}")
    error.__cause__ = root
    return error


_FEW = 16


class EffectOrder:
    """The order that declared effects impose within one role.

    Args:
        lag: How many iterations' writes a read need not wait for.
    """

    def __init__(self, *, lag: int = 0) -> None:
        self._lag = lag
        self._writes: list[Node] = []  # of each iteration the last, in order
        self._reads_since_write: list[Node] = []
        self._look_again_at = _FEW

    def place(self, node: Node) -> set[Node]:
        """Take `node` as the role's next step; give the earlier ones it must wait for."""
        self._forget_finished(before=node.iteration - self._lag - 1)
        effect = node.spec.effect
        if effect is Effect.NONE:
            return set()
        if effect is Effect.READ:
            self._reads_since_write.append(node)
            if len(self._reads_since_write) >= self._look_again_at:
                self._reads_since_write = [r for r in self._reads_since_write if not r.finished]
                self._look_again_at = max(_FEW, 2 * len(self._reads_since_write))
            return set(self._visible_writes(node)[-1:])
        earlier = {*self._reads_since_write, *self._writes[-1:]}
        if self._writes and self._writes[-1].iteration == node.iteration:
            self._writes.pop()
        self._writes.append(node)
        self._reads_since_write = []
        return earlier

    def _visible_writes(self, node: Node) -> list[Node]:
        horizon = node.iteration - self._lag
        return [w for w in self._writes if w.iteration == node.iteration or w.iteration < horizon]

    def _forget_finished(self, *, before: int) -> None:
        old = [w for w in self._writes if w.iteration < before and w.finished]
        self._writes = [w for w in self._writes if w not in old[:-1]]  # a read may still have to wait for the newest
