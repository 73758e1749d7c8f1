"""`spec.roles[].restartPolicy`: what happens when a part of a role dies.

A failure is classified, the first matching rule or else the scope decides what restarts, the back-off when, and
`maxRestarts` how often before `onExhausted` applies.
"""

from typing import Annotated, ClassVar

from pydantic import Field

from rlhf_api.enums import DegradeMode, ExhaustedAction, FailureReason, RestartAction, RestartScope
from rlhf_api.types.base import ATOMIC, LIST_SET, ApiModel, Rule
from rlhf_api.types.scalars import PositiveSeconds, Quantity, Seconds


class Backoff(ApiModel):
    """How long a role waits before it restarts again."""

    initial_seconds: Seconds = Field(default=0, description="Wait before the first restart.")
    base_seconds: Seconds = Field(default=5, description="Wait before the second, doubled each time after.")
    max_seconds: Seconds = Field(default=300, description="The longest wait.")
    reset_after_seconds: PositiveSeconds = Field(
        default=600, description="A role that runs this long starts again with the first wait."
    )

    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            # The API server tries the default `{}` before the fields have theirs, hence `has`.
            cel="!has(self.baseSeconds) || !has(self.maxSeconds) || self.baseSeconds <= self.maxSeconds",
            message="must be at least `baseSeconds`",
            field="maxSeconds",
            holds=lambda self: self.base_seconds <= self.max_seconds,
        ),
    )


class RestartRule(ApiModel):
    """What to do about failures of some kind."""

    reasons: tuple[FailureReason, ...] = Field(
        default=(), max_length=20, description="Failure reasons that match.", json_schema_extra=LIST_SET
    )
    exit_codes: tuple[Annotated[int, Field(ge=0, le=255)], ...] = Field(
        default=(), max_length=32, description="Exit codes that match.", json_schema_extra=LIST_SET
    )
    action: RestartAction = Field(description="What to do.")
    counted: bool = Field(default=True, description="Whether this uses up one of `maxRestarts`.")
    memory_increase_percent: int | None = Field(
        default=None,
        ge=1,
        le=400,
        description="More memory for the next attempt, in percent of the present limit.",
    )
    max_memory: Quantity | None = Field(default=None, description="The most memory that raises may reach.")

    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(has(self.reasons) && self.reasons.size() > 0) || (has(self.exitCodes) && self.exitCodes.size() > 0)",
            message="must have `reasons` or `exitCodes`",
            holds=lambda self: bool(self.reasons or self.exit_codes),
        ),
        Rule(
            cel="has(self.memoryIncreasePercent) == has(self.maxMemory)",
            message="must be set together with `memoryIncreasePercent`",
            field="maxMemory",
            holds=lambda self: (self.memory_increase_percent is None) == (self.max_memory is None),
        ),
    )


class Degrade(ApiModel):
    """How scoring goes on without a role that used up its restarts."""

    mode: DegradeMode = Field(default=DegradeMode.CACHED_SCORES, description="What takes the place of its scores.")
    max_steps: int = Field(
        default=10, ge=1, le=100_000, description="Steps after which the job fails if the role is still gone."
    )


class RestartPolicy(ApiModel):
    """What happens when a part of the role dies; the other roles keep their pods, processes and weights."""

    scope: RestartScope = Field(
        default=RestartScope.AUTO,
        description="Role restarts all ranks together, Replica only the failed one. "
        "Auto: Role for Actor and Critic, Replica for the others.",
    )
    max_restarts: int = Field(
        default=10, ge=0, le=1000, description="Counted restarts after which `onExhausted` applies."
    )
    backoff: Backoff = Field(default_factory=Backoff, description="Waits between restarts.")
    rules: tuple[RestartRule, ...] = Field(
        default=(),
        max_length=16,
        description="The first rule that matches decides. Without a match: a counted restart of `scope`.",
        json_schema_extra=ATOMIC,
    )
    on_exhausted: ExhaustedAction = Field(
        default=ExhaustedAction.FAIL_JOB,
        description="FailJob, RestartJob from the last snapshot, or Degrade (Reward, Rule and Custom roles).",
    )
    degrade: Degrade | None = Field(default=None, description="How Degrade goes on.")
    standbys: int = Field(
        default=0, ge=0, le=64, description="Ready copies that take over at once; not for Actor and Critic."
    )
    start_timeout_seconds: PositiveSeconds = Field(
        default=1800, description="Longest time from a running pod to a loaded model."
    )
    hang_timeout_seconds: PositiveSeconds = Field(
        default=600, description="Longest time without progress inside a method."
    )
    method_timeout_seconds: PositiveSeconds = Field(
        default=7200, description="Longest time of one method, progress or not."
    )

    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.onExhausted == 'Degrade' || !has(self.degrade)",
            message="must not be set unless `onExhausted` is Degrade",
            field="degrade",
            holds=lambda self: self.on_exhausted == ExhaustedAction.DEGRADE or self.degrade is None,
        ),
    )
