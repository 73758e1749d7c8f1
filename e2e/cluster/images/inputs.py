"""What a build depends on, as one hash: so that nothing is built when nothing has changed.

The files are those that ``.dockerignore`` lets through, the same that the builder is given. Times do not count, only
names, contents and the executable bit; another clone of the same revision has the same hash.
"""

import hashlib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

HASH_LENGTH = 16


def context_files(root: Path) -> list[Path]:
    """The files of the build context ``root``, in the order of their names.

    Of ``.dockerignore`` only these forms are understood: ``*``, ``!path`` for what is let through, and ``**/name`` for
    names that are left out everywhere; the tests see to it that the file has no others.
    """
    lines = (line.strip() for line in (root / ".dockerignore").read_text().splitlines())
    rules = [line for line in lines if line and not line.startswith("#")]
    allowed = [root / rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    hidden = [rule.removeprefix("**/") for rule in rules if rule.startswith("**/")]
    return sorted(path for start in allowed for path in _walk(start, hidden))


def _walk(start: Path, hidden: list[str]) -> Iterator[Path]:
    if any(fnmatch(start.name, pattern) for pattern in hidden):
        return
    if start.is_dir():
        for child in start.iterdir():
            yield from _walk(child, hidden)
    elif start.exists():
        yield start


def hash_of(root: Path, files: Iterable[Path], *others: str) -> str:
    """The hash of files below ``root``, and of anything else that the result depends on."""
    digest = hashlib.sha256()
    for text in others:
        digest.update(f"{len(text)}:{text}".encode())
    for path in files:
        content = path.read_bytes()
        executable = bool(path.stat().st_mode & 0o100)
        digest.update(f"{path.relative_to(root)}\0{executable}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:HASH_LENGTH]
