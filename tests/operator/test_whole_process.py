"""The whole process, kopf included, on a fake API server: what it watches, repairs, survives and leaves behind."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from fake_api_server import FakeApiServer, Request, refusal
from operator_builders import child, job, run, until

from rlhf_operator.kube.kinds import CONFIG_MAP, LEASE, POD, RAY_CLUSTER, RLHF_JOB

pytestmark = [pytest.mark.job, pytest.mark.long]

KEY = b"0123456789abcdef0123456789abcdef"


class Process:
    """An operator's process and what it wrote."""

    def __init__(self, running: asyncio.subprocess.Process, *, health: int, metrics: int) -> None:
        self.running = running
        self.lines: list[dict[str, Any]] = []
        self.health = health
        self.metrics = metrics
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.running.stdout is not None
        async for line in self.running.stdout:
            text = line.decode().rstrip()
            self.lines.append(json.loads(text) if text.startswith("{") else {"message": text})

    def said(self, text: str) -> bool:
        return any(text in line["message"] for line in self.lines)

    async def ask(self, port: int, path: str) -> tuple[int, str]:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.running.send_signal(number)
        async with asyncio.timeout(60):
            code = await self.running.wait()
            await self._reading
        return code

    def everything(self) -> str:
        return "\n".join(str(line) for line in self.lines)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@asynccontextmanager
