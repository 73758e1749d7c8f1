"""A node's images: a new node gets them from the seed in an instant, a running one gets what it lacks."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.images import containerd, folders
from e2e.cluster.images.build import Image
from e2e.cluster.images.seed import BLOBS, DATABASES, SNAPSHOTS


def prepare_node_root(root: Path, images: Sequence[Image]) -> None:
    """Fill the empty root folder of a containerd that is not running yet with all images of the seed.

    The databases are copied, since each containerd writes its own. Snapshots and blobs are links into the seed: they
    are never written, only stacked below, and a node that removes an image removes its links. The databases know
    snapshots by number, not by path, so that the root may be mounted anywhere else; the cache must be visible there.

    Raises:
        ClusterError: the seed lacks one of ``images``.
    """
    seed = folders.seed()
    known = folders.in_seed()
    for image in images:
        if known.get(image.reference) != image.digest:
            raise ClusterError(f'the seed has no "{image.reference}" of this build: call `ensure_seed` first')
    for database in DATABASES:
        (root / database).parent.mkdir(mode=0o700, parents=True)
        shutil.copyfile(seed / database, root / database)
    for folder in (BLOBS, SNAPSHOTS):
        (root / folder).mkdir(mode=0o755 if folder == BLOBS else 0o700, parents=True)
        for entry in (seed / folder).iterdir():
            (root / folder / entry.name).symlink_to(entry.resolve())


def load_into_node(
    images: Sequence[Image], *, containerd_socket: Path, namespace: str = containerd.NAMESPACE
) -> list[str]:
    """Bring images to a running containerd, and of them only the layers that it lacks; returns the digests sent.

    Raises:
        CommandError: the containerd refused them, or cannot be reached.
    """
    return containerd.load(images, containerd_socket, namespace=namespace)
