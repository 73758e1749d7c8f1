"""What `rlhf status` draws, kept as text; `python tests/cli/golden_views.py` writes it anew after a wanted change."""

import io
from collections.abc import Callable
from pathlib import Path

import cluster_jobs as cases
from cluster_api_server import pod
from rich.console import Console, RenderableType

from rlhf_cli import render_job

FOLDER = Path(__file__).parent / "golden"
WIDTHS = (80, 120)
PODS = [
    pod("ppo-spelling-actor-worker-a", "role", role="actor", node="h100-0"),
    pod("ppo-spelling-critic-worker-b", "role", role="critic", node="a100-1"),
    pod("ppo-spelling-reward-worker-c", "role", role="reward", node="t4-0"),
    pod("ppo-spelling-reference-worker-d", "role", role="reference", node="t4-1"),
]


def _job(found: cases.Object, **given: object) -> Callable[[int], RenderableType]:
    return lambda width: render_job.job(found, now=cases.NOW, width=width, **given)  # type: ignore[arg-type]


JOBS = [cases.training(), cases.complete(), cases.suspended(), cases.job("a-new-one")]
for number, name in enumerate(("ppo-spelling", "grpo-spelling", "paused", "a-new-one")):
    JOBS[number]["metadata"]["name"] = name
JOBS[1]["spec"]["algorithm"]["name"] = "GRPO"
MANY = [*JOBS, cases.training("a-name-of-exactly-forty-characters-long")]

VIEWS: dict[str, Callable[[int], RenderableType]] = {
    "training": _job(cases.training(), pods=PODS, events=cases.EVENTS, seconds_left=92.0),
    "waiting": _job(cases.waiting(), pods=PODS[:1], events=[]),
    "complete": _job(cases.complete(), events=cases.EVENTS),
    "failed": _job(cases.failed()),
    "suspended": _job(cases.suspended()),
    "new": _job(cases.job()),
    "not-allowed": _job(cases.training(), pods=None, events=None, problem="the API server does not answer"),
    "table": lambda width: render_job.jobs_table(JOBS, cases.NOW, with_namespace=False, width=width),
    "table-all": lambda width: render_job.jobs_table(MANY, cases.NOW, with_namespace=True, width=width),
}


def drawn(name: str, width: int) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=False, color_system=None, legacy_windows=False)
    console.print(VIEWS[name](width), soft_wrap=name.startswith("table"))
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def path(name: str, width: int) -> Path:
    return FOLDER / f"{name}-{width}.txt"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for view in VIEWS:
        for columns in WIDTHS:
            path(view, columns).write_text(drawn(view, columns), encoding="utf-8")
