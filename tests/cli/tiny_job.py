"""The smallest job that trains: a few words, a model of two supervised steps, GRPO with a rule."""

import itertools
import json
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from rlhf_cli.main import main

NAME = "tiny"
_WORDS = ["".join(letters) for letters in itertools.product("abcd", repeat=3)]


def write_tiny_job(
    folder: Path, *, steps: int = 3, function: str | None = None, prompt: str = "{}=", **spec: Any
) -> Path:
    """Write data and manifest; `spec` replaces fields of the manifest's spec."""
    for name, words in (("train", _WORDS[:48]), ("held", _WORDS[48:])):
        rows = [json.dumps({"prompt": prompt.format(word), "answer": word[::-1]}) + "\n" for word in words]
        (folder / f"{name}.jsonl").write_text("".join(rows), encoding="utf-8")
    manifest = {
        "apiVersion": "rlhf.dev/v1alpha1",
        "kind": "RLHFJob",
        "metadata": {"name": NAME},
        "spec": {
            "algorithm": {
                "name": "GRPO",
                "totalSteps": steps,
                "generation": {"maxNewTokens": 4},
                "grpo": {"promptsPerStep": 4, "groupSize": 2, "klCoefficient": 0.05},
            },
            "model": {"builtin": {"name": "spelling-tiny", "supervisedSteps": 2, "supervisedExamples": 48}},
            "data": {"files": {"train": ["train.jsonl"], "heldOut": ["held.jsonl"]}},
            "roles": [
                {"name": "actor", "type": "Actor"},
                {"name": "reward", "type": "Rule", **({"worker": {"function": function}} if function else {})},
                {"name": "reference", "type": "Reference"},
            ],
            "state": {"snapshotEverySteps": 4},
        }
        | spec,
    }
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(manifest, sort_keys=False), encoding="utf-8")
    return file


def rlhf_run(*arguments: str) -> Result:
    """Run the command in this process; an exception that it lets through fails the test."""
    return CliRunner().invoke(main, ["run", *arguments, "--backend=in-process"], catch_exceptions=False)


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl` without what a clock decides."""
    clocked = {"time", "seconds", "samples_per_second", "tokens_per_second"}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name not in clocked} for line in lines]


def summary_of(run: Path) -> dict[str, Any]:
    """`summary.json`."""
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return summary
