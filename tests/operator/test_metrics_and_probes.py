"""What kubelet and Prometheus are told."""

import logging
from typing import Any

import aiohttp
import pytest
from operator_builders import job, run
from prometheus_client import generate_latest

from rlhf_operator.telemetry.http import health_app, metrics_app, serve
from rlhf_operator.telemetry.logging import JsonFormatter, TextFormatter, log
from rlhf_operator.telemetry.metrics import Metrics, State, StateCollector


def with_status(name: str, *true: str, roles: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    conditions = [{"type": kind, "status": "True"} for kind in true] + [{"type": "Failed", "status": "False"}]
    return {**job(name), "status": {"conditions": conditions, "roles": list(roles)}}


def scraped(jobs: list[dict[str, Any]], metrics: Metrics | None = None) -> str:
    metrics = metrics or Metrics()
    state = State(jobs=jobs, waiting=3, longest_wait=1.5, watch_ages={"pods": 12.0}, watch_repairs=2, leading=True)
    metrics.registry.register(StateCollector(lambda: state, version="1.2.3"))
    return generate_latest(metrics.registry).decode()


def test_gauges_are_what_is_known_at_the_scrape() -> None:
    critic = {"name": "critic", "desired": 2, "ready": 1, "restarts": 4}
    text = scraped([with_status("a", "Running", roles=(critic,)), with_status("b", "Complete"), job("c")])
    for line in (
        'rlhf_operator_jobs{condition="Running"} 1.0',
        'rlhf_operator_jobs{condition="Complete"} 1.0',
        'rlhf_operator_jobs{condition="Failed"} 0.0',
        'rlhf_operator_role_desired{job="a",namespace="team",role="critic"} 2.0',
        'rlhf_operator_role_ready{job="a",namespace="team",role="critic"} 1.0',
        'rlhf_operator_role_restarts{job="a",namespace="team",role="critic"} 4.0',
        'rlhf_operator_watch_age_seconds{kind="pods"} 12.0',
        "rlhf_operator_queue_length 3.0",
        "rlhf_operator_leader 1.0",
        'rlhf_operator_info{version="1.2.3"} 1.0',
    ):
        assert line in text.splitlines()


def test_a_jobs_series_end_with_it() -> None:
    assert 'job="' not in scraped([])


def test_times_and_errors_are_counted() -> None:
    metrics = Metrics()
    metrics.reconciled(0.02)
    metrics.error("Forbidden")
    text = scraped([], metrics)
    assert 'rlhf_operator_reconcile_seconds_bucket{le="0.025"} 1.0' in text
    assert 'rlhf_operator_reconcile_errors_total{type="Forbidden"} 1.0' in text


def test_probes_answer_with_what_is_wrong() -> None:
    async def test() -> None:
        wrong: list[str] = []
        health = await serve(health_app(alive=lambda: wrong, ready=lambda: []), port=0)
        metrics = await serve(metrics_app(Metrics().registry), port=0)
        try:
            async with aiohttp.ClientSession() as session:

                async def ask(runner: Any, path: str) -> tuple[int, str]:
                    port = next(address[1] for address in runner.addresses if address[0] == "0.0.0.0")
                    async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                        return answer.status, await answer.text()

                assert await ask(health, "/healthz") == (200, "ok")
                wrong.append("a look at a job has taken 200 s")
                assert await ask(health, "/healthz") == (503, "a look at a job has taken 200 s")
                assert await ask(health, "/readyz") == (200, "ok")
                assert (await ask(metrics, "/metrics"))[0] == 200
        finally:
            await health.cleanup()
            await metrics.cleanup()

    run(test())


def test_log_lines_have_the_job_in_front_or_are_json(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="rlhf_operator"):
        log("created", job="team/ppo", kind="RayCluster", why="a b", nothing=None)
    (record,) = caplog.records
    record.created = 0
    assert TextFormatter().format(record) == '1970-01-01T00:00:00Z INFO    team/ppo created kind=RayCluster why="a b"'
    assert JsonFormatter().format(record) == (
        '{"time": "1970-01-01T00:00:00.000+00:00", "level": "info", "message": "created", "job": "team/ppo",'
        ' "kind": "RayCluster", "why": "a b"}'
    )
