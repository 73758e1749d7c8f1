"""Scores of texts by any model that gives one number: a scalar-head model or a Hugging Face sequence classifier.

Everything goes by text and the scorer's own tokenizer, since an actor and those who judge it need not share one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from rlhf_runtime.engines.batches import Batch
from rlhf_runtime.engines.logprobs import positions_of
from rlhf_runtime.engines.scalar_outputs import compute_scores
from rlhf_runtime.models.heads import BODY_FOLDER, ScalarHeadModel, has_scalar_head
from rlhf_runtime.models.loading import ModelNotFoundError, load_scalar_model, load_tokenizer, no_progress_bars


class TextScorer(Protocol):
    """Judges texts."""

    def prompt_values(self, prompts: list[str]) -> list[float]:
        """The number at the end of each prompt."""
        ...

    def response_scores(self, prompts: list[str], responses: list[str], *, ended: list[bool]) -> list[float]:
        """A number for each response to its prompt; `ended`: it was not cut off at its longest."""
        ...


def load_text_scorer(source: str, *, seed: int = 0, must_be_trained: bool = False, label: int = 0) -> TextScorer:
    """Load what scores texts.

    Args:
        source: A folder that `ScalarHeadModel.save` wrote, or a folder or Hugging Face id of a sequence classifier, of
            a causal language model (which gets a head of zeros) or of another model (which gets a random one).
        seed: Of a random head.
        must_be_trained: Whether a new head is an error.
        label: Which of a classifier's outputs counts.

    Raises:
        ModelNotFoundError: There is no such model, or it has no trained head where it must.
    """
    from transformers import AutoConfig

    if has_scalar_head(Path(source)):
        return _ScalarScorer(source)
    try:
        config: Any = AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(
            f"`model_name`: no model can be loaded from '{source}': {str(error).splitlines()[0]}"
        ) from error
    kinds = " ".join(config.architectures or [])
    if must_be_trained and "ForSequenceClassification" not in kinds:
        raise ModelNotFoundError(
            f"`model_name`: '{source}' must be a trained reward model, with a scalar head or for sequence "
            f"classification; it is {kinds or config.model_type}"
        )
    if "CausalLM" in kinds or "LMHead" in kinds:
        return _ScalarScorer(source)
    return _ClassifierScorer(source, seed=seed, label=label)


class _ScalarScorer:
    def __init__(self, source: str) -> None:
        body = Path(source) / BODY_FOLDER
        in_body = (body / "tokenizer_config.json").is_file()
        self._tokenizer = load_tokenizer(body if in_body else source, field="model_name")
        self._model: ScalarHeadModel = load_scalar_model(source, field="model_name")

    @torch.no_grad()
    def prompt_values(self, prompts: list[str]) -> list[float]:
        ids, mask = self._padded(self._ids(prompts), left=True)
        numbers = self._model(input_ids=ids, attention_mask=mask, position_ids=positions_of(mask))
        return [float(value) for value in numbers[:, -1]]

    def response_scores(self, prompts: list[str], responses: list[str], *, ended: list[bool]) -> list[float]:
        prompt_ids, prompt_mask = self._padded(self._ids(prompts), left=True)
        end = [self._tokenizer.eos_token_id]
        rows = [ids + end if whole else ids for ids, whole in zip(self._ids(responses), ended, strict=True)]
        response_ids, response_mask = self._padded(rows, left=False)
        batch: Batch = {
            "prompt_ids": prompt_ids,
            "prompt_mask": prompt_mask,
            "responses": response_ids,
            "response_mask": response_mask,
        }
        return [float(score) for score in compute_scores(self._model, batch)]

    def _ids(self, texts: list[str]) -> list[list[int]]:
        rows: list[list[int]] = self._tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return rows

    def _padded(self, rows: list[list[int]], *, left: bool) -> tuple[Tensor, Tensor]:
        width = max(1, *map(len, rows)) if rows else 1
        ids = torch.full((len(rows), width), self._tokenizer.pad_token_id)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for index, row in enumerate(rows):
            place = slice(width - len(row), None) if left else slice(0, len(row))
            ids[index, place] = torch.tensor(row, dtype=torch.long)
            mask[index, place] = 1
        return ids, mask


class _ClassifierScorer:
    def __init__(self, source: str, *, seed: int, label: int) -> None:
        from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

        config: Any = AutoConfig.from_pretrained(source)
        is_trained = "ForSequenceClassification" in " ".join(config.architectures or [])
        labels = {} if is_trained else {"num_labels": 1}
        self._tokenizer: Any = AutoTokenizer.from_pretrained(source)
        with torch.random.fork_rng(devices=[]), no_progress_bars():
            torch.manual_seed(seed)
            self._model: Any = AutoModelForSequenceClassification.from_pretrained(source, **labels).eval()
        if not 0 <= label < self._model.config.num_labels:
            raise ValueError(f"`label` must be one of the model's {self._model.config.num_labels} outputs; got {label}")
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        if self._model.config.pad_token_id is None:  # a decoder finds the last token by it
            self._model.config.pad_token_id = self._tokenizer.pad_token_id
        self._label = label

    def prompt_values(self, prompts: list[str]) -> list[float]:
        return self._logits(list(prompts), None)

    def response_scores(self, prompts: list[str], responses: list[str], *, ended: list[bool]) -> list[float]:
        return self._logits(list(prompts), list(responses)) if any(prompts) else self._logits(list(responses), None)

    @torch.no_grad()
    def _logits(self, texts: list[str], pairs: list[str] | None) -> list[float]:
        limit = getattr(self._model.config, "max_position_embeddings", None) or self._tokenizer.model_max_length
        inputs = self._tokenizer(texts, pairs, return_tensors="pt", padding=True, truncation=True, max_length=limit)
        logits = self._model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        return [float(row[self._label]) for row in logits]
