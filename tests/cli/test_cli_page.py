"""The examples of docs/cli.md print what the page shows."""

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import cluster_jobs as cases
import golden_views
import pytest
from cluster_api_server import FakeApiServer, pod, serve
from on_cluster import Shell

from rlhf_cli import terminal

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
EXAMPLES = re.findall(r"<!-- (\w+) -->\n```console\n\$ rlhf (.*?)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
COMMANDS = {"submit", "status", "logs", "restart", "scale", "suspend", "resume", "delete"}


def many(fake: FakeApiServer) -> None:
    for job, name in ((cases.training(), "ppo-spelling"), (cases.complete(), "grpo-spelling"),
                      (cases.suspended(), "paused")):  # fmt: skip
        job["metadata"]["name"] = name
        job["spec"]["algorithm"]["name"] = "GRPO" if name.startswith("grpo") else "PPO"
        fake.add(job)


def training(fake: FakeApiServer) -> None:
    fake.add(cases.training())
    fake.pods = [pod("x", "controller"), *golden_views.PODS]
    fake.logs = {"x": [["2026-11-30T12:00:00Z step 0 reward 0.102"]]}
    for role, name in (("actor", golden_views.PODS[0]), ("critic", golden_views.PODS[1])):
        fraction = {"actor": 1, "critic": 2}[role]
        fake.logs[name["metadata"]["name"]] = [
            [f"2026-11-30T12:00:0{step}.{fraction}Z step {step} {role}.update" for step in range(2)]
        ]


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
