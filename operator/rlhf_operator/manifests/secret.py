"""The job's Secret: its tokens and the key of its TLS certificate, all derived from the operator's key.

Nothing is drawn by chance: each value is an HMAC of the job's UID and the value's purpose, and the certificate follows
from the key pair and the time of the job's creation. So the Secret can be applied again and again, the operator needs
no right to read Secrets, and after a restart it still knows what every controller expects of it. The operator trusts
exactly this certificate, and no authority. Another operator key makes other credentials: it must outlive the jobs.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rlhf_api import in_pod, names
from rlhf_api.types import RLHFJob
from rlhf_operator.config import Settings
from rlhf_operator.manifests.objects import Manifest, manifest, namespace_of, uid_of

LEAST_KEY_BYTES = 32
_CURVE = ec.SECP256R1()
_ORDER_OF_THE_CURVE = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_VALID_FOR = datetime.timedelta(days=3650)
_CLOCKS_DIFFER_BY = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What the operator needs to call a job's controller.

    Attributes:
        control_token: Goes with every call.
        certificate_pem: The only certificate to trust.
        server_name: The name in it, which is also the name of the controller's Service.
    """

    control_token: str
    certificate_pem: bytes
    server_name: str


def credentials(job: RLHFJob, settings: Settings) -> Credentials:
    """What the operator needs to call the job's controller."""
    return Credentials(
        control_token=_token(job, settings, purpose="control"),
        certificate_pem=_certificate(job, _private_key(job, settings)).public_bytes(serialization.Encoding.PEM),
        server_name=_server_name(job),
    )


def token_secret(job: RLHFJob, settings: Settings) -> Manifest:
    """The job's Secret."""
    key = _private_key(job, settings)
    values = {
        in_pod.CONTROL_TOKEN_KEY: _token(job, settings, purpose="control").encode(),
        in_pod.RAY_TOKEN_KEY: _token(job, settings, purpose="ray").encode(),
        in_pod.TLS_CERTIFICATE_KEY: _certificate(job, key).public_bytes(serialization.Encoding.PEM),
        in_pod.TLS_KEY_KEY: key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    }
    data = {name: base64.b64encode(value).decode() for name, value in values.items()}
    return manifest("v1", "Secret", names.token_secret(job.name), job=job, type="Opaque", data=data)


def _token(job: RLHFJob, settings: Settings, *, purpose: str) -> str:
    return _derive(job, settings, purpose=f"{purpose}-token").hex()


def _derive(job: RLHFJob, settings: Settings, *, purpose: str) -> bytes:
    if len(settings.key) < LEAST_KEY_BYTES:
        raise ValueError(f"the operator's key must have at least {LEAST_KEY_BYTES} bytes, has {len(settings.key)}")
    return hmac.digest(settings.key, f"rlhf.dev/{purpose}/{uid_of(job)}".encode(), hashlib.sha256)


def _private_key(job: RLHFJob, settings: Settings) -> ec.EllipticCurvePrivateKey:
    number = int.from_bytes(_derive(job, settings, purpose="tls-key"))
    return ec.derive_private_key(number % (_ORDER_OF_THE_CURVE - 1) + 1, _CURVE)


def _certificate(job: RLHFJob, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    created = datetime.datetime.fromisoformat(job.metadata.creation_timestamp or "1970-01-01T00:00:00Z")
    # A common name has room for 64 characters; names are checked against the alternative name anyway.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names.controller(job.name))])
    point = key.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(int.from_bytes(hashlib.sha256(point).digest()[:19]) + 1)
        .not_valid_before(created - _CLOCKS_DIFFER_BY)
        .not_valid_after(created + _VALID_FOR)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_server_name(job))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256(), ecdsa_deterministic=True)
    )


def _server_name(job: RLHFJob) -> str:
    return f"{names.controller(job.name)}.{namespace_of(job)}.svc"
