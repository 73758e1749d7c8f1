"""Snapshots that several ranks write together, each its rows."""

from __future__ import annotations

import pytest
import torch

from rlhf_runtime.errors import StateCorruptError, StateMissingError
from rlhf_runtime.resilience.checkpoint import SnapshotStore
from rlhf_runtime.resilience.state_store import MemoryStateStore
from rlhf_runtime.resilience.state_tree import RowPart, join_parts

WHOLE = torch.arange(10.0).view(5, 2)


@pytest.fixture
def store() -> MemoryStateStore:
    return MemoryStateStore()


def of_rank(store: MemoryStateStore, rank: int, parts: int) -> SnapshotStore:
    return SnapshotStore(store, role="actor", rank=rank, parts=parts)


def part(rank: int, parts: int, version: int) -> dict[str, object]:
    share = -(-len(WHOLE) // parts)
    rows = WHOLE[rank * share : (rank + 1) * share]
    first = min(rank * share, len(WHOLE))
    return {"weight": RowPart(tensor=rows, first=first, total=len(WHOLE)), "step": version, "rates": [0.5, (version,)]}


def save_all(store: MemoryStateStore, version: int, parts: int) -> None:
    for rank in range(parts):
        of_rank(store, rank, parts).save(version, part(rank, parts, version))


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_each_rank_gets_its_own_rows_back(store: MemoryStateStore, parts: int) -> None:
    save_all(store, 7, parts)
    for rank in range(parts):
        state = of_rank(store, rank, parts).load(7)
        want = part(rank, parts, 7)["weight"]
        assert isinstance(want, RowPart)
        assert torch.equal(state["weight"].tensor, want.tensor)
        assert (state["weight"].first, state["weight"].total) == (want.first, want.total)
        assert (state["step"], state["rates"]) == (7, [0.5, (7,)])


@pytest.mark.parametrize("written", [1, 2, 3, 4])
@pytest.mark.parametrize("read", [1, 2, 4])
def test_another_number_of_ranks_gets_it_whole(store: MemoryStateStore, written: int, read: int) -> None:
    if written == 1:
        of_rank(store, 0, 1).save(7, {"weight": WHOLE, "step": 7, "rates": [0.5, (7,)]})
    else:
        save_all(store, 7, written)
    for rank in range(read):
        state = of_rank(store, rank, read).load(7)
        if written != read:
            assert torch.equal(state["weight"], WHOLE)
        assert (state["step"], state["rates"]) == (7, [0.5, (7,)])


def test_what_some_ranks_wrote_before_another_died_is_no_snapshot(store: MemoryStateStore) -> None:
    save_all(store, 10, 3)
    for rank in (0, 2):
        of_rank(store, rank, 3).save(20, part(rank, 3, 20))
    assert of_rank(store, 0, 3).versions() == [10]
    for rank in range(3):
        of_rank(store, rank, 3).prune(keep=1, needed=20)
    assert of_rank(store, 1, 3).load(10)["step"] == 10
    of_rank(store, 1, 3).save(20, part(1, 3, 20))
    assert of_rank(store, 0, 3).versions() == [10, 20]


def test_each_rank_deletes_its_own_parts(store: MemoryStateStore) -> None:
    for version in (10, 20, 30):
        save_all(store, version, 2)
    of_rank(store, 0, 2).prune(keep=1, needed=30)
    assert store.list("roles/actor/1/") and len(store.list("roles/actor/0/")) == 1
    assert of_rank(store, 1, 2).versions() == [30]
    of_rank(store, 1, 2).prune(keep=1, needed=30)
    assert store.list("roles/") == [f"roles/actor/{rank}/snapshots/v000000000030-of2" for rank in (0, 1)]


def test_fewer_ranks_clear_away_what_more_have_left(store: MemoryStateStore) -> None:
    save_all(store, 10, 4)
    for version in (20, 30):
        save_all(store, version, 2)
    for rank in (0, 1):
        of_rank(store, rank, 2).prune(keep=2, needed=30)
    assert of_rank(store, 0, 2).versions() == [20, 30]
    assert not store.list("roles/actor/3/")


def test_what_was_not_committed_goes_whole(store: MemoryStateStore) -> None:
    for version in (10, 20):
        save_all(store, version, 2)
    of_rank(store, 0, 2).drop_after(10)
    assert of_rank(store, 1, 2).versions() == [10]
    with pytest.raises(StateMissingError, match="v000000000020"):
        of_rank(store, 1, 2).load(20)


def test_a_worker_with_a_state_of_its_own_sees_nobody_elses(store: MemoryStateStore) -> None:
    SnapshotStore(store, role="actor", rank=0).save(1, {"x": 1})
    assert SnapshotStore(store, role="actor", rank=1).versions() == []


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(StateCorruptError, match="a tensor of 5 rows have 3 together"):
        join_parts([{"weight": RowPart(tensor=WHOLE[:3], first=0, total=5)}])
