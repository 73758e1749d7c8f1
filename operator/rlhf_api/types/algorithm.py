"""`spec.algorithm`: which control flow runs, for how long, and its hyperparameters.

The defaults are those of `spell_backward` with the built-in model, which learn on two CPU cores.
"""

from typing import Annotated, ClassVar

from pydantic import Field

from rlhf_api.enums import AlgorithmName, Schedule
from rlhf_api.types.base import ApiModel, Rule, Transition, immutable
from rlhf_api.types.scalars import IMPORT_PATH, LearningRate, Parameters

MAX_STEPS = 999_999

Coefficient = Annotated[float, Field(ge=0, le=10)]
Fraction = Annotated[float, Field(ge=0, le=1)]
ClipRange = Annotated[float, Field(gt=0, le=10)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class Optimizer(ApiModel):
    """AdamW apart from its learning rate."""

    beta1: Beta = Field(default=0.9, description="Decay of AdamW's running mean of gradients.")
    beta2: Beta = Field(default=0.95, description="Decay of AdamW's running mean of squared gradients.")
    weight_decay: Fraction = Field(default=0.0, description="AdamW's decoupled weight decay.")
    max_grad_norm: Annotated[float, Field(gt=0, le=1000)] = Field(
        default=1.0, description="Gradients are scaled down to this global norm."
    )


class PPO(ApiModel):
    """Hyperparameters of PPO (Schulman et al. 2017, arXiv:1707.06347)."""

    prompts_per_step: int = Field(default=256, ge=1, le=65536, description="Prompts sampled in one step.")
    epochs: int = Field(default=2, ge=1, le=64, description="Passes over the samples of one step.")
    mini_batches: int = Field(default=2, ge=1, le=4096, description="Optimizer steps per pass.")
    actor_learning_rate: LearningRate = Field(default=2e-4, description="Learning rate of the actor.")
    critic_learning_rate: LearningRate = Field(default=1e-3, description="Learning rate of the critic.")
    clip_range: ClipRange = Field(default=0.2, description="The probability ratio is clipped to 1 plus or minus this.")
    value_clip_range: ClipRange = Field(
        default=0.2, description="A new value may move this far from the old one in one step."
    )
    gamma: Fraction = Field(default=1.0, description="Discount of later rewards.")
    gae_lambda: Fraction = Field(
        default=0.95,
        description="Lambda of generalized advantage estimation: 0 trusts the critic, 1 the rewards.",
    )
    kl_coefficient: Coefficient = Field(
        default=0.05,
        description="Weight of the per-token KL penalty against the reference; above 0 it needs that role.",
    )
    entropy_coefficient: Coefficient = Field(default=0.0, description="Weight of the entropy bonus.")
    whiten_advantages: bool = Field(
        default=True, description="Whether advantages are scaled to mean 0 and variance 1 over the batch."
    )
    optimizer: Optimizer = Field(default_factory=Optimizer, description="AdamW's other settings.")

    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.miniBatches <= self.promptsPerStep",
            message="must be at most `promptsPerStep`",
            field="miniBatches",
            holds=lambda self: self.mini_batches <= self.prompts_per_step,
        ),
    )


class GRPO(ApiModel):
    """Hyperparameters of GRPO (Shao et al. 2024, arXiv:2402.03300)."""

    prompts_per_step: int = Field(default=64, ge=1, le=65536, description="Prompts sampled in one step.")
    group_size: int = Field(
        default=8, ge=2, le=1024, description="Answers per prompt; each is judged against its group."
    )
    epochs: int = Field(default=1, ge=1, le=64, description="Passes over the samples of one step.")
    mini_batches: int = Field(default=2, ge=1, le=4096, description="Optimizer steps per pass.")
    actor_learning_rate: LearningRate = Field(default=1e-4, description="Learning rate of the actor.")
    clip_range: ClipRange = Field(default=0.2, description="The probability ratio is clipped to 1 plus or minus this.")
    kl_coefficient: Coefficient = Field(
        default=0.05,
        description="Weight of the loss's KL divergence from the reference; above 0 it needs that role.",
    )
    entropy_coefficient: Coefficient = Field(default=0.0, description="Weight of the entropy bonus.")
    optimizer: Optimizer = Field(default_factory=Optimizer, description="AdamW's other settings.")

    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.miniBatches <= self.promptsPerStep * self.groupSize",
            message="must be at most `promptsPerStep` times `groupSize`",
            field="miniBatches",
            holds=lambda self: self.mini_batches <= self.prompts_per_step * self.group_size,
        ),
    )


