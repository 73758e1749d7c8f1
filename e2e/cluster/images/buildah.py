"""The image builder: buildah with a store of its own, in the cache, on overlay."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.images import folders, index
from e2e.cluster.shell import run

BUILD_LIMIT_SECONDS = 2400
_OPTION = "overlay.skip_mount_home=true"
"""Else each use of the store leaves it mounted upon itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer of an image, as its manifest has it. No layer is compressed, so the digest is that of its tar."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An image in the store."""

    digest: str
    layers: tuple[Layer, ...]

    @property
    def size(self) -> int:
        """The bytes of all layers."""
        return sum(layer.size for layer in self.layers)


def build(
    name: str, *, context: Path, dockerfile: Path, arguments: Mapping[str, str] | None = None, log: Path | None = None
) -> Stored:
    """Build a Dockerfile into the store, with what was built before as a cache of layers.

    Raises:
        CommandError: a step failed; the message shows its output.
    """
    words: list[str | Path] = ["build", "--layers", "--force-rm", "--pull=never", "--network=host", "--tag", name]
    words += [f"--build-arg={key}={value}" for key, value in (arguments or {}).items()]
    with folders.scratch("settings") as settings:
        words += [*index.secrets(settings), "--file", dockerfile, context]
        _buildah(words, timeout=BUILD_LIMIT_SECONDS, log=log)
    return inspect(name)


def inspect(name: str) -> Stored:
    """What the store knows of an image."""
    seen = json.loads(_buildah(["inspect", "--type=image", name]))
    layers = json.loads(seen["Manifest"])["layers"]
    assert all(layer["mediaType"].endswith(".tar") for layer in layers), "a compressed layer cannot be told by its tar"
    return Stored(
        digest=seen["FromImageDigest"],
        layers=tuple(Layer(digest=layer["digest"], size=layer["size"]) for layer in layers),
    )


def layer_ids() -> dict[tuple[str, str], str]:
    """The id of each layer in the store, by its parent's id (``""`` for the lowest) and its digest.

    A layer without a digest is that of a container in which a build runs, or was interrupted: no image has it.
    """
    layers = json.loads((store() / "overlay-layers/layers.json").read_text())
    return {(layer.get("parent", ""), layer["diff-digest"]): layer["id"] for layer in layers if "diff-digest" in layer}


def layer_folder(layer_id: str) -> Path:
    """Where the files of a layer lie."""
    return store() / "overlay" / layer_id / "diff"


def store() -> Path:
    """The folder of the store."""
    return folders.home() / "store"


def reference(name: str) -> str:
    """An image of the store, as other tools of its family name it."""
    own = folders.home()
    return f"containers-storage:[overlay@{store()}+{own / 'store-run'}:{_OPTION}]{name}"


def images() -> list[str]:
    """The full names of all images in the store."""
    found = json.loads(_buildah(["images", "--json"]) or "[]")
    return [name for image in found or [] for name in image.get("names") or []]


def remove(names: Sequence[str]) -> None:
    """Remove images, and then every layer that no image needs."""
    _buildah(["rm", "--all"])  # what interrupted builds left
    if names:
        _buildah(["rmi", "--force", *names])
    _buildah(["rmi", "--prune", "--force"])


def _buildah(words: Sequence[str | Path], *, timeout: float = 300, log: Path | None = None) -> str:
    temporary = folders.home() / "tmp"
    caches = temporary / "buildah-cache"  # where the builder keeps what Dockerfiles call a cache mount
    caches.mkdir(parents=True, exist_ok=True)
    downloads = caches / "rlhf-uv"
    if not downloads.is_symlink():
        index.uv_cache().mkdir(parents=True, exist_ok=True)
        unfinished = caches / f".rlhf-uv.{os.getpid()}"
        unfinished.symlink_to(index.uv_cache())
        unfinished.replace(downloads)
    where = [f"--root={store()}", f"--runroot={folders.home() / 'store-run'}", "--storage-driver=overlay"]
    where.append(f"--storage-opt={_OPTION}")
    return run(["buildah", *where, *words], env={"TMPDIR": str(temporary)}, timeout=timeout, log=log)
