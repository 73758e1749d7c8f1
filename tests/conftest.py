import os
import secrets
from collections.abc import Iterator

import pytest

# A Ray that a process starts asks for a token by default, one that it joins does not, and the process keeps to what it
# had first: it is then deaf to the other's cluster. So all that the tests start have one, as a job's pods do.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes first, so that two processes that take file after file end at about the same time."""
    items.sort(key=lambda item: item.get_closest_marker("learning") is None)


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


@pytest.fixture(scope="session")
def rank_processes() -> Iterator[object]:
    """Four processes that can act as the ranks of a role."""
    from rank_processes import RankProcesses

    processes = RankProcesses(4)
    yield processes
    processes.close()
