"""`rlhf run` on the in-process backend: from start to end, and everything that can be wrong with it."""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tiny_job import metrics_of, rlhf_run, summary_of, write_tiny_job

from rlhf_cli.main import main
from rlhf_cli.run_job import RunOptions, run_job
from rlhf_runtime.errors import StateStoreFullError
from rlhf_runtime.resilience.local_store import LocalStateStore

pytestmark = [pytest.mark.job, pytest.mark.usefixtures("here")]
RUN = Path("runs/tiny")


def write_module(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text, encoding="utf-8")


class TestARun:
    def test_it_trains_evaluates_and_leaves_everything_in_its_folder(self, here: Path) -> None:
        write_tiny_job(here, steps=3)
        result = rlhf_run("tiny.yaml")
        assert (result.exit_code, result.stderr) == (0, "")
        lines = result.stdout.splitlines()
        assert lines[0] == "tiny: GRPO, 3 steps, 3 roles"
        assert "Starting 3 roles ..." in lines and "Done" in lines
        assert max(map(len, lines)) <= 80
        summary = summary_of(RUN)
        assert (summary["status"], summary["steps"], summary["algorithm"]) == ("complete", 3, "GRPO")
        assert summary["heldout_accuracy_start"] is not None and summary["heldout_accuracy_end"] is not None
        assert [role["name"] for role in summary["roles"]] == ["actor", "reward", "reference"]
        assert [line["step"] for line in metrics_of(RUN)] == [0, 1, 2, 3, 3]
        for name in ("learning_curve.png", "events.jsonl", "model/config.json", "model/tokenizer.json"):
            assert (RUN / name).exists(), name

    def test_a_complete_run_is_not_run_again(self, here: Path) -> None:
        write_tiny_job(here, steps=2)
        rlhf_run("tiny.yaml")
        before = (RUN / "metrics.jsonl").read_bytes()
        result = rlhf_run("tiny.yaml")
        assert result.exit_code == 0
        assert "This run was complete before: runs/tiny. To run it anew: --fresh" in result.stdout
        assert "Loading torch" not in result.stdout
        assert (RUN / "metrics.jsonl").read_bytes() == before

    def test_fresh_starts_anew_and_gives_the_same(self, here: Path) -> None:
        write_tiny_job(here, steps=2)
        rlhf_run("tiny.yaml")
        before = metrics_of(RUN)
        (RUN / "left-over").touch()
        assert rlhf_run("tiny.yaml", "--fresh").exit_code == 0
        assert metrics_of(RUN) == before
        assert not (RUN / "left-over").exists()

    def test_more_steps_go_on_after_the_last_one(self, here: Path) -> None:
        write_tiny_job(here, steps=5)
        rlhf_run("tiny.yaml", "--steps=2")
        result = rlhf_run("--config=tiny.yaml")
        assert "Going on after step 2 of 5" in result.stdout
        resumed = metrics_of(RUN)
        rlhf_run("tiny.yaml", "--runs-dir=other")
        evaluated_on_the_way = [line for line in resumed if line["step"] == 2 and "heldout_accuracy" in line]
        assert len(evaluated_on_the_way) == 1
        assert [line for line in resumed if line not in evaluated_on_the_way] == metrics_of(Path("other/tiny"))

    def test_quiet_prints_nothing(self, here: Path) -> None:
        write_tiny_job(here, steps=1)
        result = rlhf_run("tiny.yaml", "--quiet")
        assert (result.exit_code, result.output) == (0, "")

    def test_a_control_flow_from_the_current_folder(self, here: Path) -> None:
        write_module(
            here,
            "own_flow",
            "from rlhf_runtime.algorithms.grpo import GRPOController\n"
            "class Mine(GRPOController):\n"
            "    def _build_dag(self):\n"
            "        return {**super()._build_dag(), 'mine': 1.0}\n",
        )
        write_tiny_job(here, steps=1)
        result = rlhf_run("--controller=own_flow:Mine", "--config=tiny.yaml")
        assert (result.exit_code, result.stderr) == (0, "")
        assert metrics_of(RUN)[1]["mine"] == 1.0


