import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from on_cluster import without_what_trains

from rlhf_cli.main import COMMANDS, main

EXAMPLE = Path(__file__).parents[2] / "examples" / "ppo-spelling.yaml"
HEAVY = ("pydantic", "yaml", "numpy", "torch", "ray", "transformers", "rlhf_api.types", "rlhf_runtime")


def test_help_lists_every_command() -> None:
    output = CliRunner().invoke(main, ["--help"]).output
    assert all(name in output for name in COMMANDS)


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from rlhf_cli.main import main; main(['--help'], standalone_mode=False);"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_manifest_is_checked_and_every_command_explained_without_what_trains() -> None:
    calls = [["validate", str(EXAMPLE)], *([name, "--help"] for name in COMMANDS)]
    script = (
        f"{without_what_trains()}\nfrom rlhf_cli.main import main\n"
        f"for call in {calls!r}: main(call, standalone_mode=False)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith(f"{EXAMPLE}: RLHFJob/ppo-spelling is valid\nUsage: ")
    assert done.stdout.count("Usage: ") == len(COMMANDS)


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["trian"])
    assert result.exit_code == 2
    assert "No such command 'trian'" in result.stderr


@pytest.mark.parametrize("name", ["validate", "crd"])
def test_every_command_explains_itself_and_its_exit_codes(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert "Exit code: 0" in result.output
