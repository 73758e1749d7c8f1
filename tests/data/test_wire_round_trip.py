import gc
import json
import math

import numpy as np
import pytest
import torch
from data_strategies import batches, json_values, tensors
from hypothesis import given, settings
from hypothesis import strategies as st

from rlhf_runtime import wire
from rlhf_runtime.data_proto import DataProto, same_value
from rlhf_runtime.errors import WireFormatError
from rlhf_runtime.values import Loss, TokenizedText

quick = settings(max_examples=20, deadline=None)


def there_and_back(value, rows=None):
    """Through the buffer as read-only bytes, and the spec as JSON text."""
    packed = wire.encode({"other": torch.ones(3), "x": value})
    spec = wire.ColumnSpec.from_json(json.loads(json.dumps(packed.columns["x"].to_json())))
    assert spec == packed.columns["x"]
    assert spec.rows == wire.row_count(value)
    return wire.decode(spec, packed.buffer.tobytes(), rows=rows)


@quick
@given(tensors(), st.slices(6).filter(lambda rows: (rows.step or 1) > 0))
def test_tensors_come_back_bit_for_bit(tensor, rows):
    assert same_value(there_and_back(tensor), tensor)
    assert same_value(there_and_back(tensor, rows), tensor[rows])


@quick
@given(batches(), st.slices(6))
def test_batches_come_back(data, rows):
    assert there_and_back(data).equals(data)
    if (rows.step or 1) > 0:
        assert there_and_back(data, rows).equals(data[rows])


@quick
@given(json_values)
def test_json_values_come_back(value):
    assert same_value(there_and_back(value), value)


@quick
@given(st.lists(json_values, max_size=8), st.slices(8))
def test_lists_come_back(value, rows):
    assert same_value(there_and_back(value), value)
    assert same_value(there_and_back(value, rows), value[rows])


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<i8", "|b1", "|u1", "<c16", "<f2"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (3, 4)], ids=str)
def test_arrays_come_back_with_type_and_order(dtype, shape):
    array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    got = there_and_back(array.T)
    assert got.dtype == array.dtype and got.shape == array.T.shape
    assert np.array_equal(got, array.T) and not got.flags.writeable


def test_text_comes_back_with_its_tokens():
    words = TokenizedText(["a", "é", "\ud800"], DataProto.from_dict({"ids": torch.arange(6).view(3, 2)}))
    got = there_and_back(words, slice(1, 3))
    assert isinstance(got, TokenizedText) and got == words[1:] and got.tokens.equals(words.tokens[1:])


def test_a_loss_comes_back_with_its_recipe_and_its_number_needs_no_buffer():
    data = DataProto.from_dict({"ids": torch.arange(4)}, {"uid": list("abcd")})
    recipe = {"version": 3, "seed": 2**63, "data": data, "nested": {"clip": 0.2, "w": torch.ones(2).bfloat16()}}
    loss = Loss(0.1 + 0.2, recipe)
    assert wire.encode({"loss": loss}).columns["loss"].inline == 0.1 + 0.2
    got = there_and_back(loss)
    assert isinstance(got, Loss) and float(got) == float(loss) and got.recipe.keys() == recipe.keys()
    assert got.recipe["data"].equals(data) and got.recipe["seed"] == 2**63
    assert same_value(got.recipe["nested"]["w"], torch.ones(2).bfloat16())
    assert math.isnan(there_and_back(Loss(float("nan"))))


def test_python_takes_the_place_of_numpy_scalars_and_tuples():
    got = there_and_back({"reward": np.float32(0.5), "n": [np.int64(3), (1, 2)], "ok": np.bool_(True)})
    assert got == {"reward": 0.5, "n": [3, [1, 2]], "ok": True} and type(got["ok"]) is bool


def test_a_dict_may_hold_tensors():
    got = there_and_back({"weights": {"w": torch.eye(2, dtype=torch.bool)}, "step": 1})
    assert got["step"] == 1 and same_value(got["weights"]["w"], torch.eye(2, dtype=torch.bool))


def test_small_json_is_inline_and_large_json_in_the_buffer():
    packed = wire.encode({"small": [1.5] * 100, "large": ["x" * 100] * 20, "n": None})
    assert packed.columns["small"].inline == [1.5] * 100
    assert packed.columns["n"].has_inline and packed.columns["n"].inline is None
    assert not packed.columns["large"].has_inline
    with pytest.raises(WireFormatError, match="is in the buffer"):
        _ = packed.columns["large"].inline
    packed.columns["small"].inline.append("mine")
    assert packed.columns["small"].inline == [1.5] * 100


def test_decoded_tensors_are_views_at_aligned_places_and_keep_the_buffer():
    packed = wire.encode({"a": torch.ones(3, dtype=torch.bool), "b": torch.arange(10), "c": torch.ones(5)})
    buffer = packed.buffer
    buffer.flags.writeable = False
    address = buffer.__array_interface__["data"][0]
    b = wire.decode(packed.columns["b"], buffer)
    assert b.data_ptr() == address + packed.columns["b"].offset
    assert all(spec.offset % 64 == 0 for spec in packed.columns.values()) and address % 64 == 0
    assert wire.decode(packed.columns["b"], buffer, rows=slice(4, 6)).data_ptr() == b[4:].data_ptr()
    del packed, buffer
    gc.collect()
    torch.zeros(64)
    assert b.tolist() == list(range(10))


def test_the_same_values_make_the_same_bytes():
    values = {"a": torch.ones(3, dtype=torch.bool), "b": ["x" * 2000], "c": torch.ones(5)}
    assert wire.encode(values).buffer.tobytes() == wire.encode(values).buffer.tobytes()


def test_a_value_that_is_not_batched_is_given_whole_whatever_the_rows():
    assert there_and_back({"a": 1}, slice(0, 1)) == {"a": 1}
    assert there_and_back(torch.tensor(2.5), slice(0, 1)).item() == 2.5


def test_a_tensor_that_needs_a_gradient_travels_without_it():
    got = there_and_back(torch.ones(2, requires_grad=True) * 2)
    assert got.tolist() == [2.0, 2.0] and not got.requires_grad


def test_nothing_makes_an_empty_buffer():
    packed = wire.encode({})
    assert packed.columns == {} and packed.buffer.nbytes == 0
    one = wire.encode({"x": 1})
    assert wire.decode(one.columns["x"], one.buffer) == 1 and wire.decode(one.columns["x"], b"") == 1
