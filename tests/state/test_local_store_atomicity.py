import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from rlhf_runtime.errors import StateStoreError, StateStoreFullError
from rlhf_runtime.resilience import local_store
from rlhf_runtime.resilience.local_store import LocalStateStore
from rlhf_runtime.resilience.state_store import translated_errors


@pytest.fixture
def store(tmp_path):
    return LocalStateStore(tmp_path)


def fail_with(code):
    def fail(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT], ids=["disk full", "quota"])
def test_a_full_disk_keeps_what_was_committed_and_says_so(store, monkeypatch, call, code):
    store.write("commits/1", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(local_store.os, call, fail_with(code))
        with pytest.raises(StateStoreFullError) as caught:
            store.write("commits/1", b"new")
    for want in (store.location, 'writing "commits/1"', "nothing already committed was lost"):
        assert want in str(caught.value)
    assert store.read("commits/1") == b"old"
    assert list((store._unfinished).iterdir()) == []
    store.write("commits/1", b"new")
    assert store.read("commits/1") == b"new"


def test_a_really_full_disk_is_reported_the_same_way():
    with pytest.raises(StateStoreFullError), translated_errors("/dev/full", "writing"), open("/dev/full", "wb") as full:
        full.write(b"x")
        full.flush()


def test_another_failure_of_the_disk_is_told_from_a_full_one(store, monkeypatch):
    monkeypatch.setattr(local_store.os, "fsync", fail_with(errno.EIO))
    with pytest.raises(StateStoreError, match="Input/output error") as caught:
        store.write("a", b"")
    assert not isinstance(caught.value, StateStoreFullError)


@pytest.mark.parametrize("call", ["write", "create_exclusive"])
def test_content_is_on_the_disk_before_the_name_and_the_name_before_the_return(store, monkeypatch, call):
    happened = []
    for name in ("fsync", "replace", "link"):
        real = getattr(os, name)
        monkeypatch.setattr(
            local_store.os, name, lambda *a, real=real, name=name, **k: (happened.append(name), real(*a, **k))[1]
        )
    getattr(store, call)("a", b"x")
    assert happened == ["fsync", "replace" if call == "write" else "link", "fsync"]


def test_a_file_system_without_hard_links_still_lets_one_win(store, monkeypatch):
    monkeypatch.setattr(local_store.os, "link", fail_with(errno.EPERM))
    assert store.create_exclusive("e/1", b"first")
    assert not store.create_exclusive("e/1", b"second")
    assert store.read("e/1") == b"first"


def test_leftovers_are_invisible_and_cleared_once_they_are_old(store):
    old, young = store._unfinished / "old", store._unfinished / "young"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    again = LocalStateStore(store.location)
    assert again.list("") == []
    assert not old.exists() and young.exists()


KILLED = """
import os, signal, sys
from rlhf_runtime.resilience.local_store import LocalStateStore
def chunks():
    yield b"x" * 1_000_000
    os.kill(os.getpid(), signal.SIGKILL)
LocalStateStore(sys.argv[1]).write("a/b", chunks())
"""


def test_a_writer_killed_half_way_leaves_the_old_object(store):
    store.write("a/b", b"old")
    done = subprocess.run([sys.executable, "-c", KILLED, store.location], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert store.read("a/b") == b"old" and store.list("") == ["a/b"]
    assert len(list(store._unfinished.iterdir())) == 1
