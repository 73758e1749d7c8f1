"""Whatever happens to a job and in whatever order, planning ends where the manifest says, and then changes nothing."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planning_builders import a_job
from small_cluster import HEAD, SmallCluster

from rlhf_api.ending import EndingOutcome
from rlhf_api.reasons import ConditionReason

ROLES = ("actor", "critic", "reward", "reference")


def _kill(group):
    def happen(cluster):
        for pod in cluster.living(group)[:1]:
            if pod["status"]["phase"] == "Running":
                cluster.kill(pod)

    return happen


def _remove(group):
    return lambda cluster: [cluster.remove(pod) for pod in cluster.living(group)[:1]]


def _controller_dies(cluster):
    if cluster.report() is not None:
        cluster.end(EndingOutcome.INTERRUPTED, ConditionReason.CONTROLLER_LOST, code=1)


def _drain(cluster):
    if cluster.report() is not None:
        cluster.end(EndingOutcome.SUSPENDED, ConditionReason.SUSPENDED, code=0)


HAPPENINGS = {
    **{f"kill {group}": _kill(group) for group in (*ROLES, HEAD)},
    **{f"delete a pod of {group}": _remove(group) for group in (*ROLES, HEAD, "controller")},
    "the controller dies": _controller_dies,
    "the controller is drained": _drain,
    "suspend": lambda cluster: cluster.edit(suspend=True),
    "resume": lambda cluster: cluster.edit(suspend=False),
    "a new image for the critic": lambda cluster: cluster.edit(
        roles={"critic": {"image": {"name": f"other:{cluster._counter}"}}}
    ),
    "one reward": lambda cluster: cluster.edit(roles={"reward": {"replicas": 1}}),
    "three rewards": lambda cluster: cluster.edit(roles={"reward": {"replicas": 3}}),
    "the RayCluster is deleted": lambda cluster: setattr(cluster, "ray_cluster", None),
    "the Job is deleted": lambda cluster: setattr(cluster, "controller_job", None),
    "the Service is deleted": lambda cluster: cluster.children.clear(),
    "a quota forbids the critic": lambda cluster: cluster.quota.add("critic"),
    "the quota is raised": lambda cluster: cluster.quota.clear(),
    "no node for the reward": lambda cluster: cluster.no_node.add("reward"),
    "a node for all": lambda cluster: cluster.no_node.clear(),
    "the controller cannot be reached": lambda cluster: setattr(cluster, "reachable", False),
    "the controller can be reached": lambda cluster: setattr(cluster, "reachable", True),
    "five seconds": lambda cluster: cluster.run(5, check=holds_always),
    "the operator is away": lambda cluster: [cluster.tick() for _ in range(4)],
}


def holds_always(cluster):
    controllers = cluster.living("controller")
    assert len(controllers) <= 1, "two controllers"
    for role in cluster.job.spec.roles:
        spec = cluster.ray_cluster["spec"] if cluster.ray_cluster else {}
        asked = {group["groupName"]: group["replicas"] for group in spec.get("workerGroupSpecs", ())}
        assert asked.get(role.name, 0) <= 3
        assert len(cluster.living(role.name)) <= 3, "more pods than were ever asked for"
    assert len(cluster.living(HEAD)) <= 1
    status = cluster.job.status
    assert len(status.conditions) == len({condition.type for condition in status.conditions})


def changes_nothing(cluster):
    cluster.changes = 0
    planned = cluster.reconcile()
    assert cluster.changes == 0, cluster.describe()
    assert not planned.calls and not planned.deletes and not planned.events


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(sorted(HAPPENINGS)), st.integers(0, 3)), max_size=8))
def test_a_job_converges_whatever_happens(story):
    job = a_job(algorithm={"name": "PPO", "totalSteps": 12, "ppo": {}}, controller={"maxRestarts": 100})
    cluster = SmallCluster(job).run(4, check=holds_always)
    finished = None
    for what, pause in story:
        HAPPENINGS[what](cluster)
        cluster.run(pause, check=holds_always)
        if finished is not None:
            assert cluster.condition(finished)[0] == "True", "a finished job stays finished"
        finished = next((kind for kind in ("Complete", "Failed") if cluster.condition(kind)[0] == "True"), None)
    cluster.quota.clear()
    cluster.no_node.clear()
    cluster.reachable = True
    want = "Suspended" if cluster.job.spec.suspend and finished is None else finished or "Complete"
    for _ in range(120):
        if cluster.summary in (want, "Complete"):
            break
        cluster.run(1, check=holds_always)
    assert cluster.summary in (want, "Complete"), cluster.describe()
    cluster.run(6, check=holds_always)
    assert cluster.ray_cluster is None
    assert {pod["metadata"]["labels"]["rlhf.dev/component"] for pod in cluster.pods} <= {"controller"}
    changes_nothing(cluster)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(sorted(set(HAPPENINGS) - {"suspend"})), max_size=4))
def test_a_job_that_trains_is_as_its_manifest_says_and_left_alone(story):
    job = a_job(algorithm={"name": "PPO", "totalSteps": 100_000, "ppo": {}}, controller={"maxRestarts": 100})
    cluster = SmallCluster(job, progress_seconds=10_000.0).run(6)
    for what in story:
        HAPPENINGS[what](cluster)
        cluster.run(2, check=holds_always)
    cluster.quota.clear()
    cluster.no_node.clear()
    cluster.reachable = True
    cluster.run(15, check=holds_always)
    assert cluster.summary == "Training", cluster.describe()
    assert {role.name: len(cluster.living(role.name)) for role in job.spec.roles} == {
        role.name: role.replicas for role in cluster.job.spec.roles
    }
    assert len(cluster.living("controller")) == 1
    changes_nothing(cluster)
