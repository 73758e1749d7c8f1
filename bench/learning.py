"""Does it learn? Runs the example jobs on several seeds, and the control with shuffled rewards; prints one JSON line.

python bench/learning.py                      # PPO and GRPO on seeds 0, 1, 2, and the control
python bench/learning.py --only PPO --seeds 0
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
RUNS = ("PPO", "GRPO", "GRPO-shuffled")


def manifest_of(run: str, *, seed: int) -> dict[str, Any]:
    """The example's manifest with another seed and, for the control, another reward worker."""
    algorithm, _, control = run.partition("-")
    manifest = yaml.safe_load((EXAMPLES / f"{algorithm.lower()}-spelling.yaml").read_text())
    manifest["metadata"]["name"] = f"{run.lower()}-{seed}"
    manifest["spec"]["algorithm"]["seed"] = seed
    if control:
        rule = next(role for role in manifest["spec"]["roles"] if role["type"] == "Rule")
        rule["worker"] = {"className": "shuffled_rewards:ShuffledRuleWorker"}
    return manifest


def train(run: str, *, seed: int, runs_dir: Path, backend: str | None = None) -> dict[str, Any]:
    """Run one job with `rlhf run`; gives its summary."""
    manifest = manifest_of(run, seed=seed)
    file = runs_dir / f"{manifest['metadata']['name']}.yaml"
    file.write_text(yaml.safe_dump(manifest))
    command = [sys.executable, "-m", "rlhf_cli", "run", str(file), "--runs-dir", str(runs_dir), "--fresh", "--quiet"]
    command += ["--backend", backend] if backend else []
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{run} with seed {seed} failed:\n{done.stdout}{done.stderr}")
    summary: dict[str, Any] = json.loads((runs_dir / manifest["metadata"]["name"] / "summary.json").read_text())
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=RUNS, action="append")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="rlhf-learning-") as folder:
        for run in arguments.only or RUNS:
            for seed in arguments.seeds if "-" not in run else arguments.seeds[:1]:
                summary = train(run, seed=seed, runs_dir=Path(folder))
                keys = ("heldout_accuracy_start", "heldout_accuracy_end", "seconds", "outside_roles_fraction")
                results.setdefault(run, []).append({"seed": seed, **{key: summary[key] for key in keys}})
                print(f"{run} seed {seed}: {results[run][-1]}", file=sys.stderr)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
