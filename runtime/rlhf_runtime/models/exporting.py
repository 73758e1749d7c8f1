"""Writes a model for `transformers` to a folder, or to a place that only fsspec reaches."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from rlhf_runtime.resilience.remote_files import driver_errors, make_parent


def export_to(place: str, write: Callable[[str], None]) -> None:
    """Let `write` fill the folder at `place`; for a URI it fills a temporary one, which is uploaded.

    Whoever may read new files of this process may read these, also weights, which come written for their owner alone.

    Raises:
        StateStoreError: The URI cannot be written to.
    """
    if "://" not in place:
        Path(place).mkdir(parents=True, exist_ok=True)
        write(place)
        _make_readable(Path(place))
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


def _make_readable(folder: Path) -> None:
    probe = folder / ".probe"
    probe.touch()
    mode = probe.stat().st_mode
    probe.unlink()
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(file.stat().st_mode | mode)
