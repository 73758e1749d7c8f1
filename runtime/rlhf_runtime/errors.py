"""The runtime's own errors: each says what happened, where, and what to do about it."""

from rlhf_api.enums import FailureReason


class RlhfError(Exception):
    """Base of every error that the runtime raises on purpose."""


class DataError(RlhfError, ValueError):
    """A batch that cannot be: lengths that differ, a column that is unknown or given twice."""


class UnknownColumnError(RlhfError, KeyError):
    """A column that the batch does not have; the message lists those that it has."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # a KeyError would print the message's repr


class UnsupportedValueError(RlhfError, TypeError):
    """A value that the wire format cannot carry; the message gives its path and type, and what is allowed."""


class WireFormatError(RlhfError, ValueError):
    """Bytes that are not what their description says: truncated, foreign or hostile."""


class StateStoreError(RlhfError):
    """The state store could not do what was asked."""


class StateMissingError(StateStoreError, KeyError):
    """The state store holds nothing under this key."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # a KeyError would print the message's repr


class StateStoreFullError(StateStoreError):
    """No space is left at the state store's location; what was committed before is whole."""


class StateCorruptError(StateStoreError):
    """A stored object is torn, foreign or altered: its checksum or its format does not match."""


class EpochFencedError(RlhfError):
    """A controller of an older epoch tried to write: a newer one has taken over."""


class UnknownMethodError(RlhfError, AttributeError):
    """A step names a method that the role's worker class does not have."""

    def __init__(self, cls: type, name: str) -> None:
        public = sorted(n for n in dir(cls) if not n.startswith("_") and callable(getattr(cls, n, None)))
        super().__init__(f'worker class "{cls.__name__}" must have the method "{name}"; it has: {", ".join(public)}')


class ResourcePoolError(RlhfError, ValueError):
    """A worker group does not fit its resource pool, or the pool the machine; the message says what to change."""


class WorkerClassError(RlhfError):
    """A worker class that cannot be imported or made; the message names the role and the class."""


class StepError(RlhfError):
    """A step failed; the message names step, role, worker and cause."""


class SkippedStepError(StepError):
    """A step was not run since a step that it needs failed."""


class FencedError(RlhfError):
    """A call of an older epoch or attempt reached a worker that a newer controller has taken over."""


class VersionMovedError(RlhfError):
    """A call was made for another version of the role's state than the worker holds."""


class StateDiscardedError(RlhfError):
    """A writing method failed in this process, so that its state can no longer be trusted."""


class RefusedError(RlhfError, ValueError):
    """A writing method refused its input before it changed anything: unlike after another error, its state is good."""


class HostDiedError(RlhfError):
    """A role's process is gone.

    Attributes:
        reason: Why, in the words that a restart policy matches.
        exit_code: As a shell shows it (128 and the signal's number), where it is known.
    """

    def __init__(
        self, message: str, *, reason: FailureReason = FailureReason.UNKNOWN, exit_code: int | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.exit_code = exit_code


class PeerLostError(RlhfError):
    """A collective operation broke off: another rank of the role is gone, or cannot be reached."""


class BufferLostError(RlhfError):
    """The only copy of a step's outputs is gone with its process or node."""

    def __init__(self, message: str, *, buffer: object = None) -> None:
        super().__init__(message)
        self.buffer = buffer


class WeightsLostError(BufferLostError):
    """The weights that a request tells of cannot be had where they should be: the trainer must publish them again."""


class RemoteError(RlhfError):
    """An exception inside a worker's method, as it reaches the controller.

    Attributes:
        kind: The exception's class name.
        text: Its message.
        traceback: The worker's formatted traceback.
        poisoned: True when it may have left the worker's state half changed.
    """

    def __init__(self, *, kind: str, text: str, traceback: str, poisoned: bool) -> None:
        super().__init__(f"{kind}: {text}" if text else kind)
        self.kind = kind
        self.text = text
        self.traceback = traceback
        self.poisoned = poisoned

    def __reduce__(self) -> tuple[object, ...]:  # keyword-only arguments need help through pickle
        return (_remote_error, (self.kind, self.text, self.traceback, self.poisoned))


def _remote_error(kind: str, text: str, traceback: str, poisoned: bool) -> RemoteError:
    return RemoteError(kind=kind, text=text, traceback=traceback, poisoned=poisoned)


class RoleExhaustedError(RlhfError):
    """A role failed more often than its restart budget allows."""


class UnknownRoleError(RlhfError, ValueError):
    """A role that the job does not have; the message lists those that it has."""


class ScalingRefusedError(RlhfError, ValueError):
    """The number of a role's replicas cannot be changed, or not to this; the message says why."""


class DeadlockError(RlhfError):
    """Nothing is running and nothing can start, yet somebody waits."""


class InterruptedRunError(RlhfError):
    """The run was stopped from outside; what it had committed is whole."""
