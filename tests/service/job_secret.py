"""A job's certificate and token, as the operator makes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rlhf_api import in_pod

TOKEN = "a-token-of-the-job"
HOST = "tiny-controller"


@dataclass(frozen=True)
class Secret:
    """A mounted Secret, and what trusts it."""

    folder: Path
    certificate: bytes
    token: str = TOKEN


def make_secret(folder: Path) -> Secret:
    """A self-signed certificate of an elliptic-curve key, as files."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / in_pod.TLS_CERTIFICATE_KEY).write_bytes(pem)
    (folder / in_pod.TLS_KEY_KEY).write_bytes(private)
    (folder / in_pod.CONTROL_TOKEN_KEY).write_text(TOKEN + "\n", encoding="utf-8")
    return Secret(folder=folder, certificate=pem)
