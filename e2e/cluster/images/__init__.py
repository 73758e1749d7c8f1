"""The images of the cluster's pods, from a Dockerfile to every node, without a registry or a container engine.

::

    debootstrap -> base -> buildah's store -- adopt --> seed (a containerd root) -- links --> four new nodes
    Go programs ---------------^           \\-- delta --> a running node's containerd

Three things keep a 6 GB image bearable. Nothing is built when the hash of a build's inputs is known. All nodes of a new
cluster share one unpacked copy: a *seed*, which is made of links to the builder's layers, and which each node's root
links to. And a running containerd is sent only the layers that it lacks.

While a cluster runs its nodes link to the seed, so that :func:`ensure_seed` and :func:`prune` are only for when none
does; :func:`load_into_node` brings newer images to running nodes.
"""

from e2e.cluster.images.build import ARGUMENTS, Image, ensure_images, program_image
from e2e.cluster.images.figures import Figure, figures, unpack_seconds
from e2e.cluster.images.node import load_into_node, prepare_node_root
from e2e.cluster.images.prune import prune
from e2e.cluster.images.seed import ensure_seed, have_been_unpacked

__all__ = [
    "ARGUMENTS",
    "Figure",
    "Image",
    "ensure_images",
    "ensure_seed",
    "figures",
    "have_been_unpacked",
    "load_into_node",
    "prepare_node_root",
    "program_image",
    "prune",
    "unpack_seconds",
]
