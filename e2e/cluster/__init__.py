"""A real Kubernetes on one machine: no container engine, no registry, everything built from source.

One control plane and four nodes, each node with a network, mount and process namespace of its own, so that it can be
cut off or lose its power like a machine. ``make cluster-up`` and ``python -m e2e.cluster`` are the commands, and
:class:`e2e.cluster.faults.Faults` breaks things on purpose. docs/local-cluster.md is the guide.
"""
