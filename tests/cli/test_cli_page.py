"""The examples of docs/cli.md print what the page shows."""

import io
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import cluster_jobs as cases
import golden_views
import pytest
from cluster_api_server import FakeApiServer, Fault, pod, serve, status
from on_cluster import Shell

from rlhf_cli import terminal

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
EXAMPLES = re.findall(r"<!-- (\w+) -->\n```console\n\$ rlhf (.*?)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
COMMANDS = {"submit", "status", "logs", "restart", "scale", "suspend", "resume", "delete"}


CRITIC = (
    "critic-worker-000 ready at version 0 (attempt 0, 0 updates replayed) after 0.22 s, pid 1364",
    "step 1 critic-worker-000 compute_values 0.47 s (256 samples)",
    "step 1 critic-worker-000 update 2.09 s",
)
CONTROLLER = "2026-11-30T12:01:04Z step 1/40 reward 0.1016 kl 0.0003 3.12 s 82.1 samples/s"
LOGS = {
    "x": [f"2026-11-30T12:01:04.1Z {CONTROLLER}"],
    "ppo-spelling-actor-worker-a": [
        "2026-11-30T12:01:01.4Z step 1 actor-worker-000 generate 0.41 s (256 samples)",
        "2026-11-30T12:01:03.5Z step 1 actor-worker-000 update 1.62 s",
    ],
    "ppo-spelling-critic-worker-b": [
        f"2026-11-30T12:01:0{second}Z {line}" for second, line in zip(("0.9", "1.9", "4.0"), CRITIC, strict=True)
    ],
    "ppo-spelling-reward-worker-c": [
        "2026-11-30T12:01:01.7Z step 1 reward-worker-000 compute_scores 0.30 s (256 samples)"
    ],
}


def many(fake: FakeApiServer) -> None:
    for job, name in ((cases.training(), "ppo-spelling"), (cases.complete(), "grpo-spelling"),
                      (cases.suspended(), "paused")):  # fmt: skip
        job["metadata"]["name"] = name
        job["spec"]["algorithm"]["name"] = "GRPO" if name.startswith("grpo") else "PPO"
        fake.add(job)


def training(fake: FakeApiServer) -> None:
    fake.add(cases.training())
    fake.pods = [pod("x", "controller"), *golden_views.PODS]
    fake.logs = {name: [lines] for name, lines in LOGS.items()}


def scaled(fake: FakeApiServer) -> None:
    job = fake.add(cases.training())
    job["spec"]["roles"][2]["replicas"] = 3
    cause = {"reason": "FieldManagerConflict", "field": '.spec.roles[name="reward"].replicas',
             "message": 'conflict with "rlhf" using rlhf.dev/v1alpha1 at 2026-11-30T12:03:00Z'}  # fmt: skip
    fake.faults.append(Fault(lambda method, path, query: method == "PATCH", *status(409, "conflict", causes=[cause])))


def waiting(fake: FakeApiServer) -> None:
    fake.add(cases.waiting())
    fake.pods = [golden_views.PODS[0], *golden_views.PODS[2:]]


def ends(fake: FakeApiServer) -> None:
    job = fake.add(cases.waiting())
    fake.watches = [[{"type": "MODIFIED", "object": {**job, "status": found["status"]}}
                     for found in (cases.training(), cases.complete())]]  # fmt: skip


STATES: dict[str, Callable[[FakeApiServer], object]] = {
    "nothing": lambda fake: None,
    "many": many,
    "training": training,
    "scaled": scaled,
    "waiting": waiting,
    "ends": ends,
    "complete": lambda fake: fake.add(cases.complete()),
    "suspended": lambda fake: fake.add(cases.suspended()),
}


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    fake = FakeApiServer()
    server = serve(fake)
    shell = Shell(fake=fake, folder=tmp_path)
    shell.write_kubeconfig()
    shutil.copy(cases.EXAMPLE, tmp_path / "job.yaml")
    longer = cases.EXAMPLE.read_text(encoding="utf-8").replace("totalSteps: 40", "totalSteps: 60")
    (tmp_path / "longer.yaml").write_text(longer.replace("pool: critic", "pool: a100"), encoding="utf-8")
    two = cases.EXAMPLE.read_text(encoding="utf-8").replace("type: Reward\n", "type: Reward\n    replicas: 2\n")
    (tmp_path / "two-rewards.yaml").write_text(two, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(shell.kubeconfig))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("COLUMNS", "112")
    monkeypatch.setattr(terminal, "now", lambda: cases.NOW)
    yield shell
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("state", "command", "want"), EXAMPLES, ids=[command for _, command, _ in EXAMPLES])
def test_an_example_prints_what_the_page_shows(shell: Shell, state: str, command: str, want: str) -> None:
    STATES[state](shell.fake)
    assert shell.rlhf(*shlex.split(command)).output == want


def test_every_command_has_an_example() -> None:
    assert {command.split()[0] for _, command, _ in EXAMPLES} == COMMANDS


def test_links_are_there() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8"))
    assert [target for target in targets if not (PAGE.parent / target).exists()] == []


def test_the_lines_of_the_logs_are_as_the_runtime_writes_them() -> None:
    from rlhf_api.types import RLHFJob
    from rlhf_runtime.control.loop import StepRecord
    from rlhf_runtime.host import call_line, joined_line
    from rlhf_runtime.messages import CallRequest, Reply
    from rlhf_runtime.service.board import Board
    from rlhf_runtime.service.log import ControllerLog
    from rlhf_runtime.service.reporter import ServiceReporter
    from rlhf_runtime.wire_spec import ColumnSpec
    from rlhf_runtime.worker import CallInfo, Effect, WorkerContext

    context = WorkerContext(role="critic")
    written = [joined_line(context, replayed=0, seconds=0.22, engines={})]
    for method, rows in (("compute_values", 256), ("update", None)):
        request = CallRequest(role="critic", method=method, call=CallInfo(), epoch=1, effect=Effect.NONE, arguments={})
        columns = {"output": ColumnSpec(kind="tensor", rows=rows)}
        reply = Reply(columns=columns, shape="mapping", version=0, started=0.0, ended=0.47, nbytes=0)
        written.append(call_line(context, request, seconds=0.47, reply=reply))
    assert [shape(line) for line in written] == [shape(line) for line in CRITIC]

    output = io.StringIO()
    reporter = ServiceReporter(RLHFJob.model_validate(cases.MANIFEST), board=Board(), log=ControllerLog(output))
    record = StepRecord(step=1, seconds=3.12, metrics={"reward": 0.1016, "kl": 0.0003})
    reporter.step(record, {"samples_per_second": 82.1})
    assert shape(output.getvalue()) == shape(f"{CONTROLLER}\n")


def shape(line: str) -> str:
    return re.sub(r"\d+", "0", line)
