"""Each command against a fake API server, over real HTTP."""

import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cluster_jobs as cases
import pytest
import yaml
from cluster_api_server import FakeApiServer, Fault, pod, serve, status
from on_cluster import Shell, without_what_trains

from rlhf_api.crd import PLURAL
from rlhf_cli import terminal
from rlhf_cli.cluster import paths


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    fake = FakeApiServer()
    server = serve(fake)
    shell = Shell(fake=fake, folder=tmp_path)
    shell.write_kubeconfig()
    shutil.copy(cases.EXAMPLE, tmp_path / "job.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(shell.kubeconfig))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(terminal, "now", lambda: cases.NOW)
    yield shell
    server.shutdown()
    server.server_close()


def changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def conflicts(*found: tuple[str, str]) -> Fault:
    """The refusal of an apply: fields, and their managers as the API server words them."""
    causes = [{"reason": "FieldManagerConflict", "field": field, "message": f"conflict with {manager}"}
              for field, manager in found]  # fmt: skip
    return Fault(lambda m, p, q: m == "PATCH", *status(409, "conflict", causes=causes))


def loading(how_long: str) -> Any:
    """A job whose critic is being loaded."""
    job = cases.waiting()
    message = f'role "critic" is being loaded: critic-worker-000, {how_long}'
    job["status"]["conditions"][1] |= {"reason": "LoadingModels", "message": message}
    job["status"]["summary"] = "Loading"
    return job


def test_the_path_has_the_plural_of_the_definition() -> None:
    assert paths.PLURAL == PLURAL


class TestSubmit:
    def test_creates_a_job_with_strict_validation_and_says_what_is_next(self, shell: Shell) -> None:
        result = shell.rlhf("submit", "job.yaml")
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.splitlines() == [
            'RLHFJob/ppo-spelling created in namespace "ml"',
            "Next: rlhf status ppo-spelling --watch",
        ]
        ((path, query, body),) = shell.fake.sent("PATCH")
        assert path == "/apis/rlhf.dev/v1alpha1/namespaces/ml/rlhfjobs/ppo-spelling"
        assert query == {"fieldManager": "rlhf", "fieldValidation": "Strict"}
        assert body == cases.MANIFEST

    def test_a_wrong_manifest_is_told_as_validate_does_and_nothing_is_sent(self, shell: Shell) -> None:
        Path("job.yaml").write_text(changed(cases.EXAMPLE.read_text(), ("type: Critic", "type: Critik")))
        result = shell.rlhf("submit", "job.yaml")
        assert result.exit_code == 2
        assert result.stderr == shell.rlhf("validate", "job.yaml").stderr != ""
        assert shell.fake.requests == []

    def test_tells_what_a_second_version_changes(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        Path("job.yaml").write_text(
            changed(cases.EXAMPLE.read_text(), ("totalSteps: 40", "totalSteps: 60"), ("pool: critic", "pool: a100"))
        )
        result = shell.rlhf("submit", "job.yaml")
        assert result.stdout.splitlines()[:3] == [
            "RLHFJob/ppo-spelling configured",
            "  spec.algorithm.totalSteps: 40 -> 60",
            '  spec.roles.critic.nodePool.nodeSelector.pool: "critic" -> "a100"',
        ]
        assert shell.fake.jobs["ml", "ppo-spelling"]["spec"]["algorithm"]["totalSteps"] == 60

    def test_says_unchanged_and_writes_nothing(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        result = shell.rlhf("submit", "job.yaml")
        assert result.stdout.splitlines()[0] == "RLHFJob/ppo-spelling unchanged"
        assert [query.get("dryRun") for _, query, _ in shell.fake.sent("PATCH")] == ["All"]

    def test_takes_what_status_gave_out(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        text = shell.rlhf("status", "ppo-spelling", "-o", "yaml").stdout
        result = shell.rlhf(
            "submit", "-", stdin=changed(text, ("totalSteps: 40\n    seed", "totalSteps: 80\n    seed"))
        )
        assert (result.exit_code, result.stdout.splitlines()[1]) == (0, "  spec.algorithm.totalSteps: 40 -> 80")
        ((_, _, body), _) = shell.fake.sent("PATCH")
        assert (list(body["metadata"]), "status" in body) == (["name", "namespace"], False)

    def test_says_what_the_controller_takes_up_at_its_next_start_and_how_to_have_that_now(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        Path("job.yaml").write_text(
            changed(cases.EXAMPLE.read_text(), ("totalSteps: 40", "totalSteps: 60"), ("pool: critic", "pool: a100"))
        )
        assert shell.rlhf("submit", "job.yaml", "-n", "ml").stdout.splitlines()[3:] == [
            "Taken up when the controller starts next: spec.algorithm.totalSteps; to have that now: "
            "rlhf suspend ppo-spelling --wait --namespace=ml && rlhf resume ppo-spelling --namespace=ml",
            "Next: rlhf status ppo-spelling --watch --namespace=ml",
        ]

    @pytest.mark.parametrize("job", [cases.suspended(), cases.job()], ids=["suspended", "not begun"])
    def test_nothing_is_said_of_the_next_start_where_no_controller_has_started(self, shell: Shell, job: Any) -> None:
        shell.fake.add(job)
        Path("job.yaml").write_text(changed(cases.EXAMPLE.read_text(), ("totalSteps: 40", "totalSteps: 60")))
        result = shell.rlhf("submit", "job.yaml")
        assert (result.exit_code, "totalSteps: 40 -> 60" in result.stdout) == (0, True)
        assert "Taken up" not in result.stdout

    def test_a_dry_run_changes_nothing(self, shell: Shell) -> None:
        result = shell.rlhf("submit", "--dry-run", "job.yaml")
        assert result.stdout == 'RLHFJob/ppo-spelling created in namespace "ml" (dry run: nothing was changed)\n'
        assert shell.fake.jobs == {}

    def test_a_job_that_has_ended_is_not_changed(self, shell: Shell) -> None:
        shell.fake.add(cases.complete())
        Path("job.yaml").write_text(changed(cases.EXAMPLE.read_text(), ("totalSteps: 40", "totalSteps: 60")))
        result = shell.rlhf("submit", "job.yaml")
        assert result.exit_code == 1
        assert "does not start again" in result.stderr
        assert shell.fake.jobs["ml", "ppo-spelling"]["spec"]["algorithm"]["totalSteps"] == 40

    def test_the_servers_refusal_is_told_with_file_line_and_role(self, shell: Shell) -> None:
        causes = [
            {"reason": "FieldValueInvalid", "field": "spec.model",
             "message": 'Invalid value: "object": `model` is immutable'},
            {"reason": "FieldValueInvalid", "field": "spec.roles[1].replicas",
             "message": "Invalid value: 2: must be 1 for an Actor or Critic"},
        ]  # fmt: skip
        shell.fake.faults.append(Fault(lambda m, p, q: m == "PATCH", *status(422, "is invalid", causes=causes)))
        result = shell.rlhf("submit", "job.yaml")
        lines = cases.EXAMPLE.read_text().splitlines()
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.splitlines() == [
            f"job.yaml:{lines.index('  model:') + 1}: spec.model: `model` is immutable",
            f"job.yaml:{lines.index('  - name: critic') + 1}: spec.roles[1].replicas: must be 1 for an Actor or Critic"
            ' (role "critic")',
            "What is immutable cannot be changed on a job that exists: delete the job first, or give the manifest "
            "another name",
        ]

    def test_a_field_that_somebody_else_set_is_named(self, shell: Shell) -> None:
        shell.fake.faults.append(conflicts(('.spec.roles[name="critic"].image', '"kubectl-edit" using x')))
        result = shell.rlhf("submit", "job.yaml")
        assert result.exit_code == 1
        assert 'spec.roles[1].image: was set otherwise by `kubectl edit` (role "critic")' in result.stderr
        assert "--force-conflicts" in result.stderr
        assert shell.rlhf("submit", "job.yaml", "--force-conflicts").exit_code == 0
        assert shell.fake.sent("PATCH")[-1][1]["force"] == "true"

    def test_what_rlhf_scale_set_is_told_with_both_numbers_and_both_ways_out(self, shell: Shell) -> None:
        job = cases.training()
        job["spec"]["roles"].reverse()  # the cluster's order is not the manifest's
        job["spec"]["roles"][1]["replicas"] = 3
        shell.fake.add(job)
        text = changed(cases.EXAMPLE.read_text(), ("type: Reward\n", "type: Reward\n    replicas: 2\n"))
        Path("job.yaml").write_text(text)
        shell.fake.faults.append(conflicts(('.spec.roles[name="reward"].replicas', '"rlhf" using rlhf.dev/v1alpha1')))
        result = shell.rlhf("submit", "job.yaml", "-n", "ml")
        line = text.splitlines().index("    replicas: 2") + 1
        assert result.stderr.splitlines() == [
            f'job.yaml:{line}: spec.roles[2].replicas: was set to 3 by `rlhf scale`, got 2 (role "reward")',
            "To keep what the job has: leave these fields out of the manifest, or write the same there",
            "To set what the manifest says: rlhf submit job.yaml --force-conflicts --namespace=ml",
        ]

    def test_what_kubectl_apply_set_is_told_as_such(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        shell.fake.faults.append(
            conflicts(
                (".spec.algorithm.totalSteps", '"kubectl-client-side-apply" using rlhf.dev/v1alpha1 at 2026-11-30'),
                ('.spec.roles[name="critic"].nodePool.nodeSelector.pool', '"kubectl"'),
                (".spec.algorithm.totalSteps", '"argocd-controller"'),
            )
        )
        said = shell.rlhf("submit", "job.yaml").stderr
        assert 'spec.algorithm.totalSteps: was set to 40 by `kubectl apply` and "argocd-controller", got 40' in said
        assert 'nodeSelector.pool: was set to "critic" by `kubectl apply`, got "critic" (role "critic")' in said
        assert said.splitlines()[-1].endswith(
            "`kubectl apply` and `rlhf submit` in turn meets this again: stay with one"
        )

    def test_the_name_of_a_key_with_dots_is_kept_whole(self, shell: Shell) -> None:
        text = changed(cases.EXAMPLE.read_text(), ("{pool: critic}", "{example.com/gpu-type: a100}"))
        Path("job.yaml").write_text(text)
        field = '.spec.roles[name="critic"].nodePool.nodeSelector.example.com/gpu-type'
        shell.fake.faults.append(conflicts((field, '"kubectl-patch" using x')))
        line = text[: text.index("example.com")].count("\n") + 1
        want = f'job.yaml:{line}: spec.roles[1].nodePool.nodeSelector["example.com/gpu-type"]: was set otherwise by '
        assert shell.rlhf("submit", "job.yaml").stderr.startswith(f"{want}`kubectl patch`, got")

    def test_of_a_job_that_has_ended_that_is_told_before_whose_fields_they_are(self, shell: Shell) -> None:
        job = shell.fake.add(cases.complete())
        job["spec"]["roles"][2]["replicas"] = 3
        text = changed(cases.EXAMPLE.read_text(), ("type: Reward\n", "type: Reward\n    replicas: 2\n"))
        Path("job.yaml").write_text(text)
        fault = conflicts(('.spec.roles[name="reward"].replicas', '"rlhf" using x'))
        unforced, fault.when = fault.when, lambda m, p, q: m == "PATCH" and "force" not in q
        shell.fake.faults.append(fault)
        result = shell.rlhf("submit", "job.yaml")
        assert (result.exit_code, result.stderr) == (
            1,
            "RLHFJob/ppo-spelling has ended (Complete), and a job that has ended does not start again. To run it "
            "again, give the manifest another name, or delete the job with its results: rlhf delete ppo-spelling\n",
        )
        fault.when = unforced  # what may still be changed is refused too
        result = shell.rlhf("submit", "job.yaml")
        assert result.stderr.splitlines()[0].startswith("RLHFJob/ppo-spelling has ended (Complete), and ")
        assert "was set to 3 by `rlhf scale`" in result.stderr.splitlines()[1]

    def test_a_job_that_has_ended_is_told_also_when_nothing_differs(self, shell: Shell) -> None:
        job = cases.complete()
        job["spec"]["state"] = {"location": {"persistentVolumeClaim": {"claimName": "runs"}}}
        shell.fake.add(job)
        result = shell.rlhf("submit", "job.yaml")
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.splitlines() == [
            "RLHFJob/ppo-spelling unchanged",
            "RLHFJob/ppo-spelling has ended (Complete), and a job that has ended does not start again. To run it from "
            "the beginning, give the manifest another name; to go on after its last step, delete the job, which leaves "
            "its state, and submit it anew: rlhf delete ppo-spelling",
        ]

    def test_a_job_that_has_ended_does_not_keep_the_next_document_from_being_submitted(self, shell: Shell) -> None:
        shell.fake.add(cases.complete())
        first = changed(cases.EXAMPLE.read_text(), ("totalSteps: 40", "totalSteps: 60"))
        second = changed(cases.EXAMPLE.read_text(), ("name: ppo-spelling", "name: second"))
        Path("job.yaml").write_text(first + "---\n" + second)
        assert shell.rlhf("submit", "job.yaml").exit_code == 1
        assert ("ml", "second") in shell.fake.jobs

    def test_a_field_that_the_cluster_does_not_know_tells_of_versions(self, shell: Shell) -> None:
        message = 'strict decoding error: unknown field "spec.roles[0].nodePool"'
        shell.fake.faults.append(Fault(lambda m, p, q: m == "PATCH", *status(400, message)))
        result = shell.rlhf("submit", "job.yaml")
        assert "spec.roles[0].nodePool: unknown field in this cluster" in result.stderr
        assert "upgrade" in result.stderr

    def test_every_document_of_a_file_is_submitted_also_after_a_refusal(self, shell: Shell) -> None:
        second = changed(cases.EXAMPLE.read_text(), ("name: ppo-spelling", "name: second"))
        Path("job.yaml").write_text(cases.EXAMPLE.read_text() + "---\n" + second)
        shell.fake.faults.append(
            Fault(lambda m, p, q: m == "PATCH" and p.endswith("ppo-spelling"), *status(422, "exceeded quota"))
        )
        result = shell.rlhf("submit", "job.yaml")
        assert result.exit_code == 1
        assert result.stderr == "job.yaml: the API server refuses it: exceeded quota\n"
        assert list(shell.fake.jobs) == [("ml", "second")]

    def test_a_namespace_in_the_manifest_counts_unless_the_option_contradicts(self, shell: Shell) -> None:
        Path("job.yaml").write_text(
            changed(cases.EXAMPLE.read_text(), ("name: ppo-spelling\n", "name: ppo-spelling\n  namespace: other\n"))
        )
        result = shell.rlhf("submit", "job.yaml")
        assert result.stdout.splitlines()[-1] == "Next: rlhf status ppo-spelling --watch --namespace=other"
        assert list(shell.fake.jobs) == [("other", "ppo-spelling")]
        result = shell.rlhf("submit", "job.yaml", "-n", "third")
        assert (result.exit_code, 'which must be what `--namespace` says; got "third"' in result.stderr) == (1, True)

    def test_wait_ends_with_the_job(self, shell: Shell) -> None:
        def complete(method: str, path: str) -> None:
            if method == "GET" and ("ml", "ppo-spelling") in shell.fake.jobs:
                shell.fake.change("ppo-spelling", **cases.complete()["status"])

        shell.fake.on_request = complete
        result = shell.rlhf("submit", "--wait", "job.yaml")
        assert result.exit_code == 0
        assert result.stdout.splitlines()[-1] == "RLHFJob/ppo-spelling is complete: All 40 steps are done."


class TestStatus:
    def test_an_empty_namespace_tells_how_to_start(self, shell: Shell) -> None:
        result = shell.rlhf("status")
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr == 'There is no RLHFJob in namespace "ml"; start one with: rlhf submit FILE\n'

    def test_lists_the_jobs_of_one_or_all_namespaces(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        shell.fake.add(cases.training("other"), namespace="research")
        assert [line.split()[0] for line in shell.rlhf("status").stdout.splitlines()] == ["NAME", "ppo-spelling"]
        lines = shell.rlhf("status", "-A").stdout.splitlines()
        assert [line.split()[:2] for line in lines[1:]] == [["ml", "ppo-spelling"], ["research", "other"]]

    def test_shows_the_nodes_of_the_roles_pods_and_the_events(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        shell.fake.pods = [pod("p1", "role", role="critic", node="a100-1")]
        shell.fake.events = cases.EVENTS
        output = shell.rlhf("status", "ppo-spelling").stdout
        assert "a100-1" in output
        assert "3m32s ago  TrainingStarted  The first step began." in output

    def test_pods_that_may_not_be_listed_do_not_hide_the_job(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        denied = 'pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "ml"'
        shell.fake.faults.append(Fault(lambda m, p, q: p.endswith("/pods"), *status(403, denied)))
        result = shell.rlhf("status", "ppo-spelling")
        assert result.exit_code == 0
        assert "Not shown, since you may not list them: pods" in result.stdout

    @pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
    def test_gives_the_object_itself(self, shell: Shell, form: str, read: Any) -> None:
        job = cases.training()
        job["metadata"]["managedFields"] = [{"manager": "rlhf"}]
        shell.fake.add(job)
        found = read(shell.rlhf("status", "ppo-spelling", "-o", form).stdout)
        assert found["status"] == cases.training()["status"]
        assert "managedFields" not in found["metadata"]
        assert read(shell.rlhf("status", "-o", form).stdout)["kind"] == "RLHFJobList"

    def test_an_unknown_job_is_guessed_or_found_elsewhere(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        shell.fake.add(cases.training("elsewhere-only"), namespace="research")
        near = shell.rlhf("status", "ppo-speling")
        assert (near.exit_code, near.stderr) == (
            1, 'There is no RLHFJob "ppo-speling" in namespace "ml"; did you mean "ppo-spelling"?\n',
        )  # fmt: skip
        far = shell.rlhf("status", "elsewhere-only")
        assert far.stderr.endswith('in namespace "ml", but in research: choose with `--namespace`\n')


class TestStatusWatch:
    def test_prints_a_line_for_each_change_and_ends_with_the_job(self, shell: Shell) -> None:
        job = shell.fake.add(cases.waiting())
        later = [{"type": "MODIFIED", "object": {**job, "status": found["status"]}}
                 for found in (cases.training(), cases.training(), cases.complete())]  # fmt: skip
        shell.fake.watches = [later]
        result = shell.rlhf("status", "ppo-spelling", "--watch")
        states = [line.split()[1] for line in result.stdout.splitlines()[:-1]]
        assert (result.exit_code, states) == (0, ["Starting", "Training", "Complete"])

    def test_prints_no_line_when_only_time_has_passed(self, shell: Shell) -> None:
        job = shell.fake.add(loading("for 1 s of at most 1800 s"))
        texts = [f"for {second} s of at most 1800 s" for second in range(2, 9)]
        shell.fake.watches = [
            [{"type": "MODIFIED", "object": {**job, "status": found["status"]}}
             for found in (*map(loading, texts), cases.training(), cases.complete())]
        ]  # fmt: skip
        lines = shell.rlhf("status", "ppo-spelling", "--watch").stdout.splitlines()
        assert [line.split()[1] for line in lines[:-1]] == ["Loading", "Training", "Complete"]
        assert lines[0].endswith('role "critic" is being loaded: critic-worker-000, for at most 1800 s')

    def test_ends_with_1_and_the_cause_when_the_job_fails(self, shell: Shell) -> None:
        shell.fake.add(cases.failed())
        result = shell.rlhf("status", "ppo-spelling", "-w")
        assert result.exit_code == 1
        assert 'RLHFJob/ppo-spelling failed: role "reward": my_rewards:length: ModuleNotFound' in result.stderr
        assert "rlhf logs ppo-spelling" in result.stderr

    def test_ends_with_1_when_the_job_is_deleted(self, shell: Shell) -> None:
        job = shell.fake.add(cases.training())
        shell.fake.watches = [[{"type": "DELETED", "object": job}]]
        result = shell.rlhf("status", "ppo-spelling", "-w")
        assert (result.exit_code, result.stderr) == (1, "RLHFJob/ppo-spelling was deleted\n")

    def test_goes_on_after_a_version_that_is_too_old(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        gone = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
        shell.fake.watches = [[gone]]
        looked: list[str] = []

        def end_at_the_second_look(method: str, path: str) -> None:
            looked.append(path)
            if [one.endswith("/ppo-spelling") for one in looked].count(True) == 2:
                shell.fake.change("ppo-spelling", **cases.complete()["status"])

        shell.fake.on_request = end_at_the_second_look
        assert shell.rlhf("status", "ppo-spelling", "-w").exit_code == 0

    def test_goes_on_after_an_api_server_that_was_away(self, shell: Shell) -> None:
        job = shell.fake.add(cases.training())
        shell.fake.faults.append(Fault(lambda m, p, q: "watch" in q, *status(503, "apiserver is shutting down")))
        shell.fake.watches = [[{"type": "MODIFIED", "object": {**job, "status": cases.complete()["status"]}}]]
        result = shell.rlhf("status", "ppo-spelling", "-w")
        assert result.exit_code == 0
        assert "cannot answer now (503): apiserver is shutting down" in result.stdout


class TestRestart:
    def test_keeps_the_texts_of_other_roles_and_waits_until_the_role_is_back(self, shell: Shell) -> None:
        job = cases.training()
        job["metadata"]["annotations"] = {"rlhf.dev/restart": "actor=earlier"}
        stored = shell.fake.add(job)
        role_before = job["status"]["roles"][1]
        back = cases.training()
        back["status"]["roles"][1] |= {"uncountedRestarts": 2, "lastRecoveryMilliseconds": 840}
        not_yet = copy.deepcopy(back)  # the count may rise before the role is seen to be down
        not_yet["status"]["roles"][1]["lastRecoveryMilliseconds"] = role_before.get("lastRecoveryMilliseconds")
        looks = [{"type": "MODIFIED", "object": {**stored, "status": seen["status"]}} for seen in (not_yet, back)]
        shell.fake.watches = [looks]
        result = shell.rlhf("restart", "ppo-spelling", "critic")
        assert result.exit_code == 0
        assert result.stdout.splitlines()[-1] == "critic is back after 0.8 s"
        annotation = shell.fake.jobs["ml", "ppo-spelling"]["metadata"]["annotations"]["rlhf.dev/restart"]
        assert annotation == "actor=earlier,critic=2026-11-30T12:04:32.000000Z"

    def test_is_done_again_when_somebody_else_changed_the_job(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        shell.fake.faults.append(Fault(lambda m, p, q: m == "PATCH", *status(409, "has been modified")))
        assert shell.rlhf("restart", "ppo-spelling", "critic", "--no-wait").exit_code == 0
        assert len(shell.fake.sent("PATCH")) == 2

    @pytest.mark.parametrize(
        ("job", "role", "want"),
        [
            (cases.training(), "critc", 'RLHFJob/ppo-spelling has no role "critc"; did you mean "critic"?'),
            (cases.training(), "judge", "it has: actor, critic, reward, reference"),
            (cases.suspended(), "critic", "go on with: rlhf resume ppo-spelling"),
            (cases.complete(), "critic", "has ended (Complete)"),
        ],
        ids=["a role that is nearly right", "a role of another name", "a suspended job", "a job that has ended"],
    )
    def test_refuses_and_says_what_would_be_right(self, shell: Shell, job: Any, role: str, want: str) -> None:
        shell.fake.add(job)
        result = shell.rlhf("restart", "ppo-spelling", role)
        assert (result.exit_code, want in result.stderr, shell.fake.sent("PATCH")) == (1, True, [])

    def test_gives_up_in_time(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        result = shell.rlhf("restart", "ppo-spelling", "critic", "--timeout", "0s")
        assert result.exit_code == 1
        assert "The restart of critic did not happen in time; it goes on without this command" in result.stderr


class TestScale:
    def test_names_the_role_in_the_patch_so_that_no_other_is_hit(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        result = shell.rlhf("scale", "ppo-spelling", "reward", "3")
        assert result.stdout.splitlines()[0] == "RLHFJob/ppo-spelling: reward scaled from 1 to 3"
        ((_, _, patch),) = shell.fake.sent("PATCH")
        assert patch[0] == {"op": "test", "path": "/spec/roles/2/name", "value": "reward"}
        assert shell.fake.jobs["ml", "ppo-spelling"]["spec"]["roles"][2]["replicas"] == 3

    def test_finds_the_role_again_when_the_roles_have_moved(self, shell: Shell) -> None:
        shell.fake.add(cases.training())

        def move_once(method: str, path: str) -> None:
            if method == "PATCH" and len(shell.fake.sent("PATCH")) == 1:
                moved = cases.training()
                moved["spec"]["roles"].reverse()
                shell.fake.add(moved)

        shell.fake.on_request = move_once
        assert shell.rlhf("scale", "ppo-spelling", "reward", "2").exit_code == 0
        replicas = {role["name"]: role.get("replicas", 1)
                    for role in shell.fake.jobs["ml", "ppo-spelling"]["spec"]["roles"]}  # fmt: skip
        assert replicas == {"actor": 1, "critic": 1, "reward": 2, "reference": 1}

    def test_refuses_a_training_role_in_the_words_of_the_definition(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        result = shell.rlhf("scale", "ppo-spelling", "actor", "2")
        assert (result.exit_code, result.stderr) == (
            1,
            "spec.roles[0].replicas: must be 1 for an Actor or Critic; give it more pods with `podsPerReplica`, got 2 "
            '(role "actor")\n',
        )

    def test_says_so_when_there_is_nothing_to_do(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        assert "reward has 1 already" in shell.rlhf("scale", "ppo-spelling", "reward", "1").stdout


class TestSuspendAndResume:
    def test_suspend_waits_until_no_pod_is_left(self, shell: Shell) -> None:
        stored = shell.fake.add(cases.training())
        shell.fake.watches = [[{"type": "MODIFIED", "object": {**stored, "status": cases.suspended()["status"]}}]]
        result = shell.rlhf("suspend", "ppo-spelling", "--wait")
        assert result.exit_code == 0
        assert result.stdout.splitlines()[-2:] == [
            "RLHFJob/ppo-spelling is suspended after step 12",
            "Go on with: rlhf resume ppo-spelling",
        ]
        assert shell.fake.jobs["ml", "ppo-spelling"]["spec"]["suspend"] is True

    def test_resume_waits_until_it_trains(self, shell: Shell) -> None:
        stored = shell.fake.add(cases.suspended())
        shell.fake.watches = [[{"type": "MODIFIED", "object": {**stored, "status": cases.training()["status"]}}]]
        result = shell.rlhf("resume", "ppo-spelling", "--wait")
        assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "RLHFJob/ppo-spelling trains")
        assert shell.fake.jobs["ml", "ppo-spelling"]["spec"]["suspend"] is False

    def test_both_are_refused_for_a_job_that_has_ended(self, shell: Shell) -> None:
        shell.fake.add(cases.complete())
        for command in ("suspend", "resume"):
            assert "has ended (Complete)" in shell.rlhf(command, "ppo-spelling").stderr


class TestDelete:
    def test_asks_nobody_when_there_is_no_terminal(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        result = shell.rlhf("delete", "ppo-spelling")
        assert result.exit_code == 2
        assert 'The claim "ppo-spelling-state" goes with it' in result.stderr
        assert ("ml", "ppo-spelling") in shell.fake.jobs

    def test_deletes_the_job_that_was_seen(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        result = shell.rlhf("delete", "ppo-spelling", "-y", "--wait")
        assert (result.exit_code, result.stdout) == (0, "RLHFJob/ppo-spelling is gone\n")
        ((_, _, body),) = shell.fake.sent("DELETE")
        assert body == {"propagationPolicy": "Background", "preconditions": {"uid": "uid-ppo-spelling"}}

    def test_tells_that_a_users_claim_stays(self, shell: Shell) -> None:
        job = cases.training()
        job["spec"]["state"] = {"location": {"persistentVolumeClaim": {"claimName": "runs"}}}
        shell.fake.add(job)
        assert 'What is in the claim "runs" stays' in shell.rlhf("delete", "ppo-spelling", "-y").stderr

    def test_names_what_is_left_when_time_is_up(self, shell: Shell) -> None:
        shell.fake.add(cases.training())
        shell.fake.pods = [pod("stuck", "role", role="critic")]
        result = shell.rlhf("delete", "ppo-spelling", "-y", "--wait", "--timeout", "0s")
        assert (result.exit_code, "1 pods are left" in result.stderr) == (1, True)


def test_every_command_works_without_torch_ray_and_the_operators_packages(shell: Shell) -> None:
    shell.fake.add(cases.training())
    shell.fake.pods, shell.fake.logs = [pod("x", "controller")], {"x": [["2026-11-30T12:00:00Z step 1/40"]]}
    name = "ppo-spelling"
    calls = [["submit", "job.yaml"], ["status"], ["status", name], ["logs", name],
             ["restart", name, "critic", "--no-wait"], ["scale", name, "reward", "2"], ["suspend", name],
             ["resume", name], ["delete", name, "-y"]]  # fmt: skip
    script = (
        f"{without_what_trains()}\nfrom rlhf_cli.main import main\n"
        f"print([main(call, standalone_mode=False) for call in {calls!r}])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == str([0] * len(calls))
    assert shell.fake.jobs == {}


class TestErrors:
    def test_no_kubeconfig(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KUBECONFIG", "nowhere")
        result = shell.rlhf("status")
        assert (result.exit_code, result.stderr) == (
            1, "There is no kubeconfig at nowhere; name one with `--kubeconfig` or in the variable KUBECONFIG\n",
        )  # fmt: skip

    def test_an_unknown_context_lists_those_that_there_are(self, shell: Shell) -> None:
        assert 'no context "prod"; choose one with `--context`: here' in shell.rlhf("status", "--context=prod").stderr

    @pytest.mark.parametrize("text", ["", "[]", "just words", "a: b: c", "contexts: 3\nclusters: 3\nusers: 3\n"])
    def test_a_kubeconfig_that_is_none(self, shell: Shell, text: str) -> None:
        shell.kubeconfig.write_text(text)
        result = shell.rlhf("status")
        assert result.exit_code == 1
        assert result.stderr.startswith(f"The kubeconfig {shell.kubeconfig} ")

    def test_an_api_server_that_is_not_there_is_named(self, shell: Shell) -> None:
        shell.write_kubeconfig(server="http://127.0.0.1:1")
        result = shell.rlhf("status")
        assert result.exit_code == 1
        assert 'http://127.0.0.1:1 of context "here" cannot be reached: connection refused' in result.stderr

    def test_expired_credentials(self, shell: Shell) -> None:
        shell.fake.faults.append(Fault(lambda m, p, q: True, *status(401, "Unauthorized")))
        assert 'does not accept the credentials of context "here"' in shell.rlhf("status").stderr

    def test_a_missing_right_is_named_with_who_can_give_it(self, shell: Shell) -> None:
        denied = ('rlhfjobs.rlhf.dev is forbidden: User "jane" cannot list resource "rlhfjobs" in API group "rlhf.dev" '
                  'in the namespace "ml"')  # fmt: skip
        shell.fake.faults.append(Fault(lambda m, p, q: True, *status(403, denied)))
        assert shell.rlhf("status").stderr == (
            'User "jane" must have the right to list rlhfjobs.rlhf.dev in namespace "ml"; an administrator can give '
            "it: kubectl create rolebinding NAME --namespace=ml --clusterrole=view --user=jane\n"
        )

    def test_a_quota_is_told_in_its_own_words(self, shell: Shell) -> None:
        shell.fake.faults.append(Fault(lambda m, p, q: m == "PATCH", *status(403, "exceeded quota: jobs")))
        assert "The API server refuses it: exceeded quota: jobs" in shell.rlhf("submit", "job.yaml").stderr

    def test_a_cluster_without_the_definition(self, shell: Shell) -> None:
        shell.fake.faults.append(Fault(lambda m, p, q: True, 404, b"404 page not found\n", times=9))
        for words in (["status"], ["status", "x"], ["submit", "job.yaml"]):
            result = shell.rlhf(*words)
            assert result.exit_code == 1
            assert "does not know RLHFJob" in result.stderr
            assert "helm install rlhf-operator" in result.stderr

    def test_a_missing_namespace(self, shell: Shell) -> None:
        answer = status(404, 'namespaces "ml" not found', name="ml", kind="namespaces")
        shell.fake.faults.append(Fault(lambda m, p, q: m == "PATCH", *answer))
        assert "kubectl create namespace ml" in shell.rlhf("submit", "job.yaml").stderr

    def test_something_that_is_no_api_server(self, shell: Shell) -> None:
        shell.fake.faults.append(Fault(lambda m, p, q: True, 200, b"<html>log in</html>"))
        assert "does not answer as an API server does" in shell.rlhf("status").stderr

    def test_a_credential_plugin_that_is_not_there(self, shell: Shell) -> None:
        config = yaml.safe_load(shell.kubeconfig.read_text())
        config["users"][0]["user"] = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such"}}
        shell.kubeconfig.write_text(yaml.safe_dump(config))
        result = shell.rlhf("status")
        assert (result.exit_code, "no-such" in result.stderr) == (1, True)
