"""`spec.roles[].engine`: what computes inside a role's processes."""

from typing import Annotated, ClassVar

from pydantic import Field

from rlhf_api.enums import Precision, RolloutEngine, TrainingEngine, WeightSync
from rlhf_api.types.base import LIST_SET, ApiModel, Rule
from rlhf_api.types.scalars import Quantity, ShortText


class VLLM(ApiModel):
    """What vLLM is told of its device."""

    accelerator_memory_percent: int = Field(
        default=50, ge=1, le=100, description="Of each accelerator's memory, for its weights and its cache."
    )
    cpu_cache_memory: Quantity = Field(
        default="1Gi", description="Memory of its cache without accelerators, rounded up to whole Gi."
    )
    tensor_parallel_size: int = Field(
        default=1, ge=1, le=64, description="Accelerators over which one copy of the model is spread."
    )
    max_model_length: int | None = Field(
        default=None,
        ge=2,
        le=100_000_000,
        description="Longest prompt and response together, in tokens. Default: what the model takes.",
    )
    max_sequences: int = Field(default=256, ge=1, le=65_536, description="Responses that it works on at once.")
    sleep: bool = Field(
        default=True, description="Whether it gives its accelerator memory back while the policy trains."
    )


class LoRA(ApiModel):
    """Train low-rank adapters; the model's own weights stay as they are."""

    rank: int = Field(default=16, ge=1, le=4096, description="Rank of each adapter.")
    alpha: int = Field(default=32, ge=1, le=65_536, description="An adapter's output is scaled by alpha / rank.")
    target_modules: Annotated[list[ShortText], Field(max_length=32)] = Field(
        default_factory=list,
        description="Names of the linear layers that get one, such as q_proj. Default: all but the output embedding.",
        json_schema_extra=LIST_SET,
    )


class EngineSpec(ApiModel):
    """The engines inside a role's processes."""

    training: TrainingEngine = Field(
        default=TrainingEngine.AUTO,
        description="Auto: FSDP2 with several ranks, BFloat16 or `checkpointActivations`, else Torch.",
    )
    rollout: RolloutEngine = Field(
        default=RolloutEngine.AUTO, description="Auto: VLLM on accelerators for large models, else Cached."
    )
    precision: Precision = Field(
        default=Precision.AUTO, description="Of the engines' passes; what is trained is kept in Float32. Auto: Float32."
    )
    checkpoint_activations: bool = Field(
        default=False, description="Whether activations are computed again in the backward pass, not kept: less memory."
    )
    max_tokens_per_pass: int = Field(
        default=16_384,
        ge=1,
        le=100_000_000,
        description="Tokens of one forward pass, padding included; a minibatch of more takes several.",
    )
    lora: LoRA | None = Field(default=None, description="Train adapters instead of the whole model.")
    vllm: VLLM | None = Field(default=None, description="Options of the rollout engine VLLM.")
    weight_sync: WeightSync = Field(
        default=WeightSync.AUTO,
        description="How the Actor's weights reach a Rollout role: Ray's object store, the job's state, or a group of "
        "it and each replica. Auto: ObjectStore.",
    )

    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.vllm) || self.rollout in ['VLLM', 'Auto']",
            message="must not be set unless `rollout` is VLLM or Auto",
            field="vllm",
            holds=lambda self: self.vllm is None or self.rollout in (RolloutEngine.VLLM, RolloutEngine.AUTO),
        ),
    )
