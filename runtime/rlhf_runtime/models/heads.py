"""A transformer body with one number per position: the shape of a critic and of a reward model."""

import copy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

HEAD_FILE = "scalar_head.safetensors"
BODY_FOLDER = "body"


class ScalarHeadModel(nn.Module):
    """The body of a causal language model, a linear head, and a normalization for scores.

    Attributes:
        body: the transformer without its language-model head.
        head: hidden size to 1, zero at first, so that every first value is exactly 0.
        shift: mean score of a reward model's reference samples; 0 for a critic.
        scale: standard deviation of those scores; 1 for a critic.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        config: Any = body.config
        self.head = nn.Linear(config.hidden_size, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    @property
    def config(self) -> Any:
        """The body's transformers config."""
        return self.body.config

    def forward(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor) -> Tensor:
        """One number per position.

        Args:
            input_ids: (B, L).
            attention_mask: (B, L).
            position_ids: (B, L).

        Returns:
            (B, L).
        """
        output = self.body(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False
        )
        numbers: Tensor = self.head(output.last_hidden_state)
        return numbers.squeeze(-1).clone()  # FSDP2 warns of views: what is written into one loses its gradient

    def normalize(self, scores: Tensor) -> Tensor:
        """A reward model's scores (B,) on the scale where its reference samples have mean 0 and deviation 1."""
        return (scores - self.shift) / self.scale

    def save(self, folder: Path) -> None:
        """Write body (a transformers folder of its own) and head."""
        from rlhf_runtime.models.loading import no_progress_bars

        body: Any = self.body
        with no_progress_bars():
            body.save_pretrained(folder / BODY_FOLDER)
        head = {"weight": self.head.weight, "bias": self.head.bias, "shift": self.shift, "scale": self.scale}
        save_file({name: value.detach().contiguous() for name, value in head.items()}, folder / HEAD_FILE)

    def load_head(self, folder: Path) -> None:
        """Read what ``save`` wrote beside the body."""
        head = load_file(folder / HEAD_FILE)
        with torch.no_grad():
            self.head.weight.copy_(head["weight"])
            self.head.bias.copy_(head["bias"])
            self.shift.copy_(head["shift"])
            self.scale.copy_(head["scale"])


def has_scalar_head(folder: Path) -> bool:
    """Whether ``ScalarHeadModel.save`` wrote this folder."""
    return (folder / HEAD_FILE).is_file()


def with_scalar_head(causal_lm: nn.Module) -> ScalarHeadModel:
    """A new scalar-head model on a copy of a causal language model's body."""
    lm: Any = causal_lm
    return ScalarHeadModel(copy.deepcopy(lm.base_model))
