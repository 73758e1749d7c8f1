import pytest

from rlhf_runtime.api import Controller


@pytest.fixture
def controller():
    with Controller(backend="in-process") as made:
        yield made