async def operator(server: FakeApiServer, folder: Path, *options: str) -> AsyncIterator[Process]:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "me"}}],
        "clusters": [{"name": "fake", "cluster": {"server": server.url}}],
        "users": [{"name": "me", "user": {"token": "secret-of-mine"}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    (folder / "key").write_bytes(KEY)
    health, metrics = free_port(), free_port()
    arguments = [
        *("--worker-image", "worker:1", "--key-file", str(folder / "key"), "--log-format", "json"),
        *("--health-port", str(health), "--metrics-port", str(metrics), "--state-storage-class", "fast"),
        *options,
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("KUBERNETES_", "RLHF_"))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rlhf_operator", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**environment, "KUBECONFIG": str(folder / "kubeconfig"), "PYTHONUNBUFFERED": "1"},
    )
    running = Process(process, health=health, metrics=metrics)
    try:
        yield running
    except BaseException:
        print(running.everything())
        raise
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await running._reading


def has(server: FakeApiServer, name: str = "ppo") -> bool:
    return server.get(RAY_CLUSTER, "team", name) is not None


def test_a_job_becomes_a_ray_cluster_which_is_made_again_when_deleted_by_hand(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeApiServer() as server, operator(server, tmp_path, "--no-leader-election") as process:
            server.put(RLHF_JOB, job())
            await until(lambda: has(server), seconds=90)
            await until(lambda: server.get(CONFIG_MAP, "team", "ppo-config"), seconds=60)
            server.remove(RAY_CLUSTER, "team", "ppo")
            await until(lambda: has(server), seconds=60)
            status = server.objects[RLHF_JOB, "team", "ppo"]["status"]
            assert status["conditions"] and status["summary"]
            assert (await process.ask(process.health, "/healthz"))[0] == 200
            metrics = (await process.ask(process.metrics, "/metrics"))[1]
            assert "rlhf_operator_reconcile_seconds_count" in metrics
            assert await process.end() == 0
            assert KEY.decode() not in process.everything() and "secret-of-mine" not in process.everything()

    run(test(), seconds=280)


def test_only_what_belongs_to_jobs_is_watched(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeApiServer() as server, operator(server, tmp_path, "--no-leader-election") as process:
            watches = ["rlhfjobs", "rayclusters", "pods", "jobs", "configmaps", "services", "networkpolicies"]
            watches.append("persistentvolumeclaims")

            def watched() -> dict[str, str]:
                asked = [r for r in server.requests if r.query.get("watch") == "true"]
                return {r.path.rpartition("/")[2]: r.query.get("labelSelector", "") for r in asked}

            await until(lambda: len(watched()) == len(watches), seconds=90)
            assert watched() == {name: "" if name == "rlhfjobs" else "rlhf.dev/job" for name in watches}
            assert not server.asked("secrets|customresourcedefinitions|namespaces$")
            assert await process.end() == 0

    run(test(), seconds=280)


def test_an_operator_of_one_namespace_asks_for_nothing_else(tmp_path: Path) -> None:
    async def test() -> None:
        options = ("--no-leader-election", "--namespace", "team")
        async with FakeApiServer() as server, operator(server, tmp_path, *options) as process:
            server.put(RLHF_JOB, job("theirs", namespace="other"))
            server.put(RLHF_JOB, job("ours"))
            await until(lambda: has(server, "ours"), seconds=90)
            assert all("/namespaces/team/" in request.path for request in server.requests)
            assert server.get(RAY_CLUSTER, "other", "theirs") is None
            assert await process.end() == 0

    run(test(), seconds=280)


def test_an_idle_job_costs_no_writes(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeApiServer() as server, operator(server, tmp_path, "--no-leader-election") as process:
            server.put(RLHF_JOB, job())
            await until(lambda: has(server), seconds=90)
            await asyncio.sleep(2)
            server.requests.clear()
            for _ in range(5):
                server.put(POD, child("ppo", "some-pod", status={"phase": "Pending"}))
                await asyncio.sleep(0.4)
            writes = server.asked("PATCH|POST|PUT|DELETE")
            assert len(writes) <= 2, writes  # a status that tells of the pod, and its event
            assert await process.end() == 0

    run(test(), seconds=280)


def test_watches_go_on_after_410_and_what_was_deleted_meanwhile_is_noticed(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeApiServer() as server, operator(server, tmp_path, "--no-leader-election") as process:
            server.put(RLHF_JOB, job("first"))
            await until(lambda: has(server, "first"), seconds=90)
            server.forget_history()
            server.put(RLHF_JOB, job("second"))
            await until(lambda: has(server, "second"), seconds=60)
            assert process.running.returncode is None
            assert await process.end() == 0

    run(test(), seconds=280)


def test_an_api_server_that_breaks_for_a_while_is_waited_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeApiServer() as server, operator(server, tmp_path, "--no-leader-election") as process:
            server.put(RLHF_JOB, job("first"))
            await until(lambda: has(server, "first"), seconds=90)

            async def broken(request: Request) -> web.Response:
                return refusal(503, "ServiceUnavailable", "starting")

            server.fault = broken
            server.forget_history()
            await asyncio.sleep(4)
            assert (await process.ask(process.health, "/healthz"))[0] == 200
            server.fault = None
            server.put(RLHF_JOB, job("second"))
            await until(lambda: has(server, "second"), seconds=60)
            assert await process.end() == 0

    run(test(), seconds=280)


def test_two_replicas_never_both_work_and_the_second_takes_over(tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        async with (
            FakeApiServer() as server,
            operator(server, tmp_path / "a", "--identity", "a", "--lease-seconds", "8") as first,
        ):
            await until(lambda: first.said("watching"), seconds=90)
            async with operator(server, tmp_path / "b", "--identity", "b", "--lease-seconds", "8") as second:
                await until(lambda: second.said("waiting for the lease"), seconds=90)
                assert (await second.ask(second.health, "/readyz"))[0] == 200
                server.put(RLHF_JOB, job("one"))
                await until(lambda: has(server, "one"), seconds=60)
                assert not second.said("created")
                assert await first.end() == 0
                lease = server.get(LEASE, "rlhf-operator", "rlhf-operator")
                assert lease is not None
                await until(lambda: second.said("watching"), seconds=60)
                server.put(RLHF_JOB, job("two"))
                await until(lambda: has(server, "two"), seconds=60)
                assert await second.end() == 0

    run(test(), seconds=280)


def test_a_leader_that_loses_the_lease_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            FakeApiServer() as server,
            operator(server, tmp_path, "--identity", "a", "--lease-seconds", "8") as process,
        ):
            await until(lambda: process.said("watching"), seconds=90)
            lease = server.get(LEASE, "rlhf-operator", "rlhf-operator")
            assert lease is not None
            server.put(LEASE, {**lease, "spec": {**lease["spec"], "holderIdentity": "b"}})
            async with asyncio.timeout(90):
                assert await process.running.wait() == 1
            assert process.said("the lease could not be renewed")

    run(test(), seconds=280)


def test_kuberay_that_is_installed_later_is_watched_then(tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeApiServer() as server:
            server.served.remove(RAY_CLUSTER)
            async with operator(server, tmp_path, "--no-leader-election") as process:
                server.put(RLHF_JOB, job())

                def reason() -> Any:
                    conditions = server.objects[RLHF_JOB, "team", "ppo"].get("status", {}).get("conditions", [])
                    return [condition["reason"] for condition in conditions if condition["type"] == "ClusterReady"]

                await until(lambda: reason() == ["KubeRayMissing"], seconds=90)
                server.served.append(RAY_CLUSTER)
                await until(lambda: has(server), seconds=60)
                await until(
                    lambda: any(r.query.get("watch") and "rayclusters" in r.path for r in server.requests), seconds=60
                )
                assert await process.end() == 0

    run(test(), seconds=280)


@pytest.mark.parametrize(
    ("trouble", "want"),
    [
        ("no definition", "crds.enabled"),
        ("no right", "the operator's Role or ClusterRole must allow this"),
    ],
)
def test_what_is_missing_at_the_start_is_said_at_once(tmp_path: Path, trouble: str, want: str) -> None:
    async def test() -> None:
        async with FakeApiServer() as server:
            if trouble == "no definition":
                server.served.remove(RLHF_JOB)
            else:

                async def forbid(request: Request) -> web.Response | None:
                    text = 'pods is forbidden: User "op" cannot list resource "pods" in API group ""'
                    return refusal(403, "Forbidden", text) if request.path.endswith("/pods") else None

                server.fault = forbid
            async with operator(server, tmp_path, "--no-leader-election") as process:
                async with asyncio.timeout(120):
                    assert await process.running.wait() == 1
                await process._reading
                assert process.said(want)

    run(test(), seconds=280)


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rlhf_operator", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_a_short_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"short")
    done = command("--worker-image", "x", "--key-file", str(tmp_path / "key"))
    assert done.returncode == 2 and "must hold at least 32 random bytes, has 5" in done.stderr


def test_help_needs_none_of_the_slow_imports() -> None:
    code = "import sys, rlhf_operator.__main__; print({'kopf', 'kubernetes', 'grpc', 'aiohttp'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "set()"


def test_options_are_variables_too(tmp_path: Path) -> None:
    done = command(RLHF_OPERATOR_WORKER_IMAGE="x", RLHF_OPERATOR_KEY_FILE=str(tmp_path / "none"))
    assert "'--key-file'" in done.stderr and "does not exist" in done.stderr
