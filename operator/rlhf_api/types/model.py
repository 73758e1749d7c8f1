"""`spec.model` and `spec.data`: what is trained, and on what."""

from typing import Annotated, ClassVar

from pydantic import Field

from rlhf_api.enums import BuiltinModelName, FileFormat
from rlhf_api.types.base import ATOMIC, ApiModel, Rule, one_of
from rlhf_api.types.scalars import REPO_ID, Parameters, ShortText, Text

LocalPath = Annotated[str, Field(min_length=1, max_length=1024)]
RepositoryId = Annotated[str, Field(min_length=1, max_length=193, pattern=REPO_ID)]
ProblemCount = Annotated[int, Field(ge=1, le=100_000_000)]


class HuggingFaceModel(ApiModel):
    """A model of the Hugging Face hub."""

    id: RepositoryId = Field(description="The repository, `organization/name`.")
    revision: Text = Field(default="main", description="A branch, tag or commit; a commit never changes.")
    trust_remote_code: bool = Field(
        default=False, description="Whether Python code of the repository may run in the workers."
    )


class BuiltinModel(ApiModel):
    """A small model that the runtime makes and warms up by itself, cached by content."""

    name: BuiltinModelName = Field(description="Which model to make.")
    supervised_steps: int = Field(
        default=300, ge=0, le=100_000, description="Steps of the supervised phase before the first RL step."
    )
    supervised_examples: int = Field(
        default=4000, ge=1, le=1_000_000, description="Examples that the supervised phase shows."
    )
    bad_habit_percent: int = Field(
        default=60,
        ge=0,
        le=100,
        description="Share of the examples that show the wrong behaviour to be unlearned.",
    )
    reward_model_steps: int = Field(
        default=250,
        ge=1,
        le=100_000,
        description="Steps in which the reward model of a Reward role without a model is fitted to preferences.",
    )


class Model(ApiModel):
    """Where the weights come from; exactly one of the fields."""

    hugging_face: HuggingFaceModel | None = Field(default=None, description="A model of the Hugging Face hub.")
    path: LocalPath | None = Field(
        default=None,
        description="A folder that `transformers` loads, on a volume of the job or on this machine.",
    )
    builtin: BuiltinModel | None = Field(default=None, description="A small model made by the runtime.")

    invariants: ClassVar[tuple[Rule, ...]] = (one_of("hugging_face", "path", "builtin"),)


class ProceduralData(ApiModel):
    """Problems that a generator of reasoning-gym makes, with its verifier."""

    dataset: ShortText = Field(description="The name of a reasoning-gym dataset, such as `spell_backward`.")
    parameters: Parameters = Field(
        default_factory=dict,
        description="Arguments of the dataset, in reasoning-gym's spelling (`min_word_len`).",
    )
    train_size: ProblemCount = Field(default=8000, description="Problems to train on.")
    held_out_size: ProblemCount = Field(
        default=512, description="Problems kept for evaluation, none of which is trained on."
    )
    template: str = Field(
        default="{question}",
        min_length=1,
        max_length=4096,
        description="The prompt; `{question}` and the fields of the problem's metadata are filled in.",
    )


class FileData(ApiModel):
    """Problems in files on a volume of the job or on this machine."""

    train: tuple[LocalPath, ...] = Field(
        min_length=1, max_length=64, description="Files to train on.", json_schema_extra=ATOMIC
    )
    held_out: tuple[LocalPath, ...] = Field(
        default=(), max_length=64, description="Files kept for evaluation.", json_schema_extra=ATOMIC
    )
    format: FileFormat = Field(default=FileFormat.JSONL, description="The format of the files.")
    prompt_field: ShortText = Field(default="prompt", description="The field that holds the prompt.")
    answer_field: ShortText = Field(default="answer", description="The field that holds the right answer.")


class HuggingFaceData(ApiModel):
    """A data set of the Hugging Face hub."""

    id: RepositoryId = Field(description="The repository, `organization/name`.")
    revision: Text = Field(default="main", description="A branch, tag or commit; a commit never changes.")
    subset: ShortText | None = Field(default=None, description="The configuration of the data set.")
    train_split: ShortText = Field(default="train", description="The split to train on.")
    held_out_split: ShortText = Field(default="test", description="The split kept for evaluation.")
    prompt_field: ShortText = Field(default="prompt", description="The field that holds the prompt.")
    answer_field: ShortText = Field(default="answer", description="The field that holds the right answer.")


class Data(ApiModel):
    """Where prompts come from; exactly one of the fields."""

    procedural: ProceduralData | None = Field(default=None, description="Problems made by reasoning-gym.")
    files: FileData | None = Field(default=None, description="Problems in files.")
    hugging_face: HuggingFaceData | None = Field(default=None, description="A data set of the Hugging Face hub.")

    invariants: ClassVar[tuple[Rule, ...]] = (one_of("procedural", "files", "hugging_face"),)
