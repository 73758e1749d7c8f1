import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def here(tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder; what `rlhf run` does to the process's import path is undone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLHF_CACHE_DIR", str(model_cache))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path
