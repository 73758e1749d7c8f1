"""What many jobs cost the operator: its memory, its processor time, and how long a look at a job takes.

Prints one JSON line. The peer is KubeRay's operator, which reconciles the RayClusters of the same jobs in the same run;
its figures have the prefix "kuberay". The cluster must be up (`make cluster-up`) and have no other jobs. What is fake:
the nodes of the jobs' pods (KWOK), and the controllers' processes (`stand_in_controllers.py`), which do a step every
few seconds. The operator, the API server, KubeRay and all objects are real.

    python -m bench.operator_scale [--jobs 100] [--seconds 120] [--step-seconds 3]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from e2e.cluster import api
from e2e.cluster.addons import kwok
from e2e.cluster.kubectl import apply, kubectl
from e2e.cluster.network import HUB
from e2e.jobs import example
from e2e.operator import Operator

NAMESPACE = "bench-operator"
_FAKE_NODE = {"nodeSelector": kwok.TYPE_LABEL, "tolerations": [{"key": kwok.TAINT["key"], "operator": "Exists"}]}
_PODS_OF_A_NODE = 110
_PODS_OF_A_JOB = 7
_SETTLE_SECONDS = 30
_SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$", re.MULTILINE)
_PROGRAMS = {
    "operator": ("rlhf-operator", 9090, "rlhf_operator_reconcile_seconds", ""),
    "kuberay": ("default", 8080, "controller_runtime_reconcile_time_seconds", 'controller="raycluster",'),
}


def measure(jobs: int, seconds: float, step_seconds: float) -> dict[str, Any]:
    """All figures."""
    found: dict[str, Any] = {"bench": "operator_scale", "jobs": jobs, "step_seconds": step_seconds}
    with _fake_cluster(jobs, step_seconds):
        time.sleep(_SETTLE_SECONDS)
        before = {name: Program(name) for name in _PROGRAMS}
        found |= {f"{name}_idle_rss_mb": program.rss_mb for name, program in before.items()}
        began = time.monotonic()
        apply(*(_manifest(f"job-{index:03d}") for index in range(jobs)), timeout=300)
        print(f"{jobs} jobs are applied", file=sys.stderr)
        found["apply_seconds"] = time.monotonic() - began
        _wait("RayClusters", lambda: _ray_clusters() == jobs, seconds=600)
        found["ray_clusters_seconds"] = time.monotonic() - began
        _wait("jobs that train", lambda: _training() == jobs, seconds=1200)
        print(f"all train; watching them for {seconds:g} s", file=sys.stderr)
        found["training_seconds"] = time.monotonic() - began
        trained = {name: Program(name) for name in _PROGRAMS}
        found |= _compare("starting", before, trained, time.monotonic() - began)
        time.sleep(seconds)
        found |= _compare("training", trained, {name: Program(name) for name in _PROGRAMS}, seconds)
        print("measured; removing the jobs", file=sys.stderr)
    for key in ("idle_rss_mb", "training_rss_mb", "training_p50_ms", "training_p99_ms", "training_cpu_percent"):
        peer = found[f"kuberay_{key}"]
        found[f"{key}_ratio"] = found[f"operator_{key}"] / peer if peer else None  # few jobs: KubeRay had no work
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in found.items()}


class Program:
    """An operator's metrics at one moment."""

    def __init__(self, name: str) -> None:
        namespace, port, histogram, label = _PROGRAMS[name]
        pods = api.call(f"/api/v1/namespaces/{namespace}/pods?labelSelector=app.kubernetes.io/name")["items"]
        living = (pod["metadata"] for pod in pods if "deletionTimestamp" not in pod["metadata"])
        pod = next(meta["name"] for meta in living if "operator" in meta["name"])
        text = api.call(f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/metrics")
        samples = [(match["name"], match["labels"] or "", float(match["value"])) for match in _SAMPLE.finditer(text)]
        self.rss_mb = sum(value for key, _, value in samples if key == "process_resident_memory_bytes") / 1e6
        self.cpu_seconds = sum(value for key, _, value in samples if key == "process_cpu_seconds_total")
        self.buckets: dict[float, float] = {}
        for key, labels, value in samples:
            if key == f"{histogram}_bucket" and label in labels:
                bound = float(labels.partition('le="')[2].partition('"')[0])
                self.buckets[bound] = self.buckets.get(bound, 0) + value
        self.looks = self.buckets.get(float("inf"), 0.0)


def quantile_ms(quantile: float, before: Program, after: Program) -> float:
    """Of the looks between two moments, with straight lines within the histogram's buckets, as Prometheus does it."""
    counts = [(bound, after.buckets[bound] - before.buckets.get(bound, 0)) for bound in sorted(after.buckets)]
    rank = quantile * counts[-1][1]
    below, lower = 0.0, 0.0
    for bound, count in counts:
        if count >= rank:
            if bound == float("inf"):
                break
            return 1000 * (lower + (bound - lower) * (rank - below) / max(count - below, 1))
        below, lower = count, bound
    return 1000 * lower


def _compare(phase: str, before: dict[str, Program], after: dict[str, Program], seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _PROGRAMS:
        key = f"{name}_{phase}"
        found[f"{key}_looks"] = after[name].looks - before[name].looks
        found[f"{key}_p50_ms"] = quantile_ms(0.5, before[name], after[name])
        found[f"{key}_p99_ms"] = quantile_ms(0.99, before[name], after[name])
        found[f"{key}_cpu_percent"] = 100 * (after[name].cpu_seconds - before[name].cpu_seconds) / seconds
        found[f"{key}_rss_mb"] = after[name].rss_mb
    return found


@contextmanager
def _fake_cluster(jobs: int, step_seconds: float) -> Iterator[None]:
    operator = Operator()
    operator.install()
    operator.kubectl("rollout", "restart", "deployment")  # a process that has seen nothing yet
    operator.kubectl("rollout", "status", "deployment", "--timeout=120s", timeout=150)
    with kwok.nodes(2 + jobs * _PODS_OF_A_JOB // _PODS_OF_A_NODE):
        kubectl("create", "namespace", NAMESPACE)
        apply(*_volume())
        kubectl("wait", f"--namespace={NAMESPACE}", "persistentvolumeclaim/state", "--for=jsonpath=.status.phase=Bound")
        in_the_hub = ["ip", "netns", "exec", HUB]
        route = ["ip", "route", "replace", "local", kwok.POD_RANGE, "dev", "lo"]
        subprocess.run([*in_the_hub, *route], check=True)
        words = [sys.executable, "-m", "bench.stand_in_controllers", NAMESPACE, str(step_seconds)]
        controllers = subprocess.Popen([*in_the_hub, *words])
        try:
            yield
        finally:
            kubectl("delete", f"--namespace={NAMESPACE}", "rlhfjobs", "--all", "--timeout=300s", timeout=330)
            controllers.kill()
            controllers.wait()
            subprocess.run([*in_the_hub, "ip", "route", "delete", "local", kwok.POD_RANGE, "dev", "lo"], check=True)
            kubectl("delete", "namespace", NAMESPACE, "--timeout=300s", timeout=330)
            kubectl("delete", "persistentvolume", NAMESPACE)


def _manifest(name: str) -> dict[str, Any]:
    """A PPO job with four roles, all of it on fake nodes."""
    claim = {"location": {"persistentVolumeClaim": {"claimName": "state"}}}
    manifest = example("ppo-spelling", state=claim, head={"nodePool": _FAKE_NODE}, controller={"nodePool": _FAKE_NODE})
    manifest["metadata"] = {"name": name, "namespace": NAMESPACE}
    manifest["spec"]["algorithm"]["totalSteps"] = 100_000
    for role in manifest["spec"]["roles"]:
        role["nodePool"] = _FAKE_NODE
        role["resources"].pop("accelerators", None)  # fake nodes have too few
    return manifest


def _volume() -> list[dict[str, Any]]:
    """One claim for all jobs, bound from the start: nothing on fake nodes mounts it."""
    shape = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/nowhere"}, **shape}
    claim = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": NAMESPACE, **shape}
    kinds = {"PersistentVolume": (NAMESPACE, volume), "PersistentVolumeClaim": ("state", claim)}
    return [
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        for kind, (name, spec) in kinds.items()
    ]


def _training() -> int:
    jobs = api.call(f"/apis/rlhf.dev/v1alpha1/namespaces/{NAMESPACE}/rlhfjobs")["items"]
    return sum(job.get("status", {}).get("progress", {}).get("step", 0) > 0 for job in jobs)


def _ray_clusters() -> int:
    return len(api.call(f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayclusters")["items"])


def _wait(what: str, done: Callable[[], bool], *, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise SystemExit(
                f"{what}: not all of them in {seconds:.0f} s; see `kubectl --namespace={NAMESPACE} get all`"
            )
        time.sleep(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=120, help="how long they are watched while they train")
    parser.add_argument("--step-seconds", type=float, default=3)
    given = parser.parse_args()
    print(json.dumps(measure(given.jobs, given.seconds, given.step_seconds)))


if __name__ == "__main__":
    main()
