"""FSDP2: each rank holds a part of every parameter, of its gradient and of its optimizer state.

The whole of a block's parameters is in memory only while that block computes (Zhao et al., "PyTorch FSDP", 2023,
arXiv:2304.11277; torch's `fully_shard`). Parameters, and what the optimizer keeps of them, stay in float32; what
computes is a copy in the compute type.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from rlhf_runtime.engines.ranks import Ranks
from rlhf_runtime.resilience.state_tree import RowPart


def shard_model(
    model: nn.Module,
    ranks: Ranks,
    *,
    compute_dtype: torch.dtype = torch.float32,
    checkpoint_activations: bool = False,
    forward_methods: Sequence[Callable[..., Any]] = (),
) -> nn.Module:
    """Shard a model over ranks, in place.

    Gradients are summed over the ranks, so the parts' losses must add up to the loss of the whole.

    Args:
        model: Of transformers, or with one inside; the same on every rank.
        ranks: Who holds it together.
        compute_dtype: Of forward and backward passes; parameters, gradients and sums stay in float32.
        checkpoint_activations: Whether a block's activations are computed again in the backward pass, not kept.
        forward_methods: Functions of the model that count as forward passes; they become its methods.

    Returns:
        the model.
    """
    assert ranks.mesh is not None
    if ranks.mesh.device_type == "cpu":
        _give_large_buffers_back()
    policy = MixedPrecisionPolicy(param_dtype=compute_dtype, reduce_dtype=torch.float32)
    if checkpoint_activations:
        network: Any = next(module for module in model.modules() if hasattr(module, "gradient_checkpointing_enable"))
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for module in [*_blocks(model), model]:
        sharded: Any = fully_shard(module, mesh=ranks.mesh, mp_policy=policy)
        sharded.set_force_sum_reduction_for_comms(True)  # gloo knows no mean
        sharded.set_gradient_divide_factor(1.0)
    for function in forward_methods:
        setattr(model, function.__name__, types.MethodType(function, model))
        register_fsdp_forward_method(model, function.__name__)
    return model


def _give_large_buffers_back() -> None:
    """Let memory that is freed leave the process.

    Gathered parameters come and go all the time. Glibc would soon keep their pages on its heap, where they are of
    little use to others: measured, each of two ranks then takes more memory than one alone, and 0.6 times as much with
    this.
    """
    mmap_threshold = -3
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's alone
    if set_option is not None:
        set_option(mmap_threshold, 1024**2)


def _blocks(model: nn.Module) -> list[nn.Module]:
    """The layers that are gathered one at a time: those that transformers says may not be split."""
    names = {name for module in model.modules() for name in (getattr(module, "_no_split_modules", None) or ())}
    return [module for module in model.modules() if type(module).__name__ in names]


def full_tensors(model: nn.Module, names: Collection[str] | None = None) -> Iterator[tuple[str, Tensor]]:
    """Each entry of the model's state, or those of some names, whole; all ranks must go through them together."""
    for name, value in model.state_dict().items():
        if names is None or name in names:
            yield name, value.full_tensor() if isinstance(value, DTensor) else value


def to_parts(state: Any) -> Any:
    """A state with this rank's rows in place of each distributed tensor, as snapshots take it."""
    if isinstance(state, DTensor):
        first, total = _first_row(state), state.shape[0]
        return RowPart(tensor=state.to_local().detach(), first=first, total=total)
    if isinstance(state, Mapping):
        return {key: to_parts(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(to_parts(item) for item in state)
    return state


def load_parts(module: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Put back what `to_parts` gave of a model's and its optimizer's state; it may be whole, too.

    Args:
        module: The model, sharded or not.
        optimizer: Over its parameters.
        state: `model` and `optimizer`, each with parts for this rank or with whole tensors.
    """
    targets = module.state_dict()
    module.load_state_dict({name: _like(value, targets[name]) for name, value in state["model"].items()})
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    kept = cast("Mapping[int, Mapping[str, Any]]", state["optimizer"]["state"])
    moments = {
        index: {name: _like(value, parameters[index]) for name, value in entry.items()} for index, entry in kept.items()
    }
    optimizer.load_state_dict({**state["optimizer"], "state": moments})


def _like(value: Any, target: Tensor) -> Any:
    """The value as it lies in a tensor like `target`: this rank's rows where that is distributed."""
    if isinstance(value, DTensor):
        return value
    if not isinstance(target, DTensor):
        return value.tensor if isinstance(value, RowPart) else value
    if isinstance(value, Tensor) and value.shape == target.shape:
        first = _first_row(target)
        value = RowPart(tensor=value[first : first + len(target.to_local())], first=first, total=len(value))
    if not isinstance(value, RowPart):
        return value  # of another shape than its parameter: a count of steps
    return DTensor.from_local(
        value.tensor.to(target.device),
        target.device_mesh,
        target.placements,
        run_check=False,
        shape=target.shape,
        stride=target.stride(),
    )


def _first_row(tensor: DTensor) -> int:
    """Torch cuts rows as `torch.chunk` does: all but the last parts have the rounded-up share."""
    share = -(-tensor.shape[0] // tensor.device_mesh.size())
    return min(share * tensor.device_mesh.get_local_rank(), tensor.shape[0])
