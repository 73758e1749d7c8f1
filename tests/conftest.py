import pytest

ALONE = {"ray", "test_stopping_a_run.py"}
"""The folders and files that `ALONE` in the Makefile names; collecting all the others takes half a minute."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes first, so that two processes that take file after file end at about the same time."""
    lost = [
        item.nodeid
        for item in items
        if item.get_closest_marker("alone") and not ALONE & set(item.path.relative_to(item.config.rootpath).parts)
    ]
    if lost:
        raise pytest.UsageError(f"`make test` would leave these out; add their file to `ALONE` in the Makefile: {lost}")
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
