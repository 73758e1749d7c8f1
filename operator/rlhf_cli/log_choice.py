"""Which pods' logs are meant, what a pod is called, and what to say where there are none. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlhf_api import KIND, names
from rlhf_cli import job_view
from rlhf_cli.cluster.errors import ClusterError
from rlhf_cli.job_view import Object
from rlhf_cli.program import next_command
from rlhf_cli.roles import role_index

_WAITING_FOR_NOTHING = ("", "PodInitializing", "ContainerCreating")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the command line asks for; nothing means the controller."""

    role: str | None = None
    head: bool = False
    everything: bool = False
    pod: str | None = None

    def check(self, job: Object) -> None:
        """Refuse a role that the job does not have.

        Raises:
            ClusterError: There is no such role.
        """
        if self.role is not None:
            role_index(job, self.role)

    def covers(self, job: Object, pod: Object) -> bool:
        """Whether a pod of the job is meant, whatever `pod` says."""
        labels = pod["metadata"].get("labels", {})
        component = labels.get(names.COMPONENT_LABEL)
        if self.role is not None:
            role = job["spec"]["roles"][role_index(job, self.role)]
            return job_view.is_of_role(pod, role.get("colocateWith") or self.role)
        if self.head:
            return bool(component == names.HEAD_COMPONENT)
        if self.everything:
            return bool(component == names.CONTROLLER_COMPONENT or names.ROLE_LABEL in labels)
        return bool(component == names.CONTROLLER_COMPONENT)

    def pick(self, labelled: Mapping[str, Object]) -> dict[str, Object]:
        """Only the pod that `pod` says, out of pods by their label."""
        if self.pod is None:
            return dict(labelled)
        return {label: pod for label, pod in labelled.items()
                if self.pod in (pod["metadata"]["name"], label.rpartition("/")[2])}  # fmt: skip

    @property
    def what(self) -> str:
        """For messages."""
        if self.role is not None:
            return f'role "{self.role}"'
        return "the head" if self.head else "the controller"


class Labels:
    """Short names of pods, `critic/1`: a pod keeps its own, and a successor takes that of its predecessor."""

    def __init__(self) -> None:
        self._by_uid: dict[str, str] = {}

    def give(self, pods: Sequence[Object]) -> dict[str, Object]:
        """The pods by label."""
        here = {pod["metadata"]["uid"] for pod in pods}
        self._by_uid = {uid: label for uid, label in self._by_uid.items() if uid in here}
        for pod in pods:
            uid = pod["metadata"]["uid"]
            if uid not in self._by_uid:
                self._by_uid[uid] = self._free(job_view.component(pod))
        return {self._by_uid[pod["metadata"]["uid"]]: pod for pod in pods}

    def _free(self, component: str) -> str:
        used, number = set(self._by_uid.values()), 0
        while f"{component}/{number}" in used:
            number += 1
        return f"{component}/{number}"


def present(pods: Sequence[Object]) -> list[Object]:
    """Pods whose logs matter now: those that live, else for each component the last that ended."""
    living = [pod for pod in pods if not job_view.is_over(pod)]
    alive = {job_view.component(pod) for pod in living}
    last = {job_view.component(pod): pod for pod in pods}
    return living + [pod for component, pod in last.items() if component not in alive]


def cannot_start(pod: Object) -> str | None:
    """Why a pod writes nothing yet; None when it does, or has."""
    status = pod.get("status", {})
    states = [container.get("state") or {} for container in status.get("containerStatuses") or ()]
    if any("running" in state or "terminated" in state for state in states) or job_view.is_over(pod):
        return None
    for state in states:
        waiting = state.get("waiting") or {}
        if waiting.get("reason", "") not in _WAITING_FOR_NOTHING:
            return f"{waiting['reason']}: {' '.join(str(waiting.get('message') or '').split())}".rstrip(": ")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason', 'Pending')}: {condition.get('message', '')}".rstrip(": ")
    return "its container is being made"


def nothing_there(job: Object, choice: Choice) -> list[str]:
    """What to say where no pod is left or there yet."""
    name, end = job_view.name_of(job), job_view.end_of(job)
    if choice.pod is not None:
        return [f'{KIND}/{name}: {choice.what} has no pod "{choice.pod}" now']
    if end is not None:
        return [f"{KIND}/{name} has ended ({end}), and {choice.what} has no pod any more; {job_view.log_place(job)}"]
    if job["spec"].get("suspend"):
        resume = next_command("resume", name)
        return [f"{KIND}/{name} is suspended and has no pods; {job_view.log_place(job)}. Go on with: {resume}"]
    return [f"{KIND}/{name}: {choice.what} has no pod yet; see why with: {next_command('status', name)}"]


def last_words(job: Object, role: str | None) -> list[str]:
    """What status keeps of a role's last failure."""
    roles = job_view.status_of(job).get("roles") or ()
    failure = next((found.get("lastFailure") for found in roles if found["name"] == role), None) or {}
    if not failure:
        return []
    where = f" on node {failure['node']}" if failure.get("node") else ""
    head = f"{failure.get('pod') or role}{where}: {failure.get('reason', 'Unknown')}; its last lines:"
    return [head, *str(failure.get("message") or "").rstrip().splitlines()]


def must_be_there(job: Object, choice: Choice) -> ClusterError:
    """The error of a log that is not there."""
    return ClusterError("\n".join(nothing_there(job, choice)))
