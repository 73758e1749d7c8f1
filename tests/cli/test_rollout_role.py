"""A job whose samples come from a role of their own: it learns as if the actor generated."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tiny_job import NAME, metrics_of, rlhf_run, write_tiny_job

from rlhf_cli.main import main


def with_rollout(file: Path, *roles: dict[str, Any]) -> Path:
    manifest = yaml.safe_load(file.read_text())
    manifest["spec"]["roles"] += [{"name": "rollout", "type": "Rollout", **role} for role in roles]
    file.write_text(yaml.safe_dump(manifest))
    return file


def rewards(run: Path) -> list[dict[str, Any]]:
    return [line for line in metrics_of(run) if "reward" in line]


@pytest.mark.job
@pytest.mark.parametrize("sync", ["ObjectStore", "StateStore", "Collective"])
def test_it_learns_as_if_the_actor_generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert rlhf_run(str(write_tiny_job(Path()))).exit_code == 0
    alone = rewards(Path("runs") / NAME)
    file = with_rollout(write_tiny_job(Path()), {"replicas": 3, "engine": {"weightSync": sync}})
    result = rlhf_run(str(file), "--fresh")
    assert result.exit_code == 0, result.output
    several = rewards(Path("runs") / NAME)
    assert all(line.pop("rollout_log_prob_difference") < 1e-4 for line in several)
    assert [line["step"] for line in several] == [1, 2, 3]
    for got, want in zip(several, alone, strict=True):
        assert got == pytest.approx(want, rel=1e-3, abs=1e-4)


@pytest.mark.ray
@pytest.mark.job
def test_replicas_in_processes_of_their_own(ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = with_rollout(write_tiny_job(Path()), {"replicas": 2})
    result = CliRunner().invoke(main, ["run", str(file), "--backend=ray"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert all(line["rollout_log_prob_difference"] < 1e-4 for line in rewards(Path("runs") / NAME))
    logs = [(Path("runs") / NAME / f"logs/rollout-worker-{rank:03d}.log").read_text() for rank in range(2)]
    assert all(" ready at version 0 " in log and ", rollout cached\n" in log for log in logs)
    assert any("generate" in log for log in logs)


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (({"model": {"path": "/models/other"}},), "`spec.roles[3].model` must not be set: a Rollout role generates"),
        (({}, {"name": "more"}), "`spec.roles[4].type` must not be Rollout twice"),
    ],
)
def test_what_a_rollout_role_cannot_have_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roles: tuple[dict[str, Any], ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = rlhf_run(str(with_rollout(write_tiny_job(Path()), *roles)))
    assert result.exit_code != 0
    assert message in " ".join(result.output.split())
