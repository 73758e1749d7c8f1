"""Only what a containerd lacks is sent to it."""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.errors import CommandError
from e2e.cluster.images import Image, delta

LARGE, SMALL = b"the dependencies" * 1000, b"our sources"


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLHF_CACHE_DIR", str(tmp_path / "cache"))


class Layout:
    """An OCI layout with images of given layers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.blobs = folder, folder / "blobs/sha256"
        self.blobs.mkdir(parents=True)

    def put(self, content: bytes) -> dict[str, Any]:
        digest = digest_of(content)
        (self.blobs / digest[7:]).write_bytes(content)
        return {"digest": digest, "size": len(content), "mediaType": "application/vnd.oci.image.layer.v1.tar"}

    def image(self, reference: str, *layers: bytes) -> Image:
        config = self.put(json.dumps({"rootfs": [digest_of(layer) for layer in layers]}).encode())
        manifest = {"config": config, "layers": [self.put(layer) for layer in layers]}
        return Image(reference, self.put(json.dumps(manifest).encode())["digest"], "stored")

    def archive(self, *images: Image, present: set[str]) -> tuple[list[str], dict[str, bytes]]:
        out = io.BytesIO()
        written = delta.write_archive(out, self.folder, images, present=present)
        out.seek(0)
        with tarfile.open(fileobj=out) as archive:
            return written, {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")


def test_an_empty_containerd_gets_everything(layout: Layout) -> None:
    image = layout.image("localhost/worker:dev", LARGE, SMALL)

    written, files = layout.archive(image, present=set())

    assert {digest_of(LARGE), digest_of(SMALL), image.digest} <= set(written)
    assert files[f"blobs/sha256/{digest_of(LARGE)[7:]}"] == LARGE
    assert len(files) == 2 + 4  # the layout's two files; two layers, a configuration and a manifest


def test_layers_that_are_there_are_left_out(layout: Layout) -> None:
    image = layout.image("localhost/worker:dev", LARGE, SMALL)

    written, files = layout.archive(image, present={digest_of(LARGE)})

    assert digest_of(LARGE) not in written
    assert sum(map(len, files.values())) < 2000


def test_a_layer_of_two_images_is_sent_once(layout: Layout) -> None:
    one, two = layout.image("localhost/one:dev", LARGE), layout.image("localhost/two:dev", LARGE, SMALL)

    written, _ = layout.archive(one, two, present=set())

    assert written.count(digest_of(LARGE)) == 1


def test_the_index_names_each_image_as_pods_do(layout: Layout) -> None:
    image = layout.image("localhost/worker:dev", SMALL)

    _, files = layout.archive(image, present=set())

    [found] = json.loads(files["index.json"])["manifests"]
    assert found["annotations"] == {"io.containerd.image.name": "localhost/worker:dev"}
    assert found["digest"] == image.digest
    assert found["size"] == len(files[f"blobs/sha256/{image.digest[7:]}"])


def test_a_placeholder_has_the_size_of_the_layer_and_takes_no_space(tmp_path: Path) -> None:
    delta.placeholder(tmp_path / "layer", 5 << 30)

    assert (tmp_path / "layer").stat().st_size == 5 << 30
    assert (tmp_path / "layer").stat().st_blocks == 0
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["layer"]


def test_the_importer_reads_the_archive_to_its_end(layout: Layout, tmp_path: Path) -> None:
    image = layout.image("localhost/worker:dev", LARGE, SMALL)
    copy = f"import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, open({str(tmp_path / 'copy')!r}, 'wb'))"

    delta.feed([sys.executable, "-c", copy], layout.folder, [image], present=set())

    with tarfile.open(tmp_path / "copy") as archive:
        assert f"blobs/sha256/{image.digest[7:]}" in archive.getnames()


def test_an_importer_that_refuses_early_shows_why(layout: Layout) -> None:
    image = layout.image("localhost/worker:dev", b"x" * (1 << 20))

    with pytest.raises(CommandError, match="no space left"):
        delta.feed([sys.executable, "-c", "exit('no space left')"], layout.folder, [image], present=set())
