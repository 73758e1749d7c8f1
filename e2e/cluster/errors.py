"""What can go wrong here, in classes that a command turns into one message and an exit code."""

from typing import Any


class ClusterError(Exception):
    """Something in the local cluster failed; the message says what, and what to do next."""


class CommandError(ClusterError):
    """A program that was run ended with an error."""

    def __init__(self, argv: list[str], code: int, output: str) -> None:
        self.argv, self.code, self.output = argv, code, output
        shown = " ".join(argv[:6]) + (" ..." if len(argv) > 6 else "")
        super().__init__(f"{output.strip()[-2000:]}\n(`{shown}` ended with exit code {code})")


class RefusedError(ClusterError):
    """The API server refused a request; `status` is its Status object, which names causes and their fields."""

    def __init__(self, message: str, status: dict[str, Any]) -> None:
        self.status = status
        super().__init__(message)


class CannotRunHereError(ClusterError):
    """This machine lacks something that no package brings: root, Linux, Go, a kernel feature."""
