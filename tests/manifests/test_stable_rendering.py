"""A running job is changed by what its user writes, and by nothing else."""

import copy
from dataclasses import replace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from manifest_jobs import EXAMPLES, HERE, SETTINGS, SMALL, group_of, job_of, read
from spec_changes import CHANGES, edited

from rlhf_operator.manifests import raycluster
from rlhf_operator.manifests.parts import groups_of
from rlhf_operator.manifests.podtemplates import pod_template
from rlhf_operator.manifests.raycluster import changed_groups, ray_cluster, user_hash

OTHER = replace(
    SETTINGS,
    worker_image="rlhf-worker:2",
    worker_pull_policy="Always",
    ray_version="3.0.0",
    state_storage_class="other",
)
WHOLE = [read(EXAMPLES / "ppo-spelling.yaml"), read(HERE / "everything.yaml"), SMALL]


@pytest.mark.parametrize("manifest", WHOLE, ids=lambda manifest: manifest["metadata"]["name"])
def test_other_settings_leave_a_living_cluster_as_it_is(manifest):
    job = job_of(manifest)
    living = ray_cluster(job, SETTINGS)
    assert ray_cluster(job, OTHER) != living
    assert ray_cluster(job, OTHER, living=living) == living
    assert changed_groups(job, living) == ()


def test_a_group_is_kept_with_what_another_version_rendered(monkeypatch):
    def of_an_older_version(*arguments, **options):
        template = pod_template(*arguments, **options)
        template["spec"]["containers"][0]["workingDir"] = "/of-an-older-version"
        return template

    job = job_of(SMALL)
    monkeypatch.setattr(raycluster, "pod_template", of_an_older_version)
    living = ray_cluster(job, SETTINGS)
    monkeypatch.undo()
    assert ray_cluster(job, OTHER, living=living) == living


@pytest.mark.parametrize("name", ["headgroup", "actor"])
def test_what_somebody_changed_by_hand_is_rendered_again_and_rolls_nothing_out(name):
    job = job_of(SMALL)
    living = ray_cluster(job, SETTINGS)
    by_hand = copy.deepcopy(living)
    group_of(by_hand, name)["template"]["spec"]["containers"][0]["image"] = "by-hand"
    assert ray_cluster(job, SETTINGS, living=by_hand) == living
    assert changed_groups(job, by_hand) == ()


def test_a_cluster_that_was_suspended_or_scaled_by_hand_is_set_right():
    job = job_of(SMALL)
    living = ray_cluster(job, SETTINGS)
    by_hand = copy.deepcopy(living)
    by_hand["spec"] |= {
        "suspend": True,
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {"idleTimeoutSeconds": 1},
    }
    group_of(by_hand, "actor").update(replicas=7, maxReplicas=9, suspend=True)
    assert ray_cluster(job, SETTINGS, living=by_hand) == living


def test_rendering_leaves_the_living_object_untouched():
    job = job_of(SMALL)
    living = ray_cluster(job, SETTINGS, workers_to_delete={"actor": ["pod-1"]})
    before = copy.deepcopy(living)
    ray_cluster(job, SETTINGS, living=living, replicas={"reward": 0})
    assert living == before


@pytest.mark.parametrize(("changes", "want_changed"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_renders_exactly_the_groups_that_it_matters_for(changes, want_changed):
    base = read(EXAMPLES / "ppo-spelling.yaml")
    living = ray_cluster(job_of(base), SETTINGS)
    job = job_of(edited(base, changes))
    assert changed_groups(job, living) == want_changed
    new = ray_cluster(job, OTHER, living=living)
    for name in ("headgroup", *groups_of(job)):
        before, now = group_of(living, name)["template"], group_of(new, name)["template"]
        if name in want_changed:
            assert now == group_of(ray_cluster(job, OTHER), name)["template"]
        else:
            assert now == before


def _shuffled(value, random):
    if isinstance(value, dict):
        return {key: _shuffled(value[key], random) for key in random.sample(sorted(value), len(value))}
    return [_shuffled(item, random) for item in value] if isinstance(value, list) else value


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_fields_changes_no_hash(random):
    manifest = read(HERE / "everything.yaml")
    job, shuffled = job_of(manifest), job_of(_shuffled(manifest, random))
    for group in ("headgroup", "actor", "reward"):
        assert user_hash(shuffled, group) == user_hash(job, group)


@pytest.mark.parametrize("manifest", WHOLE, ids=lambda manifest: manifest["metadata"]["name"])
def test_defaults_written_out_change_no_hash(manifest):
    job = job_of(manifest)
    written_out = yaml.safe_load(yaml.safe_dump({**manifest, "spec": job.to_manifest()["spec"]}))
    assert written_out["spec"] != manifest["spec"]
    for group in ("headgroup", *groups_of(job)):
        assert user_hash(job_of(written_out), group) == user_hash(job, group)


def test_a_hash_says_nothing_about_the_job_or_its_namespace():
    assert user_hash(job_of(SMALL, namespace="a", uid="1"), "actor") == user_hash(job_of(SMALL), "actor")


@settings(max_examples=50, deadline=None)
@given(
    replicas=st.dictionaries(st.sampled_from(["actor", "reward"]), st.integers(0, 9)),
    leaving=st.dictionaries(st.sampled_from(["actor", "reward"]), st.lists(st.text("ab", min_size=1), max_size=3)),
    order=st.permutations(["actor", "reward"]),
)
def test_holding_and_ordering_groups_changes_nothing_else(replicas, leaving, order):
    job = job_of(SMALL)
    plain = ray_cluster(job, SETTINGS)
    held = ray_cluster(job, OTHER, living=plain, order=order, replicas=replicas, workers_to_delete=leaving)
    assert [group["groupName"] for group in held["spec"]["workerGroupSpecs"]] == list(order)
    for name in order:
        group = group_of(held, name)
        assert group["replicas"] == replicas.get(name, 1)
        assert group["minReplicas"] == 0
        assert group["maxReplicas"] >= group["replicas"]
        assert group.get("scaleStrategy", {}).get("workersToDelete", []) == leaving.get(name, [])
    assert ray_cluster(job, SETTINGS, living=held) == plain
