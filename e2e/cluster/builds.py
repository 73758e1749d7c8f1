"""The programs of the cluster, built from Go modules and kept by content.

Each folder below ``programs/`` is a module of ours that pins one family of programs with ``tool`` lines. A build is
kept in a folder named by the hash of all that it depends on, so that it is made once per machine, and a build that was
interrupted leaves nothing that would be taken for a whole one.

Those that ``programs/go.work`` lists use one version of each module that they share, so that Kubernetes' client and
what it needs, minutes of work, is compiled once for all of them. KubeRay is what its authors pinned.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from e2e.cluster import paths
from e2e.cluster.errors import CannotRunHereError
from e2e.cluster.shell import run
from e2e.cluster.steps import step

PROGRAMS = paths.HERE / "programs"
WORKSPACE = PROGRAMS / "go.work"
KUBERNETES_VERSION = "v1.37.2"
KUBERAY_VERSION = "v1.5.0"
HELM_VERSION = "v4.3.1"
BUILD_LIMIT_SECONDS = 3600
# Without the compiler's debugging tables, which the linker would drop, a tenth of the time is saved.
_FLAGS = "-mod=readonly -buildvcs=false -trimpath -gcflags=all=-dwarf=false"
_SETTINGS = {"CGO_ENABLED": "0", "GOFLAGS": _FLAGS}
# The compiler collects its garbage more rarely. At 800 a sixth of the processor time was saved; this takes less memory.
_GARBAGE = {"GOGC": "400"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Programs that come from one Go module.

    ``packages`` maps a program's name to its Go package. ``files`` are folders of the module ``module`` to keep beside
    the programs: the manifests that its users install. ``alone`` families are not in the workspace.
    """

    name: str
    packages: Mapping[str, str]
    ldflags: str = ""
    module: str = ""
    files: tuple[str, ...] = ()
    alone: bool = False


def _kubernetes() -> Family:
    major, minor = KUBERNETES_VERSION.removeprefix("v").split(".")[:2]
    version = "k8s.io/component-base/version"
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
    return Family(
        name="kubernetes",
        packages={name: f"k8s.io/kubernetes/cmd/{name}" for name in names},
        # Without these every program reports v0.0.0, which the API server's version checks refuse.
        ldflags=f"-X {version}.gitVersion={KUBERNETES_VERSION} -X {version}.gitMajor={major} "
        f"-X {version}.gitMinor={minor}",
    )


KUBERNETES = _kubernetes()
KUBERAY = Family(
    name="kuberay",
    packages={"manager": "github.com/ray-project/kuberay/ray-operator"},
    module="github.com/ray-project/kuberay/ray-operator",
    files=("config",),
    alone=True,
)
HELM = Family(
    name="helm",
    packages={"helm": "helm.sh/helm/v4/cmd/helm"},
    ldflags=f"-X helm.sh/helm/v4/internal/version.version={HELM_VERSION}",
)
COREDNS = Family(name="coredns", packages={"coredns": "."})
LOCAL_PATH = Family(name="local-path", packages={"local-path-provisioner": "github.com/rancher/local-path-provisioner"})
KUBE_ROUTER = Family(
    name="kube-router", packages={"kube-router": "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"}
)
KWOK = Family(
    name="kwok", packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, module="sigs.k8s.io/kwok", files=("kustomize",)
)
PAUSE = Family(name="pause", packages={"pause": "."}, alone=True)
ALWAYS = (PAUSE, KUBERNETES, KUBERAY, HELM, COREDNS, LOCAL_PATH, KUBE_ROUTER)


@dataclass(frozen=True, slots=True)
class Built:
    """Where a family's programs and files lie."""

    folder: Path
    family: Family = field(repr=False)

    def program(self, name: str) -> Path:
        """The path of a program of this family."""
        assert name in self.family.packages, name
        return self.folder / "bin" / name

    def files(self, name: str) -> Path:
        """The path of a folder that was kept from the family's module."""
        assert name in self.family.files, name
        return self.folder / "files" / name


