"""Which cluster, as whom and in which namespace: found as kubectl finds it."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhf_cli.cluster.errors import KubeconfigError

if TYPE_CHECKING:
    from kubernetes.client import Configuration

DEFAULT = "~/.kube/config"
_IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A cluster as the kubeconfig describes it.

    Attributes:
        configuration: Of the `kubernetes` package: host, certificates, credentials.
        context: The context's name.
        namespace: The one to work in.
    """

    configuration: Configuration
    context: str
    namespace: str


def load(*, kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None) -> Access:
    """Read the kubeconfig; in a pod that has none, the pod's service account is used.

    Raises:
        KubeconfigError: There is none, or no such context, or its credentials cannot be had.
    """
    from kubernetes.config import ConfigException

    files = kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT
    there = [path for path in files.split(os.pathsep) if path and Path(path).expanduser().exists()]
    if kubeconfig and not there:
        raise KubeconfigError(f'the kubeconfig "{kubeconfig}" does not exist')
    if not there:
        if context is None and os.environ.get("KUBERNETES_SERVICE_HOST") and (_IN_POD / "token").exists():
            return _of_pod(namespace)
        raise KubeconfigError(
            f"there is no kubeconfig at {files}; name one with `--kubeconfig` or in the variable KUBECONFIG"
        )
    try:
        return _of_files(files, context, namespace)
    except (ConfigException, OSError, ValueError, TypeError, AttributeError) as error:
        # The package meets a file of another shape with whatever Python raises.
        raise KubeconfigError(f"the kubeconfig {files} cannot be used: {error}") from error
    except _yaml_error() as error:
        raise KubeconfigError(f"the kubeconfig {files} is not valid YAML: {error}") from error


def _of_files(files: str, context: str | None, namespace: str | None) -> Access:
    from kubernetes.client import Configuration
    from kubernetes.config import kube_config

    loading: Any = kube_config  # it has no types
    merged = loading.KubeConfigMerger(files)
    if merged.config is None:
        raise KubeconfigError(f"the kubeconfig {files} is empty")
    known = [item["name"] for item in merged.config.value["contexts"]]
    wanted = context or merged.config.safe_get("current-context")
    if not wanted:
        raise KubeconfigError(f"the kubeconfig {files} has no current context; {_choose(known)}")
    if wanted not in known:
        raise KubeconfigError(f'the kubeconfig {files} has no context "{wanted}"; {_choose(known)}')
    loader = loading.KubeConfigLoader(
        config_dict=merged.config, config_base_path=None, active_context=wanted, config_persister=merged.save_changes
    )
    configuration = Configuration()
    with _Complaints() as complaints:
        loader.load_and_set(configuration)
    user = merged.config["users"].get_with_name(loader.current_context["context"].get("user"), safe=True)
    command = ((user["user"].safe_get("exec") if user else None) or {}).get("command")
    if command and not configuration.api_key and not configuration.cert_file:
        raise KubeconfigError(f'the credential plugin "{command}" gives nothing: {"; ".join(complaints.texts)}')
    preset = loader.current_context["context"].get("namespace")
    return Access(configuration=configuration, context=wanted, namespace=namespace or preset or "default")


class _Complaints(logging.Handler):
    """What the package only logs: with a credential plugin that fails it would go on as nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.texts.append(record.getMessage())

    def __enter__(self) -> _Complaints:
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *error: object) -> None:
        logging.getLogger().removeHandler(self)


def _choose(known: list[str]) -> str:
    return f"choose one with `--context`: {', '.join(known)}" if known else "it has none at all"


def _of_pod(namespace: str | None) -> Access:
    from kubernetes.client import Configuration
    from kubernetes.config import load_incluster_config

    loading: Any = load_incluster_config
    configuration = Configuration()
    loading(client_configuration=configuration)
    own = (_IN_POD / "namespace").read_text(encoding="utf-8").strip()
    return Access(configuration=configuration, context="the pod's service account", namespace=namespace or own)


def _yaml_error() -> type[Exception]:
    import yaml

    return yaml.YAMLError
