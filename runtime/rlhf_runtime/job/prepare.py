"""Data and models of a job, made or found before any role starts: what cannot be had fails here, in one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlhf_api.types import Data, Model, RLHFJob
from rlhf_runtime.errors import RlhfError
from rlhf_runtime.job.prompt_lengths import check_prompt_lengths
from rlhf_runtime.job.reporter import Reporter
from rlhf_runtime.tasks.base import Task


class UnsupportedError(RlhfError):
    """The manifest asks for something that this version does not do; the message names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a job's roles need.

    Attributes:
        task: Prompts and answers.
        policy: Folder or Hugging Face id of the model that is trained.
        reward_model: Folder of the learned reward model, made only when a role needs it.
    """

    task: Task
    policy: str
    reward_model: Callable[[], str]


def prepare(job: RLHFJob, reporter: Reporter) -> Prepared:
    """Make or find the job's data and models.

    Raises:
        RlhfError: A file, folder or model is not there, or cannot be used; the message names the manifest's field.
    """
    task = load_task(job.spec.data)
    policy = model_source(job.spec.model, task, reporter, field="spec.model")
    check_prompt_lengths(task, policy, room_for=job.spec.algorithm.generation.max_new_tokens)

    def reward_model() -> str:
        if job.spec.model.builtin is None:
            raise UnsupportedError("a role of type Reward must have a `model` of its own: a trained reward model")
        from rlhf_runtime.models.preference import spelling_reward_model
        from rlhf_runtime.models.preference_data import RewardModelConfig

        told = _told(reporter, "Fitting the reward model to preferences (cached afterwards)")
        config = RewardModelConfig(
            steps=job.spec.model.builtin.reward_model_steps,
            max_new_tokens=job.spec.algorithm.generation.max_new_tokens,
        )
        return str(spelling_reward_model(task, Path(policy), config=config, progress=told))

    return Prepared(task=task, policy=policy, reward_model=reward_model)


def load_task(data: Data) -> Task:
    """The prompts and answers that `spec.data` names.

    Raises:
        RlhfError: A file is missing or malformed, or the data set is unknown.
    """
    if data.files is not None:
        from rlhf_runtime.tasks.files import load_task_files

        return load_task_files(data.files)
    if data.procedural is not None:
        from rlhf_runtime.tasks.procedural import load_procedural_task

        return load_procedural_task(data.procedural)
    assert data.hugging_face is not None
    from rlhf_runtime.tasks.hub import load_hub_task

    return load_hub_task(data.hugging_face)


def model_source(model: Model, task: Task, reporter: Reporter, *, field: str) -> str:
    """A folder or Hugging Face id that a worker can load; a built-in model is made first if the cache has none.

    Raises:
        ModelNotFoundError: `path` is no folder.
    """
    if model.builtin is not None:
        from rlhf_runtime.models.builtin import WarmupConfig, builtin_model

        chosen = model.builtin
        warmup = WarmupConfig(
            steps=chosen.supervised_steps,
            examples=chosen.supervised_examples,
            wrong_fraction=chosen.bad_habit_percent / 100,
        )
        told = _told(reporter, "Making the model and its bad habit (cached afterwards)")
        return str(builtin_model(task, warmup=warmup, progress=told))
    if model.path is not None:
        from rlhf_runtime.models.loading import ModelNotFoundError

        if not Path(model.path).expanduser().is_dir():
            raise ModelNotFoundError(f'`{field}.path`: there is no folder "{model.path}"')
        return str(Path(model.path).expanduser())
    assert model.hugging_face is not None
    if model.hugging_face.trust_remote_code:
        raise UnsupportedError(f"`{field}.huggingFace.trustRemoteCode` must be false: this version runs no remote code")
    revision = model.hugging_face.revision
    return model.hugging_face.id if revision == "main" else f"{model.hugging_face.id}@{revision}"


def _told(reporter: Reporter, text: str) -> Callable[[int, int], None]:
    return lambda done, total: reporter.progress(text, done, total)
