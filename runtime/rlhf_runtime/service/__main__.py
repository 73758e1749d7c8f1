"""`python -m rlhf_runtime.service`: the program of a controller's pod."""

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run, and end without taking torch and Ray apart, which takes seconds and may hang."""
    signal.signal(signal.SIGTERM, _leave)
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # children are started by exec, and gRPC's hooks would warn
    from rlhf_runtime.service.process import ControllerProcess
    from rlhf_runtime.service.settings import read_settings

    code = ControllerProcess(read_settings(sys.argv[1:])).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _leave(number: int, frame: FrameType | None) -> None:
    """There is nothing to finish yet; without a handler the first process of a container would not hear of it."""
    os._exit(1)


if __name__ == "__main__":
    main()
