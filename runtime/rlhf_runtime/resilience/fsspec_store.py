"""`FsspecStateStore`: a state store in a bucket, or wherever else fsspec can write.

Made for object stores, where an object appears whole once its upload ends. `create_exclusive` is as good as
the file system behind it: a conditional write where fsspec has one (S3, GCS), else a look before the write,
in which two callers at the same instant can both win. For anything but object stores prefer a mounted folder.
"""

from __future__ import annotations

from collections.abc import Iterable

import fsspec

from rlhf_runtime.errors import StateStoreError
from rlhf_runtime.resilience.remote_files import driver_errors, make_parent
from rlhf_runtime.resilience.state_store import Chunk, check_key, each_chunk, missing


class FsspecStateStore:
    """See the module; `uri` is like `s3://bucket/run`, its driver (s3fs, ...) must be installed.

    Raises:
        StateStoreError: The driver is missing or refuses the address.
    """

    def __init__(self, uri: str) -> None:
        self.location = uri
        with driver_errors(uri, "opening it"):
            try:
                self._fs, root = fsspec.core.url_to_fs(uri, use_listings_cache=False)
            except (ImportError, ValueError) as error:
                raise StateStoreError(f'the state store at "{uri}" cannot be opened: {error}') from error
        self._root = root.rstrip("/")

    def write(self, key: str, chunks: Iterable[Chunk] | Chunk) -> None:
        """See `StateStore.write`."""
        data = b"".join(each_chunk(chunks))
        with driver_errors(self.location, f'writing "{key}"'):
            make_parent(self._fs, self._path(key))
            self._fs.pipe_file(self._path(key), data)

    def read(self, key: str) -> bytes:
        """See `StateStore.read`."""
        with driver_errors(self.location, f'reading "{key}"'):
            try:
                return bytes(self._fs.cat_file(self._path(key)))
            except FileNotFoundError:
                raise missing(self.location, key) from None

    def exists(self, key: str) -> bool:
        """See `StateStore.exists`."""
        with driver_errors(self.location, f'looking for "{key}"'):
            return bool(self._fs.isfile(self._path(key)))

    def list(self, prefix: str) -> list[str]:
        """See `StateStore.list`."""
        top = f"{self._root}/{prefix.rpartition('/')[0]}".rstrip("/")
        with driver_errors(self.location, f'listing "{prefix}"'):
            try:
                paths = self._fs.find(top)
            except FileNotFoundError:
                return []
        # Drivers differ in whether their paths begin with a slash.
        start = len(self._root.lstrip("/")) + 1
        keys = (path.lstrip("/")[start:] for path in paths)
        return sorted(key for key in keys if key.startswith(prefix))

    def delete(self, key: str) -> None:
        """See `StateStore.delete`."""
        with driver_errors(self.location, f'deleting "{key}"'):
            try:
                self._fs.rm_file(self._path(key))
            except FileNotFoundError:
                return

    def create_exclusive(self, key: str, data: bytes) -> bool:
        """See `StateStore.create_exclusive`, and the module for how exclusive it is."""
        with driver_errors(self.location, f'creating "{key}"'):
            make_parent(self._fs, self._path(key))
            try:
                self._fs.pipe_file(self._path(key), data, mode="create")
            except FileExistsError:
                return False
            return True

    def _path(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}"
