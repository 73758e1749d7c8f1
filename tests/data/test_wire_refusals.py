import ast
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rlhf_runtime
from rlhf_runtime import wire
from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.errors import DataError, UnsupportedValueError, WireFormatError
from rlhf_runtime.values import Loss, TokenizedText

CYCLE: list = []
CYCLE.append(CYCLE)

UNSUPPORTED = {
    "a set in a list": ({"samples": [1, 2, 3, {4}]}, 'outputs["samples"][3] is a "set"'),
    "an object in a nested dict": ({"a": {"b": [object()]}}, 'outputs["a"]["b"][0] is a "object"'),
    "tensors in a list": ({"x": [torch.ones(1)]}, 'outputs["x"][0] is a "Tensor"'),
    "bytes": ({"x": b"abc"}, 'outputs["x"] is a "bytes"'),
    "a loss in a list": ({"x": [Loss(1.0)]}, 'outputs["x"][0] is a "Loss"'),
    "a key that is no string": ({"x": {"y": {1: 2}}}, 'outputs["x"]["y"] has the key 1 of type "int"'),
    "an object array": ({"x": np.array([None])}, 'outputs["x"] is a numpy array of type object'),
    "a string array": ({"x": np.array(["a"])}, 'outputs["x"] is a numpy array of type <U1'),
    "a sparse tensor": ({"x": torch.ones(2).to_sparse()}, 'outputs["x"] is a tensor of layout torch.sparse_coo'),
    "a meta tensor": ({"x": torch.ones(2, device="meta")}, 'outputs["x"] is a tensor'),
    "a column of a batch": ({"d": DataProto.from_dict(non_tensors={"q": [{1}]})}, 'outputs["d"]["q"][0] is a "set"'),
    "a loss's recipe": ({"loss": Loss(1.0, {"fn": len})}, 'outputs["loss"].recipe["fn"] is a "builtin'),
    "a list that holds itself": ({"x": CYCLE}, 'outputs["x"] is nested too deeply'),
}


