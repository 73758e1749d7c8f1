"""`LocalStateStore`: a state store in a folder, on a local disk or a shared volume.

An object is written beside its place, brought to the disk, and renamed: a crash at any point leaves the old
object or the new one. What a crash leaves unfinished lies in `.tmp` and is cleared when a store is opened.
"""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rlhf_runtime.errors import StateStoreError
from rlhf_runtime.resilience.state_store import Chunk, check_key, each_chunk, missing, translated_errors

_UNFINISHED = ".tmp"
_STALE_SECONDS = 3600.0  # another process may be writing now; no write takes this long
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class LocalStateStore:
    """See the module; the folder is made if it is not there.

    Raises:
        StateStoreError: The folder cannot be made or written to.
    """

    def __init__(self, folder: str | Path) -> None:
        self._root = Path(folder).expanduser().absolute()
        self.location = str(self._root)
        self._unfinished = self._root / _UNFINISHED
        with translated_errors(self.location, "opening it"):
            self._unfinished.mkdir(parents=True, exist_ok=True)
            if not os.access(self._unfinished, os.W_OK):
                raise StateStoreError(f'the state store at "{self.location}" cannot be written to')
            for left in self._unfinished.iterdir():
                with suppress(FileNotFoundError):
                    if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                        left.unlink()

    def write(self, key: str, chunks: Iterable[Chunk] | Chunk) -> None:
        """See `StateStore.write`."""
        path = self._path(key)
        with translated_errors(self.location, f'writing "{key}"'):
            unfinished = self._write_aside(chunks)
            try:
                self._make_folder(path.parent)
                os.replace(unfinished, path)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
            _sync_folder(path.parent)

    def read(self, key: str) -> bytes:
        """See `StateStore.read`."""
        with translated_errors(self.location, f'reading "{key}"'):
            try:
                return self._path(key).read_bytes()
            except FileNotFoundError:
                raise missing(self.location, key) from None

    def exists(self, key: str) -> bool:
        """See `StateStore.exists`."""
        with translated_errors(self.location, f'looking for "{key}"'):
            return self._path(key).is_file()

    def list(self, prefix: str) -> list[str]:
        """See `StateStore.list`."""
        top = self._root / prefix.rpartition("/")[0]
        keys: list[str] = []
        with translated_errors(self.location, f'listing "{prefix}"'):
            for folder, folders, files in os.walk(top, onerror=_raise_unless_missing):
                folders[:] = [name for name in folders if not name.startswith(".")]
                relative = Path(folder).relative_to(self._root)
                keys += [(relative / name).as_posix() for name in files if not name.startswith(".")]
        return sorted(key for key in keys if key.startswith(prefix))

    def delete(self, key: str) -> None:
        """See `StateStore.delete`."""
        path = self._path(key)
        with translated_errors(self.location, f'deleting "{key}"'):
            try:
                path.unlink()
            except FileNotFoundError:
                return
            _sync_folder(path.parent)

    def create_exclusive(self, key: str, data: bytes) -> bool:
        """See `StateStore.create_exclusive`."""
        path = self._path(key)
        with translated_errors(self.location, f'creating "{key}"'):
            unfinished = self._write_aside(data)
            try:
                self._make_folder(path.parent)
                _link(unfinished, path, data)
            except FileExistsError:
                return False
            finally:
                unfinished.unlink(missing_ok=True)
            _sync_folder(path.parent)
            return True

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _write_aside(self, chunks: Iterable[Chunk] | Chunk) -> Path:
        unfinished = self._unfinished / uuid.uuid4().hex
        try:
            with open(unfinished, "xb") as file:
                for chunk in each_chunk(chunks):
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return unfinished

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        with suppress(FileExistsError):  # made by another process meanwhile
            folder.mkdir()
        _sync_folder(folder.parent)


def _link(unfinished: Path, path: Path, data: bytes) -> None:
    """Give the file its name unless the name is taken (FileExistsError)."""
    try:
        os.link(unfinished, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Some network and FUSE file systems have no hard links. The name is still taken exclusively; a crash
        # in between can leave it with half its content.
        with open(path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system whose folders need no sync
            raise
    finally:
        os.close(handle)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
