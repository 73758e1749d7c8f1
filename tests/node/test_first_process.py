"""The first process of a role's pod, against a stand-in for Ray: signals, exit codes, the role's output in its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlhf_runtime.node import COMMAND_VARIABLE

START = """
import sys
from rlhf_runtime.node import main
sys.exit(main(folder=sys.argv[1]))
"""

QUICKLY = """
import ctypes
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # adopts orphans, as a container's first process does
from rlhf_runtime import node
node._PAUSE_SECONDS = 0.1
"""

WRITER = """
import os, sys, time
from rlhf_runtime.pod_logs import link_log
links, log = sys.argv[1:]
file = open(log, "a", buffering=1)
link_log(log, links)
for number in range(2000):
    print("step", number, file=file)
print("last words", end="", file=file, flush=True)
os.kill(os.getpid(), 9)
"""

OBEDIENT = """
import signal, sys
def told(*_):
    print("told", flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, told)
signal.signal(signal.SIGINT, told)
print("up", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch) -> Iterator[object]:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    started: list[subprocess.Popen[str]] = []

    def begin(command: str, *, prelude: str = "") -> subprocess.Popen[str]:
        environment = {**os.environ, COMMAND_VARIABLE: command}
        process = subprocess.Popen(
            [sys.executable, "-c", prelude + START, str(tmp_path / "links")],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(
    ("command", "want"),
    [
        pytest.param("true", 0, id="0 when Ray ends well"),
        pytest.param("bash -c 'exit 7'", 7, id="Ray's own"),
        pytest.param("bash -c 'kill -9 $$'", 137, id="128 and the number of the signal that ended Ray"),
    ],
)
def test_the_exit_code_is_rays(start, command: str, want: int) -> None:
    process = start(command)
    process.communicate(timeout=60)
    assert process.returncode == want


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_ray_and_its_end_is_awaited(start, tmp_path: Path, number: int) -> None:
    script = tmp_path / "obedient.py"
    script.write_text(OBEDIENT)
    process = start(f"{sys.executable} {script}")
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    rest, _ = process.communicate(timeout=60)
    assert (rest, process.returncode) == ("told\n", 5)


STARTS_AT_LAST = """
(sleep 300 > /dev/null & echo $! >> {folder}/starts)
if [ $(wc -l < {folder}/starts) -ge {succeeds} ]; then mkdir -p {folder}/ray; touch {folder}/ray/ray_current_cluster; fi
exit {code}
"""


@pytest.mark.parametrize(
    ("succeeds", "code", "want"),
    [
        pytest.param(1, 1, 1, id="not when it was up once"),
        pytest.param(3, 1, 3, id="until it is up"),
        pytest.param(99, 1, 5, id="not without end"),
        pytest.param(99, 2, 1, id="not when it was used wrongly"),
    ],
)
def test_a_start_that_fails_is_tried_again_in_the_same_pod(
    start, tmp_path: Path, succeeds: int, code: int, want: int
) -> None:
    script = tmp_path / "ray.sh"
    script.write_text(STARTS_AT_LAST.format(folder=tmp_path, succeeds=succeeds, code=code))
    process = start(f"bash {script}", prelude=QUICKLY)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == code
    left = [int(pid) for pid in (tmp_path / "starts").read_text().split()]
    assert len(left) == want
    assert [Path(f"/proc/{pid}").exists() for pid in left] == [False] * (want - 1) + [True]
    assert output.count("Ray has not started") == want - 1


def test_a_pod_that_must_go_is_not_kept_by_another_try(start) -> None:
    process = start("bash -c 'exit 1'")
    assert "try 2 of 5" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30) == ("", None)
    assert process.returncode == 1


def test_everything_that_a_role_process_wrote_arrives_also_when_it_is_killed(start, tmp_path: Path) -> None:
    script = tmp_path / "writer.py"
    script.write_text(WRITER)
    log = tmp_path / "critic-worker-000.log"
    log.write_text("of an earlier pod\n")
    process = start(f"bash -c 'echo ray is up; {sys.executable} {script} {tmp_path / 'links'} {log}; exit 0'")
    output, _ = process.communicate(timeout=120)
    lines = output.splitlines()
    assert lines[0] == "ray is up"
    assert [line for line in lines[1:] if "step" in line] == [f"step {n}" for n in range(2000)]
    assert lines[-1] == "last words"
    assert "of an earlier pod" not in lines


def test_orphans_are_reaped(start, tmp_path: Path) -> None:
    """A container's first process inherits them; here it is told to, as a subreaper."""
    adopting = START.replace("import sys\n", "import sys, ctypes\nctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n")
    count_zombies = "bash -c '(sleep 0.1 &); sleep 1.5; ps -o stat= --ppid $PPID | grep -c Z; true'"
    done = subprocess.run(
        [sys.executable, "-c", adopting, str(tmp_path / "links")],
        env={**os.environ, COMMAND_VARIABLE: count_zombies},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "0"


def test_it_imports_nothing_heavy() -> None:
    heavy = {"torch", "ray", "numpy", "pydantic", "kubernetes"}
    code = f"import sys, rlhf_runtime.node; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""


def test_without_kuberays_command_it_says_what_is_missing(capfd, tmp_path: Path) -> None:
    from rlhf_runtime.node import main

    assert main({}, folder=str(tmp_path)) == 2
    assert f"`{COMMAND_VARIABLE}` must be set" in capfd.readouterr().err


def test_ray_waits_for_nobody_when_the_pod_must_go_unless_the_user_says_so(start, monkeypatch) -> None:
    variable = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
    monkeypatch.delenv(variable, raising=False)
    assert start(f"echo ${variable}").communicate(timeout=30)[0].strip() == "0"
    monkeypatch.setenv(variable, "7")
    assert start(f"echo ${variable}").communicate(timeout=30)[0].strip() == "7"