class CustomAlgorithm(ApiModel):
    """A control flow of the user's own."""

    controller_class: str = Field(
        min_length=1,
        max_length=253,
        pattern=IMPORT_PATH,
        description="A subclass of `Controller`, as `package.module:Class`.",
    )
    parameters: Parameters = Field(
        default_factory=dict, description="Arguments for the controller, by name: numbers, strings, booleans."
    )


class Generation(ApiModel):
    """How answers are sampled during training. Evaluation is greedy."""

    max_new_tokens: int = Field(default=256, ge=1, le=1_048_576, description="Tokens after which an answer is cut off.")
    temperature: Annotated[float, Field(gt=0, le=100)] = Field(
        default=1.0, description="Softmax temperature of sampling."
    )
    max_log_prob_difference: Annotated[float, Field(gt=0, le=100)] = Field(
        default=0.1,
        description="Of VLLM's log-probs from those of the training engine, per token; with more the job fails.",
    )


class Evaluation(ApiModel):
    """When the held-out problems are tried."""

    every_steps: int = Field(
        default=0, ge=0, le=MAX_STEPS, description="Steps between evaluations; 0 means only at start and end."
    )


class Algorithm(ApiModel):
    """Which algorithm runs, for how long, and its hyperparameters."""

    name: AlgorithmName = Field(description="PPO, GRPO, or Custom for a control flow of your own.")
    total_steps: int = Field(ge=1, le=MAX_STEPS, description="Steps after which the job is complete.")
    seed: int = Field(
        default=0,
        ge=0,
        le=2**31 - 1,
        description="Seed of everything random; one seed gives the same numbers.",
    )
    schedule: Schedule = Field(
        default=Schedule.SYNCHRONOUS,
        description="Synchronous, or OneStepOff: the next step's answers are generated during this step.",
    )
    evaluation: Evaluation = Field(default_factory=Evaluation, description="When the held-out problems are tried.")
    generation: Generation = Field(default_factory=Generation, description="How answers are sampled.")
    ppo: PPO | None = Field(default=None, description="Hyperparameters of PPO; only with `name` PPO or Custom.")
    grpo: GRPO | None = Field(default=None, description="Hyperparameters of GRPO; only with `name` GRPO or Custom.")
    custom: CustomAlgorithm | None = Field(
        default=None, description="The control flow to run; only and always with `name` Custom."
    )

    transitions: ClassVar[tuple[Transition, ...]] = immutable(
        "name", "seed", "schedule", "generation", "ppo", "grpo", "custom"
    )
    invariants: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.name in ['PPO', 'Custom'] || !has(self.ppo)",
            message="must not be set unless `name` is PPO or Custom",
            field="ppo",
            holds=lambda self: self.name in (AlgorithmName.PPO, AlgorithmName.CUSTOM) or self.ppo is None,
        ),
        Rule(
            cel="self.name in ['GRPO', 'Custom'] || !has(self.grpo)",
            message="must not be set unless `name` is GRPO or Custom",
            field="grpo",
            holds=lambda self: self.name in (AlgorithmName.GRPO, AlgorithmName.CUSTOM) or self.grpo is None,
        ),
        Rule(
            cel="!(has(self.ppo) && has(self.grpo))",
            message="must have at most one of `ppo`, `grpo`",
            holds=lambda self: self.ppo is None or self.grpo is None,
        ),
        Rule(
            cel="(self.name == 'Custom') == has(self.custom)",
            message="must be set when `name` is Custom, and only then",
            field="custom",
            holds=lambda self: (self.name == AlgorithmName.CUSTOM) == (self.custom is not None),
        ),
    )

    @property
    def parameters(self) -> PPO | GRPO | CustomAlgorithm:
        """The block that belongs to `name`, with its defaults where the manifest has none."""
        match self.name:
            case AlgorithmName.PPO:
                return self.ppo or PPO()
            case AlgorithmName.GRPO:
                return self.grpo or GRPO()
            case AlgorithmName.CUSTOM:
                assert self.custom is not None, "a rule of this model"
                return self.custom

    @property
    def needs_reference(self) -> bool:
        """Whether the algorithm compares the actor with a frozen reference."""
        if self.name == AlgorithmName.CUSTOM:
            return False
        parameters = self.parameters
        assert not isinstance(parameters, CustomAlgorithm)
        return parameters.kl_coefficient > 0
