"""Things that are made once and found again by what determines them.

A folder's name is the hash of everything that its content depends on, so nothing is ever stale and nothing
needs to be invalidated. It is made beside its place and renamed, so it is whole or absent; a lock makes a
second process wait for the first instead of doing the work twice.
"""

import fcntl
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def cache_root() -> Path:
    """``$RLHF_CACHE_DIR``, else ``$XDG_CACHE_HOME/rlhf``, else ``~/.cache/rlhf``."""
    if own := os.environ.get("RLHF_CACHE_DIR"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "rlhf"
    return Path.home() / ".cache" / "rlhf"


def content_hash(content: Any) -> str:
    """16 hexadecimal digits over a JSON-like value; the order of a mapping's keys does not matter."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def cached_folder(kind: str, *, content: Mapping[str, Any], build: Callable[[Path], None]) -> Path:
    """Find the folder of this content, or make it.

    Args:
        kind: a readable first part of the folder's name.
        content: all that determines the result, a code version included.
        build: fills the empty folder that it is given.

    Returns:
        the finished folder, which nobody changes any more.
    """
    target = cache_root() / f"{kind}-{content_hash(content)}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_name(f".{target.name}.lock")):
        if not target.is_dir():
            _build_and_rename(target, build)
    return target


def _build_and_rename(target: Path, build: Callable[[Path], None]) -> None:
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    draft.mkdir()
    try:
        build(draft)
        draft.rename(target)
    except OSError:
        # Where the file system has no locks, another process may have been first.
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            pass  # no locks here: the rename alone keeps the result whole
        yield
