"""The operator's rights: those that docs/rbac.md tells of, and no others."""

import re
from typing import Any

import pytest
from chart_helm import CHART, Helm, Object

from rlhf_operator.config import Settings
from rlhf_operator.kube import kinds
from rlhf_operator.kube.leader import LEASE_NAME

PAGE = (CHART.parents[1] / "docs/rbac.md").read_text()
EVERYTHING = {"jobs": {"podMonitors": {"enabled": True}}}
Right = tuple[str, str, str]
"""API group, resource, verb."""


def documented(heading: str) -> set[Right]:
    """The rights in the table below a heading of the page."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    assert rows[0] == ["API group", "resource", "verbs", "why"]
    rights = [
        ("" if group == "core" else group, resource, verb)
        for group, resource, verbs, _ in rows[2:]
        for verb in verbs.split(", ")
    ]
    assert len(rights) == len(set(rights)), "a right is told twice"
    assert all(why for *_, why in rows[2:])
    return set(rights)


def rights(role: Object) -> set[Right]:
    """The rights that a role gives."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def of_kind(objects: list[Object], kind: str, name: str = "") -> list[Any]:
    return [found for found in objects if found["kind"] == kind and name in (found["metadata"]["name"], "")]


def test_the_rights_are_those_that_the_code_uses() -> None:
    watched = kinds.watched(Settings(worker_image="any", network_policies=True, pod_monitors=True))
    applied = (kinds.RAY_CLUSTER, kinds.JOB, *kinds.CHILDREN, kinds.SECRET)
    deleted = (kinds.RLHF_JOB, kinds.RAY_CLUSTER, kinds.JOB, kinds.POD)
    want = {
        *((kind.group, kind.plural, verb) for kind in watched for verb in ("get", "list", "watch")),
        *((kind.group, kind.plural, verb) for kind in applied for verb in ("create", "patch")),
        *((kind.group, kind.plural, "delete") for kind in deleted),
        *((kinds.EVENT.group, kinds.EVENT.plural, verb) for verb in ("list", "create")),
        (kinds.RLHF_JOB.group, f"{kinds.RLHF_JOB.plural}/status", "patch"),
    }

    assert documented("In the namespaces of jobs") == want


def test_in_cluster_scope_one_cluster_role_has_the_documented_rights(helm: Helm) -> None:
    objects = helm.objects(EVERYTHING)
    (role,) = of_kind(objects, "ClusterRole", "rlhf-operator")
    (binding,) = of_kind(objects, "ClusterRoleBinding")

    assert rights(role) == documented("In the namespaces of jobs")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "rlhf-operator", "namespace": "rlhf-operator"}]


def test_in_namespaced_scope_each_namespace_has_a_role_with_the_documented_rights(helm: Helm) -> None:
    objects = helm.objects({**EVERYTHING, "scope": "Namespaced", "watchNamespaces": ["team-a", "team-b"]})
    roles = of_kind(objects, "Role", "rlhf-operator")
    bindings = of_kind(objects, "RoleBinding", "rlhf-operator")

    assert [role["metadata"]["namespace"] for role in roles] == ["team-a", "team-b"]
    assert [binding["metadata"]["namespace"] for binding in bindings] == ["team-a", "team-b"]
    assert all(binding["subjects"][0]["namespace"] == "rlhf-operator" for binding in bindings)
    assert all(rights(role) == documented("In the namespaces of jobs") for role in roles)
    assert not of_kind(objects, "ClusterRoleBinding")


def test_the_lease_is_the_only_one_it_may_change(helm: Helm) -> None:
    (role,) = of_kind(helm.objects(), "Role")

    assert rights(role) == documented("In the operator's own namespace")
    named = [rule for rule in role["rules"] if rule["verbs"] != ["create"]]
    assert [rule["resourceNames"] for rule in named] == [[LEASE_NAME]]


@pytest.mark.parametrize(
    ("values", "resource"),
    [
        pytest.param({}, "podmonitors", id="monitors of jobs that it does not make"),
        pytest.param({"jobs": {"networkPolicies": False}}, "networkpolicies", id="policies that it does not make"),
        pytest.param({"leaderElection": {"enabled": False}}, "leases", id="a lease that it does not take"),
    ],
)
def test_there_is_no_right_to(helm: Helm, values: Object, resource: str) -> None:
    roles = [found for found in helm.objects(values) if found["kind"] in ("Role", "ClusterRole")]

    assert resource not in {found for role in roles for _, found, _ in rights(role)}


def test_no_right_is_a_wildcard_or_leads_to_others(helm: Helm) -> None:
    roles = [found for found in helm.objects(EVERYTHING) if found["kind"] in ("Role", "ClusterRole")]
    all_rights = {right for role in roles for right in rights(role)}

    assert not [right for right in all_rights if "*" in "".join(right)]
    assert {verb for _, resource, verb in all_rights if resource == "secrets"} == {"create", "patch"}
    assert not {verb for *_, verb in all_rights} & {"escalate", "bind", "impersonate", "approve", "sign"}
    assert not {resource for _, resource, _ in all_rights} & {
        "pods/exec",
        "pods/attach",
        "pods/ephemeralcontainers",
        "nodes",
    }
    assert not [right for right in all_rights if right[0] == "rbac.authorization.k8s.io"]


def test_the_policy_about_secrets_is_about_the_operator_alone(helm: Helm) -> None:
    objects = helm.objects({"serviceAccount": {"name": "me"}})
    (policy,) = of_kind(objects, "ValidatingAdmissionPolicy")
    (binding,) = of_kind(objects, "ValidatingAdmissionPolicyBinding")

    assert [found["expression"] for found in policy["spec"]["matchConditions"]] == [
        'request.userInfo.username == "system:serviceaccount:rlhf-operator:me"'
    ]
    assert len(policy["spec"]["validations"]) == 2
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


def test_view_edit_and_admin_get_what_the_page_says(helm: Helm) -> None:
    roles = {name: of_kind(helm.objects(), "ClusterRole", f"rlhf-operator-{name}")[0] for name in ("view", "edit")}
    rows = dict(re.findall(r"^\| `\.\.\.-(\w+)` \| [\w, ]+ \| ([\w, ]+) \|$", PAGE, re.MULTILINE))
    into = dict(re.findall(r"^\| `\.\.\.-(\w+)` \| ([\w, ]+) \|", PAGE, re.MULTILINE))

    assert {verb for _, resource, verb in rights(roles["edit"]) if resource == "rlhfjobs"} == set(
        rows["edit"].split(", ")
    )
    assert {verb for *_, verb in rights(roles["view"])} == {"get", "list", "watch"}
    for name, role in roles.items():
        prefix = "rbac.authorization.k8s.io/aggregate-to-"
        found = {key.removeprefix(prefix) for key in role["metadata"]["labels"] if key.startswith(prefix)}
        assert found == set(into[name].split(", "))


def test_it_can_be_installed_without_any_object_of_the_whole_cluster(helm: Helm) -> None:
    objects = helm.objects(
        {"scope": "Namespaced", "rbac": {"aggregateToDefaultRoles": False, "limitSecrets": False}},
    )

    assert {found["metadata"].get("namespace") for found in objects} == {"rlhf-operator"}


def test_none_are_made_where_somebody_else_makes_them(helm: Helm) -> None:
    kinds = {found["kind"] for found in helm.objects({"rbac": {"create": False}})}

    assert not [kind for kind in kinds if "Role" in kind or "Admission" in kind]
