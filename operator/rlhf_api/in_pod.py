"""What the operator and the runtime agree on inside a job's pods: mounts, files, variables, ports.

| where | has |
|---|---|
| controller | `JOB_FILE`, `SECRET_FOLDER`, the variables, state and cache volumes |
| role | the variables, state and cache volumes |
| head | the variables of Ray only |
"""

JOB_FILE = "/etc/rlhf/job.json"
"""The RLHFJob as the operator last saw it, a key of the job's ConfigMap."""
JOB_FILE_KEY = "job.json"

SECRET_FOLDER = "/var/run/secrets/rlhf"
"""Files of the job's Secret, in the controller's pod: `control-token`, `tls.crt`, `tls.key`."""
CONTROL_TOKEN_KEY = "control-token"
TLS_CERTIFICATE_KEY = "tls.crt"
TLS_KEY_KEY = "tls.key"
RAY_TOKEN_KEY = "ray-token"
"""Not mounted: every container of Ray gets it as `RAY_AUTH_TOKEN`."""

STATE_MOUNT = "/rlhf/state"
"""The claim of `spec.state.location`, in the controller's and all roles' pods."""

SCRATCH_FOLDER = "/tmp/rlhf"
"""Files of this pod alone."""
POD_LOGS_FOLDER = f"{SCRATCH_FOLDER}/logs"
"""Each file, or link to one, that a role's process puts here is copied to the container's output."""

JOB_VARIABLE = "RLHF_JOB"
NAMESPACE_VARIABLE = "RLHF_NAMESPACE"
ROLE_VARIABLE = "RLHF_ROLE"
"""The role whose pod this is; roles colocated with it live in the same pod."""
POD_VARIABLE = "RLHF_POD"
NODE_VARIABLE = "RLHF_NODE"
RUN_FOLDER_VARIABLE = "RLHF_RUN_FOLDER"
"""The run's folder: on the state claim, or in `SCRATCH_FOLDER` when state is at a URI."""
STATE_VARIABLE = "RLHF_STATE"
"""Where the state store is: a folder or an fsspec URI."""
CACHE_VARIABLE = "RLHF_CACHE_DIR"
"""Models and data that are made or downloaded once; on the cache volume, else beside the run's folder on the claim."""
HUGGING_FACE_CACHE_VARIABLE = "HF_HOME"

CONTROL_PORT = 8443
"""JobControl, gRPC over TLS."""
HEALTH_PORT = 8081
"""The standard gRPC health service without TLS, for the kubelet's probes. Services: "" (alive) and `READY_SERVICE`."""
READY_SERVICE = "ready"
METRICS_PORT = 9090

CONTROLLER_COMMAND = ("python", "-m", "rlhf_runtime.service")
NODE_COMMAND = ("python", "-m", "rlhf_runtime.node")
"""The first process of a role's pod: starts Ray (`KUBERAY_GEN_RAY_START_CMD`) and copies role output to its own."""

RESERVED_VARIABLES = (
    JOB_VARIABLE,
    NAMESPACE_VARIABLE,
    ROLE_VARIABLE,
    POD_VARIABLE,
    NODE_VARIABLE,
    RUN_FOLDER_VARIABLE,
    STATE_VARIABLE,
    "RAY_ADDRESS",
    "RAY_AUTH_MODE",
    "RAY_AUTH_TOKEN",
)
"""What a user's `env` cannot set, since the job would not work."""

RESERVED_MOUNTS = ("/rlhf", "/dev/shm", "/etc/rlhf", "/var/run/secrets")
"""Where a user's volume cannot be mounted, nor around or within: the job's own mounts are there."""
