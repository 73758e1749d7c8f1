"""What a role's process runs: a `Worker`, and what its methods declare about themselves.

A worker method says in `@register` how its arguments reach the ranks of the role (`Dispatch`), how it touches the
role's state (`Effect`), whether it may be repeated, and whether its outputs must outlive the process. The control
flow orders and repairs steps by these declarations alone; it never looks into a method.

A plain class works too: see `method_spec` for what is assumed of a method that declares nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from rlhf_runtime.errors import UnknownMethodError

if TYPE_CHECKING:
    from rlhf_runtime.resilience.state_store import StateStore

_ATTRIBUTE = "__rlhf_method__"
Side = Literal["left", "right"]
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Dispatch(enum.Enum):
    """How one call of a role becomes calls of its ranks."""

    ONE_TO_ALL = "one to all"  # every rank gets all rows; rank 0 answers
    RANK_ZERO = "rank zero"  # only rank 0 is called
    DATA_PARALLEL = "data-parallel"  # rows are split over the ranks, answers joined in rank order
    ALL_TO_ALL = "all to all"  # every rank gets all rows, answers joined in rank order


class Effect(enum.Enum):
    """How a method touches its role's state: what orders it against other steps of the same role."""

    NONE = "none"  # any time, in any order
    READ = "read"  # after the last write, before the next
    WRITE = "write"  # alone; makes the next version of the role's state


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodSpec:
    """What the control flow knows of a worker method."""

    dispatch: Dispatch = Dispatch.DATA_PARALLEL
    effect: Effect = Effect.READ
    repeatable: bool = True
    durable: bool = False
    collective: bool = False
    pad: Mapping[str, Side] = field(default_factory=dict)
    parts_per_worker: int = 0


def register(
    *,
    dispatch: Dispatch = Dispatch.DATA_PARALLEL,
    effect: Effect = Effect.READ,
    repeatable: bool = True,
    durable: bool = False,
    collective: bool = False,
    pad: Mapping[str, Side] | None = None,
    parts_per_worker: int = 0,
) -> Callable[[_Function], _Function]:
    """Declare a worker method.

    Args:
        dispatch: How the rows of its arguments reach the ranks.
        effect: Whether it reads, writes or ignores the role's state.
        repeatable: Whether a shard may be computed again after its process died. A write is never repeated on the
            same state whatever is said here: the state is restored first.
        durable: Whether its outputs are written to the state store before the step counts as done, so that they need
            not be computed again when the process or node that holds them is lost.
        collective: Whether the ranks compute it together, in one process group: all take part or none, and a rank
            whose share is empty is an error.
        pad: Outputs whose second dimension may differ between ranks, and the side on which zeros make them equal.
        parts_per_worker: Cut the rows of a data-parallel read in so many parts per worker, of which whoever is free
            takes the next; 0: each worker has its share.

    Raises:
        ValueError: Parts go to anybody, and the method is one that all workers must answer.
    """
    if parts_per_worker and (effect is Effect.WRITE or collective or dispatch is not Dispatch.DATA_PARALLEL):
        raise ValueError("`parts_per_worker` needs a data-parallel method that neither writes nor is collective")
    spec = MethodSpec(
        dispatch=dispatch,
        effect=effect,
        repeatable=repeatable,
        durable=durable,
        collective=collective,
        pad=pad or {},
        parts_per_worker=parts_per_worker,
    )

    def mark(function: _Function) -> _Function:
        setattr(function, _ATTRIBUTE, spec)
        return function

    return mark


def method_spec(cls: type, name: str) -> MethodSpec:
    """What `cls.name` declares.

    A method without `@register` is taken to read the state and to be data-parallel, unless its name starts with
    "update": then it is taken to write.

    Raises:
        UnknownMethodError: `cls` has no such public method.
    """
    function = getattr(cls, name, None)
    if name.startswith("_") or not callable(function):
        raise UnknownMethodError(cls, name)
    declared = getattr(function, _ATTRIBUTE, None)
    if isinstance(declared, MethodSpec):
        return declared
    writes = name.startswith("update")
    return MethodSpec(
        effect=Effect.WRITE if writes else Effect.READ,
        dispatch=Dispatch.ONE_TO_ALL if writes else Dispatch.DATA_PARALLEL,
    )


