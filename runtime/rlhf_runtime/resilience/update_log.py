"""`UpdateLog`: what went into each update of a role since its snapshot, so that a new process can redo them.

One object per update, written before the update is applied; together with the newest snapshot it gives back
the exact weights, and it is the ledger that shows which updates were made. An update that a dead process did
not finish may be logged again by its successor with other inputs: of several entries for one version, that of
the highest (epoch, attempt) counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlhf_runtime.errors import StateCorruptError, StateMissingError
from rlhf_runtime.resilience.frame import packed_chunks, read_packed, unpack_bytes
from rlhf_runtime.resilience.state_store import StateStore
from rlhf_runtime.wire import Packed

__all__ = ["LogEntry", "UpdateLog", "packed_chunks", "unpack_bytes"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogEntry:
    """The inputs of one update.

    Attributes:
        version: The state version that this update makes.
        update_id: The update's name for ever.
        method: The worker's method.
        epoch: The epoch of the controller that asked for it.
        attempt: The attempt of the process that wrote this.
        arguments: The method's arguments.
    """

    version: int
    update_id: str
    method: str
    epoch: int
    attempt: int
    arguments: Packed


class UpdateLog:
    """The log of one worker of a role; see the module."""

    def __init__(self, store: StateStore, *, role: str, rank: int) -> None:
        self._store = store
        self._updates = f"roles/{role}/{rank}/updates/"

    def append(self, entry: LogEntry) -> None:
        """Make the entry durable; the same one again changes nothing."""
        key = f"{self._updates}v{entry.version:012d}-e{entry.epoch:08d}-a{entry.attempt:08d}"
        header = {
            "version": entry.version,
            "update_id": entry.update_id,
            "method": entry.method,
            "epoch": entry.epoch,
            "attempt": entry.attempt,
        }
        self._store.write(key, packed_chunks(entry.arguments, kind="update", header=header))

    def entries(self, after: int, upto: int) -> list[LogEntry]:
        """The updates that lead from version `after` to version `upto`, one for each version.

        Raises:
            StateMissingError: The log lacks one of them.
            StateCorruptError: One of them is torn.
        """
        newest = {_version(key): key for key in self._store.list(self._updates)}  # sorted: the winner comes last
        for version in range(after + 1, upto + 1):
            if version not in newest:
                raise StateMissingError(
                    f'the log "{self._updates}" in "{self._store.location}" lacks the update to version '
                    f"{version} of those from {after + 1} to {upto}"
                )
        return [self._read(newest[version]) for version in range(after + 1, upto + 1)]

    def versions(self) -> list[int]:
        """The versions that have an entry, ascending."""
        return sorted({_version(key) for key in self._store.list(self._updates)})

    def drop_after(self, version: int) -> None:
        """Forget the updates beyond `version`: their iteration was not committed and will be made anew."""
        # The newest first: a crash in between leaves a log without a gap.
        for key in reversed(self._store.list(self._updates)):
            if _version(key) > version:
                self._store.delete(key)

    def prune_before(self, version: int) -> None:
        """Forget the updates that made versions below `version`, which no snapshot needs any more."""
        for key in self._store.list(self._updates):
            if _version(key) < version:
                self._store.delete(key)

    def _read(self, key: str) -> LogEntry:
        header, packed = read_packed(self._store.read(key), kind="update", where=f"{self._store.location}/{key}")
        fields: dict[str, Any] = {name: header.get(name) for name in ("version", "epoch", "attempt")}
        texts: dict[str, Any] = {name: header.get(name) for name in ("update_id", "method")}
        wrong = [name for name, value in fields.items() if type(value) is not int]
        wrong += [name for name, value in texts.items() if type(value) is not str]
        if wrong or fields["version"] != _version(key):
            raise StateCorruptError(f'"{key}" is not the log entry that its name says')
        return LogEntry(**fields, **texts, arguments=packed)


def _version(key: str) -> int:
    name = key.rpartition("/")[2].partition("-")[0]
    if not name.startswith("v") or not name[1:].isdigit():
        raise StateCorruptError(f'"{key}" is no entry of a log; somebody else writes into this folder')
    return int(name[1:])
