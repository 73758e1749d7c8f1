"""A start that ends half way leaves nothing that a later command cannot remove. First by name: it needs no cluster."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from e2e.cluster import lifecycle, paths, processes

UP = [sys.executable, "-m", "e2e.cluster", "up"]


@pytest.fixture
def half_started(built: None) -> Iterator[subprocess.Popen[bytes]]:
    """`cluster-up`, at the moment when the first node runs."""
    if paths.KIND or lifecycle.is_up():
        pytest.skip("a cluster is up, which this test would end; `make cluster-down` first")
    with subprocess.Popen(UP, cwd=paths.PROJECT, start_new_session=True, stdout=subprocess.PIPE) as command:
        give_up = time.monotonic() + 120
        while not any(process.name.startswith("node-") for process in processes.known()):
            assert command.poll() is None, "it ended before a node was started"
            assert time.monotonic() < give_up
            time.sleep(0.05)
        yield command
        if command.poll() is None:
            command.kill()
    with lifecycle.locked():
        lifecycle.remove_everything()


def test_what_a_killed_start_left_is_found_and_removed(half_started: subprocess.Popen[bytes]) -> None:
    half_started.kill()
    half_started.wait(10)
    left = lifecycle.leftovers()
    assert any(line.startswith("process ") for line in left)
    assert any(line.startswith("network namespace ") for line in left)
    with lifecycle.locked():
        lifecycle.remove_everything()
    assert lifecycle.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupted_start_removes_what_it_has_made(half_started: subprocess.Popen[bytes], number: int) -> None:
    os.killpg(half_started.pid, number)
    assert half_started.wait(30) != 0
    assert lifecycle.leftovers() == []
