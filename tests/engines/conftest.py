import copy

import pytest
import torch
from tiny_models import VOCABULARY, make_tiny_model
from transformers import Qwen3ForCausalLM


@pytest.fixture(scope="session")
def shared_model() -> Qwen3ForCausalLM:
    return make_tiny_model(0)


@pytest.fixture
def model(shared_model: Qwen3ForCausalLM) -> Qwen3ForCausalLM:
    return copy.deepcopy(shared_model)


@pytest.fixture
def prompts() -> tuple[torch.Tensor, torch.Tensor]:
    """Four prompts of 1 to 4 tokens, padded on the left: ids and mask (4, 4)."""
    mask = torch.tensor([[0, 0, 0, 1], [1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1]])
    ids = torch.randint(2, VOCABULARY, (4, 4), generator=torch.Generator().manual_seed(3))
    return ids * mask, mask


@pytest.fixture
def batch(prompts: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Responses of 1 to 5 tokens to the prompts, padded on the right, with all that an update needs."""
    generator = torch.Generator().manual_seed(4)
    response_mask = (torch.arange(5)[None, :] < torch.tensor([[5], [2], [3], [1]])).long()

    def numbers() -> torch.Tensor:
        return torch.randn(4, 5, generator=generator) * response_mask

    return {
        "prompt_ids": prompts[0],
        "prompt_mask": prompts[1],
        "responses": torch.randint(2, VOCABULARY, (4, 5), generator=generator) * response_mask,
        "response_mask": response_mask,
        "log_probs": numbers() - 2 * response_mask,
        "ref_log_probs": numbers() - 2 * response_mask,
        "values": numbers(),
        "advantages": numbers(),
        "returns": numbers(),
    }
