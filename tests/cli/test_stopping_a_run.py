"""Ctrl-C in the middle of a real run, with role processes on Ray."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_job import metrics_of, rlhf_run, summary_of, write_tiny_job

RUN = Path("runs/tiny")
STEPS = 20


class RunningCommand:
    """`rlhf run` in a process group of its own, as a shell would start it, and all that it starts marked."""

    def __init__(self, *arguments: str) -> None:
        self.mark = f"rlhf-test-{uuid.uuid4().hex}"
        command = [sys.executable, "-c", "from rlhf_cli.main import main; main()", "run", "tiny.yaml", *arguments]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "RLHF_TEST_MARK": self.mark, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        self.lines: list[str] = []

    def __enter__(self) -> "RunningCommand":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def _output(self) -> Iterator[str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            yield self.lines[-1]

    def wait_for(self, beginning: str) -> None:
        for line in self._output():
            if line.startswith(beginning):
                return
        pytest.fail(f"ended without {beginning!r}:\n" + "\n".join(self.lines))

    def press_ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self) -> int:
        list(self._output())
        return self.process.wait()

    def processes(self) -> list[str]:
        """The names of all processes that live and were started by this command, directly or not."""
        names = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and self.mark.encode() in (folder / "environ").read_bytes():
                    names.append((folder / "comm").read_text().strip())
        return names


@pytest.mark.ray
@pytest.mark.timeout(900)
def test_ctrl_c_stops_within_seconds_and_whole_and_the_same_command_goes_on(here: Path) -> None:
    write_tiny_job(here, steps=STEPS)
    undisturbed = rlhf_run("tiny.yaml", "--runs-dir=undisturbed")
    assert undisturbed.exit_code == 0, undisturbed.output

    with RunningCommand() as first:
        first.wait_for("step  4/")
        assert len([name for name in first.processes() if name.startswith("ray::RoleProces")]) >= 3
        second = rlhf_run("tiny.yaml")
        assert second.exit_code == 1
        assert second.stderr == f'Error: another process (pid {first.process.pid}) runs in "runs/tiny"\n'
        first.press_ctrl_c()
        pressed = time.monotonic()
        assert first.wait() == 130
        assert time.monotonic() - pressed < 5.0
        assert first.processes() == []
    summary = summary_of(RUN)
    done = summary["steps"]
    assert summary["status"] == "interrupted" and 4 <= done < STEPS
    assert first.lines[-1] == f"Stopped after step {done} of {STEPS}; it goes on with: rlhf run tiny.yaml"

    with RunningCommand() as impatient:
        impatient.wait_for("Going on after step")
        assert impatient.lines[-1] == f"Going on after step {done} of {STEPS}"
        impatient.wait_for("step 12/")
        impatient.press_ctrl_c()
        time.sleep(0.1)
        impatient.press_ctrl_c()
        pressed = time.monotonic()
        assert impatient.wait() == 130
        assert time.monotonic() - pressed < 2.0
        assert impatient.lines[-1].startswith("Stopped after step 1"), impatient.lines
        deadline = time.monotonic() + 2.0
        while impatient.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert impatient.processes() == []

    last = rlhf_run("tiny.yaml")
    assert last.exit_code == 0, last.output
    assert summary_of(RUN)["steps"] == STEPS
    assert metrics_of(RUN) == metrics_of(Path("undisturbed/tiny"))
