"""One copy of large files on disk: the builder's store and the seed both hold them, and neither ever writes to one.

Layers are stacked below containers and never changed, so that a file of one may be a hard link to the same file of the
other. Only files with equal content, owner and mode are linked, by comparing them; nearly all bytes of an image are in
few large files.
"""

import filecmp
import os
from collections.abc import Iterator
from pathlib import Path

SMALLEST_BYTES = 1 << 20


def share(kept: Path, twin: Path) -> int:
    """Make large files of the layers below ``twin`` links to their equals below ``kept``; returns the bytes saved.

    Below both are folders of layers, each with its files in ``LAYER/*/``: ``overlay/ID/diff`` of the builder's store,
    ``snapshots/NUMBER/fs`` of containerd.
    """
    originals: dict[tuple[str, int, int], list[Path]] = {}
    for name, path, status in _large_files(kept, "diff"):
        originals.setdefault((name, status.st_size, int(status.st_mtime)), []).append(path)
    saved = 0
    for name, path, status in _large_files(twin, "fs"):
        for original in originals.get((name, status.st_size, int(status.st_mtime)), []):
            if _same(original, path, status):
                _link(original, path)
                saved += status.st_size
                break
    return saved


def _large_files(layers: Path, folder: str) -> Iterator[tuple[str, Path, os.stat_result]]:
    for layer in layers.glob(f"*/{folder}"):
        for place, _, names in os.walk(layer):
            for name in names:
                path = Path(place, name)
                status = path.lstat()
                if status.st_size >= SMALLEST_BYTES and path.is_file() and not path.is_symlink():
                    yield str(path.relative_to(layer)), path, status


def _same(original: Path, path: Path, status: os.stat_result) -> bool:
    other = original.lstat()
    if other.st_dev != status.st_dev or other.st_ino == status.st_ino:
        return False
    alike = all(getattr(other, name) == getattr(status, name) for name in ("st_uid", "st_gid", "st_mode"))
    alike = alike and _attributes(original) == _attributes(path)
    return alike and filecmp.cmp(original, path, shallow=False)


def _attributes(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


def _link(original: Path, path: Path) -> None:
    unfinished = path.with_name(f".{path.name}.link")
    unfinished.unlink(missing_ok=True)
    unfinished.hardlink_to(original)
    unfinished.replace(path)
