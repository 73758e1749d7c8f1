"""Files in the cache: nothing half written is read, and nothing of a killed process stays."""

import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cluster.images import folders


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLHF_CACHE_DIR", str(tmp_path))


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_uses_is_not() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = folders.home() / "tmp" / f"layout-pid{ended.pid}-x"
    left.mkdir(parents=True)

    with folders.scratch("layout") as ours, folders.scratch("layout") as other:
        assert not left.exists()
        assert ours.is_dir()
        assert other.is_dir()
    assert not ours.exists()


def test_a_record_is_read_back_and_a_missing_one_is_none() -> None:
    folders.write_json(folders.records() / "a.json", {"size": 1})

    assert folders.read_json(folders.records() / "a.json") == {"size": 1}
    assert folders.read_json(folders.records() / "b.json") is None
    assert [path.name for path in folders.records().iterdir()] == ["a.json"]
