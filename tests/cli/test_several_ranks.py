"""A model over several ranks, in a whole job."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from tiny_job import NAME, metrics_of, rlhf_run, summary_of, write_tiny_job

from rlhf_cli.main import main

pytestmark = [pytest.mark.ray, pytest.mark.job]


def with_ranks(file: Path, ranks: int, **actor: object) -> Path:
    manifest = yaml.safe_load(file.read_text())
    manifest["spec"]["roles"][0].update(podsPerReplica=ranks, **actor)
    file.write_text(yaml.safe_dump(manifest))
    return file


def test_a_run_on_two_ranks_goes_on_with_one_and_learns_the_same(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alone").mkdir()
    monkeypatch.chdir(tmp_path / "alone")
    assert rlhf_run(str(write_tiny_job(Path(), steps=6))).exit_code == 0
    alone = metrics_of(Path("runs") / NAME)

    monkeypatch.chdir(tmp_path)
    on_two = with_ranks(write_tiny_job(Path(), steps=4), 2)
    result = CliRunner().invoke(main, ["run", str(on_two), "--backend=ray"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    run = Path("runs") / NAME
    assert sorted(p.name for p in (run / "state/roles/actor/1/snapshots").iterdir()) == ["v000000000004-of2"]
    assert rlhf_run(str(with_ranks(write_tiny_job(Path(), steps=6), 1))).exit_code == 0

    several = metrics_of(run)
    assert [line["step"] for line in several if "reward" in line] == [1, 2, 3, 4, 5, 6]
    want = {line["step"]: line for line in alone if "reward" in line}
    for line in several:
        if "reward" in line:
            assert line == pytest.approx(want[line["step"]], rel=2e-3, abs=1e-4)
    assert [role["restarts"] for role in summary_of(run)["roles"]] == [0, 0, 0]


@pytest.mark.parametrize(
    ("ranks", "actor", "message"),
    [
        (2, {"engine": {"training": "Torch"}}, "engine.training` must be FSDP2 or Auto: Torch trains on one rank"),
        (1, {"engine": {"training": "Torch", "precision": "BFloat16"}}, "with `precision` BFloat16"),
        (1, {"engine": {"training": "Torch", "checkpointActivations": True}}, "with `checkpointActivations`"),
        (9, {}, "`spec.roles[0]` has 9 ranks (`podsPerReplica` times its accelerators), more than a step's 8 samples"),
        (2, {}, "the ranks of a process group need processes of their own"),
    ],
)
def test_what_ranks_cannot_do_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, actor: dict[str, object], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = rlhf_run(str(with_ranks(write_tiny_job(Path()), ranks, **actor)))
    assert result.exit_code != 0
    assert message in " ".join(result.output.split())
