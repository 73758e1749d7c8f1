"""The package index that this machine uses, for builds: mirror, certificates, proxy.

A build has a file system of its own and would not know them. They are given to it as build secrets, the files that the
Dockerfiles name, so that nothing of them (a URL may hold a password) stays in an image or its history.
"""

import json
import os
import ssl
import sys
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.shell import run

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_PIP_OPTIONS = ("index-url", "extra-index-url", "trusted-host", "timeout")


def secrets(folder: Path) -> list[str]:
    """Write the settings into ``folder``; returns the builder's arguments that pass them on."""
    options = pip_options()
    certificates = _certificates()
    (folder / "pip.conf").write_text(_pip_conf(options, with_certificates=certificates is not None))
    (folder / "uv.toml").write_text(_uv_toml(options))
    files = {"pip.conf": folder / "pip.conf", "uv.toml": folder / "uv.toml"}
    if certificates is not None:
        files["ca.crt"] = certificates
    return [f"--secret=id={name},src={path}" for name, path in files.items()]


def uv_cache() -> Path:
    """Where uv keeps downloads on this machine; a build that finds them there does not fetch them again."""
    if own := os.environ.get("UV_CACHE_DIR"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "uv"


def pip_options() -> dict[str, str]:
    """What pip's files and environment say here about the index; its other options are no matter of a build's."""
    found: dict[str, str] = {}
    try:
        lines = run([sys.executable, "-m", "pip", "config", "list"]).splitlines()
    except ClusterError:  # an environment without pip
        lines = []
    for line in lines:
        name, _, value = line.partition("=")
        option = name.rpartition(".")[2]
        if option in _PIP_OPTIONS:
            found[option] = value.strip().strip("'\"")
    return found


def _pip_conf(options: dict[str, str], *, with_certificates: bool) -> str:
    lines = [f"{name} = {value}" for name, value in options.items()]
    if with_certificates:
        lines.append(f"cert = {CERTIFICATES}")
    return "\n".join(["[global]", *lines, ""])


def _uv_toml(options: dict[str, str]) -> str:
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL") or options.get("index-url", "")
    extra = os.environ.get("UV_INDEX") or os.environ.get("UV_EXTRA_INDEX_URL") or options.get("extra-index-url", "")
    lines = ["system-certs = true"]
    if index:
        lines.append(f"index-url = {json.dumps(index)}")
    if extra:
        lines.append(f"extra-index-url = {json.dumps(extra.split())}")
    return "\n".join([*lines, ""])


def _certificates() -> Path | None:
    names = (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, CERTIFICATES)
    return next((Path(name) for name in names if name and Path(name).is_file()), None)
