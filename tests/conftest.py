from collections.abc import Iterable
from pathlib import Path

import pytest

LONGEST_FIRST = ("learning", "job", "ray")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes first, so that two processes that take file after file end at about the same time."""
    of_file: dict[Path, set[str]] = {}
    for item in items:
        of_file.setdefault(item.path, set()).update(mark.name for mark in item.iter_markers())
    items.sort(key=lambda item: _rank(of_file[item.path]))


def _rank(marks: Iterable[str]) -> int:
    return min((LONGEST_FIRST.index(mark) for mark in marks if mark in LONGEST_FIRST), default=len(LONGEST_FIRST))


@pytest.fixture(scope="session")
def ray_session():
    """One embedded Ray for all tests of the session that want one; backends find it running and leave it so."""
    import ray

    from rlhf_runtime.backends import ray_backend  # its settings come before Ray's start

    started_here = not ray.is_initialized()
    if started_here:
        ray_backend._start_ray(None, 256 * 1024**2)
    yield
    if started_here:
        ray.shutdown()