def find(family: Family) -> Built:
    """Where the family's build is, or will be, without building it."""
    return Built(paths.cache_folder() / "programs" / f"{family.name}-{_key(family)}", family)


def build(family: Family) -> Built:
    """Build a family if this has not been done on this machine.

    Raises:
        CannotRunHereError: there is no Go, or it is too old.
        CommandError: the build failed; the message shows the compiler's output.
    """
    built = find(family)
    if built.folder.is_dir():
        return built
    _need_go()
    built.folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{family.name}-", dir=built.folder.parent))
    try:
        with step(f"build {', '.join(family.packages)} from source"):
            _build_into(unfinished, family)
        unfinished.chmod(0o755)
        if not built.folder.is_dir():  # another clone may have been quicker
            unfinished.rename(built.folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return built


def _build_into(folder: Path, family: Family) -> None:
    module = PROGRAMS / family.name
    programs = folder / "bin"
    programs.mkdir()
    environment = _environment(family)
    # All in one command, so that a second processor compiles while the first links.
    flags = ["-ldflags", f"-s -w {family.ldflags}", "-o", str(programs)]
    run(["go", "build", *flags, *family.packages.values()], cwd=module, env=environment, timeout=BUILD_LIMIT_SECONDS)
    for name, package in family.packages.items():
        if package != ".":  # Go calls that one after the module, and so do we
            (programs / Path(package).name).rename(programs / name)
    for name in family.files:
        source = run(["go", "list", "-m", "-f", "{{.Dir}}", family.module], cwd=module, env=environment).strip()
        shutil.copytree(Path(source) / name, folder / "files" / name, copy_function=shutil.copyfile)
        for path in (folder / "files").rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)  # Go's module folders are read-only


def _environment(family: Family) -> dict[str, str]:
    settings = {**_SETTINGS, **_GARBAGE, "GOWORK": "off" if family.alone else str(WORKSPACE)}
    if "SUDO_UID" not in os.environ:
        return settings
    # Go's own caches are the user's, who could not write there any more after root has.
    own = paths.cache_folder()
    return {**settings, "GOCACHE": str(own / "go-build"), "GOMODCACHE": str(own / "go-mod")}


def _key(family: Family) -> str:
    digest = hashlib.sha256(repr((family, sorted(_SETTINGS.items()))).encode())
    sources = list((PROGRAMS / family.name).iterdir())
    if not family.alone:  # any member may decide a version for all
        sources += [WORKSPACE, *(PROGRAMS / name / "go.mod" for name in _members())]
    for path in sorted(set(sources)):
        digest.update(str(path.relative_to(PROGRAMS)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _members() -> list[str]:
    """The folders that the workspace lists."""
    return re.findall(r"^\s+\./(\S+)$", WORKSPACE.read_text(), flags=re.MULTILINE)


def _need_go() -> None:
    if shutil.which("go") is None:
        raise CannotRunHereError("Go is needed to build Kubernetes: install Go 1.26 or newer and have `go` on the PATH")
    version = run(["go", "env", "GOVERSION"], env={"GOTOOLCHAIN": "local"}).strip().removeprefix("go")
    if tuple(int(part) for part in version.split(".")[:2]) < (1, 26):
        raise CannotRunHereError(f'Go 1.26 or newer is needed to build Kubernetes, not "{version}"')


def in_use() -> set[Path]:
    """The folders of the builds that this version of the project uses."""
    return {find(family).folder for family in (*ALWAYS, KWOK)}


def prune() -> list[Path]:
    """Remove builds that this version of the project does not use; returns what was removed."""
    keep = in_use()
    folder = paths.cache_folder() / "programs"
    old = [path for path in folder.glob("*") if path not in keep] if folder.is_dir() else []
    for path in old:
        shutil.rmtree(path)
    return old
