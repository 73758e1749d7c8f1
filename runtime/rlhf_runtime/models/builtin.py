"""The small built-in model: half a million parameters, spells letter by letter, and starts with a bad habit.

The supervised phase shows it words spelled backward, but most examples show a wrong behaviour, the word
copied. So it starts reinforcement learning with a skill and a habit to lose, which is what RLHF is for. Made
once and cached.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rlhf_runtime.algorithms.counter_rng import DATA_STREAM, StepSeed, permutation
from rlhf_runtime.models.content_cache import cached_folder, content_hash
from rlhf_runtime.models.loading import no_progress_bars
from rlhf_runtime.tasks.base import Task

CODE_VERSION = 1
PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789=+-*/()<>.,:;? "

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinModelConfig:
    """The Qwen3 architecture at its smallest useful size."""

    hidden_size: int = 128
    intermediate_size: int = 256
    layers: int = 3
    heads: int = 4
    head_dim: int = 32
    max_positions: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupConfig:
    """The supervised phase.

    Attributes:
        examples: words shown.
        wrong_fraction: of them with the wrong behaviour.
        steps: optimizer steps.
        batch_size: examples per step.
        learning_rate: at its height.
        warmup_steps: of linear rise; the last half of the steps decays linearly to 0.
        seed: of the weights and the order.
    """

    examples: int = 4000
    wrong_fraction: float = 0.6
    steps: int = 300
    batch_size: int = 128
    learning_rate: float = 1e-3
    warmup_steps: int = 20
    seed: int = 0


def builtin_model(
    task: Task,
    *,
    model: BuiltinModelConfig | None = None,
    warmup: WarmupConfig | None = None,
    progress: Progress | None = None,
) -> Path:
    """The folder of the built-in model and its tokenizer; made and warmed up first if the cache has none.

    Args:
        task: the prompts ``word=`` and answers of the supervised phase.
        model: its size.
        warmup: its supervised phase.
        progress: told (steps done, steps in all).

    Returns:
        a folder that ``transformers`` loads.
    """
    model, warmup = model or BuiltinModelConfig(), warmup or WarmupConfig()
    examples = habit_examples(task, warmup)
    content = {
        "model": asdict(model),
        "warmup": asdict(warmup),
        "data": content_hash(examples),
        "code": CODE_VERSION,
    }

    def build(folder: Path) -> None:
        tokenizer = make_tokenizer()
        network = make_model(model, tokenizer, seed=warmup.seed)
        train_supervised(network, tokenizer, examples, config=warmup, progress=progress)
        with no_progress_bars():
            tokenizer.save_pretrained(folder)
            network.save_pretrained(folder)

    return cached_folder("model-spelling", content=content, build=build)


def habit_examples(task: Task, config: WarmupConfig) -> list[tuple[str, str]]:
    """(prompt, answer) pairs of which ``wrong_fraction`` copy the word instead of spelling it backward."""
    count = min(config.examples, len(task.train_prompts))
    wrong = round(count * config.wrong_fraction)
    order = permutation(count, seed=StepSeed(job=config.seed, step=0), stream=DATA_STREAM)
    pairs = list(zip(task.train_prompts, task.train_answers, strict=True))[:count]
    return [
        (prompt, prompt.rstrip("=") if rank < wrong else answer)
        for rank, (prompt, answer) in zip(order.tolist(), pairs, strict=True)
    ]


def make_tokenizer() -> Any:
    """A fast tokenizer with one token per character, that pads on the left."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: index for index, token in enumerate([PAD, EOS, UNKNOWN, *CHARACTERS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def make_model(config: BuiltinModelConfig, tokenizer: Any, *, seed: int) -> Any:
    """A new Qwen3 causal language model with random weights that depend on the seed alone."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    architecture = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.max_positions,
        # Tied weights go stale in some rollout engines when new ones are loaded.
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(architecture)


def train_supervised(
    model: nn.Module,
    tokenizer: Any,
    examples: list[tuple[str, str]],
    *,
    config: WarmupConfig,
    progress: Progress | None = None,
) -> None:
    """Train on the answers' tokens, with a linear rise and a decay over the last half.

    Args:
        model: changed.
        tokenizer: of the model.
        examples: (prompt, answer) pairs.
        config: the settings.
        progress: told (steps done, steps in all).
    """
    input_ids, labels = encode_examples(tokenizer, examples)
    attention_mask = (input_ids != tokenizer.pad_token_id).long()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, fused=True)
    model.train()
    for step, rows in enumerate(_batches(len(examples), config)):
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * schedule(step, config)
        output: Any = model(input_ids=input_ids[rows], attention_mask=attention_mask[rows], use_cache=False)
        loss = cross_entropy(output.logits[:, :-1].flatten(0, 1), labels[rows][:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if progress:
            progress(step + 1, config.steps)
    model.eval()


def encode_examples(tokenizer: Any, examples: list[tuple[str, str]]) -> tuple[Tensor, Tensor]:
    """Token ids (N, L), padded on the right, and labels (N, L): -100 but on the answer and its end."""
    prompts = tokenizer([prompt for prompt, _ in examples], add_special_tokens=False)["input_ids"]
    answers = tokenizer([answer for _, answer in examples], add_special_tokens=False)["input_ids"]
    width = max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True)) + 1
    input_ids = torch.full((len(examples), width), tokenizer.pad_token_id)
    labels = torch.full((len(examples), width), -100)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        tokens = torch.tensor([*prompt, *answer, tokenizer.eos_token_id])
        input_ids[row, : len(tokens)] = tokens
        labels[row, len(prompt) : len(tokens)] = tokens[len(prompt) :]
    return input_ids, labels


def schedule(step: int, config: WarmupConfig) -> float:
    """The factor on the learning rate: up over ``warmup_steps``, flat to the middle, down to 0 at the end."""
    rise = (step + 1) / config.warmup_steps
    fall = (config.steps - step) / (config.steps - config.steps // 2)
    return min(1.0, rise, fall)


def _batches(count: int, config: WarmupConfig) -> list[Tensor]:
    epochs = -(-config.steps * config.batch_size // count)
    orders = [
        torch.from_numpy(permutation(count, seed=StepSeed(job=config.seed, step=1), stream=DATA_STREAM, epoch=epoch))
        for epoch in range(epochs)
    ]
    return list(torch.split(torch.cat(orders), config.batch_size)[: config.steps])
