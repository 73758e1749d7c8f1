"""Places that only fsspec reaches: what its drivers have in common, and what they have not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlhf_runtime.errors import RlhfError, StateStoreError
from rlhf_runtime.resilience.state_store import translated_errors

_WITHOUT_FOLDERS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}


def make_parent(system: Any, path: str) -> None:
    """Make the folder of a file where there are folders; s3fs, asked for one, would make the bucket it misses."""
    named = system.protocol
    if not _WITHOUT_FOLDERS & set((named,) if isinstance(named, str) else named):
        system.makedirs(path.rpartition("/")[0], exist_ok=True)


@contextmanager
def driver_errors(location: str, doing: str) -> Iterator[None]:
    """As `translated_errors`, also for what is no `OSError`: drivers pass on what their client libraries raise."""
    try:
        with translated_errors(location, doing):
            yield
    except RlhfError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise StateStoreError(f'the state store at "{location}" failed ({doing}): {text}') from error
