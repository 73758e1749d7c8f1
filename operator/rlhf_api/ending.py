"""How a controller's pod ended, in its own words: the termination message that the operator reads.

The kubelet keeps it in the pod's status, so that nothing has to run for it to be known. It has room for 4096 bytes.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, ValidationError

from rlhf_api.reasons import ConditionReason
from rlhf_api.types.base import ApiModel
from rlhf_api.types.status import Progress

TERMINATION_FILE = "/dev/termination-log"
MAX_BYTES = 4096
FAILED_FOR_GOOD = 3
"""The exit code with which no other pod is made; 0 is Complete or Suspended, anything else lets another pod go on."""
_LONGEST_MESSAGE = 2000


class EndingOutcome(StrEnum):
    """What became of the run in this pod."""

    COMPLETE = "Complete"
    FAILED = "Failed"
    """For good: another pod would meet the same."""
    SUSPENDED = "Suspended"
    INTERRUPTED = "Interrupted"
    """Another pod goes on."""


class RoleEnding(ApiModel):
    """The last counts of one role."""

    name: str = Field(description="The role's name.")
    restarts: int = Field(default=0, description="Counted restarts.")
    uncounted_restarts: int = Field(default=0, description="Restarts that do not count.")


class Ending(ApiModel):
    """The termination message of a controller's pod."""

    outcome: EndingOutcome = Field(description="What became of the run.")
    reason: ConditionReason = Field(description="The reason for the job's condition.")
    message: str = Field(default="", description="For people: the cause and what to do.")
    epoch: int = Field(default=0, description="The controller's epoch.")
    progress: Progress | None = Field(default=None, description="How far it got.")
    roles: tuple[RoleEnding, ...] = Field(default=(), description="The last counts of each role.")

    def encode(self) -> str:
        """As text for `TERMINATION_FILE`, with the message cut so that it fits."""
        fitting = self.model_copy(update={"message": _cut(self.message, _LONGEST_MESSAGE)})
        text = fitting.model_dump_json(by_alias=True, exclude_none=True)
        while len(text.encode()) > MAX_BYTES and fitting.message:
            fitting = fitting.model_copy(update={"message": _cut(fitting.message, len(fitting.message) // 2)})
            text = fitting.model_dump_json(by_alias=True, exclude_none=True)
        return text

    @classmethod
    def decode(cls, text: str) -> Ending | None:
        """What a pod's termination message says; None if a controller did not write it."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            return None


def _cut(text: str, longest: int) -> str:
    """The end of a text says most: of a traceback, the error."""
    if len(text) <= longest:
        return text
    return f"...{text[len(text) - longest + 3 :]}" if longest > 3 else ""
