"""Whole objects, as files to read and to review. After a wanted change: `UPDATE_GOLDEN=1 pytest tests/manifests`."""

import json
import os
from pathlib import Path

import pytest
import yaml
from manifest_jobs import EXAMPLES, HERE, SETTINGS, job_of, read

from rlhf_operator.manifests.children import children
from rlhf_operator.manifests.controller_job import controller_job
from rlhf_operator.manifests.raycluster import ray_cluster

MANIFESTS = (EXAMPLES / "ppo-spelling.yaml", EXAMPLES / "grpo-spelling.yaml", HERE / "everything.yaml")


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _rendered(manifest: Path) -> str:
    job = job_of(read(manifest))
    made = [*children(job, SETTINGS), ray_cluster(job, SETTINGS), controller_job(job, SETTINGS)]
    for document in made:
        if document["kind"] == "Secret":
            document["data"] = {name: f"({len(value)} characters)" for name, value in document["data"].items()}
    return yaml.dump_all(made, Dumper=_Dumper, sort_keys=False, width=120)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_a_job_is_rendered_as_the_golden_file_says(manifest):
    golden = HERE / "golden" / manifest.name
    rendered = _rendered(manifest)
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(rendered)
    assert rendered == golden.read_text(), "if this is wanted: UPDATE_GOLDEN=1 pytest tests/manifests"


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_nothing_is_null_and_everything_has_owner_namespace_and_label(manifest):
    job = job_of(read(manifest))
    for document in [*children(job, SETTINGS), ray_cluster(job, SETTINGS), controller_job(job, SETTINGS)]:
        assert "null" not in json.dumps(document)
        assert "status" not in document
        metadata = document["metadata"]
        assert metadata["namespace"] == "lab"
        assert metadata["labels"]["rlhf.dev/job"] == job.name
        (owner,) = metadata["ownerReferences"]
        assert owner["uid"] == job.metadata.uid
        assert (owner["controller"], owner["blockOwnerDeletion"]) == (True, False)
        assert "finalizers" not in metadata
