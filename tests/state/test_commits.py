import threading

import pytest

from rlhf_runtime.errors import EpochFencedError, StateCorruptError
from rlhf_runtime.resilience.checkpoint import Commit, CommitLog, claim_epoch, newest_epoch
from rlhf_runtime.resilience.local_store import LocalStateStore
from rlhf_runtime.resilience.state_store import MemoryStateStore


@pytest.fixture
def store():
    return MemoryStateStore()


def commit(iteration: int, epoch: int) -> Commit:
    return Commit(iteration=iteration, epoch=epoch, versions={"actor": iteration}, cursor={"index": 64 * iteration})


def test_epochs_rise_and_no_two_controllers_get_the_same(tmp_path):
    store, got, start = LocalStateStore(tmp_path), [], threading.Barrier(6)

    def claim() -> None:
        start.wait()
        got.append(claim_epoch(store))

    threads = [threading.Thread(target=claim) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [1, 2, 3, 4, 5, 6]
    assert newest_epoch(store) == 6 and claim_epoch(store) == 7


def test_a_run_resumes_from_its_newest_commit(store):
    log = CommitLog(store)
    assert log.latest() is None and newest_epoch(store) == 0
    assert log.take_over() == (1, None)
    for iteration in (1, 2, 10):
        log.commit(commit(iteration, 1))
    assert log.latest() == commit(10, 1)
    assert log.take_over() == (2, commit(10, 2))


def test_an_older_controller_is_refused(store):
    log = CommitLog(store)
    log.commit(commit(1, claim_epoch(store)))
    claim_epoch(store)
    with pytest.raises(EpochFencedError, match="iteration 2 of epoch 1 is not committed: a controller of epoch 2"):
        log.commit(commit(2, 1))
    assert log.latest() == commit(1, 1)


def test_a_commit_that_passed_the_check_and_arrives_late_does_not_win(store):
    old, new = CommitLog(store), CommitLog(store)
    epoch, _ = old.take_over()
    old.commit(commit(10, epoch))

    class StallsAfterTheCheck(MemoryStateStore):
        def list(self, prefix):
            return store.list(prefix)

        def write(self, key, chunks):
            assert new.take_over() == (2, commit(10, 2))
            store.write(key, chunks)

    CommitLog(StallsAfterTheCheck()).commit(commit(11, epoch))
    assert store.exists("commits/e00000001-i000000000011")
    assert new.latest() == commit(10, 2)


def test_pruning_keeps_the_newest_and_never_none(store):
    log = CommitLog(store)
    for iteration in range(1, 6):
        log.commit(commit(iteration, 1))
    log.prune(2)
    assert len(store.list("commits/")) == 2 and log.latest() == commit(5, 1)
    log.prune(0)
    assert log.latest() == commit(5, 1)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"format": "rlhf.commit/1"}', b'{"format": "other"}'])
def test_a_torn_or_foreign_commit_is_an_error_that_names_it(store, data):
    CommitLog(store).commit(commit(1, 1))
    (key,) = store.list("")
    store.write(key, data)
    with pytest.raises(StateCorruptError, match=key):
        CommitLog(store).latest()


def test_a_damaged_newest_commit_is_gone_back_over(store):
    log = CommitLog(store)
    log.commit(commit(1, 1))
    log.commit(commit(2, 1))
    store.write(store.list("commits/")[-1], b"{")
    assert log.latest() == commit(1, 1)
