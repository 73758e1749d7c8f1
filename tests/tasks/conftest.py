from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, empty at first."""
    monkeypatch.setenv("RLHF_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"
