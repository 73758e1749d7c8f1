"""The slow imports of a role process, done before it knows its role: they are most of what a restart takes."""

from __future__ import annotations

import importlib
import importlib.util

_MODULES = (
    "numpy",
    "torch",
    "torch.nn.functional",
    "transformers.models.auto.modeling_auto",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.generation.utils",
    "rlhf_runtime.host",
)


def import_all() -> None:
    """Import what any role may need; a module that is not installed is not needed."""
    for name in _MODULES:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
