"""Where state and caches live."""

from dataclasses import replace

import pytest
from manifest_jobs import SETTINGS, SMALL, container_of, env_of, job_of, state_of, template_of
from spec_changes import edited

from rlhf_operator.manifests.children import children
from rlhf_operator.manifests.state import state_place

HUB = {"model": {"huggingFace": {"id": "a/b"}}}
URI = {"state.location": {"uri": "s3://bucket/rlhf/"}}
CLAIM = {"state.location": {"persistentVolumeClaim": {"claimName": "c"}}}
SHARED_CACHE = {"cacheVolume": {"mountPath": "/w", "persistentVolumeClaim": {"claimName": "w"}}}
OWN_CACHE = {"cacheVolume": {"emptyDir": {}}}
NO_CLASS = replace(SETTINGS, state_storage_class=None)


def place(changes, settings=SETTINGS):
    return state_place(job_of(edited(SMALL, changes)), settings)


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({}, ("job-state", True, "/rlhf/state/job/state", "/rlhf/state/job")),
        (CLAIM, ("c", False, "/rlhf/state/job/state", "/rlhf/state/job")),
        (
            {"state.location": {"persistentVolumeClaim": {"claimName": "c", "path": "a/b"}}},
            ("c", False, "/rlhf/state/a/b/state", "/rlhf/state/a/b"),
        ),
        ({**URI, **HUB}, ("", False, "s3://bucket/rlhf/lab/job", "/tmp/rlhf/run")),
    ],
    ids=["a claim of the operator's", "a claim", "a folder of a claim", "a URI"],
)
def test_where_state_is(changes, want):
    found = place(changes)
    assert found.problem == ""
    assert (found.claim, found.made, found.state, found.run_folder) == want


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        (CLAIM, "/rlhf/state/.cache"),
        ({**CLAIM, **SHARED_CACHE}, "/w"),
        ({**CLAIM, **HUB, **OWN_CACHE}, "/cache"),
        ({**URI, **HUB}, "/tmp/rlhf/cache"),
        ({**URI, **SHARED_CACHE}, "/w"),
    ],
    ids=["beside the state", "a volume", "a folder of each pod", "in each pod, with a URI", "a volume, with a URI"],
)
def test_where_models_and_data_are_cached(changes, want):
    found = place(changes)
    assert (found.cache, found.hugging_face_cache) == (f"{want}/rlhf", f"{want}/huggingface")


@pytest.mark.parametrize(
    ("changes", "settings", "want"),
    [
        ({}, NO_CLASS, "`spec.state.location` must be set"),
        (URI, SETTINGS, "`spec.cacheVolume` must be a claim that all pods share, since `spec.model` is built in"),
        ({**CLAIM, **OWN_CACHE}, SETTINGS, "`spec.cacheVolume` must be a claim"),
        (
            {**URI, **HUB, "roles.0.model": {"builtin": {"name": "spelling-tiny"}}},
            SETTINGS,
            '`model` of role "actor" is built in',
        ),
    ],
    ids=[
        "no place, and the operator makes none",
        "a built-in model with a URI",
        "a built-in model with a cache of each pod",
        "a role's built-in model with a URI",
    ],
)
def test_what_is_refused_and_what_would_be_right(changes, settings, want):
    assert want in place(changes, settings).problem


def test_a_claim_of_the_users_needs_no_class():
    assert place(CLAIM, NO_CLASS).problem == ""


@pytest.mark.parametrize(("changes", "want"), [({}, True), (CLAIM, False), ({**URI, **HUB}, False)])
def test_the_operator_makes_a_claim_only_where_the_manifest_names_no_place(changes, want):
    kinds = [child["kind"] for child in children(job_of(edited(SMALL, changes)), SETTINGS)]
    assert ("PersistentVolumeClaim" in kinds) is want


@pytest.mark.parametrize("pod", ["actor", "controller"])
@pytest.mark.parametrize(
    ("changes", "want_mounts"),
    [
        ({}, {"/rlhf/state": {"claimName": "job-state"}}),
        ({**CLAIM, **SHARED_CACHE}, {"/rlhf/state": {"claimName": "c"}, "/w": {"claimName": "w"}}),
        ({**URI, **HUB}, {}),
    ],
    ids=["a claim of the operator's", "a claim and a cache", "a URI"],
)
def test_a_pod_mounts_what_it_is_told_to_use(pod, changes, want_mounts):
    job = job_of(edited(SMALL, changes))
    template = template_of(job, pod)
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]
        for volume in template["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    mounts = {
        mount["mountPath"]: claims[mount["name"]]
        for mount in container_of(template)["volumeMounts"]
        if mount["name"] in claims
    }
    assert mounts == want_mounts
    found = state_place(job, SETTINGS)
    assert state_of(template) == found.state
    assert env_of(template)["RLHF_CACHE_DIR"] == found.cache
