"""Tiny models of the kinds that the article names: a causal language model, an encoder and a reward classifier."""

import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel

from rlhf_runtime.models.builtin import BuiltinModelConfig, make_model, make_tokenizer

TINY = BuiltinModelConfig(hidden_size=32, intermediate_size=48, layers=2, heads=2, head_dim=16, max_positions=256)


def save_actor(folder, *, seed=0, config=TINY):
    tokenizer = make_tokenizer()
    make_model(config, tokenizer, seed=seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def save_encoder(folder, *, seed=0, labels=0):
    """With `labels` a sequence classifier, else the bare encoder."""
    tokenizer = make_tokenizer()
    tokenizer.padding_side = "right"
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=256,
        pad_token_id=tokenizer.pad_token_id,
        num_labels=labels or 2,
        initializer_range=0.3,  # so that scores differ
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = (BertForSequenceClassification if labels else BertModel)(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
