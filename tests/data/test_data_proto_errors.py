import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.errors import DataError, UnknownColumnError, WireFormatError


def batch() -> DataProto:
    return DataProto.from_dict({"ids": torch.arange(6).view(3, 2)}, {"text": ["a", "b", "c"]}, {"version": 1})


REFUSED = {
    "a column of another length is named": (
        lambda: DataProto.from_dict({"ids": torch.ones(3)}, {"text": ["a"]}),
        'column "text" has 1 rows, but "ids" has 3',
    ),
    "a tensor without dimensions": (lambda: DataProto.from_dict({"x": torch.tensor(1.0)}), 'column "x"'),
    "a list among the tensors": (lambda: DataProto.from_dict({"x": [1, 2]}), 'column "x" must be a tensor'),
    "a string as a list": (lambda: DataProto.from_dict(non_tensors={"t": "abc"}), 'column "t" must be a list'),
    "one name in both kinds": (lambda: DataProto.from_dict({"x": torch.ones(1)}, {"x": [1]}), '"x" is given twice'),
    "union of a column that differs": (
        lambda: batch().union(DataProto.from_dict({"ids": torch.zeros(3, 2, dtype=torch.long)})),
        'column "ids" is in both batches and differs',
    ),
    "union of equal numbers of another type": (
        lambda: batch().union(DataProto.from_dict({"ids": batch()["ids"].float()})),
        'column "ids" is in both',
    ),
    "union of meta that differs": (
        lambda: batch().union(DataProto.from_dict({"y": torch.ones(3)}, meta_info={"version": 2})),
        'meta_info "version" is in both',
    ),
    "union of other rows": (lambda: batch().union(batch()[:2]), "3 rows cannot be united with one of 2"),
    "concat of other columns": (lambda: DataProto.concat([batch(), batch().drop(["text"])]), 'column "text"'),
    "concat of nothing": (lambda: DataProto.concat([]), "at least one"),
    "concat of other types": (
        lambda: DataProto.concat([DataProto.from_dict({"x": torch.ones(1, dtype=t)}) for t in (torch.half, torch.int)]),
        'column "x" is torch.float16 in one part and torch.int32',
    ),
    "concat of other widths says what to do": (
        lambda: DataProto.concat([DataProto.from_dict({"x": torch.ones(1, w)}) for w in (2, 3)]),
        "pad them to one length first",
    ),
    "renaming two to one": (lambda: batch().rename({"ids": "text"}), 'column "text" would be there twice'),
    "a mask of another length": (lambda: batch()[[True, False]], "mask of 2"),
    "rows by floats": (lambda: batch()[torch.ones(2)], "rows are chosen by"),
    "no parts": (lambda: batch().chunk(0), "0 parts"),
    "parts of nothing": (lambda: batch().split(0), "0 rows"),
    "more padding than rows": (lambda: batch().unpad(4), "4 rows"),
}


@pytest.mark.parametrize(("call", "want_message"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_batch_is_refused_by_name(call, want_message):
    with pytest.raises(DataError) as caught:
        call()
    assert want_message in str(caught.value)


@pytest.mark.parametrize("method", ["__getitem__", "select", "drop"])
def test_an_unknown_column_is_named_with_those_there_are(method):
    with pytest.raises(UnknownColumnError, match='no column "logits"; there are: ids, text'):
        getattr(batch(), method)("logits" if method == "__getitem__" else ["logits"])


@pytest.mark.parametrize("row", [3, -4])
def test_a_row_out_of_range_is_an_index_error(row):
    with pytest.raises(IndexError):
        batch()[row]
    with pytest.raises(IndexError):
        batch().reorder([row])


def test_union_waits_for_a_future():
    class Future:
        def get(self) -> DataProto:
            return DataProto.from_dict({"reward": torch.ones(3)})

    assert batch().union(Future()).columns == ["ids", "reward", "text"]


def test_metrics_that_differ_between_shards_become_a_list_in_their_order():
    a, b = batch(), batch()
    a.meta_info, b.meta_info = {"loss": 1.0, "version": 3, "only_a": True}, {"loss": 2.0, "version": 3}
    assert DataProto.concat([a, b]).meta_info == {"loss": [1.0, 2.0], "version": 3, "only_a": [True, None]}


def test_slices_and_selections_share_memory_and_indices_do_not():
    data = batch()
    assert data[1:].select(["ids"])["ids"].data_ptr() == data["ids"][1:].data_ptr()
    assert data[[0, 1, 2]]["ids"].data_ptr() != data["ids"].data_ptr()


def test_numpy_object_columns_become_lists():
    data = DataProto.from_dict(non_tensors={"uid": np.array(["a", None], dtype=object), "n": (1, 2)})
    assert data.non_tensor_batch == {"uid": ["a", None], "n": [1, 2]}


def test_columns_that_share_memory_can_be_saved(tmp_path):
    both = torch.randn(4, 3)
    data = DataProto.from_dict({"a": both, "b": both, "c": both[:, :1]})
    data.save(tmp_path / "x")
    assert DataProto.load(tmp_path / "x").equals(data)


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


def test_load_refuses_anything_else_and_executes_nothing(tmp_path):
    (tmp_path / "pickle").write_bytes(pickle.dumps(Bomb()))
    (tmp_path / "text").write_text("not a batch")
    (tmp_path / "empty").write_bytes(b"")
    save_file({"x": torch.ones(1)}, tmp_path / "foreign")
    save_file({"x": torch.ones(1)}, tmp_path / "mangled", metadata={"format": "rlhf.data/1", "meta_info": "{"})
    for name in ("pickle", "text", "empty", "foreign", "mangled"):
        with pytest.raises(WireFormatError, match="is no saved DataProto"):
            DataProto.load(tmp_path / name)


def test_save_refuses_what_json_cannot_hold(tmp_path):
    with pytest.raises(DataError, match="only JSON values"):
        DataProto.from_dict(non_tensors={"x": [{1}]}).save(tmp_path / "x")


def test_a_single_row_cut_out_with_a_stride_equals_itself():
    data = DataProto.from_dict({"x": torch.tensor([float("nan"), 1.0])})
    assert data[::2].equals(data[:1])
