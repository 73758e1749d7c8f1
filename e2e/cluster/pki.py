"""Keys, certificates and kubeconfigs: one authority for everything, made anew for each cluster."""

import base64
import datetime
import ipaddress
import json
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from e2e.cluster import paths
from e2e.cluster.config import API_SERVER, API_SERVICE_ADDRESS, DNS_DOMAIN, HUB_ADDRESS, ClusterConfig

FOLDER = paths.STATE / "pki"
CA = FOLDER / "ca.crt"
_LIFETIME = datetime.timedelta(days=365)


class Authority:
    """Signs certificates; its own key is never written down."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rlhf-cluster")])
        now = datetime.datetime.now(datetime.UTC)
        self.certificate = (
            _builder(self._name, self._name, self._key, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        FOLDER.mkdir(parents=True, exist_ok=True)
        FOLDER.chmod(0o700)
        CA.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, file: str, user: str, *, group: str = "", hosts: list[str] | None = None) -> None:
        """Write ``FILE.crt`` and ``FILE.key``: a certificate for a client, and with ``hosts`` also for a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])
        builder = _builder(x509.Name(attributes), self._name, key, datetime.datetime.now(datetime.UTC)).add_extension(
            x509.ExtendedKeyUsage(usage), critical=False
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(name) for name in hosts]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        (FOLDER / f"{file}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        write_key(FOLDER / f"{file}.key", key)


def create(config: ClusterConfig) -> None:
    """Make everything that the cluster's programs and its user identify themselves with."""
    authority = Authority()
    services = [f"kubernetes{suffix}" for suffix in ("", ".default", ".default.svc", f".default.svc.{DNS_DOMAIN}")]
    authority.issue(
        "kube-apiserver",
        "kube-apiserver",
        hosts=[*services, "localhost", HUB_ADDRESS, API_SERVICE_ADDRESS, "127.0.0.1"],
    )
    authority.issue("apiserver-kubelet-client", "apiserver-kubelet-client", group="system:masters")
    authority.issue("admin", "admin", group="system:masters")
    for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
        authority.issue(name, f"system:{name}")
    authority.issue("kube-router", "kube-router")
    for node in config.nodes:
        authority.issue(
            f"kubelet-{node.name}",
            f"system:node:{node.name}",
            group="system:nodes",
            hosts=[node.name, node.address],
        )
    write_key(FOLDER / "service-accounts.key", ec.generate_private_key(ec.SECP256R1()))
    users = [
        "kube-controller-manager",
        "kube-scheduler",
        "kube-proxy",
        "kube-router",
        *(f"kubelet-{node.name}" for node in config.nodes),
    ]
    for user in users:
        write_kubeconfig(FOLDER / f"{user}.kubeconfig", user)
    write_kubeconfig(paths.KUBECONFIG, "admin")


def write_kubeconfig(path: Path, user: str) -> None:
    """Write a kubeconfig that holds the certificates of ``user`` itself, so that it can be copied elsewhere."""
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": paths.CONTEXT,
        "clusters": [
            {"name": paths.CONTEXT, "cluster": {"server": API_SERVER, "certificate-authority-data": _base64(CA)}}
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _base64(FOLDER / f"{user}.crt"),
                    "client-key-data": _base64(FOLDER / f"{user}.key"),
                },
            }
        ],
        "contexts": [{"name": paths.CONTEXT, "context": {"cluster": paths.CONTEXT, "user": user}}],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=1))


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key that only its owner can read."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _LIFETIME)
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
