"""The programs that come from the machine's own packages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.errors import CannotRunHereError
from e2e.cluster.paths import search_path
from e2e.cluster.shell import run
from e2e.cluster.steps import step

PACKAGE_OF = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "runc": "runc",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "iptables": "iptables",
    "nft": "nftables",
    "ipset": "ipset",
    "conntrack": "conntrack",
    "skopeo": "skopeo",
    "socat": "socat",
    "ip": "iproute2",
    "tini": "tini",
    "unshare": "util-linux",
    "sysctl": "procps",
}
"""Which Debian package a program is in."""
_CNI = ("/usr/lib/cni/bridge", "/opt/cni/bin/bridge", "/usr/libexec/cni/bridge")
_POLICY = Path("/usr/sbin/policy-rc.d")


def missing() -> list[str]:
    """The packages whose programs are not on this machine."""
    found = [package for program, package in PACKAGE_OF.items() if shutil.which(program, path=search_path()) is None]
    if not any(Path(path).exists() for path in _CNI):
        found.append("containernetworking-plugins")
    return found


def install() -> None:
    """Install what is missing.

    Raises:
        CannotRunHereError: something is missing and this is not a Debian-like machine.
    """
    wanted = missing()
    if not wanted:
        return
    if shutil.which("apt-get") is None:
        raise CannotRunHereError(
            f"install these by your own package manager, named here as in Debian: {', '.join(wanted)}"
        )
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    with step(f"install {', '.join(wanted)}"), _services_stay_off():
        run([*apt, "update"], timeout=600, env=quiet)
        run([*apt, "install", "--yes", "--no-install-recommends", *wanted], timeout=1200, env=quiet)


@contextmanager
def _services_stay_off() -> Iterator[None]:
    """Keep packages from starting their own etcd and containerd on this machine."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()
