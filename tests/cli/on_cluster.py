"""Runs `rlhf` in this process against a fake API server."""

from dataclasses import dataclass
from pathlib import Path

import yaml
from click.testing import CliRunner, Result
from cluster_api_server import FakeApiServer

from rlhf_cli.main import main

EXTRAS = (
    "numpy", "torch", "ray", "transformers", "tokenizers", "safetensors", "fsspec", "reasoning_gym", "matplotlib",
    "grpc", "google.protobuf", "prometheus_client", "cryptography", "kopf",
)  # fmt: skip
"""What only the extras `runtime` and `operator` install."""


def without_what_trains() -> str:
    """Python that makes every import of the extras fail, as where they are not installed."""
    return f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))"


@dataclass
class Shell:
    """A command line with a kubeconfig whose context is in namespace `ml`."""

    fake: FakeApiServer
    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def write_kubeconfig(self, *, server: str | None = None, namespace: str | None = "ml") -> None:
        context = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "contexts": [{"name": "here", "context": context}],
            "clusters": [{"name": "c", "cluster": {"server": server or f"http://127.0.0.1:{self.fake.port}"}}],
            "users": [{"name": "u", "user": {"token": "sesame"}}],
        }  # fmt: skip
        self.kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")

    def rlhf(self, *words: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(main, words, input=stdin, prog_name="rlhf", catch_exceptions=False)
