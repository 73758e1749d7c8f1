"""A task: prompts with answers, some of them held out, and two ways to judge a response."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlhf_runtime.errors import RlhfError

Scorer = Callable[..., float]


class TaskError(RlhfError, ValueError):
    """Data that a manifest names and that cannot be had; the message names the manifest's field or the file."""


def exact_match(response: str, answer: str) -> float:
    """1.0 for the very same string, else 0.0."""
    return float(response == answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Prompts to train on, prompts held out, and their judge.

    Attributes:
        name: for messages and summaries.
        train_prompts: what training draws from.
        train_answers: one for each.
        heldout_prompts: never trained on.
        heldout_answers: one for each.
        train_metadata: what the scorer must know of each training problem besides the answer, as
            ``rlhf_runtime.tasks.metadata`` packs it; empty where answers are enough.
        scorer: the reward of (response, answer), which may give partial credit. One that has a parameter
            ``metadata`` gets the problem's, unpacked.
    """

    name: str
    train_prompts: tuple[str, ...]
    train_answers: tuple[str, ...]
    heldout_prompts: tuple[str, ...]
    heldout_answers: tuple[str, ...]
    train_metadata: tuple[str, ...] = ()
    scorer: Scorer = exact_match

    def __post_init__(self) -> None:
        if len(self.train_prompts) != len(self.train_answers):
            raise ValueError(f"task '{self.name}' must have as many train answers as prompts")
        if len(self.heldout_prompts) != len(self.heldout_answers):
            raise ValueError(f"task '{self.name}' must have as many held-out answers as prompts")
        if self.train_metadata and len(self.train_metadata) != len(self.train_prompts):
            raise ValueError(f"task '{self.name}' must have metadata for every training prompt or for none")

    def score(self, responses: Sequence[str], answers: Sequence[str]) -> list[float]:
        """The reward of each response, by a scorer that needs no metadata."""
        return [self.scorer(response, answer) for response, answer in zip(responses, answers, strict=True)]

    def is_correct(self, responses: Sequence[str], answers: Sequence[str]) -> list[bool]:
        """Whether each response is the answer, letter by letter: the metric, never partial."""
        return [response == answer for response, answer in zip(responses, answers, strict=True)]
