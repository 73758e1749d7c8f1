"""Learning means that a held-out score rises. The example as it is; `bench/learning.py` takes more seeds."""

from pathlib import Path

import pytest

from learning import train

pytestmark = [pytest.mark.learning, pytest.mark.ray, pytest.mark.timeout(900)]


# Where roles run changes no number (tests/workers). Here all are in one process, which two cores do in half the time;
# each in its own they are in `make long`, and in pods in `make e2e`.
@pytest.mark.parametrize("backend", ["in-process", pytest.param("ray", marks=pytest.mark.long)])
def test_ppo_learns_to_spell(backend: str, tmp_path: Path) -> None:
    summary = train("PPO", seed=0, runs_dir=tmp_path, backend=backend)
    assert summary["heldout_accuracy_start"] < 0.40
    assert summary["heldout_accuracy_end"] >= 0.85
    assert summary["steps"] == 40
    assert [role["restarts"] for role in summary["roles"]] == [0] * len(summary["roles"])
