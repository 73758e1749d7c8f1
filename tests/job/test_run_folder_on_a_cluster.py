"""A run's folder on a shared volume, and one whose state is at a URI."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rlhf_runtime.job.run_folder import RunFolder, RunFolderError
from rlhf_runtime.models.exporting import export_to
from rlhf_runtime.resilience.state_store import open_state_store

MANIFEST: dict[str, Any] = {"spec": {"algorithm": {"seed": 0}}}


def step_line(step: int) -> dict[str, Any]:
    return {"step": step, "seconds": 1.0}


class TestTheLock:
    def test_of_a_pod_that_is_perhaps_dead_keeps_no_controller_out(self, tmp_path: Path) -> None:
        first, second = RunFolder(tmp_path / "run", on_cluster=True), RunFolder(tmp_path / "run", on_cluster=True)
        first.open()
        second.open()
        second.append("metrics.jsonl", step_line(1))
        second.close()
        first.close()
        assert json.loads((tmp_path / "run/metrics.jsonl").read_text()) == step_line(1)

    def test_on_one_machine_it_does(self, tmp_path: Path) -> None:
        first = RunFolder(tmp_path / "run")
        first.open()
        with pytest.raises(RunFolderError, match=r"another process .* runs in"):
            RunFolder(tmp_path / "run").open()
        first.close()


class TestAnotherManifest:
    @pytest.mark.parametrize(
        ("on_cluster", "want"),
        [(False, "Start anew with --fresh, or give"), (True, 'Delete "{path}" to start anew, or give')],
        ids=["on one machine", "on a cluster"],
    )
    def test_is_refused_with_what_can_be_done_there(self, tmp_path: Path, on_cluster: bool, want: str) -> None:
        folder = RunFolder(tmp_path, on_cluster=on_cluster)
        folder.check_manifest(MANIFEST)
        folder.append("metrics.jsonl", step_line(1))
        with pytest.raises(RunFolderError) as refused:
            folder.check_manifest({"spec": {"algorithm": {"seed": 1}}})
        folder.close()
        assert want.format(path=tmp_path) in str(refused.value)


class TestStateAtAURI:
    @pytest.fixture
    def uri(self, tmp_path: Path) -> str:
        return f"memory://{tmp_path.name}/run"

    def test_the_next_pod_finds_manifest_metrics_and_deaths(self, tmp_path: Path, uri: str) -> None:
        first = RunFolder(tmp_path / "pod-1", state=uri, on_cluster=True)
        first.open()
        first.check_manifest(MANIFEST)
        first.append("metrics.jsonl", step_line(1))
        first.append("incidents.jsonl", {"role": "critic"})
        first.keep()
        first.append("metrics.jsonl", step_line(2))
        first.close()

        second = RunFolder(tmp_path / "pod-2", state=uri, on_cluster=True)
        second.open()
        assert second.read_metrics(up_to_step=9) == [step_line(1)]
        assert second.restarts() == {"critic": 1}
        with pytest.raises(RunFolderError, match=f'"{uri}" holds a run of another manifest'):
            second.check_manifest({"spec": {"algorithm": {"seed": 1}}})
        second.close()

    def test_the_model_is_uploaded_with_its_folders(self, tmp_path: Path, uri: str) -> None:
        folder = RunFolder(tmp_path / "pod", state=uri, on_cluster=True)

        def write(place: str) -> None:
            (Path(place) / "sub").mkdir()
            (Path(place) / "config.json").write_text("{}")
            (Path(place) / "sub/weights").write_bytes(b"\0" * 10)

        export_to(folder.model, write)
        store = open_state_store(uri)
        assert store.list("model/") == ["model/config.json", "model/sub/weights"]
        assert store.read("model/sub/weights") == b"\0" * 10

    def test_a_folder_keeps_everything_by_itself(self, tmp_path: Path) -> None:
        folder = RunFolder(tmp_path / "run", state=str(tmp_path / "elsewhere"), on_cluster=True)
        folder.open()
        folder.append("metrics.jsonl", step_line(1))
        folder.keep()
        folder.close()
        assert not (tmp_path / "elsewhere").exists()
        assert folder.model == str(tmp_path / "run/model")


def test_an_exported_model_can_be_read_by_whoever_may_read_new_files(tmp_path: Path) -> None:
    def write(place: str) -> None:
        for name, mode in (("weights", 0o600), ("config.json", 0o644), ("script", 0o700)):
            (Path(place) / name).touch(mode=mode)

    before = os.umask(0o027)
    try:
        export_to(str(tmp_path / "model"), write)
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "model").iterdir()}
    assert modes == {"weights": 0o640, "config.json": 0o640, "script": 0o740}
