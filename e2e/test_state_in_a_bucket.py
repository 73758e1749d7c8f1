"""A job whose state is in an object store: suspended and resumed, with nothing kept in the cluster."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster.config import HOST_ADDRESS
from e2e.jobs import apply, quick
from e2e.lab import Lab
from e2e.manifests import claim
from e2e.operator import Operator

pytestmark = pytest.mark.timeout(900)

BUCKET = "training"
KEYS = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "secret"}


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server that speaks S3, played by moto, outside the cluster."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address=HOST_ADDRESS, port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(server: str) -> Any:
    """The bucket, as boto3 has it."""
    import boto3

    keys = {"aws_access_key_id": KEYS["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": KEYS["AWS_SECRET_ACCESS_KEY"]}
    return boto3.resource("s3", endpoint_url=server, region_name="us-east-1", **keys).create_bucket(Bucket=BUCKET)


def test_a_job_goes_on_from_its_snapshots_in_a_bucket(operator: Operator, lab: Lab, server: str, bucket: Any) -> None:
    lab.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s3"}, "stringData": KEYS},
        claim("cache", "ReadWriteMany", storageClassName="shared"),
    )
    manifest = quick(
        "bucket",
        steps=4000,
        env=[{"name": "AWS_ENDPOINT_URL", "value": server}, {"name": "AWS_DEFAULT_REGION", "value": "us-east-1"}],
        envFrom=[{"secretRef": {"name": "s3"}}],
        cacheVolume={"persistentVolumeClaim": {"claimName": "cache"}},
        state={"location": {"uri": f"s3://{BUCKET}/rlhf"}, "snapshotEverySteps": 5},
    )
    job = apply(lab, manifest)
    job.wait_step(8)
    job.suspend(True)
    job.wait("Suspended", timeout=180)
    done = job.step
    keys = _keys(bucket)
    assert keys and all(key.startswith(f"rlhf/{lab.namespace}/{job.name}/") for key in keys), keys

    job.suspend(False)
    job.wait_step(done + 1)
    first = re.search(r"[Gg]oing on after step (\d+)", job.logs("controller"))
    assert first and int(first[1]) >= done, job.logs("controller")
    lab.kubectl("delete", "rlhfjob", job.name, "--timeout=60s")
    assert _keys(bucket), "the state outlives the job"


def _keys(bucket: Any) -> list[str]:
    return [found.key for found in bucket.objects.all()]
