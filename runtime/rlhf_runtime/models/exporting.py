"""Writes a model for `transformers` to a folder, or to a place that only fsspec reaches."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from rlhf_runtime.resilience.remote_files import driver_errors, make_parent


def export_to(place: str, write: Callable[[str], None]) -> None:
    """Let `write` fill the folder at `place`; for a URI it fills a temporary one, which is uploaded.

    Raises:
        StateStoreError: The URI cannot be written to.
    """
    if "://" not in place:
        Path(place).mkdir(parents=True, exist_ok=True)
        write(place)
        return
    import fsspec

    with tempfile.TemporaryDirectory(prefix="rlhf-model-") as folder:
        write(folder)
        with driver_errors(place, "uploading the model"):
            system, root = fsspec.core.url_to_fs(place)
            for file in sorted(Path(folder).rglob("*")):
                if file.is_file():
                    target = f"{root.rstrip('/')}/{file.relative_to(folder).as_posix()}"
                    make_parent(system, target)
                    system.put_file(str(file), target)
