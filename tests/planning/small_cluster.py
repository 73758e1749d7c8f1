"""A cluster in memory that carries out plans and plays everyone else: KubeRay, the Job controller, the kubelets, the
garbage collector, and a controller that trains one step each second. A test model, as simple as these tests allow.

KubeRay's part follows what its 1.5 does: groups in order, the first error stops the rest, a terminating pod counts.
"""

import copy
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from planning_builders import START, a_job, edited, settings

from rlhf_api.ending import Ending, EndingOutcome
from rlhf_api.formats import format_time, parse_time
from rlhf_api.reasons import ConditionReason
from rlhf_api.types import Progress, RLHFJob
from rlhf_operator.planning.plan import Event, ExpectLoss, Plan, RestartRole, ScaleRole, Suspend
from rlhf_operator.planning.reconcile import plan
from rlhf_operator.planning.snapshot import Refusal, Report, RoleReport, Snapshot

HEAD = "headgroup"


class SmallCluster:
    def __init__(self, job: RLHFJob | None = None, **operator_settings: Any) -> None:
        self.job = job or a_job(algorithm={"name": "PPO", "totalSteps": 20, "ppo": {}})
        self.settings = settings(**operator_settings)
        self.now: datetime = START
        self.kuberay = True
        self.ray_cluster: dict[str, Any] | None = None
        self.controller_job: dict[str, Any] | None = None
        self.children: dict[tuple[str, str], dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.claims: dict[str, Any] = {}
        self.warnings: list[dict[str, Any]] = []
        self.no_node: set[str] = set()
        self.idle_pods: dict[str, list[str]] = {}
        self.scheduler_says = "5 node(s) didn't match Pod's node affinity/selector"
        self.quota: set[str] = set()
        self.refuses: dict[str, tuple[ConditionReason, str]] = {}
        self.refusals: list[Refusal] = []
        self.crashing: set[str] = set()
        self.reachable = True
        self.grace_ticks = 1
        # What the controller and its state know.
        self.step = 0
        self.epoch = 0
        self.phase = "WAITING_FOR_PLACES"
        self.replicas = {role.name: role.replicas for role in self.job.spec.roles}
        self.told_to_leave = False
        # What the tests look at.
        self.calls: list[Any] = []
        self.events: list[Event] = []
        self.made_pods: list[str] = []
        self.made_jobs = 0
        self.changes = 0
        self.deleted_job = False
        self._counter = 0

    # The operator

    def look(self) -> Snapshot:
        return Snapshot(
            job=self.job,
            now=self.now,
            kuberay=self.kuberay,
            ray_cluster=copy.deepcopy(self.ray_cluster),
            controller_job=copy.deepcopy(self.controller_job),
            pods=copy.deepcopy(self.pods),
            children=copy.deepcopy(self.children),
            claims=self.claims,
            warnings=copy.deepcopy(self.warnings),
            report=self.report(),
            idle_pods=dict(self.idle_pods),
            refusals=list(self.refusals),
        )

    def plan(self) -> Plan:
        return plan(self.look(), self.settings)

    def reconcile(self) -> Plan:
        """Look, plan, and carry out, in the order that `Plan` promises."""
        planned = self.plan()
        for call in planned.calls:
            self._call(call)
        for delete in planned.deletes:
            self._delete(delete)
        self.refusals = []
        for manifest in planned.applies:
            if (said := self.refuses.get(manifest["kind"])) is not None:
                name = manifest["metadata"]["name"]
                self.refusals.append(Refusal(kind=manifest["kind"], name=name, reason=said[0], message=said[1]))
                continue
            self._apply(manifest)
        if planned.status is not None and planned.status != self.job.status:
            self.changes += 1
            # Through JSON, as through the API server.
            status = type(planned.status).model_validate_json(planned.status.model_dump_json(by_alias=True))
            self.job = self.job.model_copy(update={"status": status})
        self.events += planned.events
        self.deleted_job |= planned.delete_job
        return planned

    def run(self, seconds: int = 1, *, check: Callable[["SmallCluster"], None] | None = None) -> "SmallCluster":
        for _ in range(seconds):
            self.reconcile()
            self.tick()
            if check is not None:
                check(self)
        self.reconcile()
        return self

    def run_until(self, done: Callable[["SmallCluster"], bool], *, limit: int = 200) -> "SmallCluster":
        for _ in range(limit):
            self.run(1)
            if done(self):
                return self
        raise AssertionError(f"not within {limit} s: {self.describe()}")

    def edit(self, **changes: Any) -> "SmallCluster":
        self.job = edited(self.job, **changes)
        return self

    # What is seen from outside

    def condition(self, kind: str) -> tuple[str, str]:
        for found in self.job.status.conditions if self.job.status else ():
            if found.type == kind:
                return found.status.value, found.reason
        return "absent", ""

    def message(self, kind: str) -> str:
        return next(found.message for found in self.job.status.conditions if found.type == kind)

    def row(self, role: str) -> Any:
        return next(row for row in self.job.status.roles if row.name == role)

    @property
    def summary(self) -> str:
        return self.job.status.summary if self.job.status else ""

    def living(self, group: str) -> list[dict[str, Any]]:
        return [pod for pod in self.pods if _group(pod) == group and not _going(pod) and not _over(pod)]

    def uids(self) -> dict[str, list[str]]:
        groups = [HEAD, "controller", *(role.name for role in self.job.spec.roles)]
        return {group: [pod["metadata"]["uid"] for pod in self.living(group)] for group in groups}

    def reasons(self) -> list[str]:
        return [event.reason for event in self.events]

    def describe(self) -> str:
        rows = {kind: self.condition(kind) for kind in ("ClusterReady", "RolesReady", "Running", "Complete", "Failed")}
        return f"{self.summary} {rows} pods {[(p['metadata']['name'], p['status']['phase']) for p in self.pods]}"

    # Plans

    def _call(self, call: Any) -> None:
        self.calls.append(call)
        if isinstance(call, Suspend):
            self.told_to_leave = True
        elif isinstance(call, ScaleRole):
            self.replicas[call.role] = call.replicas
            # The oldest: not those that the operator would choose by itself.
            pods = sorted(self.living(call.role), key=lambda pod: pod["metadata"]["creationTimestamp"])
            surplus = max(len(pods) - call.replicas, 0)
            self.idle_pods[call.role] = [pod["metadata"]["name"] for pod in pods[:surplus]]
        else:
            assert isinstance(call, RestartRole | ExpectLoss)

    def _delete(self, delete: Any) -> None:
        kinds = {"RayCluster": "ray_cluster", "Job": "controller_job"}
        if delete.kind in kinds:
            living = getattr(self, kinds[delete.kind])
            if living is not None and living["metadata"]["uid"] == delete.uid:
                setattr(self, kinds[delete.kind], None)
                self.changes += 1
            return
        assert delete.kind == "Pod"
        for pod in self.pods:
            if pod["metadata"]["uid"] == delete.uid:
                self.remove(pod)

    def _apply(self, manifest: dict[str, Any]) -> None:
        json.dumps(manifest)
        owner = manifest["metadata"]["ownerReferences"][0]
        assert owner["uid"] == self.job.metadata.uid
        if manifest["kind"] == "RayCluster":
            self.ray_cluster = self._merged(self.ray_cluster, manifest)
        elif manifest["kind"] == "Job":
            if self.controller_job is not None:
                spec = {key: value for key, value in self.controller_job["spec"].items() if key != "suspend"}
                allowed = (spec, spec | {"suspend": False})
                assert manifest["spec"] in allowed, "the controller's Job is never edited, but for a suspension"
            self.made_jobs += self.controller_job is None
            self.controller_job = self._merged(self.controller_job, manifest)
        else:
            key = (manifest["kind"], manifest["metadata"]["name"])
            self.children[key] = self._merged(self.children.get(key), manifest)

    def _merged(self, living: dict[str, Any] | None, manifest: dict[str, Any]) -> dict[str, Any]:
        manifest = copy.deepcopy(manifest)
        if living is None:
            self.changes += 1
            manifest["metadata"] |= {"uid": self._uid(), "creationTimestamp": format_time(self.now), "generation": 1}
            manifest["status"] = {}
            return manifest
        kept = {key: living["metadata"][key] for key in ("uid", "creationTimestamp", "generation")}
        manifest["metadata"] |= kept
        manifest["status"] = living["status"]
        if manifest != living:
            self.changes += 1
            manifest["metadata"]["generation"] += 1
        return manifest

    # Everyone else

    def tick(self, seconds: float = 1.0) -> None:
        self.now += timedelta(seconds=seconds)
        self._collect_garbage()
        self._kuberay()
        self._job_controller()
        self._kubelets()
        self._controller()

    def remove(self, pod: dict[str, Any]) -> None:
        """A deletion: the pod goes after its grace period."""
        if not _going(pod):
            self.changes += 1
            pod["metadata"]["deletionTimestamp"] = format_time(self.now)
            pod["grace"] = self.grace_ticks

    def kill(self, pod: dict[str, Any], *, code: int = 137, reason: str = "OOMKilled", message: str = "") -> None:
        if _over(pod):
            return
        state = pod["status"].get("containerStatuses", [{}])[0].get("state", {}).get("running", {})
        started = state.get("startedAt", format_time(self.now))
        ended = {"exitCode": code, "reason": reason, "message": message, "startedAt": started}
        ended["finishedAt"] = format_time(self.now)
        pod["status"]["phase"] = "Succeeded" if code == 0 else "Failed"
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}]
        pod["status"]["containerStatuses"] = [{"name": "main", "state": {"terminated": ended}}]

    def warn(self, about: dict[str, Any], reason: str, message: str) -> None:
        involved = {"kind": about["kind"], "uid": about["metadata"]["uid"], "name": about["metadata"]["name"]}
        event = {"involvedObject": involved, "reason": reason, "message": message}
        self.warnings = [known for known in self.warnings if known["message"] != message]
        self.warnings.append({**event, "type": "Warning", "lastTimestamp": format_time(self.now)})

    def report(self) -> Report | None:
        controller = self._training_controller()
        if controller is None or not self.reachable:
            return None
        counts = {name: self._ready_pods(name) for name in self.replicas}
        return Report(
            epoch=self.epoch,
            phase=self.phase,
            time=self.now,
            step=self.step,
            total_steps=self.job.spec.algorithm.total_steps,
            reward=0.5,
            roles=[
                RoleReport(name=name, desired=count, ready=min(count, counts[name]), class_name="package:Worker")
                for name, count in self.replicas.items()
            ],
        )

    def _training_controller(self) -> dict[str, Any] | None:
        return next((pod for pod in self.living("controller") if pod["status"]["phase"] == "Running"), None)

    def _collect_garbage(self) -> None:
        owners = {item["metadata"]["uid"] for item in (self.ray_cluster, self.controller_job) if item is not None}
        for pod in list(self.pods):
            if pod["metadata"]["ownerReferences"][0]["uid"] not in owners:
                self.remove(pod)
                if _over(pod):
                    self.pods.remove(pod)

    def _kuberay(self) -> None:
        cluster = self.ray_cluster
        if cluster is None:
            return
        heads = [pod for pod in self.pods if _group(pod) == HEAD]
        if heads and _over(heads[0]):
            self.pods.remove(heads[0])
            return
        if not heads:
            self._make(HEAD, cluster, cluster["spec"]["headGroupSpec"]["template"])
        for group in cluster["spec"]["workerGroupSpecs"]:
            name = group["groupName"]
            for pod in [pod for pod in self.pods if _group(pod) == name and _over(pod)]:
                self.pods.remove(pod)
                return
            leaving = group.get("scaleStrategy", {}).get("workersToDelete", ())
            for pod in self.pods:
                if pod["metadata"]["name"] in leaving:
                    self.remove(pod)
            members = [pod for pod in self.pods if _group(pod) == name and pod["metadata"]["name"] not in leaving]
            for _ in range(group["replicas"] - len(members)):
                if name in self.quota:
                    pod_name = f"{cluster['metadata']['name']}-{name}-worker-abcde"
                    self.warn(
                        cluster,
                        "FailedToCreateWorkerPod",
                        f"Failed to create worker Pod for the cluster team/{cluster['metadata']['name']}, pods"
                        f' "{pod_name}" is forbidden: exceeded quota: small, requested: cpu=1, used: cpu=3,'
                        " limited: cpu=3",
                    )
                    return
                self._make(name, cluster, group["template"])
            for pod in members[: max(len(members) - group["replicas"], 0)]:
                self.remove(pod)

    def _job_controller(self) -> None:
        job = self.controller_job
        if job is None or job["status"].get("conditions"):
            return
        members = [pod for pod in self.pods if pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]]
        failed = [pod for pod in members if pod["status"]["phase"] == "Failed"]
        job["status"]["failed"] = len(failed)
        if any(pod["status"]["phase"] == "Succeeded" for pod in members):
            job["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
        elif len(failed) > job["spec"]["backoffLimit"] or any(_code(pod) == 3 for pod in failed):
            job["status"]["conditions"] = [{"type": "Failed", "status": "True", "message": "backoff limit"}]
        elif all(_over(pod) for pod in members):  # podReplacementPolicy: Failed
            self._make("controller", job, job["spec"]["template"])

    def _make(self, group: str, owner: dict[str, Any], template: dict[str, Any]) -> None:
        kind = {HEAD: "head", "controller": "controller"}.get(group, f"{group}-worker")
        self._counter += 1
        self.changes += 1
        name = f"{self.job.name}-{kind}-{self._counter:05d}"
        self.made_pods.append(group)
        metadata = {**copy.deepcopy(template["metadata"]), "name": name, "uid": self._uid()}
        metadata |= {"creationTimestamp": format_time(self.now), "ownerReferences": [{"uid": owner["metadata"]["uid"]}]}
        spec = {"containers": [{"name": "main"}]}
        self.pods.append({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def _kubelets(self) -> None:
        for pod in list(self.pods):
            if _going(pod):
                if pod["grace"] <= 0:
                    self.pods.remove(pod)
                pod["grace"] -= 1
            elif pod["status"]["phase"] == "Pending":
                self._start(pod)

    def _start(self, pod: dict[str, Any]) -> None:
        group = _group(pod)
        if group in self.no_node:
            said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            said["message"] = f"0/5 nodes are available: {self.scheduler_says}."
            pod["status"]["conditions"] = [said]
            return
        pod["spec"]["nodeName"] = f"node-{group}"
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
        made = parse_time(pod["metadata"]["creationTimestamp"])
        waits = group != HEAD and not any(_ready(head) for head in self.living(HEAD))
        if waits or made == self.now:
            return
        if group in self.crashing:
            self.kill(pod, code=1, reason="Error", message="ModuleNotFoundError: no module named ray")
            return
        pod["status"]["phase"] = "Running"
        pod["status"]["conditions"].append({"type": "Ready", "status": "True"})
        running = {"running": {"startedAt": format_time(self.now)}}
        pod["status"]["containerStatuses"] = [{"name": "main", "state": running}]
        if group == "controller":
            self.epoch += 1
            self.phase = "WAITING_FOR_PLACES"
            self.told_to_leave = False
            self.replicas = {role.name: role.replicas for role in self.job.spec.roles}

    def _controller(self) -> None:
        pod = self._training_controller()
        if pod is None:
            return
        total = self.job.spec.algorithm.total_steps
        started = parse_time(pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"])
        heads = [head for head in self.living(HEAD) if _ready(head)]
        if self.told_to_leave:
            self.end(EndingOutcome.SUSPENDED, ConditionReason.SUSPENDED, code=0)
        elif not heads or parse_time(heads[0]["metadata"]["creationTimestamp"]) > started:
            if self.phase == "TRAINING":
                self.end(EndingOutcome.INTERRUPTED, ConditionReason.HEAD_LOST, code=1, message="Ray is gone.")
        elif self._whole():
            self.phase = "TRAINING"
            self.step += 1
            if self.step >= total:
                self.end(EndingOutcome.COMPLETE, ConditionReason.ALL_STEPS_DONE, code=0)

    def _whole(self) -> bool:
        return all(self._ready_pods(name) >= count for name, count in self.replicas.items())

    def _ready_pods(self, role: str) -> int:
        """Of the role, or of the one that it is colocated with."""
        return len([pod for pod in self.living(self.job.spec.role(role).colocate_with or role) if _ready(pod)])

    def end(self, outcome: EndingOutcome, reason: ConditionReason, *, code: int, message: str = "") -> None:
        """The controller ends and leaves its last words."""
        progress = Progress(step=self.step, total_steps=self.job.spec.algorithm.total_steps, reward="0.5")
        ending = Ending(outcome=outcome, reason=reason, message=message, epoch=self.epoch, progress=progress)
        pod = self._training_controller()
        assert pod is not None
        self.kill(pod, code=code, reason="Completed" if code == 0 else "Error", message=ending.encode())

    def _uid(self) -> str:
        self._counter += 1
        return f"uid-{self._counter}"


def _group(pod: dict[str, Any]) -> str:
    labels = pod["metadata"]["labels"]
    component = labels["rlhf.dev/component"]
    return str({"head": HEAD, "controller": "controller"}.get(component) or labels["rlhf.dev/role"])


def _going(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _over(pod: dict[str, Any]) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def _ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)


def _code(pod: dict[str, Any]) -> int | None:
    code: int | None = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    return code
