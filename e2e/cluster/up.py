"""From nothing to a cluster that is ready: what `make cluster-up` does."""

import dataclasses
import os
import platform
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.cluster import addons, builds, control_plane, images, lifecycle, nodes, packages, paths, processes
from e2e.cluster.config import ClusterConfig
from e2e.cluster.errors import CannotRunHereError, ClusterError
from e2e.cluster.shell import end_all
from e2e.cluster.steps import say, step

FIRST_BUILD_GB = 25
"""For a while the large layer lies on the disk several times (22 GB in all were seen); afterwards once."""


def need_this_machine() -> None:
    """Raise if the cluster can never run here.

    Raises:
        CannotRunHereError: not Linux, or not root.
    """
    if platform.system() != "Linux":
        raise CannotRunHereError(f"the cluster needs Linux, not {platform.system()}")
    if os.geteuid() != 0:
        raise CannotRunHereError("the cluster needs root, for namespaces and cgroups: run it with sudo")


def need_space() -> None:
    """Raise if there is no room for the first build of the images.

    Raises:
        CannotRunHereError: too little is free where the builds are kept.
    """
    cache = paths.cache_folder()
    if images.have_been_unpacked():
        return
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    free = shutil.disk_usage(there).free / 1e9
    if free < FIRST_BUILD_GB:
        raise CannotRunHereError(
            f"the first build needs {FIRST_BUILD_GB} GB of free disk in {cache}, and {free:.0f} GB are: "
            "set RLHF_CACHE_DIR to a folder with more"
        )


def prepare(config: ClusterConfig) -> list[images.Image]:
    """Install, build and download all that a cluster of this kind needs; quick when it is there already."""
    need_space()
    packages.install()
    with ThreadPoolExecutor(max_workers=1) as threads:
        # The images are bound by downloads and the disk, the programs by the processors.
        ours = threads.submit(images.ensure_images, {})
        try:
            programs = _programs(config)
            return [*ours.result(), *programs]
        except BaseException:
            end_all()  # else leaving this block waits for the images
            raise


def build(config: ClusterConfig) -> None:
    """Prepare, and unpack the images for nodes that are yet to be made, unless a cluster runs."""
    need_this_machine()
    wanted = prepare(config)
    with lifecycle.locked():
        if not lifecycle.is_up():
            _unpack(wanted)


def _unpack(wanted: list[images.Image]) -> None:
    with step("unpack the images, once for all nodes"):
        images.ensure_seed(wanted)


def _programs(config: ClusterConfig) -> list[images.Image]:
    """Build the programs, and an image of each that runs in a pod."""
    for family in (builds.KUBERNETES, *addons.programs(config), builds.PAUSE, builds.HELM):
        builds.build(family)
    pause = {nodes.PAUSE_IMAGE_NAME: (builds.find(builds.PAUSE).program("pause"), "/pause")}
    wanted = {**addons.images(config), **pause}
    return [images.program_image(name, binary, entrypoint=at) for name, (binary, at) in wanted.items()]


def up(config: ClusterConfig) -> None:
    """Bring up a cluster, or make sure that the one that runs is such a one and has the newest images.

    Raises:
        CannotRunHereError: it cannot run on this machine.
        ClusterError: a cluster of another kind is up, or a step failed.
    """
    need_this_machine()
    with lifecycle.locked():
        if lifecycle.is_complete() and processes.find("etcd").running():
            control_plane.start_api_server()  # a fault may have stopped it
            if lifecycle.configuration() != config:
                raise ClusterError(f"{_differences(lifecycle.configuration(), config)}; `make cluster-down` ends it")
            load(prepare(config), config)
            return
        if lifecycle.remove_everything():
            say("           removed what an earlier, unfinished cluster had left")
        wanted = prepare(config)
        _unpack(wanted)
        try:
            _start(config, wanted)
        except (KeyboardInterrupt, SystemExit):  # SIGTERM is the latter
            lifecycle.remove_everything()
            raise


def _differences(running: ClusterConfig, asked: ClusterConfig) -> str:
    fields = [field.name for field in dataclasses.fields(ClusterConfig)]
    pairs = [(name, getattr(running, name), getattr(asked, name)) for name in fields]
    said = [f"{name} is {now}, not {wanted}" for name, now, wanted in pairs if now != wanted]
    return f"a cluster with other options is up: {'; '.join(said)}"


def _start(config: ClusterConfig, wanted: list[images.Image]) -> None:
    for node in config.nodes:
        root = nodes.folder(node) / "lib/containerd"
        root.mkdir(parents=True)
        images.prepare_node_root(root, wanted)
    lifecycle.start_machines(config)
    addons.install(config)
    programs = paths.STATE / "bin"
    programs.mkdir(exist_ok=True)
    for family, name in ((builds.KUBERNETES, "kubectl"), (builds.HELM, "helm")):
        (programs / name).symlink_to(builds.find(family).program(name))
    _give_to_caller(paths.KUBECONFIG)
    lifecycle.remember(config)


def load(wanted: list[images.Image], config: ClusterConfig) -> None:
    """Bring new images to all running nodes."""
    with step("load new images into the nodes"), ThreadPoolExecutor() as threads:
        sockets = [nodes.containerd_socket(node) for node in config.nodes]
        list(threads.map(lambda socket: images.load_into_node(wanted, containerd_socket=socket), sockets))


def _give_to_caller(path: Path) -> None:
    if user := os.environ.get("SUDO_UID"):
        os.chown(path, int(user), int(os.environ.get("SUDO_GID", user)))
