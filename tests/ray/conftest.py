"""Runs on the session's Ray, closed after each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import RunBuilder, close_all
from real_processes import on_ray


@pytest.fixture
def runs(ray_session: None, tmp_path: Path) -> Iterator[RunBuilder]:
    yield on_ray(tmp_path)
    close_all()
