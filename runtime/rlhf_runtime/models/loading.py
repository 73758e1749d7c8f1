"""Load a causal language model, a tokenizer or a scalar-head model: from a folder or a Hugging Face id.

An id may name a branch, tag or commit: `organization/name@revision`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlhf_runtime.errors import RlhfError
from rlhf_runtime.models.heads import BODY_FOLDER, ScalarHeadModel, has_scalar_head

SHORT = 128  # positions
SLOW_IMPORTS = (
    "transformers.models.auto.modeling_auto",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.generation.utils",
)
"""What loading and generating import late."""


class ModelNotFoundError(RlhfError, ValueError):
    """The model that a manifest names is not there, or is no model."""


def load_causal_lm(source: str | Path, *, field: str = "spec.model", dtype: torch.dtype = torch.float32) -> nn.Module:
    """Load a causal language model.

    Args:
        source: a folder, or the id of a model on the Hugging Face hub.
        field: the manifest's field that named it, for the message.
        dtype: of the parameters.

    Returns:
        the model, in eval mode.

    Raises:
        ModelNotFoundError: there is no such model.
    """
    from transformers import AutoModelForCausalLM

    model: nn.Module = _from_pretrained(AutoModelForCausalLM, source, field=field, dtype=dtype)
    return _with_fast_attention(model).eval()


def skeleton_of(source: str | Path, *, field: str = "spec.model", dtype: torch.dtype = torch.float32) -> nn.Module:
    """A causal language model without weights, on torch's meta device: its class, its config, its names and shapes.

    Args:
        source: a folder, or the id of a model on the Hugging Face hub.
        field: the manifest's field that named it, for the message.
        dtype: that its parameters would have.

    Raises:
        ModelNotFoundError: there is no such model.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    config = _from_pretrained(AutoConfig, source, field=field)
    with torch.device("meta"):
        model: nn.Module = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model.eval()


def load_tokenizer(source: str | Path, *, field: str = "spec.model") -> Any:
    """Load a tokenizer that pads on the left.

    The end-of-sequence token is its padding where it has none of its own.

    Args:
        source: a folder, or the id of a model on the Hugging Face hub.
        field: the manifest's field that named it, for the message.

    Raises:
        ModelNotFoundError: there is no such tokenizer, or it has no end-of-sequence token.
    """
    from transformers import AutoTokenizer

    tokenizer = _from_pretrained(AutoTokenizer, source, field=field)
    if tokenizer.eos_token_id is None:
        raise ModelNotFoundError(f"`{field}`: the tokenizer of '{source}' must have an end-of-sequence token")
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_scalar_model(
    source: str | Path, *, field: str = "spec.model", dtype: torch.dtype = torch.float32
) -> ScalarHeadModel:
    """Load a critic or a reward model.

    Args:
        source: a folder that ``ScalarHeadModel.save`` wrote; else a causal language model or its body, which
            gets a head of zeros.
        field: the manifest's field that named it, for the message.
        dtype: of the parameters.

    Returns:
        the model, in eval mode.

    Raises:
        ModelNotFoundError: there is no such model.
    """
    from transformers import AutoModel

    folder = Path(source)
    if has_scalar_head(folder):
        body = _from_pretrained(AutoModel, folder / BODY_FOLDER, field=field, dtype=dtype)
        model = ScalarHeadModel(_with_fast_attention(body))
        model.load_head(folder)
    else:
        causal_lm: Any = load_causal_lm(source, field=field, dtype=dtype)
        model = ScalarHeadModel(causal_lm.base_model)
    return model.to(dtype).eval()


def load_reward_model(
    source: str | Path, *, field: str = "spec.model", dtype: torch.dtype = torch.float32
) -> ScalarHeadModel:
    """Load a trained reward model; a folder without a trained head is an error.

    Args:
        source: a folder that ``ScalarHeadModel.save`` wrote.
        field: the manifest's field that named it, for the message.
        dtype: of the parameters.

    Raises:
        ModelNotFoundError: there is no such model, or its head was never trained.
    """
    if Path(source).is_dir() and not has_scalar_head(Path(source)):
        raise ModelNotFoundError(f"`{field}`: '{source}' must be a reward model, but it has no trained scalar head")
    return load_scalar_model(source, field=field, dtype=dtype)


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Keep transformers' progress bars off the terminal: several roles would draw over each other."""
    from transformers.utils import logging

    was_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            logging.enable_progress_bar()


def _from_pretrained(loader: Any, source: str | Path, *, field: str, **options: Any) -> Any:
    text = os.fspath(source)
    if _looks_like_path(text) and not Path(text).is_dir():
        raise ModelNotFoundError(f"`{field}`: there is no folder '{text}'")
    name, revision = _split_revision(text)
    if revision:
        options["revision"] = revision
    try:
        with no_progress_bars():
            return loader.from_pretrained(name, **options)
    except (OSError, ValueError) as error:
        kind = "the folder" if Path(text).is_dir() else "the Hugging Face id"
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelNotFoundError(f"`{field}`: no model can be loaded from {kind} '{text}': {first_line}") from error


def _with_fast_attention(model: Any) -> nn.Module:
    # On sequences as short as the built-in model's, torch's fused attention is slower on a CPU than the plain one:
    # measured, an update takes 15 % less time with the latter.
    network: nn.Module = model
    if getattr(model.config, "max_position_embeddings", SHORT + 1) <= SHORT:
        model.set_attn_implementation("eager")
    return network


def _split_revision(text: str) -> tuple[str, str]:
    # `owner/name@revision` is ours: a hub id has no "@", but a folder may have one, and a branch a slash.
    name, _, revision = text.partition("@")
    return (text, "") if Path(text).is_dir() or not revision else (name, revision)


def _looks_like_path(text: str) -> bool:
    # A hub id is `name` or `owner/name`; whatever else has a slash, or starts like a path, is meant as one.
    return text.startswith((".", "/", "~")) or text.partition("@")[0].count("/") > 1
