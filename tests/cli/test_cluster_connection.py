"""The connection to an API server: what is imported when, silence, and a command that is interrupted."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes.client import Configuration

from rlhf_cli.cluster.client import Cluster
from rlhf_cli.cluster.errors import UnreachableError
from rlhf_cli.cluster.http import Http
from rlhf_cli.cluster.kubeconfig import Access
from rlhf_cli.cluster.watching import watch

COMMANDS = ("submit", "status", "logs", "restart", "scale", "suspend", "resume", "delete")
HEAVY = ("kubernetes", "urllib3", "rich", "yaml", "pydantic", "rlhf_api.types", "rlhf_runtime", "kopf", "ray", "torch")


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def access(port: int) -> Access:
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{port}"
    return Access(configuration=configuration, context="here", namespace="ml")


def test_an_api_server_that_does_not_answer_is_given_up(silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(UnreachableError, match="cannot be reached: no answer in time"):
        Http(access(silent), answer_seconds=0.2).request("GET", "/api")


def test_a_watch_gives_up_after_its_time_and_tells_of_each_try(silent: int) -> None:
    now, pauses = [0.0], []

    class Server(Cluster):
        def job(self, name: str) -> dict[str, object]:
            return {"metadata": {"name": name, "uid": "u", "resourceVersion": "1"}}

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    cluster = Server(Http(access(1)), namespace="ml")
    seen = []
    with pytest.raises(UnreachableError):
        for one in watch(cluster, "x", pause=pause, clock=lambda: now[0], give_up=20.0):
            seen.append(one.problem)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert seen[0] == ""
    assert all("cannot be reached: connection refused" in problem for problem in seen[1:])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_without_a_heavy_import(name: str) -> None:
    script = (
        f"import sys; from rlhf_cli.main import main; main([{name!r}, '--help'], standalone_mode=False);"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "Exit code: 0" in " ".join(done.stdout.split())
    assert all(option in done.stdout for option in ("-n, --namespace", "--context", "--kubeconfig"))


@pytest.mark.parametrize(("file", "want"), [("rlhf", "rlhf"), ("kubectl-rlhf", "kubectl rlhf")])
def test_usage_lines_have_the_name_that_was_typed(file: str, want: str) -> None:
    script = f"import sys; sys.argv = ['/usr/bin/{file}', 'logs', '--help']; from rlhf_cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith(f"Usage: {want} logs [OPTIONS] JOB\n")


def test_ctrl_c_ends_a_command_with_130_and_without_a_traceback(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        config = tmp_path / "kubeconfig"
        config.write_text(
            "{apiVersion: v1, kind: Config, current-context: h, users: [{name: u, user: {token: t}}],"
            " contexts: [{name: h, context: {cluster: c, user: u}}],"
            f" clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{server.getsockname()[1]}'}}}}]}}",
            encoding="utf-8",
        )
        command = [sys.executable, "-m", "rlhf_cli", "status", "x", "--watch", "--kubeconfig", str(config)]
        environment = {**os.environ, "NO_PROXY": "127.0.0.1"}
        # As a terminal starts it, also where the tests run in the background, whose children ignore Ctrl-C.
        with subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            connection, _ = server.accept()  # it has asked, and waits for an answer
            with connection:
                process.send_signal(signal.SIGINT)
                _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (130, "\nStopped looking; what runs in the cluster goes on\n")
