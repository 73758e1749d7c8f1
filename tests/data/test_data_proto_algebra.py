import pytest
import torch
from data_strategies import batches
from hypothesis import given, settings
from hypothesis import strategies as st

from rlhf_runtime.data_proto import DataProto

quick = settings(max_examples=12, deadline=None)


def same(a: DataProto, b: DataProto) -> bool:
    return a.equals(b)


@quick
@given(batches(), st.integers(1, 9))
def test_chunk_then_concat_changes_nothing(data, n):
    parts = data.chunk(n)
    assert same(DataProto.concat(parts), data)
    assert [len(part) for part in parts] == [len(t) for t in torch.arange(len(data)).tensor_split(n)]


@quick
@given(batches(), st.integers(1, 9))
def test_split_then_concat_changes_nothing(data, size):
    parts = data.split(size)
    assert all(len(part) == size for part in parts[:-1])
    if parts:
        assert same(DataProto.concat(parts), data)


@quick
@given(batches(max_rows=4))
def test_concat_of_concats_is_concat(data):
    a, b, c = data, data[::-1], data.repeat(2)
    want = DataProto.concat([a, b, c])
    assert same(DataProto.concat([DataProto.concat([a, b]), c]), want)
    assert same(DataProto.concat([a, DataProto.concat([b, c])]), want)


@quick
@given(batches(), st.randoms(use_true_random=False))
def test_reorder_by_a_permutation_and_back_changes_nothing(data, random):
    order = list(range(len(data)))
    random.shuffle(order)
    back = sorted(range(len(order)), key=order.__getitem__)
    assert same(data.reorder(order).reorder(back), data)
    assert same(data.reorder(torch.tensor(order, dtype=torch.long)), data[order])


@quick
@given(batches(), st.integers(0, 3))
def test_repeat_interleaved_is_the_block_repeat_reordered(data, times):
    blocks, interleaved = data.repeat(times, interleave=False), data.repeat(times)
    assert len(blocks) == len(interleaved) == times * len(data)
    assert same(interleaved, blocks.reorder([b * len(data) + r for r in range(len(data)) for b in range(times)]))
    if times:
        assert same(blocks[: len(data)], data)
        assert same(interleaved[::times], data)


@quick
@given(batches(), st.integers(1, 9))
def test_padding_fits_the_divisor_and_unpad_takes_it_back(data, n):
    padded, pad_rows = data.pad_to_divisor(n)
    assert len(padded) % n == 0
    assert len(padded) == len(data) + pad_rows
    assert pad_rows < n
    assert same(padded.unpad(pad_rows), data)


@quick
@given(batches(names=("a", "b", "c")), batches(names=("c", "d", "e")))
def test_union_commutes_and_repeats_harmlessly(a, b):
    b = b.reorder([0] * len(a)) if len(b) else a.rename({name: f"other {name}" for name in a.columns})
    b.meta_info = {f"other {key}": value for key, value in b.meta_info.items()}
    if "c" in a.columns and "c" in b.columns:
        b = b.drop(["c"])
    both = a.union(b)
    assert same(both, b.union(a)) and same(both.union(a), both)
    assert set(both.columns) == {*a.columns, *b.columns}
    assert same(
        both.select(a.columns).select(reversed(a.columns)), DataProto(a.batch, a.non_tensor_batch, both.meta_info)
    )


@quick
@given(batches(min_rows=1), st.data())
def test_every_way_to_choose_rows_agrees(data, draw):
    mask = draw.draw(st.lists(st.booleans(), min_size=len(data), max_size=len(data)))
    chosen = [row for row, take in enumerate(mask) if take]
    want = data.reorder(chosen)
    for key in (mask, torch.tensor(mask), chosen, torch.tensor(chosen, dtype=torch.long)):
        assert same(data[key], want)
    if chosen:
        assert same(DataProto.concat([data[row] for row in chosen]), want)
    assert same(data[-1], data[len(data) - 1 :])
    assert same(DataProto.concat(list(data)), data)


@quick
@given(batches(), st.slices(7))
def test_a_slice_is_the_reordering_by_its_range(data, rows):
    assert same(data[rows], data.reorder(range(len(data))[rows]))


@quick
@given(batches())
def test_renaming_there_and_back_changes_nothing(data):
    there = {name: f"new {name}" for name in data.columns}
    assert same(data.rename(there).rename({new: old for old, new in there.items()}), data)


@quick
@given(batches())
def test_rows_and_columns_commute(data):
    some = data.columns[::2]
    assert same(data.select(some)[1:3], data[1:3].select(some))
    assert same(data.drop(some)[1:3], data[1:3].drop(some))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("batches") / "batch.safetensors"


@settings(max_examples=12, deadline=None)
@given(data=batches())
def test_save_then_load_changes_nothing(file, data):
    data.save(file)
    assert same(DataProto.load(file), data)
