"""Where things lie: what is kept between clusters, and the state of the one that runs.

Builds are kept under the user's cache folder, named by their content, so that every clone on a machine shares them.
The state of the running cluster is at one fixed place, since a machine has one of them: whatever clone, shell or user
asks, and however the command that made it ended, it is found.
"""

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent

STATE = Path("/var/lib/rlhf-cluster")
LOGS = STATE / "logs"


def cache_folder() -> Path:
    """``$RLHF_CACHE_DIR/cluster``, else the same below ``$XDG_CACHE_HOME/rlhf`` or ``~/.cache/rlhf``."""
    if own := os.environ.get("RLHF_CACHE_DIR"):
        return Path(own) / "cluster"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlhf" / "cluster"


def search_path() -> str:
    """Where programs are looked for: a user's own path often lacks the folders of those that only root may use."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or none, also when this process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.replace(path)


KIND = os.environ.get("PROVIDER", "local") == "kind"
"""Whether the cluster is one of kind, in Docker, and not what is made here."""
KUBECONFIG = cache_folder() / "kind.kubeconfig" if KIND else STATE / "kubeconfig"
CONTEXT = "kind-rlhf" if KIND else "rlhf-cluster"
"""The name of the kubeconfig context; tests refuse any other."""
