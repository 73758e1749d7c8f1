"""JobControl: the one channel between the operator and a job's controller, as gRPC.

`job_control.proto` is the source; `make golden` makes the stubs beside it. The runtime serves it, the operator
calls it.
"""

from rlhf_api.job_control import job_control_pb2 as messages
from rlhf_api.job_control import job_control_pb2_grpc as stubs

SERVICE = messages.DESCRIPTOR.services_by_name["JobControl"].full_name

__all__ = ["SERVICE", "messages", "stubs"]
