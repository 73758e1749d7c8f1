"""Snapshots of a role's state, and the commits that say which versions of all roles belong together.

A snapshot is one worker's whole state at one version, and with the log of updates gives every later version.
A commit is one small JSON object per finished iteration: a run resumes from the newest one.

Only one controller may commit: the one of the newest epoch. A look at the newest epoch before each commit is
not enough, since the older controller may look, stall, and write much later. So commits are ordered by epoch
first, and `CommitLog.take_over` commits once more, under the new epoch, what the run resumes from: whatever
the older controller still writes is older than that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rlhf_runtime.errors import EpochFencedError, StateCorruptError, StateMissingError
from rlhf_runtime.resilience.frame import frame_chunks, read_frame
from rlhf_runtime.resilience.state_store import StateStore
from rlhf_runtime.resilience.state_tree import join_parts, pack_state, unpack_state

_SNAPSHOT_KEY = re.compile(r"roles/[^/]+/(?P<rank>\d+)/snapshots/v(?P<version>\d+)(-of(?P<parts>\d+))?")
_EPOCHS = "epochs/"
_COMMITS = "commits/"
_COMMIT_FORMAT = "rlhf.commit/1"


class SnapshotStore:
    """The snapshots of one worker of a role; or its parts of those that several ranks write together.

    A snapshot in parts is there when all its parts are: what some ranks wrote before another died does not count. It
    can be read by another number of ranks, or by one.

    Args:
        store: Where they lie.
        role: The role.
        rank: The worker's rank.
        parts: How many ranks write a snapshot together; None: this worker's state is its own.
    """

    def __init__(self, store: StateStore, *, role: str, rank: int, parts: int | None = None) -> None:
        self._store = store
        self._role = role
        self._rank = rank
        self._parts = parts

    def save(self, version: int, state: Mapping[str, Any]) -> None:
        """Write the state at `version`, or this rank's part of it, durably; see `state_tree` for what it may hold.

        Raises:
            UnsupportedValueError: Something in the state cannot be stored; the message gives its path.
            StateStoreFullError: No space is left; the older snapshots are whole.
        """
        skeleton, tensors = pack_state(state)
        header = {"version": version, "skeleton": skeleton}
        self._store.write(self._key(version, self._rank, self._parts or 1), frame_chunks("snapshot", header, [tensors]))

    def load(self, version: int) -> dict[str, Any]:
        """The state at `version`, its tensors on the CPU; this rank's part, if as many ranks wrote it as read it.

        Raises:
            StateMissingError: There is no such snapshot.
            StateCorruptError: It is torn or altered.
        """
        kinds = self._whole().get(version, set())
        parts = self._parts or 1
        if parts in kinds or not kinds:
            return self._read(self._key(version, self._rank, parts), version)
        written = max(kinds)
        state: dict[str, Any] = join_parts(
            [self._read(self._key(version, rank, written), version) for rank in range(written)]
        )
        return state

    def versions(self) -> list[int]:
        """The versions that have a whole snapshot, ascending."""
        return sorted(self._whole())

    def prune(self, *, keep: int, needed: int | None = None) -> None:
        """Delete all but the newest `keep`, and the newest one that version `needed` can be restored from.

        Of snapshots in parts each rank deletes its own.
        """
        versions = self.versions()
        kept = set(versions[-keep:] if keep > 0 else [])
        if needed is not None:
            kept.update([version for version in versions if version <= needed][-1:])
        for key, version, rank, _ in self._keys():
            mine = rank == self._rank or rank >= (self._parts or 1)
            if mine and versions and version <= versions[-1] and version not in kept:
                self._store.delete(key)

    def drop_after(self, version: int) -> None:
        """Delete those beyond `version`: the updates that led there were not committed and will be made anew."""
        for key, later, _, _ in self._keys():
            if later > version:
                self._store.delete(key)

    def _read(self, key: str, version: int) -> dict[str, Any]:
        where = f"{self._store.location}/{key}"
        header, body = read_frame(self._store.read(key), "snapshot", where=where)
        state = unpack_state(header.get("skeleton"), bytes(body), where=where)
        if header.get("version") != version or not isinstance(state, dict):
            raise StateCorruptError(f'"{where}" is not the snapshot that its name says')
        return state

    def _whole(self) -> dict[int, set[int]]:
        """The versions that can be loaded, each with the numbers of parts in which it is there."""
        there: dict[tuple[int, int], int] = {}
        for _, version, _, parts in self._keys():
            there[version, parts] = there.get((version, parts), 0) + 1
        whole: dict[int, set[int]] = {}
        for (version, parts), count in there.items():
            if count == parts:
                whole.setdefault(version, set()).add(parts)
        return whole

    def _keys(self) -> Iterator[tuple[str, int, int, int]]:
        """Key, version, rank and number of parts of all that is there."""
        own = f"roles/{self._role}/" if self._parts else f"roles/{self._role}/{self._rank}/snapshots/"
        for key in self._store.list(own):
            if (found := _SNAPSHOT_KEY.fullmatch(key)) and (self._parts or found["parts"] is None):
                yield key, int(found["version"]), int(found["rank"]), int(found["parts"] or 1)

    def _key(self, version: int, rank: int, parts: int) -> str:
        of = f"-of{parts}" if parts > 1 else ""
        return f"roles/{self._role}/{rank}/snapshots/v{version:012d}{of}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A finished iteration.

    Attributes:
        iteration: Its number; the next one to run is one higher.
        epoch: The epoch of the controller that finished it.
        versions: The state version of each role after it.
        cursor: Where the data goes on.
        metrics: What the iteration measured.
    """

    iteration: int
    epoch: int
    versions: dict[str, int] = field(default_factory=dict)
    cursor: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)


