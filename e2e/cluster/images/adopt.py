"""The builder's layers become containerd's snapshots without a byte being copied.

Both keep a layer as a folder of its files, in the form that the kernel's overlay wants. So a snapshot is made of hard
links to the builder's files; neither ever writes to a layer. What containerd must also know is each layer as a blob,
the tar that it would have been unpacked from. It asks for its size and never for its content, once there is a snapshot:
an empty file of that size takes its place.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.images import buildah, containerd, delta
from e2e.cluster.images.build import Image
from e2e.cluster.shell import run

BLOBS = Path("io.containerd.content.v1.content/blobs/sha256")
_FOLDER = re.compile(r"(?:upperdir=|bind )(/[^,\s]+/fs)\b")
LINK_LIMIT_SECONDS = 600


def adopt(images: Sequence[Image], socket: Path, root: Path) -> None:
    """Give the containerd on ``root`` all layers of ``images``; what is left to import is small.

    Nothing holds them until then: this containerd must not collect garbage by itself.

    Raises:
        CommandError: containerd refused a layer.
        ClusterError: the builder's store lacks one.
    """
    ids = buildah.layer_ids()
    snapshots = {line.split()[0] for line in containerd.ctr(socket, "snapshots", "list").splitlines()[1:]}
    blobs = set(containerd.ctr(socket, "content", "list", "--quiet").split())
    for image in images:
        parent, chain = "", ""
        for layer in buildah.inspect(image.stored).layers:
            if (parent, layer.digest) not in ids:
                raise ClusterError(
                    f"the builder's store has lost a layer of {image.reference}: remove {buildah.store()}"
                )
            parent, below, chain = ids[parent, layer.digest], chain, chain_id(chain, layer.digest)
            if chain not in snapshots:
                _snapshot(socket, buildah.layer_folder(parent), chain, below)
                snapshots.add(chain)
            if layer.digest not in blobs:
                _blob(socket, root / BLOBS, layer)
                blobs.add(layer.digest)


def chain_id(below: str, digest: str) -> str:
    """The name of a layer together with all below it, as the OCI image specification computes it."""
    return f"sha256:{hashlib.sha256(f'{below} {digest}'.encode()).hexdigest()}" if below else digest


def folder_of(mounts: str) -> Path:
    """The folder that is written to, in what containerd says of how to mount a snapshot."""
    found = _FOLDER.search(mounts)
    assert found, mounts
    return Path(found[1])


def _snapshot(socket: Path, files: Path, chain: str, below: str) -> None:
    key = f"adopt-{chain}"
    containerd.ctr(socket, "snapshots", "prepare", key, *([below] if below else []))
    target = folder_of(containerd.ctr(socket, "snapshots", "mounts", "/target", key))
    run(["cp", "--archive", "--link", "--no-target-directory", files, target], timeout=LINK_LIMIT_SECONDS)
    containerd.ctr(socket, "snapshots", "commit", chain, key)


def _blob(socket: Path, blobs: Path, layer: buildah.Layer) -> None:
    blobs.mkdir(parents=True, exist_ok=True)
    path = blobs / layer.digest.removeprefix("sha256:")
    delta.placeholder(path, layer.size)
    # containerd takes a blob that lies there already for that of another namespace, and only notes its size.
    words = ["content", "ingest", f"--expected-digest={layer.digest}", f"--expected-size={layer.size}", layer.digest]
    feed: list[str | Path] = ["sh", "-c", 'exec "$@" <"$0"', path]
    run([*feed, *containerd.client(socket), *words])
