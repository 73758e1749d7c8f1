"""Hypothesis strategies for batches."""

import torch
from hypothesis import strategies as st

from rlhf_runtime.data_proto import DataProto

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool)
NAMES = ("input_ids", "attention_mask", "advantages", "values", "text", "uid", 'odd "name"')

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def tensors(draw, rows=None):
    """A tensor of `rows` rows, any type, any trailing shape; floats hold a NaN now and then."""
    rows = draw(st.integers(0, 6)) if rows is None else rows
    dtype = draw(st.sampled_from(DTYPES))
    shape = (rows, *draw(st.lists(st.integers(0, 3), max_size=2)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    tensor = (torch.randn(shape, generator=generator) * 10).abs().to(dtype)
    if tensor.is_floating_point() and tensor.numel() and draw(st.booleans()):
        tensor.view(-1)[0] = float("nan")
    if draw(st.booleans()) and tensor.dim() > 1:
        tensor = tensor.transpose(0, -1).contiguous().transpose(0, -1)
    return tensor


@st.composite
def batches(draw, min_rows=0, max_rows=7, names=NAMES):
    """A batch of up to four columns of both kinds."""
    rows = draw(st.integers(min_rows, max_rows))
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))
    cut = draw(st.integers(0, len(chosen)))
    return DataProto.from_dict(
        {name: draw(tensors(rows)) for name in chosen[:cut]},
        {name: draw(st.lists(json_values, min_size=rows, max_size=rows)) for name in chosen[cut:]},
        draw(st.dictionaries(st.sampled_from(["version", "temperature", "metrics"]), json_values, max_size=2)),
    )