@pytest.mark.parametrize(("values", "want_message"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_what_cannot_travel_is_named_by_its_path(values, want_message):
    with pytest.raises(UnsupportedValueError) as caught:
        wire.encode(values)
    assert str(caught.value).startswith(want_message)


def test_the_message_says_what_is_allowed():
    with pytest.raises(UnsupportedValueError, match="allowed are tensors, numpy arrays of numbers, str, int"):
        wire.encode({"x": object()}, where="inputs")


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


BOMB = pickle.dumps([Bomb()])
KINDS = ["tensor", "ndarray", "list", "json", "mapping", "text", "loss", "proto"]
counts = st.sampled_from([0, 1, 2, 3, 8, 64, 10**30])
hostile_specs = st.recursive(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(KINDS)},
        optional={
            "rows": counts,
            "offset": counts,
            "nbytes": counts,
            "dtype": st.sampled_from(["float32", "bool", "<f4", "|O", "O", "object", "<f8", "__class__"]),
            "shape": st.lists(counts, max_size=3),
            "text": st.sampled_from(["1", "[1]", "{}", '["a"]', "[", "NaN", "[" * 3000, '"x"']),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {"kind": st.sampled_from(KINDS)},
        optional={
            "rows": counts,
            "text": st.just("1.0"),
            "columns": st.dictionaries(st.sampled_from(["text", "tokens", "recipe", "x"]), inner, max_size=3),
            "meta": inner,
        },
    ),
    max_leaves=5,
)


@settings(max_examples=100, deadline=None)
@given(hostile_specs, st.sampled_from([b"", BOMB, BOMB * 3, b"[1,2]   ", bytes(256)]))
def test_hostile_bytes_are_refused_or_read_as_numbers_and_never_executed(spec, data):
    try:
        wire.decode(wire.ColumnSpec.from_json(spec), data)
    except WireFormatError:
        pass


@settings(max_examples=100, deadline=None)
@given(st.none() | st.text() | st.lists(st.integers()) | st.dictionaries(st.text(), st.integers()))
def test_what_is_no_description_is_refused(data):
    with pytest.raises(WireFormatError):
        wire.ColumnSpec.from_json(data)


@pytest.mark.parametrize("change", [{"kind": ["tensor"]}, {"offset": -64}, {"shape": [True]}, {"cls": "os.system"}])
def test_a_changed_description_is_refused(change):
    spec = wire.encode({"x": torch.ones(4)}).columns["x"].to_json()
    with pytest.raises(WireFormatError):
        wire.ColumnSpec.from_json(spec | change)


def test_a_description_nested_without_end_is_refused():
    spec: dict = {"kind": "json", "text": "1"}
    for _ in range(5000):
        spec = {"kind": "mapping", "columns": {"x": spec}}
    with pytest.raises(WireFormatError, match="nested too deeply"):
        wire.ColumnSpec.from_json(spec)


def test_a_buffer_that_is_too_short_is_refused():
    packed = wire.encode({"x": torch.ones(100), "y": ["z" * 2000]})
    for name in "xy":
        with pytest.raises(WireFormatError):
            wire.decode(packed.columns[name], packed.buffer[:100])


def test_no_module_that_reads_what_others_wrote_can_unpickle():
    package = Path(rlhf_runtime.__file__).parent
    names = ["data_proto", "values", "wire", "wire_spec"]
    names += [f"resilience/{n}" for n in ("frame", "state_store", "local_store", "fsspec_store")]
    names += [f"resilience/{n}" for n in ("update_log", "checkpoint", "state_tree")]
    for name in names:
        tree = ast.parse((package / f"{name}.py").read_text())
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not imported & {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}, name
        called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        assert not called & {"torch.load", "torch.save", "np.load", "eval", "exec"}, name


def data(*rows: int, **meta: object) -> DataProto:
    return DataProto.from_dict({"x": torch.tensor(rows)}, {"t": [str(row) for row in rows]}, meta)


JOINS = {
    "tensors": ([torch.ones(2), torch.zeros(0), torch.ones(1)], torch.ones(3)),
    "lists": ([[1], [], [2, 3]], [1, 2, 3]),
    "one part": ([{"a": 1}], {"a": 1}),
    "equal numbers": ([0.5, 0.5], 0.5),
    "numbers that differ stay apart in rank order": ([0.5, 0.25], [0.5, 0.25]),
    "an int and an equal float differ": ([1, 1.0], [1, 1.0]),
    "equal dicts": ([{"kl": 1.0}, {"kl": 1.0}], {"kl": 1.0}),
    "dicts that differ": ([{"kl": 1.0}, {"kl": 2.0}], [{"kl": 1.0}, {"kl": 2.0}]),
    "nothing": ([None, None], None),
}


@pytest.mark.parametrize(("parts", "want"), JOINS.values(), ids=JOINS)
def test_shards_are_joined(parts, want):
    got = wire.concat(parts)
    assert torch.equal(got, want) if isinstance(want, torch.Tensor) else (got == want and type(got) is type(want))


def test_arrays_batches_and_texts_are_joined():
    assert wire.concat([np.ones((1, 2)), np.ones((2, 2))]).shape == (3, 2)
    assert wire.concat([data(1, 2), data(3)]).equals(data(1, 2, 3))
    text = wire.concat([TokenizedText(["1"], data(1)), TokenizedText(["2", "3"], data(2, 3))])
    assert isinstance(text, TokenizedText) and text == ["1", "2", "3"] and text.tokens.equals(data(1, 2, 3))


def test_losses_of_several_ranks_are_one_only_if_their_recipes_are():
    recipe = {"version": 1, "w": torch.ones(2)}
    assert isinstance(wire.concat([Loss(1.0, recipe), Loss(1.0, dict(recipe))]), Loss)
    assert len(wire.concat([Loss(1.0, recipe), Loss(1.0, {"version": 2})])) == 2


@pytest.mark.parametrize(
    "parts",
    [[torch.ones(1), [1]], [[1], 1], [torch.ones(1), torch.ones(1).int()], [np.ones(1), np.ones(1, "f4")], []],
    ids=["tensor and list", "list and number", "types", "array types", "none"],
)
def test_shards_that_do_not_fit_are_refused(parts):
    with pytest.raises(DataError):
        wire.concat(parts)


def test_row_counts_and_slices_follow_the_value():
    assert [wire.row_count(v) for v in (torch.ones(3, 2), torch.ones(()), [1], "text", {}, data(1, 2), Loss(1.0))] == [
        *(3, None, 1, None, None, 2, None)
    ]
    assert wire.slice_rows([1, 2, 3], slice(1, 2)) == [2]
    assert wire.slice_rows("text", slice(1, 2)) == "text"
    assert json.dumps(wire.encode({"x": data(1)}).columns["x"].to_json())
