import shutil
from pathlib import Path

import pytest
from chart_helm import Helm

from e2e.cluster import builds


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    on_path = shutil.which("helm")
    program = Path(on_path) if on_path else builds.find(builds.HELM).program("helm")
    if not program.exists():
        pytest.skip("there is no helm: install it, or `make cluster-up` once")
    return Helm(program=program, home=tmp_path_factory.mktemp("helm"))
