"""The base image, where no registry can be reached: Debian by debootstrap, made once per machine."""

import os
import shutil
from pathlib import Path

from e2e.cluster.images import buildah, folders, inputs
from e2e.cluster.shell import run
from e2e.cluster.steps import step

FOLDER = Path(__file__).resolve().parent / "base"
SUITE = "bookworm"
PACKAGES = ("ca-certificates", "procps", "python3", "python3-venv")
_OF_THIS_MACHINE = ("etc/resolv.conf", "etc/hostname", "var/log/bootstrap.log")
_DOWNLOADS = ("var/cache/apt", "var/lib/apt/lists")
LIMIT_SECONDS = 900


def name() -> str:
    """The name of the base in the store: a hash of the recipe is part of it."""
    recipe = (SUITE, *PACKAGES, *_OF_THIS_MACHINE, *_DOWNLOADS)
    return f"localhost/rlhf-base:{inputs.hash_of(FOLDER, [FOLDER / 'Dockerfile'], *recipe)}"


def ensure() -> str:
    """Make the base if this machine has none of this recipe; returns its name.

    Its age is kept as it is, since a newer base would make every layer above it anew. ``$DEBIAN_MIRROR`` names another
    mirror than Debian's own.

    Raises:
        CommandError: debootstrap failed, for example because no mirror can be reached.
    """
    own = name()
    record = folders.records() / f"{own.rpartition(':')[2]}.json"
    with folders.locked("base"):
        if folders.read_json(record) is None:
            with step("make the base image with debootstrap"), folders.scratch("base") as folder:
                _make(folder)
                stored = buildah.build(own, context=folder, dockerfile=FOLDER / "Dockerfile")
            folders.write_json(record, {"reference": own, "stored": own, "digest": stored.digest, "size": stored.size})
    return own


def _make(folder: Path) -> None:
    root = folder / "rootfs"
    mirror = [os.environ["DEBIAN_MIRROR"]] if os.environ.get("DEBIAN_MIRROR") else []
    include = f"--include={','.join(PACKAGES)}"
    run(["debootstrap", "--variant=minbase", include, SUITE, root, *mirror], timeout=LIMIT_SECONDS)
    for path in _OF_THIS_MACHINE:
        (root / path).unlink(missing_ok=True)
    for path in _DOWNLOADS:
        shutil.rmtree(root / path)
        (root / path).mkdir(parents=True)
    run(["tar", "-C", root, "--numeric-owner", "-cf", folder / "rootfs.tar", "."], timeout=LIMIT_SECONDS)
    shutil.rmtree(root)
