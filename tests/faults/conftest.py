"""Runs are closed after each test."""

from collections.abc import Iterator

import pytest
from builders import close_all


@pytest.fixture(autouse=True)
def closed_runs() -> Iterator[None]:
    yield
    close_all()
