from pathlib import Path

import pytest
import torch
from worker_builders import EXAMPLES

from rlhf_runtime.models.builtin import BuiltinModelConfig, make_model, make_tokenizer
from rlhf_runtime.models.heads import with_scalar_head


@pytest.fixture(autouse=True)
def one_thread():
    """Sums in the same order whatever the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random model of two layers and its tokenizer."""
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = make_tokenizer()
    size = BuiltinModelConfig(hidden_size=32, intermediate_size=64, layers=2, heads=2, head_dim=16, max_positions=32)
    make_model(size, tokenizer, seed=3).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def reward_model(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a reward model whose random head counts as trained."""
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("reward")
    model = with_scalar_head(AutoModelForCausalLM.from_pretrained(policy))
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(5))
    model.save(folder)
    return folder


@pytest.fixture
def prompts() -> list[str]:
    return [prompt for prompt, _ in EXAMPLES]


@pytest.fixture
def answers() -> list[str]:
    return [answer for _, answer in EXAMPLES]
