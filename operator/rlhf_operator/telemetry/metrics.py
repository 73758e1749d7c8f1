"""The operator's metrics. What is known is rendered at scrape time; times and errors are observed as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from rlhf_api.enums import ConditionType

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """What is counted while the operator works."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._seconds = Histogram(
            "rlhf_operator_reconcile_seconds",
            "Duration of looks at jobs that succeeded.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._errors = Counter(
            "rlhf_operator_reconcile_errors", "Errors while looking at jobs.", ["type"], registry=self.registry
        )

    def reconciled(self, seconds: float) -> None:
        """A look at a job succeeded."""
        self._seconds.observe(seconds)

    def error(self, kind: str) -> None:
        """A look at a job met an error."""
        self._errors.labels(type=kind).inc()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is known now, for the gauges.

    Attributes:
        jobs: All RLHFJobs, as the API server gives them.
        waiting: Jobs that wait for a look.
        longest_wait: The longest of these waits, seconds.
        watch_ages: Seconds since each kind's watch was last found to have brought everything.
        watch_repairs: Objects that a watch had missed.
        leading: Whether this replica works.
    """

    jobs: Iterable[Mapping[str, Any]]
    waiting: int
    longest_wait: float
    watch_ages: Mapping[str, float]
    watch_repairs: int
    leading: bool


class StateCollector(Collector):
    """Renders what is known as gauges, so that a series ends with its object.

    Args:
        state: Asked at each scrape.
        version: The operator's.
    """

    def __init__(self, state: Callable[[], State], *, version: str) -> None:
        self._state = state
        self._version = version

    def collect(self) -> Iterable[Metric]:
        """All gauges."""
        state = self._state()
        jobs = list(state.jobs)
        yield InfoMetricFamily("rlhf_operator", "This program.", {"version": self._version})
        yield _single("rlhf_operator_leader", "1 where this replica works, 0 where it stands by.", state.leading)
        yield _single("rlhf_operator_queue_length", "Jobs that wait for a look.", state.waiting)
        yield _single("rlhf_operator_queue_longest_wait_seconds", "The longest of these waits.", state.longest_wait)
        yield _single(
            "rlhf_operator_watch_repaired_objects",
            "Objects whose change a watch had missed since the start.",
            state.watch_repairs,
        )
        ages = GaugeMetricFamily(
            "rlhf_operator_watch_age_seconds",
            "Time since a kind's watch was last found to have brought everything.",
            labels=["kind"],
        )
        for kind, age in state.watch_ages.items():
            ages.add_metric([kind], age)
        yield ages
        yield _conditions(jobs)
        yield from _roles(jobs)


def _single(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _conditions(jobs: list[Mapping[str, Any]]) -> Metric:
    counts = dict.fromkeys(map(str, ConditionType), 0)
    for job in jobs:
        for condition in _status(job).get("conditions") or ():
            if condition.get("status") == "True" and condition.get("type") in counts:
                counts[condition["type"]] += 1
    family = GaugeMetricFamily("rlhf_operator_jobs", "Jobs of which a condition is true.", labels=["condition"])
    for name, count in counts.items():
        family.add_metric([name], count)
    return family


def _roles(jobs: list[Mapping[str, Any]]) -> Iterable[Metric]:
    labels = ["namespace", "job", "role"]
    families = {
        "desired": GaugeMetricFamily("rlhf_operator_role_desired", "Pods that a role should have.", labels=labels),
        "ready": GaugeMetricFamily("rlhf_operator_role_ready", "Pods of a role that take part.", labels=labels),
        "restarts": GaugeMetricFamily("rlhf_operator_role_restarts", "A role's counted restarts.", labels=labels),
        "uncountedRestarts": GaugeMetricFamily(
            "rlhf_operator_role_uncounted_restarts", "A role's restarts that do not count.", labels=labels
        ),
    }
    for job in jobs:
        meta = job["metadata"]
        for role in _status(job).get("roles") or ():
            for key, family in families.items():
                family.add_metric([meta["namespace"], meta["name"], role["name"]], float(role.get(key) or 0))
    return families.values()


def _status(job: Mapping[str, Any]) -> Mapping[str, Any]:
    return job.get("status") or {}
