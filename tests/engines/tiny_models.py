import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

PAD, EOS, VOCABULARY = 0, 1, 12


def make_tiny_model(seed: int, **changes) -> Qwen3ForCausalLM:
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        # Large weights make distributions far from uniform, so that a wrong mask or position shows.
        "initializer_range": 0.5,
        **changes,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(Qwen3Config(**settings)).eval()
