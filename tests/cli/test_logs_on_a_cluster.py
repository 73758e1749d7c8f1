"""`rlhf logs` against a fake API server, over real HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cluster_jobs as cases
import pytest
from cluster_api_server import SILENCE, FakeApiServer, Fault, pod, serve, status
from on_cluster import Shell

from rlhf_cli import log_follow
from rlhf_cli.log_choice import Labels, cannot_start
from rlhf_cli.log_lines import Fresh, parse
from rlhf_cli.pod_end import ended

CONTROLLER = pod("ppo-spelling-controller-1", "controller")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    fake = FakeApiServer()
    server = serve(fake)
    shell = Shell(fake=fake, folder=tmp_path)
    shell.write_kubeconfig()
    monkeypatch.setenv("KUBECONFIG", str(shell.kubeconfig))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(log_follow, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(log_follow, "RETRY_SECONDS", 0.05)
    fake.add(cases.training())
    yield shell
    server.shutdown()
    server.server_close()


def lines(*texts: str, second: int = 0) -> list[str]:
    return [f"2026-11-30T12:00:{second + number:02}.5Z {text}" for number, text in enumerate(texts)]


class TestOnce:
    def test_the_controllers_log_is_the_default_and_is_printed_as_it_is(self, shell: Shell) -> None:
        shell.fake.pods = [CONTROLLER, pod("c", "role", role="critic"), pod("h", "head")]
        shell.fake.logs = {"ppo-spelling-controller-1": [lines("step 1", "", "step 2 [done]")]}
        result = shell.rlhf("logs", "ppo-spelling")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "step 1\n\nstep 2 [done]\n", "")

    @pytest.mark.parametrize(
        ("words", "want"), [(["--role", "critic"], "c"), (["--head"], "h"), (["--controller"], "x")]
    )
    def test_options_choose_whose_log_it_is(self, shell: Shell, words: list[str], want: str) -> None:
        shell.fake.pods = [pod("x", "controller"), pod("c", "role", role="critic"), pod("h", "head")]
        shell.fake.logs = {name: [lines(f"of {name}")] for name in "xch"}
        assert shell.rlhf("logs", "ppo-spelling", *words).stdout == f"of {want}\n"

    def test_a_colocated_roles_log_is_that_of_its_host(self, shell: Shell) -> None:
        job = cases.training()
        job["spec"]["roles"][3]["colocateWith"] = "actor"
        shell.fake.add(job)
        shell.fake.pods, shell.fake.logs = [pod("a", "role", role="actor")], {"a": [lines("both")]}
        assert shell.rlhf("logs", "ppo-spelling", "-r", "reference").stdout == "both\n"

    def test_lines_of_several_pods_are_in_the_order_of_time_with_their_pod(self, shell: Shell) -> None:
        shell.fake.pods = [pod("r0", "role", role="reward"), pod("r1", "role", role="reward")]
        shell.fake.logs = {"r0": [lines("one") + lines("four", second=3)], "r1": [lines("two", "three", second=1)]}
        assert shell.rlhf("logs", "ppo-spelling", "--role", "reward").stdout.splitlines() == [
            "reward/0 | one", "reward/1 | two", "reward/1 | three", "reward/0 | four",
        ]  # fmt: skip

    @pytest.mark.parametrize("which", ["1", "r1"])
    def test_one_pod_of_several_by_number_or_name(self, shell: Shell, which: str) -> None:
        shell.fake.pods = [pod("r0", "role", role="reward"), pod("r1", "role", role="reward")]
        shell.fake.logs = {"r0": [lines("zero")], "r1": [lines("one")]}
        assert shell.rlhf("logs", "ppo-spelling", "-r", "reward", "--pod", which).stdout == "one\n"

    def test_tail_and_times(self, shell: Shell) -> None:
        shell.fake.pods, shell.fake.logs = [pod("x", "controller")], {"x": [lines("last")]}
        result = shell.rlhf("logs", "ppo-spelling", "--tail", "1", "--timestamps")
        assert result.stdout == "2026-11-30T12:00:00.500000000Z last\n"
        assert shell.fake.requests[-1][2]["tailLines"] == "1"

    def test_a_pod_that_cannot_start_says_why(self, shell: Shell) -> None:
        waiting = {
            "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}]
        }
        shell.fake.pods = [pod("c", "role", role="critic", **waiting)]
        result = shell.rlhf("logs", "ppo-spelling", "--role", "critic")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "critic/0: pod c does not run yet: ImagePullBackOff: not found\n"

    def test_a_finished_job_tells_where_its_logs_are(self, shell: Shell) -> None:
        shell.fake.add(cases.complete())
        result = shell.rlhf("logs", "ppo-spelling", "--role", "critic")
        assert result.exit_code == 1
        assert 'has ended (Complete), and role "critic" has no pod any more; the full logs are in the folder ' in (
            result.stderr
        )
        assert 'folder "ppo-spelling/logs" of the claim "ppo-spelling-state"' in result.stderr

    def test_an_unknown_role_is_guessed(self, shell: Shell) -> None:
        assert 'did you mean "reward"?' in shell.rlhf("logs", "ppo-spelling", "--role", "rewards").stderr

    def test_two_choices_are_a_usage_error(self, shell: Shell) -> None:
        assert shell.rlhf("logs", "ppo-spelling", "--head", "--all").exit_code == 2

    def test_one_node_that_does_not_answer_does_not_hide_the_other_pods(self, shell: Shell) -> None:
        shell.fake.pods = [pod("r0", "role", role="reward"), pod("r1", "role", role="reward")]
        shell.fake.logs = {"r1": [lines("here")]}
        answer = status(500, 'Get "https://node-a:10250/containerLogs": dial tcp: i/o timeout')
        shell.fake.faults.append(Fault(lambda m, p, q: p.endswith("/r0/log"), *answer))
        result = shell.rlhf("logs", "ppo-spelling", "-r", "reward")
        assert result.stdout == "reward/1 | here\n"
        assert "reward/0: pod r0: " in result.stderr


class TestPrevious:
    def test_is_the_pod_that_ended_before_the_present_one(self, shell: Shell) -> None:
        shell.fake.pods = [
            pod("x1", "controller", phase="Failed"),
            pod("x2", "controller", created="2026-11-30T12:01:00Z"),
        ]
        shell.fake.logs = {"x1": [lines("Traceback")], "x2": [lines("well")]}
        assert shell.rlhf("logs", "ppo-spelling", "--previous").stdout == "Traceback\n"
        assert shell.rlhf("logs", "ppo-spelling").stdout == "well\n"

    def test_of_a_role_pod_that_is_gone_gives_the_last_lines_that_status_keeps(self, shell: Shell) -> None:
        result = shell.rlhf("logs", "ppo-spelling", "--role", "critic", "-p")
        assert result.stdout.splitlines() == [
            "ppo-spelling-critic-worker-x7k2p on node a100-1: Killed; its last lines:",
            "step 7 critic.update",
            "Killed",
        ]
        assert "the full logs are in the folder" in result.stderr


class TestFollow:
    def end_after(self, fake: FakeApiServer, looks: int) -> None:
        """Let the job end at the given look at it, and its pods with it."""
        seen: list[str] = []

        def look(method: str, path: str) -> None:
            seen.append(path)
            if [one.endswith("/rlhfjobs/ppo-spelling") for one in seen].count(True) >= looks:
                fake.change("ppo-spelling", **cases.complete()["status"])
                for one in fake.pods:
                    one["status"]["phase"] = "Succeeded"

        fake.on_request = look

    def test_takes_up_a_log_whose_connection_broke_without_a_line_twice_or_lost(self, shell: Shell) -> None:
        whole = [
            "2026-11-30T12:00:00.1Z a",
            "2026-11-30T12:00:00.1Z b",
            "2026-11-30T12:00:00.12Z c",
            *lines("d", second=1),
        ]
        shell.fake.pods = [CONTROLLER]
        shell.fake.logs = {"ppo-spelling-controller-1": [whole[:1], whole[:3], whole]}
        self.end_after(shell.fake, 8)
        result = shell.rlhf("logs", "ppo-spelling", "--follow")
        assert (result.exit_code, result.stdout.splitlines()) == (0, ["a", "b", "c", "d"])
        since = [query.get("sinceTime") for _, path, query, _ in shell.fake.requests if path.endswith("/log")]
        assert since[:2] == [None, "2026-11-30T12:00:00Z"]

    def test_goes_on_with_the_pod_that_comes_after_one_that_died(self, shell: Shell) -> None:
        first = pod("c1", "role", role="critic")
        shell.fake.pods, shell.fake.logs = [first], {"c1": [lines("old")], "c2": [lines("new", second=5)]}
        looks = 0

        def look(method: str, path: str) -> None:
            nonlocal looks
            looks += path.endswith("/rlhfjobs/ppo-spelling")
            if looks == 4:
                shell.fake.pods = [pod("c2", "role", role="critic")]
            if looks >= 12:
                shell.fake.change("ppo-spelling", **cases.complete()["status"])
                shell.fake.pods = []

        shell.fake.on_request = look
        result = shell.rlhf("logs", "ppo-spelling", "-r", "critic", "-f")
        assert (result.exit_code, result.stdout) == (0, "old\nnew\n")
        said = result.stderr.splitlines()
        assert said.index("--- critic/0: pod c1 is gone") < said.index("--- critic/0: pod c1 is replaced by c2")
        assert said[-1] == "--- RLHFJob/ppo-spelling has ended (Complete)"

    def test_a_pod_that_ends_with_its_job_is_no_error(self, shell: Shell) -> None:
        shell.fake.pods, shell.fake.logs = [pod("c", "role", role="critic")], {"c": [lines("last")]}
        looks = 0

        def look(method: str, path: str) -> None:
            nonlocal looks
            looks += path.endswith("/rlhfjobs/ppo-spelling")
            if looks == 3:
                shell.fake.change("ppo-spelling", **cases.complete()["status"])
                shell.fake.pods = [pod("c", "role", role="critic", phase="Failed")]

        shell.fake.on_request = look
        result = shell.rlhf("logs", "ppo-spelling", "-r", "critic", "-f")
        assert (result.exit_code, result.stdout) == (0, "last\n")
        assert result.stderr.splitlines() == [
            "--- critic/0: pod c has ended: the job is complete",
            "--- RLHFJob/ppo-spelling has ended (Complete)",
        ]

    def test_waits_for_a_pod_that_is_not_there_yet(self, shell: Shell) -> None:
        looks = 0

        def look(method: str, path: str) -> None:
            nonlocal looks
            looks += path.endswith("/rlhfjobs/ppo-spelling")
            if looks == 3:
                shell.fake.pods = [pod("x", "controller")]
            if looks >= 8:
                shell.fake.change("ppo-spelling", **cases.complete()["status"])
                shell.fake.pods = [pod("x", "controller", phase="Succeeded")]

        shell.fake.on_request = look
        shell.fake.logs = {"x": [lines("hello")]}
        result = shell.rlhf("logs", "ppo-spelling", "-f")
        assert (result.exit_code, result.stdout) == (0, "hello\n")
        assert result.stderr.startswith("--- RLHFJob/ppo-spelling: the controller has no pod yet; see why with: ")

    def test_asks_anew_for_a_log_that_is_silent_for_long(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log_follow, "SILENCE_SECONDS", 0.1)
        monkeypatch.setattr(log_follow, "GIVE_UP_SECONDS", 0.05)  # a pod that is merely silent is not given up
        shell.fake.pods = [CONTROLLER]
        hanging = [*lines("a"), SILENCE]
        shell.fake.logs = {"ppo-spelling-controller-1": [hanging, hanging, hanging, lines("a", "b")]}
        self.end_after(shell.fake, 16)
        result = shell.rlhf("logs", "ppo-spelling", "-f")
        assert (result.exit_code, result.stdout) == (0, "a\nb\n")

    def test_bears_an_api_server_that_is_away_for_a_while(self, shell: Shell) -> None:
        shell.fake.pods, shell.fake.logs = [CONTROLLER], {"ppo-spelling-controller-1": [lines("a"), lines("a", "b")]}
        away = status(503, "shutting down")
        shell.fake.faults += [Fault(lambda m, p, q: p.endswith("/log"), *away, times=2),
                              Fault(lambda m, p, q: p.endswith("/pods"), *away, times=2)]  # fmt: skip
        self.end_after(shell.fake, 12)
        result = shell.rlhf("logs", "ppo-spelling", "-f")
        assert (result.exit_code, result.stdout) == (0, "a\nb\n")
        assert "shutting down; trying again" in result.stderr

    def test_a_right_that_is_missing_ends_it(self, shell: Shell) -> None:
        shell.fake.pods = [CONTROLLER]
        denied = 'pods is forbidden: User "jane" cannot get resource "pods/log" in API group "" in the namespace "ml"'
        shell.fake.faults.append(Fault(lambda m, p, q: p.endswith("/log"), *status(403, denied)))
        result = shell.rlhf("logs", "ppo-spelling", "-f")
        assert (result.exit_code, 'must have the right to get pods/log in namespace "ml"' in result.stderr) == (1, True)

    def test_a_deleted_job_ends_it_with_1(self, shell: Shell) -> None:
        shell.fake.pods = [CONTROLLER]
        looks = 0

        def look(method: str, path: str) -> None:
            nonlocal looks
            looks += path.endswith("/rlhfjobs/ppo-spelling")
            if looks == 3:
                shell.fake.jobs.clear()

        shell.fake.on_request = look
        result = shell.rlhf("logs", "ppo-spelling", "-f")
        assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "--- RLHFJob/ppo-spelling was deleted")


class TestLines:
    @pytest.mark.parametrize(
        ("text", "want_time", "want_text"),
        [
            ("2026-11-30T12:00:00.12Z hello", "2026-11-30T12:00:00.120000000Z", "hello"),
            ("2026-11-30T12:00:00Z hello", "2026-11-30T12:00:00.000000000Z", "hello"),
            ("2026-11-30T12:00:00.5Z ", "2026-11-30T12:00:00.500000000Z", ""),
            ("no time at all", "", "no time at all"),
        ],
        ids=["a short fraction", "no fraction", "an empty line", "a line without a time"],
    )
    def test_a_time_is_read_so_that_it_can_be_compared(self, text: str, want_time: str, want_text: str) -> None:
        line = parse(text, "x")
        assert (line.time, line.text) == (want_time, want_text)

    def test_lines_of_one_moment_are_told_apart_by_their_number(self) -> None:
        fresh = Fresh()
        same = [parse("2026-11-30T12:00:00.1Z same", "x")] * 5
        assert [fresh.is_new(line) for line in same[:2]] == [True, True]
        fresh.again()
        assert [fresh.is_new(line) for line in same[:3]] == [False, False, True]
        fresh.again()
        assert [fresh.is_new(line) for line in same[:4]] == [False, False, False, True]


def test_a_pod_keeps_its_label_and_a_successor_takes_that_of_a_pod_gone() -> None:
    labels = Labels()
    first, second, third = (pod(name, "role", role="reward") for name in ("a", "b", "c"))
    assert list(labels.give([first, second])) == ["reward/0", "reward/1"]
    assert {label: found["metadata"]["name"] for label, found in labels.give([second, third]).items()} == {
        "reward/1": "b", "reward/0": "c",
    }  # fmt: skip


def test_a_pod_without_a_node_says_what_the_scheduler_said() -> None:
    pending = pod("p", "role", phase="Pending", containerStatuses=[], conditions=[
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes are available"},
    ])  # fmt: skip
    assert cannot_start(pending) == "Unschedulable: 0/4 nodes are available"


def over(code: int = 143, reason: str = "Error", *, finished: str = "12:00:40", **fields: Any) -> Any:
    state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": f"2026-11-30T{finished}Z"}}
    made = pod("p", "role", role="critic", phase="Failed", containerStatuses=[{"state": state}])
    made["status"] |= fields.pop("status", {})
    made["metadata"] |= fields
    return made


LEAVING = {"deletionTimestamp": "2026-11-30T12:01:00Z", "deletionGracePeriodSeconds": 30}
PREEMPTED = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}


@pytest.mark.parametrize(
    ("found", "job", "want"),
    [
        (over(0, "Completed"), cases.training(), "has ended"),
        (over(), cases.complete(), "has ended: the job is complete"),
        (over(), cases.suspended(), "has ended: the job is suspended"),
        (over(), None, "has ended: the job was deleted"),
        (over(**LEAVING), cases.training(), "has ended: it was told to leave"),
        (over(1, finished="12:00:20", **LEAVING), cases.training(), "ended with exit code 1 (Error)"),
        (over(1), cases.training(), "ended with exit code 1 (Error)"),
        (over(3), cases.failed(), "ended with exit code 3 (Error)"),
        (over(137, "OOMKilled", **LEAVING), cases.training(), "ended with exit code 137 (OOMKilled)"),
        (over(status=PREEMPTED, **LEAVING), cases.training(), "ended with exit code 143 (PreemptionByScheduler)"),
        (over(status={"containerStatuses": [], "reason": "Evicted"}), cases.training(), "ended (Evicted)"),
    ],
    ids=["of itself, well", "the job is complete", "the job is suspended", "the job is gone", "told to leave",
         "died, then deleted", "died", "the job failed", "out of memory on its way out", "preempted", "evicted"],
)  # fmt: skip
def test_only_an_end_that_nobody_asked_for_is_an_error(found: Any, job: Any, want: str) -> None:
    assert ended(found, job) == want
