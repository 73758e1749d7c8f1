from pathlib import Path

import pytest
from job_secret import Secret, make_secret


@pytest.fixture(scope="session")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Secret:
    return make_secret(tmp_path_factory.mktemp("secret"))


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")
