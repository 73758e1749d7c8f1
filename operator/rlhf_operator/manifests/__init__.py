"""From a job to the Kubernetes objects that it is made of: types in, plain dictionaries out, no I/O.

| module | object |
|---|---|
| `raycluster` | the RayCluster: the head, and a worker group for each role |
| `controller_job` | the Job that runs the control flow |
| `children` | everything else: Secret, ConfigMap, claim, Service, NetworkPolicy, PodMonitor |

Each is made to be applied server-side again and again: the same job and settings give the same text.
"""
