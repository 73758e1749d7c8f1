"""A whole job whose actor generates with vLLM, in each of its two ranks."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from tiny_job import NAME, metrics_of, rlhf_run, write_tiny_job

from rlhf_cli.main import main

pytest.importorskip("vllm", reason="vLLM has wheels for Linux alone")


def with_vllm(file: Path, *, ranks: int = 1, temperature: float = 1.0) -> Path:
    manifest = yaml.safe_load(file.read_text())
    manifest["spec"]["algorithm"]["generation"]["temperature"] = temperature
    # Nothing of this model is ever right: what moves it is the entropy.
    manifest["spec"]["algorithm"]["grpo"] |= {"actorLearningRate": 1e-2, "entropyCoefficient": 1.0}
    manifest["spec"]["roles"][0].update(
        podsPerReplica=ranks, engine={"rollout": "VLLM", "vllm": {"maxModelLength": 32, "maxSequences": 16}}
    )
    file.write_text(yaml.safe_dump(manifest))
    return file


@pytest.mark.ray
@pytest.mark.job
def test_ranks_generate_with_the_weights_that_they_train(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = with_vllm(write_tiny_job(Path()), ranks=2)
    result = CliRunner().invoke(main, ["run", str(file), "--backend=ray"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    run = Path("runs") / NAME
    steps = [line for line in metrics_of(run) if "reward" in line]
    assert [line["step"] for line in steps] == [1, 2, 3]
    # Each update moves the log-probs by far more, about the root of twice this KL: stale weights would show.
    assert all(line["rollout_log_prob_difference"] < 1e-4 for line in steps)
    assert all(line["actor/approx_kl"] > 1e-6 for line in steps)
    for rank in range(2):
        log = (run / f"logs/actor-worker-{rank:03d}.log").read_text()
        assert f"actor-worker-{rank:03d} ready at version 0 " in log
        assert ", rollout vllm\n" in log


def test_a_temperature_that_it_does_not_take_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = rlhf_run(str(with_vllm(write_tiny_job(Path()), temperature=2.5)))
    assert result.exit_code != 0
    assert (
        "`spec.algorithm.generation.temperature` must be at most 2 with `spec.roles[0].engine.rollout` VLLM, not 2.5"
        in " ".join(result.output.split())
    )
