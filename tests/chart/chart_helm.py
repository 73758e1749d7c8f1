import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "charts/rlhf-operator"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
WITHOUT_CRD = {"crds": {"enabled": False}}
"""Parsing it takes a second, and few tests look at it."""

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Helm:
    """Helm without a cluster, on the chart."""

    program: Path
    home: Path

    def run(self, *words: str, values: Object | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.program), *words, *(["--values=-"] if values is not None else [])],
            input=None if values is None else yaml.safe_dump(values),
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "KUBECONFIG": str(self.home / "none")},
        )

    def objects(
        self, values: Object | None = None, *, release: str = "rlhf-operator", crd: bool = False
    ) -> list[Object]:
        """What the chart renders in the namespace `rlhf-operator`."""
        values = {**({} if crd else WITHOUT_CRD), **(values or {})}
        done = self.run("template", release, str(CHART), "--namespace=rlhf-operator", values=values)
        assert done.returncode == 0, done.stderr
        return [found for found in yaml.load_all(done.stdout, LOADER) if found]

    def refusal(self, values: Object) -> str:
        """What Helm says to values that it does not take."""
        done = self.run("template", "rlhf-operator", str(CHART), values={**WITHOUT_CRD, **values})
        assert done.returncode != 0, "these values were taken"
        return done.stderr

    def notes(self, values: Object | None = None) -> str:
        """What is shown after an install."""
        words = ("install", "rlhf-operator", str(CHART), "--namespace=rlhf-operator", "--dry-run=client")
        done = self.run(*words, values={**WITHOUT_CRD, **(values or {})})
        assert done.returncode == 0, done.stderr
        return done.stdout.partition("\nNOTES:\n")[2]