class CommitLog:
    """The commits of a run; see the module."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def take_over(self) -> tuple[int, Commit | None]:
        """Claim the next epoch, and the newest commit with it; returns both."""
        epoch = claim_epoch(self._store)
        commit = self.latest()
        if commit is not None:
            commit = replace(commit, epoch=epoch)
            self.commit(commit)
        return epoch, commit

    def commit(self, commit: Commit) -> None:
        """Make a finished iteration durable.

        Raises:
            EpochFencedError: Another controller has claimed a newer epoch.
            StateStoreFullError: No space is left; the older commits are whole.
        """
        newest = newest_epoch(self._store)
        if commit.epoch < newest:
            raise EpochFencedError(
                f"iteration {commit.iteration} of epoch {commit.epoch} is not committed: "
                f"a controller of epoch {newest} has taken over"
            )
        text = json.dumps({"format": _COMMIT_FORMAT, **asdict(commit)}, indent=1)
        self._store.write(_commit_key(commit.epoch, commit.iteration), text.encode())

    def latest(self) -> Commit | None:
        """The commit that a run resumes from: of the newest epoch that has one, the newest that is whole.

        To go back over a damaged one loses nothing but time: what came after is made again, with the same numbers.

        Raises:
            StateCorruptError: There are commits, and none of them can be read.
        """
        damage: StateCorruptError | None = None
        for key in reversed(self._store.list(_COMMITS)):
            try:
                return self._read(key)
            except StateCorruptError as error:
                damage = damage or error
        if damage is not None:
            raise damage
        return None

    def prune(self, keep: int) -> None:
        """Delete all but the newest `keep` commits; the latest always stays."""
        for key in self._store.list(_COMMITS)[: -max(keep, 1)]:
            self._store.delete(key)

    def _read(self, key: str) -> Commit:
        try:
            data = json.loads(self._store.read(key))
            if data.pop("format", None) != _COMMIT_FORMAT:
                raise ValueError(f'it lacks the mark "{_COMMIT_FORMAT}"')
            commit = Commit(**data)
            if key != _commit_key(commit.epoch, commit.iteration):
                raise ValueError("it is not the commit that its name says")
        except StateMissingError:
            raise
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise StateCorruptError(f'"{self._store.location}/{key}" is no commit: {error}') from error
        return commit


def claim_epoch(store: StateStore) -> int:
    """A new epoch, higher than every one before it; no two callers get the same."""
    epoch = newest_epoch(store)
    while True:
        epoch += 1
        if store.create_exclusive(f"{_EPOCHS}e{epoch:08d}", json.dumps({"epoch": epoch}).encode()):
            return epoch


def newest_epoch(store: StateStore) -> int:
    """The newest epoch that was claimed; 0 before the first."""
    keys = store.list(f"{_EPOCHS}e")
    return int(keys[-1].removeprefix(f"{_EPOCHS}e")) if keys else 0


def _commit_key(epoch: int, iteration: int) -> str:
    return f"{_COMMITS}e{epoch:08d}-i{iteration:012d}"
