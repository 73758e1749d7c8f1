"""Tokens and certificate: derived, stable, different for each job, and good for a real connection."""

import base64
import datetime
from concurrent import futures
from dataclasses import replace

import grpc
import pytest
from cryptography import x509
from manifest_jobs import SETTINGS, SMALL, job_of

from rlhf_api import in_pod
from rlhf_operator.manifests.secret import credentials, token_secret

NOW = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
JOB = job_of(SMALL, creation_timestamp=NOW)
OTHERS = {
    "another job": (job_of(SMALL, creation_timestamp=NOW, uid="5f0c0f3e-0000-4000-8000-000000000002"), SETTINGS),
    "another operator": (JOB, replace(SETTINGS, key=b"l" * 32)),
}


def values(job, settings=SETTINGS):
    return {name: base64.b64decode(value) for name, value in token_secret(job, settings)["data"].items()}


def test_the_secret_is_the_same_each_time():
    assert token_secret(JOB, SETTINGS) == token_secret(job_of(SMALL, creation_timestamp=NOW, generation=2), SETTINGS)


@pytest.mark.parametrize(("job", "settings"), OTHERS.values(), ids=OTHERS.keys())
def test_no_value_is_shared(job, settings):
    mine, theirs = values(JOB), values(job, settings)
    assert set(mine) == {in_pod.CONTROL_TOKEN_KEY, in_pod.RAY_TOKEN_KEY, in_pod.TLS_CERTIFICATE_KEY, in_pod.TLS_KEY_KEY}
    assert not set(mine.values()) & set(theirs.values())
    assert len(set(mine.values())) == 4


def test_the_operator_knows_what_the_secret_holds():
    known, held = credentials(JOB, SETTINGS), values(JOB)
    assert known.control_token.encode() == held[in_pod.CONTROL_TOKEN_KEY]
    assert known.certificate_pem == held[in_pod.TLS_CERTIFICATE_KEY]
    assert known.server_name == "job-controller.lab.svc"


def test_the_certificate_is_valid_from_before_the_jobs_creation_and_for_years():
    certificate = x509.load_pem_x509_certificate(credentials(JOB, SETTINGS).certificate_pem)
    created = datetime.datetime.fromisoformat(JOB.metadata.creation_timestamp)
    assert certificate.not_valid_before_utc < created
    assert certificate.not_valid_after_utc > created + datetime.timedelta(days=3000)


@pytest.mark.parametrize("key", [b"", b"short"])
def test_an_operator_without_a_proper_key_makes_no_secrets(key):
    with pytest.raises(ValueError, match="must have at least 32 bytes"):
        token_secret(JOB, replace(SETTINGS, key=key))


@pytest.fixture
def server():
    """A gRPC server with the certificate of the job's Secret, which echoes."""
    held = values(JOB)
    pair = (held[in_pod.TLS_KEY_KEY], held[in_pod.TLS_CERTIFICATE_KEY])
    made = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    echo = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Test", {"Echo": echo}),))
    port = made.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    made.start()
    yield port
    made.stop(None).wait()


def call(port, *, trusting):
    options = [("grpc.ssl_target_name_override", trusting.server_name)]
    trust = grpc.ssl_channel_credentials(trusting.certificate_pem)
    with grpc.secure_channel(f"127.0.0.1:{port}", trust, options=options) as channel:
        return channel.unary_unary("/Test/Echo")(b"hello", timeout=20)


def test_who_trusts_the_jobs_certificate_reaches_its_server(server):
    assert call(server, trusting=credentials(JOB, SETTINGS)) == b"hello"


@pytest.mark.parametrize(("job", "settings"), OTHERS.values(), ids=OTHERS.keys())
def test_who_trusts_another_certificate_does_not(server, job, settings):
    with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
        call(server, trusting=credentials(job, settings))


def test_the_name_counts_too(server):
    with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
        call(server, trusting=replace(credentials(JOB, SETTINGS), server_name="job-controller.other.svc"))
