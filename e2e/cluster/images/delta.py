"""An archive of images with only those layers that a containerd lacks.

The archive is an OCI layout in a tar stream. It is made by ``skopeo`` from the builder's store; where a layer is not
wanted, an empty file of the layer's size lies in the layout beforehand, which skopeo takes for a layer that is there
already. Nothing is compressed, since it never leaves the machine.
"""

import io
import json
import subprocess
import tarfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from e2e.cluster.errors import CommandError
from e2e.cluster.images import buildah, folders
from e2e.cluster.images.build import Image
from e2e.cluster.shell import run

EXPORT_LIMIT_SECONDS = 1200
NAME_ANNOTATION = "io.containerd.image.name"


@contextmanager
def exported(images: Sequence[Image], *, present: Collection[str]) -> Iterator[Path]:
    """A temporary OCI layout of images, in which the layers ``present`` (digests) are placeholders."""
    with folders.scratch("layout") as layout:
        blobs = layout / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        for image in images:
            for layer in buildah.inspect(image.stored).layers:
                if layer.digest in present:
                    placeholder(blobs / layer.digest.removeprefix("sha256:"), layer.size)
            words = ["skopeo", "copy", "--quiet", "--preserve-digests", "--dest-oci-accept-uncompressed-layers"]
            words += [buildah.reference(image.stored), f"oci:{layout}:{len(image.stored)}-{image.digest[7:]}"]
            run(words, timeout=EXPORT_LIMIT_SECONDS, env={"TMPDIR": str(layout.parent)})
        yield layout


def placeholder(path: Path, size: int) -> None:
    """Put a file of that size, which takes no space, where a layer's content would lie."""
    unfinished = path.with_name(f".{path.name}")
    with unfinished.open("wb") as file:
        file.truncate(size)
    unfinished.chmod(0o444)
    unfinished.replace(path)


def write_archive(out: IO[bytes], layout: Path, images: Sequence[Image], *, present: Collection[str]) -> list[str]:
    """Write a layout as a tar stream, without the blobs ``present``; returns the digests that it holds.

    What is written is removed from the layout, so that a large layer does not lie on the disk once more than it must.
    """
    blobs = layout / "blobs" / "sha256"
    manifests = [_descriptor(blobs, image) for image in images]
    index = {"schemaVersion": 2, "manifests": manifests}
    written = []
    with tarfile.open(fileobj=out, mode="w|") as archive:
        _add(archive, "oci-layout", {"imageLayoutVersion": "1.0.0"})
        _add(archive, "index.json", index)
        for digest in _digests(blobs, images):
            if digest not in present:
                name = digest.removeprefix("sha256:")
                archive.add(blobs / name, arcname=f"blobs/sha256/{name}", recursive=False)
                (blobs / name).unlink()
                written.append(digest)
    return written


def feed(argv: Sequence[str], layout: Path, images: Sequence[Image], *, present: Collection[str]) -> list[str]:
    """Run a program with such an archive as its input; returns the digests that it was given.

    Raises:
        CommandError: the program ended with an error.
    """
    with folders.scratch("import") as folder, (folder / "output").open("w+b") as output:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
        assert process.stdin is not None
        written: list[str] = []
        try:
            with process.stdin as stdin:
                written = write_archive(stdin, layout, images, present=present)
            code = process.wait(EXPORT_LIMIT_SECONDS)
        except BrokenPipeError:
            code = process.wait(EXPORT_LIMIT_SECONDS) or 1
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if code != 0:
            output.seek(0)
            raise CommandError(list(argv), code, output.read().decode(errors="replace"))
    return written


def _descriptor(blobs: Path, image: Image) -> dict[str, Any]:
    content = (blobs / image.digest.removeprefix("sha256:")).read_bytes()
    media = json.loads(content).get("mediaType", "application/vnd.oci.image.manifest.v1+json")
    annotations = {NAME_ANNOTATION: image.reference}
    return {"mediaType": media, "digest": image.digest, "size": len(content), "annotations": annotations}


def _digests(blobs: Path, images: Sequence[Image]) -> list[str]:
    found: dict[str, None] = {}
    for image in images:
        manifest = json.loads((blobs / image.digest.removeprefix("sha256:")).read_bytes())
        for part in (*manifest["layers"], manifest["config"]):
            found[part["digest"]] = None
        found[image.digest] = None
    return list(found)


def _add(archive: tarfile.TarFile, name: str, content: dict[str, Any]) -> None:
    data = json.dumps(content).encode()
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))
