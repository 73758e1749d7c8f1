"""The seed: a containerd root in the cache with all images unpacked, which the roots of all nodes link to.

Made once, by a containerd that lives only for that, of links to the builder's own files (see :mod:`.adopt`). What lies
in it is used by running nodes, so that it is changed only while there are none.
"""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster.errors import CommandError
from e2e.cluster.images import adopt, containerd, folders
from e2e.cluster.images.build import Image
from e2e.cluster.steps import step

BLOBS = adopt.BLOBS
SNAPSHOTS = Path("io.containerd.snapshotter.v1.overlayfs/snapshots")
DATABASES = (
    Path("io.containerd.metadata.v1.bolt/meta.db"),
    Path("io.containerd.snapshotter.v1.overlayfs/metadata.db"),
)


def have_been_unpacked() -> bool:
    """Whether there is a seed, so that at most what changed has to be built and unpacked."""
    return folders.seed_record().exists()


def ensure_seed(images: Sequence[Image]) -> Path:
    """Bring images into the seed, and their earlier versions out of it; returns its folder. Only when no cluster runs.

    Raises:
        CommandError: an import failed.
    """
    root, record = folders.seed(), folders.seed_record()
    wanted = {image.reference: image.digest for image in images}
    with folders.locked("seed"):
        known = folders.read_json(record) or {}
        missing = [image for image in images if known.get("images", {}).get(image.reference) != image.digest]
        if not missing:
            return root
        record.unlink(missing_ok=True)  # what follows may be interrupted
        if not known:
            _clear_if_damaged(root)
        fresh, started = not root.exists(), time.monotonic()
        names = ", ".join(image.reference.rpartition("/")[2] for image in missing)
        with step(f"unpack for the nodes: {names}"):
            try:
                have = _import(missing, root)
            except CommandError:
                if fresh:
                    raise
                missing, names = list(images), "all, since the earlier ones were damaged"
                shutil.rmtree(root)
                have = _import(missing, root)
        times = {**known.get("seconds", {}), names: round(time.monotonic() - started, 1)}
        folders.write_json(record, {"images": {**have, **wanted}, "seconds": times})
    return root


def _import(images: Sequence[Image], root: Path) -> dict[str, str]:
    """Import images; returns all that the seed has.

    Raises:
        CommandError: it failed, or an image is not whole afterwards.
    """
    with containerd.short_lived(root) as socket:
        adopt.adopt(images, socket, root)
        containerd.load(images, socket)
        have = containerd.loaded(socket)
        _collect_garbage(socket)
    broken = [image.reference for image in images if have.get(image.reference) != image.digest]
    if broken:
        raise CommandError(["ctr", "images", "check"], 1, f"not unpacked: {', '.join(broken)}")
    return have


def remove(references: Sequence[str]) -> None:
    """Remove images from the seed, and all that only they needed. Only when no cluster runs."""
    record = folders.seed_record()
    with folders.locked("seed"):
        known = folders.read_json(record)
        gone = [name for name in references if known is not None and name in known["images"]]
        if known is None or not gone:
            return
        record.unlink()
        with containerd.short_lived(folders.seed()) as socket:
            containerd.ctr(socket, "images", "remove", "--sync", *gone)
        kept = {name: digest for name, digest in known["images"].items() if name not in gone}
        folders.write_json(record, {**known, "images": kept})


def _clear_if_damaged(root: Path) -> None:
    """A machine that lost power may have left databases without the files that they name: start over."""
    if root.exists() and not all((root / database).exists() for database in DATABASES):
        shutil.rmtree(root)


def _collect_garbage(socket: Path) -> None:
    """Let containerd remove what no image needs any more, now: it removes synchronously with an image of that name."""
    containerd.ctr(socket, "images", "remove", "--sync", "localhost/nothing:none")
