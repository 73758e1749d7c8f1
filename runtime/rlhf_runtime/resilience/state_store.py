"""`StateStore`: where a run keeps what must survive the death of any process.

Objects are written whole under a key, `roles/actor/0/snapshots/v000000000012`; a reader finds the old
object, the new one, or none, never a part. A shared volume or folder is a `LocalStateStore`, anything else
that fsspec knows an `FsspecStateStore`; Ray's object store is none, for its objects die with their owner or
their node.
"""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rlhf_runtime.errors import StateMissingError, StateStoreError, StateStoreFullError

Chunk = bytes | bytearray | memoryview

_NAME = r"[A-Za-z0-9_][A-Za-z0-9._=@+-]*"  # no leading dot: neither hidden nor the parent folder
_KEY = re.compile(rf"{_NAME}(/{_NAME})*")


class StateStore(Protocol):
    """Objects by key. Every method raises `StateStoreError` when the place does not answer as it should."""

    @property
    def location(self) -> str:
        """Where it is, as a message should name it."""
        ...

    def write(self, key: str, chunks: Iterable[Chunk] | Chunk) -> None:
        """Write an object whole and durably, in place of an older one; when this raises, the older one stays.

        Raises:
            StateStoreFullError: No space is left.
        """
        ...

    def read(self, key: str) -> bytes:
        """The object; raises `StateMissingError` when there is none."""
        ...

    def exists(self, key: str) -> bool:
        """Whether there is an object."""
        ...

    def list(self, prefix: str) -> list[str]:
        """The keys that begin with these characters, sorted."""
        ...

    def delete(self, key: str) -> None:
        """Take the object away; none is no error."""
        ...

    def create_exclusive(self, key: str, data: bytes) -> bool:
        """Write an object unless there is one; true for the one caller that wrote it."""
        ...


class MemoryStateStore:
    """A store that lives as long as its process: for tests and the simulated backend."""

    def __init__(self, name: str = "") -> None:
        self.location = f"memory:{name}"
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def write(self, key: str, chunks: Iterable[Chunk] | Chunk) -> None:
        """See `StateStore.write`."""
        data = b"".join(each_chunk(chunks))
        with self._lock:
            self._objects[check_key(key)] = data

    def read(self, key: str) -> bytes:
        """See `StateStore.read`."""
        with self._lock:
            if key not in self._objects:
                raise missing(self.location, key)
            return self._objects[key]

    def exists(self, key: str) -> bool:
        """See `StateStore.exists`."""
        return key in self._objects

    def list(self, prefix: str) -> list[str]:
        """See `StateStore.list`."""
        with self._lock:
            return sorted(key for key in self._objects if key.startswith(prefix))

    def delete(self, key: str) -> None:
        """See `StateStore.delete`."""
        with self._lock:
            self._objects.pop(key, None)

    def create_exclusive(self, key: str, data: bytes) -> bool:
        """See `StateStore.create_exclusive`."""
        with self._lock:
            if check_key(key) in self._objects:
                return False
            self._objects[key] = bytes(data)
            return True


_memory_stores: dict[str, MemoryStateStore] = {}
_memory_lock = threading.Lock()


def open_state_store(location: str) -> StateStore:
    """The store at a folder (a path or `file://` URI), at `memory:NAME`, or at any URI that fsspec knows.

    Within one process the same `memory:NAME` is the same store.

    Raises:
        StateStoreError: The place cannot be opened or written to; raised now and not in the training loop.
    """
    from rlhf_runtime.resilience.fsspec_store import FsspecStateStore
    from rlhf_runtime.resilience.local_store import LocalStateStore

    if not location:
        raise StateStoreError("a state store's location must not be empty")
    if location.startswith("memory:") and not location.startswith("memory://"):
        name = location.removeprefix("memory:")
        with _memory_lock:
            return _memory_stores.setdefault(name, MemoryStateStore(name))
    if location.startswith("file://"):
        return LocalStateStore(location.removeprefix("file://"))
    return FsspecStateStore(location) if "://" in location else LocalStateStore(location)


def each_chunk(chunks: Iterable[Chunk] | Chunk) -> Iterable[Chunk]:
    """The chunks, also of an object that is given in one piece."""
    return (chunks,) if isinstance(chunks, bytes | bytearray | memoryview) else chunks


def check_key(key: str) -> str:
    """The key, if it is a plain relative path."""
    if not _KEY.fullmatch(key):
        raise StateStoreError(f'"{key}" is no key: names of letters, digits and ._=@+- with slashes between them')
    return key


def missing(location: str, key: str) -> StateMissingError:
    """The error for an object that is not there."""
    return StateMissingError(f'there is no "{key}" in the state store at "{location}"')


@contextmanager
def translated_errors(location: str, doing: str) -> Iterator[None]:
    """Turns the system's errors into the store's, which say where, while doing what, and what is lost."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StateStoreFullError(
                f'no space is left in the state store at "{location}" ({doing}): nothing already committed '
                "was lost; free some space there and run again"
            ) from error
        raise StateStoreError(f'the state store at "{location}" failed ({doing}): {_text(error)}') from error


def _text(error: OSError) -> Any:
    return error.strerror or str(error) or type(error).__name__
