"""What the README shows works as it is printed."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from tiny_job import metrics_of, write_tiny_job

from rlhf_cli.main import main

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n# (\w+\.py)[;,].*?\n(.*?)```", README, re.S)
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")


@pytest.mark.usefixtures("here")
def test_a_reward_a_worker_and_a_control_flow_of_ones_own_train_together(here: Path) -> None:
    assert [name for name, _ in EXAMPLES] == ["my_rewards.py", "my_workers.py", "my_flow.py"]
    for name, text in EXAMPLES:
        (here / name).write_text(text, encoding="utf-8")
    roles = [
        {"name": "actor", "type": "Actor"},
        {"name": "reward", "type": "Rule", "worker": {"function": "my_rewards:length"}},
        {"name": "reference", "type": "Reference"},
        {"name": "safety", "type": "Custom", "worker": {"className": "my_workers:SafetyWorker"}},
    ]
    write_tiny_job(here, steps=1, roles=roles)
    command = ["run", "--controller", "my_flow:SafeGRPO", "--config", "tiny.yaml", "--backend", "in-process"]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "reward/safety" in metrics_of(Path("runs/tiny"))[1]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/runtime.md", "docs/embedded-run.md"])
def test_links_and_pictures_are_there(name: str) -> None:
    page = REPOSITORY / name
    targets = [target for target in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []
