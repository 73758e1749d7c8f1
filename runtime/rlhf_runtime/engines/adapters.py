"""LoRA: a layer's weight stays as it is, and what is learned is the product of two narrow matrices beside it.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, arXiv:2106.09685; the layers are peft's. They are
put into the model itself, which keeps its class, its methods and its place in FSDP2.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rlhf_runtime.errors import RlhfError

_NAME = "default"  # peft's, of an adapter that is given no other


@dataclass(frozen=True, slots=True, kw_only=True)
class LoRASettings:
    """Which layers get adapters, and how large.

    Attributes:
        rank: of the two matrices' product.
        alpha: the product is scaled by alpha / rank.
        target_modules: last parts of the layers' names; none: every linear layer but the output embedding.
    """

    rank: int = 16
    alpha: int = 32
    target_modules: tuple[str, ...] = ()


class AdapterError(RlhfError, ValueError):
    """The model has no such layers; the message names those that it has."""


def add_adapters(network: nn.Module, settings: LoRASettings, *, seed: int) -> nn.Module:
    """Put adapters into a model of transformers, in place; nothing else of it is trained any more.

    Args:
        network: a `PreTrainedModel`.
        settings: which layers, how large.
        seed: of the first weights; every process that is given the same one makes the same. The model computes at first
            what it did before, since one of each pair of matrices is zero.

    Returns:
        the model.

    Raises:
        AdapterError: no layer has one of the names.
    """
    from peft import LoraConfig, inject_adapter_in_model  # seconds, which only LoRA should pay

    targets: Any = list(settings.target_modules) or "all-linear"
    config = LoraConfig(r=settings.rank, lora_alpha=settings.alpha, target_modules=targets)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            inject_adapter_in_model(config, network)
        except ValueError as error:
            linear = sorted({name.rpartition(".")[2] for name, part in network.named_modules() if _is_linear(part)})
            raise AdapterError(
                f"`engine.lora.targetModules` {list(settings.target_modules)} must name linear layers of the model, "
                f"which are: {', '.join(linear)} ({error})"
            ) from error
    return network


def merged_weights(model: nn.Module) -> dict[str, Tensor]:
    """The state that the model would have without adapters, with what they learned added to the weights.

    Returns:
        by the names that a checkpoint has; of a model without adapters simply its state.
    """
    adapted = {name: part for name, part in model.named_modules() if _is_adapted(part)}
    state = model.state_dict()
    merged: dict[str, Tensor] = {}
    for name, value in state.items():
        layer, _, rest = name.partition(".base_layer.")
        if rest:
            merged[f"{layer}.{rest}"] = value + _delta(adapted[layer]) if rest == "weight" else value
        elif not any(name.startswith(f"{prefix}.lora_") for prefix in adapted):
            merged[name] = value
    return merged


def checkpoint_weights(model: nn.Module) -> dict[str, Tensor]:
    """`merged_weights` as a checkpoint has them: without those that are others' under a second name."""
    tied = tied_names(model)
    return {name: value for name, value in merged_weights(model).items() if name not in tied}


def tied_names(model: Any) -> set[str]:
    """The names of weights of a model of transformers that are others', such as a head tied to the embedding."""
    tied = getattr(model.config, "tie_word_embeddings", False)
    return set(getattr(model, "_tied_weights_keys", None) or ()) if tied else set()


def without_adapters(model: nn.Module) -> nn.Module:
    """The model with what its adapters learned in its own weights: a copy, or itself where it has none."""
    if not any(_is_adapted(part) for part in model.modules()):
        return model
    plain = copy.deepcopy(model)
    for name, part in [(name, part) for name, part in plain.named_modules() if _is_adapted(part)]:
        layer: Any = part
        layer.merge()
        parent, _, attribute = name.rpartition(".")
        setattr(plain.get_submodule(parent), attribute, layer.get_base_layer())
    return plain


def trained_names(model: nn.Module) -> set[str]:
    """The names of the parameters that are trained."""
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def only(state: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """The entries of these names."""
    return {name: value for name, value in state.items() if name in names}


def _is_linear(part: nn.Module) -> bool:
    return isinstance(part, nn.Linear)


def _is_adapted(part: nn.Module) -> bool:
    return hasattr(part, "lora_A") and hasattr(part, "base_layer")


def _delta(layer: Any) -> Tensor:
    delta: Tensor = layer.get_delta_weight(_NAME).detach()
    return delta
