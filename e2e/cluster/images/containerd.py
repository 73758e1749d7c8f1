"""Talking to a containerd, and a short-lived one of our own."""

import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.images import delta, folders
from e2e.cluster.images.build import Image
from e2e.cluster.shell import run, succeeds

NAMESPACE = "k8s.io"
"""Where a kubelet's containerd looks for images."""
START_LIMIT_SECONDS = 60.0


def ctr(socket: Path, *words: str, namespace: str = NAMESPACE, timeout: float = 120) -> str:
    """Run a command of containerd's own client."""
    return run([*client(socket, namespace), *words], timeout=timeout)


def loaded(socket: Path, *, namespace: str = NAMESPACE) -> dict[str, str]:
    """The images that a containerd has, whole and unpacked: the digest of each reference."""
    rows = (line.split() for line in ctr(socket, "images", "check", namespace=namespace).splitlines()[1:])
    return {row[0]: row[2] for row in rows if row[-1] == "true" and "complete" in row}


def load(images: Sequence[Image], socket: Path, *, namespace: str = NAMESPACE) -> list[str]:
    """Import those images that a containerd lacks, and of them only what it lacks; returns the digests sent.

    Raises:
        CommandError: the containerd refused them, or ended.
    """
    have = loaded(socket, namespace=namespace)
    lacking = [image for image in images if have.get(image.reference) != image.digest]
    if not lacking:
        return []
    present = frozenset(ctr(socket, "content", "list", "--quiet", namespace=namespace).split())
    argv = [*client(socket, namespace), "images", "import", "-"]
    # One after another: exports are bound by the processors, and four of a 5 GB layer at once would fill the disk.
    with folders.locked("export"), delta.exported(lacking, present=present) as layout:
        with _earlier_kept([image.reference for image in lacking if image.reference in have], socket, namespace):
            return delta.feed(argv, layout, lacking, present=present)


@contextmanager
def _earlier_kept(references: Sequence[str], socket: Path, namespace: str) -> Iterator[None]:
    """Give the images of these names another one while their successors are imported.

    Else containerd may remove their layers, which the successors share, before it has unpacked these.
    """
    kept = {reference: f"localhost/earlier/{reference.rpartition('/')[2]}" for reference in references}
    for reference, name in kept.items():
        ctr(socket, "images", "tag", "--force", reference, name, namespace=namespace)
    yield
    if kept:
        ctr(socket, "images", "remove", *kept.values(), namespace=namespace)


@contextmanager
def short_lived(root: Path) -> Iterator[Path]:
    """A containerd on ``root`` for as long as the block runs, without Kubernetes' part; yields its socket.

    Raises:
        ClusterError: it did not start; the message shows its log.
    """
    with tempfile.TemporaryDirectory(prefix="rlhf-seed-") as folder:  # a socket's path must be short
        state = Path(folder)
        socket, log = state / "sock", state / "log"
        config = state / "config.toml"
        config.write_text(_config(root, state, socket))
        # It must not outlive this process: the next one could not open the databases then.
        argv = ["setpriv", "--pdeathsig=TERM", "containerd", "--config", str(config)]
        with log.open("wb") as output:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + START_LIMIT_SECONDS
            while not succeeds([*client(socket, NAMESPACE), "version"], timeout=10):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise ClusterError(f"containerd on {root} did not start:\n{log.read_text()[-2000:]}")
                time.sleep(0.05)
            yield socket
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def client(socket: Path, namespace: str = NAMESPACE) -> list[str]:
    """How to call containerd's own client."""
    return ["ctr", "--address", str(socket), "--namespace", namespace]


def _config(root: Path, state: Path, socket: Path) -> str:
    return f"""version = 2
root = "{root}"
state = "{state / "state"}"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
address = "{socket}"
[ttrpc]
address = "{socket}.ttrpc"
[debug]
address = "{socket}.debug"
level = "warn"
[plugins."io.containerd.gc.v1.scheduler"]
# Never by itself: what is being brought in belongs to no image yet.
startup_delay = "24h"
deletion_threshold = 0
mutation_threshold = 0
"""
