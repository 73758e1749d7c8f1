"""The builder's layers become snapshots by links."""

import hashlib
import json
from pathlib import Path

import pytest

from e2e.cluster.errors import ClusterError
from e2e.cluster.images import Image, adopt, buildah, containerd
from e2e.cluster.images.buildah import Layer, Stored

LOW, HIGH = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def test_a_chain_is_named_as_the_image_specification_has_it():
    assert adopt.chain_id("", LOW) == LOW
    assert adopt.chain_id(LOW, HIGH) == "sha256:" + hashlib.sha256(f"{LOW} {HIGH}".encode()).hexdigest()


@pytest.mark.parametrize(
    "mounts",
    [
        "mount -t bind /seed/snapshots/7/fs /target -o rw,rbind",
        "mount -t overlay overlay /target -o index=off,workdir=/seed/snapshots/7/work,"
        "upperdir=/seed/snapshots/7/fs,lowerdir=/seed/snapshots/6/fs:/seed/snapshots/5/fs",
    ],
    ids=["the lowest layer", "a layer above others"],
)
def test_the_folder_that_is_written_to_is_found(mounts):
    assert adopt.folder_of(mounts) == Path("/seed/snapshots/7/fs")


def test_layers_of_the_store_are_told_by_what_lies_below_them(monkeypatch, tmp_path):
    monkeypatch.setattr(buildah, "store", lambda: tmp_path)
    (tmp_path / "overlay-layers").mkdir()
    of_an_interrupted_build = {"id": "three", "parent": "one"}
    layers = [{"id": "one", "diff-digest": LOW}, {"id": "two", "parent": "one", "diff-digest": HIGH}]
    layers.insert(1, of_an_interrupted_build)
    (tmp_path / "overlay-layers/layers.json").write_text(json.dumps(layers))
    assert buildah.layer_ids() == {("", LOW): "one", ("one", HIGH): "two"}
    assert buildah.layer_folder("two") == tmp_path / "overlay/two/diff"


def test_a_layer_that_the_store_has_lost_is_said_with_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setattr(buildah, "layer_ids", lambda: {})
    monkeypatch.setattr(buildah, "inspect", lambda name: Stored(digest=HIGH, layers=(Layer(digest=LOW, size=1),)))
    monkeypatch.setattr(containerd, "ctr", lambda *words: "KEY PARENT KIND\n")
    with pytest.raises(ClusterError, match="has lost a layer of localhost/x:dev: remove "):
        adopt.adopt([Image("localhost/x:dev", HIGH, "x")], tmp_path / "sock", tmp_path)