class TestTheCommandLine:
    def test_a_manifest_must_be_given_once(self) -> None:
        for arguments in ((), ("a.yaml", "--config=b.yaml")):
            result = rlhf_run(*arguments)
            assert result.exit_code == 2
            assert "one manifest must be given, as FILE or with `--config`." in result.stderr

    def test_a_missing_file(self) -> None:
        result = rlhf_run("missing.yaml")
        assert (result.exit_code, result.stderr) == (2, "missing.yaml: cannot be read: No such file or directory\n")

    def test_a_bad_manifest_prints_what_validate_prints(self, here: Path) -> None:
        write_tiny_job(here, steps=0)
        result = rlhf_run("tiny.yaml")
        validated = CliRunner().invoke(main, ["validate", "tiny.yaml"])
        assert (result.exit_code, result.stderr) == (2, validated.stderr)
        assert "spec.algorithm.totalSteps" in result.stderr

    def test_what_is_wrong_with_it_is_said_without_importing_torch(self, here: Path) -> None:
        write_tiny_job(here, steps=0)
        script = (
            "import sys; from rlhf_cli.main import main; main(['run', 'tiny.yaml'], standalone_mode=False);"
            "print([name for name in ('torch', 'ray', 'numpy', 'transformers') if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == "[]\n"

    def test_without_the_runtime_extra_it_says_what_to_install(self, here: Path) -> None:
        write_tiny_job(here)
        script = "import sys; sys.modules['torch'] = None; from rlhf_cli.main import main; main(['run', 'tiny.yaml'])"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 2
        assert done.stderr == "`rlhf run` needs torch: install the extra `runtime`: rlhf-operator[runtime]\n"

    def test_a_controller_must_be_written_as_an_import_path(self, here: Path) -> None:
        write_tiny_job(here)
        result = rlhf_run("tiny.yaml", "--controller=GRPOController")
        assert result.exit_code == 2
        assert 'must be written "package.module:Class"; got "GRPOController"' in result.stderr

    @pytest.mark.parametrize(
        ("controller", "want"),
        [
            ("no_such_module:Flow", 'controller class "no_such_module:Flow" cannot be imported: ModuleNotFoundError'),
            ("rlhf_runtime.algorithms.grpo:Nope", "cannot be imported: AttributeError"),
            ("pathlib:Path", '"pathlib:Path" must be a subclass of `rlhf_runtime.api.Controller`'),
        ],
    )
    def test_an_unknown_controller(self, here: Path, controller: str, want: str) -> None:
        write_tiny_job(here)
        result = rlhf_run("tiny.yaml", f"--controller={controller}")
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: ") and want in result.stderr
        assert "Traceback" not in result.stderr


class TestTheFolder:
    def test_one_that_cannot_be_written(self, here: Path) -> None:
        write_tiny_job(here)
        (here / "file").touch()
        result = rlhf_run("tiny.yaml", "--runs-dir=file")
        assert result.exit_code == 1
        assert result.stderr == 'Error: the run\'s folder "file/tiny" cannot be written: Not a directory\n'

    def test_one_that_another_process_runs_in(self, here: Path) -> None:
        write_tiny_job(here)
        RUN.mkdir(parents=True)
        with (RUN / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write("pid 4711\n")
            lock.flush()
            result = rlhf_run("tiny.yaml", "--fresh")
        assert (result.exit_code, result.stderr) == (1, 'Error: another process (pid 4711) runs in "runs/tiny"\n')

    def test_one_with_a_run_of_another_manifest(self, here: Path) -> None:
        write_tiny_job(here, steps=1)
        rlhf_run("tiny.yaml")
        write_tiny_job(here, steps=2, prompt="spell {}=")
        file = here / "tiny.yaml"
        file.write_text(file.read_text(encoding="utf-8").replace("groupSize: 2", "groupSize: 4"), encoding="utf-8")
        result = rlhf_run("tiny.yaml")
        assert result.exit_code == 1
        assert "they differ in `spec.algorithm.grpo.groupSize`. Start anew with --fresh" in result.stderr

    def test_one_of_before_an_upgrade_that_brought_a_field_goes_on(self, here: Path) -> None:
        write_tiny_job(here, steps=2)
        rlhf_run("tiny.yaml", "--steps=1")
        stored = json.loads((RUN / "manifest.json").read_text(encoding="utf-8"))
        del stored["spec"]["algorithm"]["grpo"]["entropyCoefficient"]
        (RUN / "manifest.json").write_text(json.dumps(stored), encoding="utf-8")
        assert rlhf_run("tiny.yaml").exit_code == 0

    def test_one_where_no_step_was_made_takes_a_mended_manifest(self, here: Path) -> None:
        write_tiny_job(here, steps=1, model={"path": "nowhere"})
        assert rlhf_run("tiny.yaml").exit_code == 1
        write_tiny_job(here, steps=1)
        assert rlhf_run("tiny.yaml").exit_code == 0

    def test_an_earlier_run_outlives_a_fresh_one_that_cannot_start(self, here: Path) -> None:
        write_tiny_job(here, steps=1)
        rlhf_run("tiny.yaml")
        before = {file: file.read_bytes() for file in RUN.rglob("*") if file.is_file() and file.name != ".lock"}
        write_tiny_job(here, steps=1, model={"path": "nowhere"})
        assert rlhf_run("tiny.yaml", "--fresh").exit_code == 1
        assert {file: file.read_bytes() for file in before} == before


class TestDamage:
    """What somebody or a failing disk did to an unfinished run's folder; the undisturbed run has three steps."""

    @pytest.fixture
    def undisturbed(self, here: Path) -> list[dict[str, Any]]:
        write_tiny_job(here, steps=3, state={"snapshotEverySteps": 1})
        assert rlhf_run("tiny.yaml", "--runs-dir=whole").exit_code == 0
        assert rlhf_run("tiny.yaml", "--steps=2").exit_code == 0
        return [line for line in metrics_of(Path("whole/tiny")) if "reward" in line]

    def goes_on(self, undisturbed: list[dict[str, Any]]) -> bool:
        assert rlhf_run("tiny.yaml").exit_code == 0
        return [line for line in metrics_of(RUN) if "reward" in line] == undisturbed

    def test_a_torn_newest_snapshot(self, undisturbed: list[dict[str, Any]]) -> None:
        newest = sorted((RUN / "state/roles/actor/0/snapshots").iterdir())[-1]
        newest.write_bytes(newest.read_bytes()[:-100])
        assert self.goes_on(undisturbed)

    def test_a_torn_newest_commit(self, undisturbed: list[dict[str, Any]]) -> None:
        newest = sorted((RUN / "state/commits").iterdir())[-1]
        newest.write_bytes(newest.read_bytes()[:-20])
        assert self.goes_on(undisturbed)

    def test_foreign_lines_among_the_metrics_and_a_broken_summary(self, undisturbed: list[dict[str, Any]]) -> None:
        with (RUN / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"a": 1}\nwhat}\n')
        (RUN / "summary.json").write_text("{", encoding="utf-8")
        assert self.goes_on(undisturbed)

    def test_a_state_that_is_gone_is_not_begun_anew_in_silence(self, undisturbed: list[dict[str, Any]]) -> None:
        shutil.rmtree(RUN / "state")
        result = rlhf_run("tiny.yaml")
        assert result.exit_code == 1
        assert "has steps in metrics.jsonl, but its state is gone" in result.stderr

    def test_a_manifest_that_cannot_be_read(self, undisturbed: list[dict[str, Any]]) -> None:
        (RUN / "manifest.json").write_text('{"spec": ', encoding="utf-8")
        result = rlhf_run("tiny.yaml")
        assert (result.exit_code, "manifest.json" in result.stderr) == (1, True)
        assert "is damaged: restore it, or start anew with --fresh" in result.stderr


class TestTheJob:
    def test_an_unknown_model_path(self, here: Path) -> None:
        write_tiny_job(here, model={"path": "nowhere"})
        result = rlhf_run("tiny.yaml")
        assert result.exit_code == 1
        assert result.stderr == 'Error: `spec.model.path`: there is no folder "nowhere"\n'
        assert summary_of(RUN)["status"] == "failed"

    def test_a_missing_data_file(self, here: Path) -> None:
        write_tiny_job(here)
        (here / "train.jsonl").unlink()
        result = rlhf_run("tiny.yaml")
        assert result.exit_code == 1
        assert "train.jsonl" in result.stderr and "Traceback" not in result.stderr

    def test_prompts_that_are_too_long(self, here: Path) -> None:
        write_tiny_job(here, prompt="x" * 130 + "{}=")
        result = rlhf_run("tiny.yaml")
        assert result.exit_code == 1
        assert "has 134 tokens; with `maxNewTokens` 4 the model takes at most 124" in result.stderr

    @pytest.mark.parametrize(
        ("body", "want"),
        [
            ("raise RuntimeError('the judge is out')", 'raised RuntimeError: the judge is out; response "'),
            ("return float('nan')", "must give a finite number, got nan; response "),
            ("raise SystemExit(0)", "raised SystemExit: 0; response "),
            ("return 'good'", "raised ValueError: could not convert string to float: 'good'"),
        ],
    )
    def test_a_reward_function_that_fails_later_keeps_the_steps_before(
        self, here: Path, body: str, want: str, request: pytest.FixtureRequest
    ) -> None:
        name = f"reward_{abs(hash(request.node.name))}"
        write_module(
            here,
            name,
            "calls = 0\n"
            "def reward(response, answer):\n"
            "    global calls\n"
            "    calls += 1\n"
            "    if calls > 16:\n"
            f"        {body}\n"
            "    return 0.5\n",
        )
        write_tiny_job(here, steps=5, function=f"{name}:reward")
        result = rlhf_run("tiny.yaml")
        assert result.exit_code == 1
        first, *rest = result.stderr.splitlines()
        assert first.startswith("Error: step 2.2 reward.compute_scores failed on reward-worker-000: ")
        assert f'"{name}:reward" ' in first and want.partition('"')[0] in first
        assert "The worker's traceback:" in rest
        assert rest[-1] == "Nothing up to step 2 of 5 is lost; it goes on with: rlhf run tiny.yaml --backend=in-process"
        assert (summary_of(RUN)["status"], summary_of(RUN)["steps"]) == ("failed", 2)

    def test_a_bug_in_a_control_flow_shows_where(self, here: Path) -> None:
        write_module(
            here,
            "buggy_flow",
            "from rlhf_runtime.api import Controller\n"
            "class Flow(Controller):\n"
            "    def _build_dag(self):\n"
            "        return {}['reward']\n",
        )
        write_tiny_job(here)
        result = rlhf_run("tiny.yaml", "--controller=buggy_flow:Flow")
        assert result.exit_code == 1
        assert "buggy_flow.py" in result.stderr and "KeyError: 'reward'" in result.stderr


class TestAFullDisk:
    MESSAGE = 'Error: no space is left on the disk of "runs/tiny"; make some, then run the same command again'

    def test_met_by_a_file_of_the_run(self, here: Path) -> None:
        write_tiny_job(here)
        RUN.mkdir(parents=True)
        (RUN / "events.jsonl").symlink_to("/dev/full")
        result = rlhf_run("tiny.yaml")
        assert (result.exit_code, result.stderr) == (1, self.MESSAGE + "\n")

    @pytest.mark.parametrize("where", ["commits/", "roles/"], ids=["at a commit", "in a worker"])
    def test_met_by_the_state_store(self, here: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
        write_tiny_job(here, steps=4)
        write = LocalStateStore.write
        left = [2]

        def write_until_full(store: LocalStateStore, key: str, chunks: bytes) -> None:
            if key.startswith(where):
                left[0] -= 1
                if left[0] < 0:
                    raise StateStoreFullError("no space is left") from OSError(errno.ENOSPC, "No space left on device")
            write(store, key, chunks)

        with monkeypatch.context() as patch:
            patch.setattr(LocalStateStore, "write", write_until_full)
            result = rlhf_run("tiny.yaml")
        assert result.exit_code == 1
        assert result.stderr.splitlines()[0] == self.MESSAGE
        assert summary_of(RUN)["steps"] == 2
        assert rlhf_run("tiny.yaml").exit_code == 0
        interrupted = metrics_of(RUN)
        rlhf_run("tiny.yaml", "--fresh")
        assert interrupted == metrics_of(RUN)


class TestBeingStopped:
    @pytest.mark.parametrize(("number", "want"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_it_keeps_what_was_done_and_goes_on_with_the_same_numbers(
        self, here: Path, capfd: pytest.CaptureFixture[str], number: signal.Signals, want: int
    ) -> None:
        name = f"stopping_{number}"
        write_module(
            here,
            name,
            "import os\n"
            "calls = 0\n"
            "def reward(response, answer):\n"
            "    global calls\n"
            "    calls += 1\n"
            "    if calls == 20:\n"
            f"        os.kill(os.getpid(), {int(number)})\n"
            "    return len(response) / 8\n",
        )
        write_tiny_job(here, steps=4, function=f"{name}:reward")
        options = RunOptions(manifest="tiny.yaml", backend="in-process", fresh=True)
        assert run_job(options) == want
        goes_on = "rlhf run tiny.yaml --backend=in-process"
        assert capfd.readouterr().err == f"Stopped after step 2 of 4; it goes on with: {goes_on}\n"
        assert (summary_of(RUN)["status"], summary_of(RUN)["steps"]) == ("interrupted", 2)
        assert rlhf_run("tiny.yaml").exit_code == 0
        stopped = metrics_of(RUN)
        rlhf_run("tiny.yaml", "--fresh")
        assert stopped == metrics_of(RUN)

    def test_a_step_whose_line_was_lost_is_told_from_its_commit(self, here: Path) -> None:
        write_tiny_job(here, steps=3)
        rlhf_run("tiny.yaml", "--steps=2")
        want = metrics_of(RUN)
        lines = (RUN / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        (RUN / "metrics.jsonl").write_text("".join(lines[:2]) + '{"step": 2, "rew', encoding="utf-8")
        assert rlhf_run("tiny.yaml").exit_code == 0
        assert metrics_of(RUN)[:3] == want[:3]
        assert (summary_of(RUN)["steps"], os.path.exists(RUN / "model")) == (3, True)


def test_the_manifest_that_was_run_is_kept(here: Path) -> None:
    file = write_tiny_job(here, steps=1)
    rlhf_run("tiny.yaml")
    kept = yaml.safe_load((RUN / "manifest.json").read_text(encoding="utf-8"))
    given = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert kept["spec"]["algorithm"]["grpo"]["groupSize"] == given["spec"]["algorithm"]["grpo"]["groupSize"]