def writing_methods(cls: type) -> list[str]:
    """The names of those methods of `cls` that change its state."""
    return [name for name, spec in _specs(cls) if spec.effect is Effect.WRITE]


def shares_parts(cls: type) -> bool:
    """Whether a method of `cls` is cut in parts that go to whoever is free."""
    return any(spec.parts_per_worker for _, spec in _specs(cls))


def _specs(cls: type) -> list[tuple[str, MethodSpec]]:
    public = [name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name, None))]
    return [(name, method_spec(cls, name)) for name in public]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInfo:
    """Where a call stands in the run; counter-based seeds are made of it, so that redone work gives the same numbers.

    Attributes:
        iteration: The iteration (training step) of the node.
        ordinal: The node's place within the iteration.
        row_offset: Index of this shard's first row among all rows of the call.
    """

    iteration: int = 0
    ordinal: int = 0
    row_offset: int = 0


@dataclass(slots=True, kw_only=True)
class WorkerContext:
    """Who a worker is. Set before `__init__` runs; `call` changes with every call.

    Attributes:
        role: Name of the role.
        rank: Rank within the role.
        world_size: Number of ranks of the role in the current call; a role may be scaled while it runs.
        attempt: How many processes this rank has had before.
        job: Name of the job.
        seed: The job's seed.
        threads: CPU threads this role may use.
        version: Version of the role's state: how many updates it holds.
        meeting_place: `host:port` where the ranks meet, if the role has `process_group`; else empty.
        state: Where the run keeps what must survive, for what a worker wants to keep or share there; None: nowhere.
        call: Where the current call stands in the run.
    """

    role: str = "role"
    rank: int = 0
    world_size: int = 1
    attempt: int = 0
    job: str = "job"
    seed: int = 0
    threads: int = 1
    version: int = 0
    meeting_place: str = ""
    state: StateStore | None = None
    call: CallInfo = field(default_factory=CallInfo)

    @property
    def worker_name(self) -> str:
        """The name that messages and log files use, such as `critic-worker-003`."""
        return f"{self.role}-worker-{self.rank:03d}"


_CONSTRUCTING: contextvars.ContextVar[WorkerContext | None] = contextvars.ContextVar("rlhf_context", default=None)


@contextlib.contextmanager
def constructing(context: WorkerContext) -> Iterator[None]:
    """Workers made in this block belong to `context`."""
    token = _CONSTRUCTING.set(context)
    try:
        yield
    finally:
        _CONSTRUCTING.reset(token)


class Worker:
    """Base class of the workers that ship, and a convenient one for yours.

    `self.context` tells role, rank, seed and the running call, already in `__init__`. A worker whose methods write
    should give its state in `state_dict` and take it in `load_state_dict`: snapshots bound how many updates a restart
    must replay. Without them, a restart replays every update since the first, which is right but slow.

    `imports` names modules that take seconds to import and that this class imports late: a spare process imports them
    before anybody needs it, and a restart does not wait for them. One that is not installed is passed over.

    `engines` says which engines it has picked, such as `{"rollout": "cached"}`, for the job's status and log.
    """

    imports: ClassVar[Sequence[str]] = ()
    engines: Mapping[str, str] = MappingProxyType({})
    context: WorkerContext

    def __new__(cls, *args: Any, **kwargs: Any) -> Worker:
        """Attach the context before any subclass's `__init__`, which need not call this class's."""
        worker = super().__new__(cls)
        worker.context = _CONSTRUCTING.get() or WorkerContext()
        return worker

    def state_dict(self) -> Mapping[str, Any] | None:
        """All that updates change, as nested dicts, lists, tensors and JSON scalars; None: nothing."""
        return None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        raise NotImplementedError(f"{type(self).__name__} gave a state_dict but has no load_state_dict")


BaseWorker = Worker
