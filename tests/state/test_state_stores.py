"""What every state store promises, asked of each."""

import threading
import uuid

import pytest

from rlhf_runtime.errors import StateMissingError, StateStoreError
from rlhf_runtime.resilience.fsspec_store import FsspecStateStore
from rlhf_runtime.resilience.local_store import LocalStateStore
from rlhf_runtime.resilience.state_store import MemoryStateStore, open_state_store


@pytest.fixture(params=["memory", "folder", "fsspec"])
def store(request, tmp_path):
    if request.param == "memory":
        return MemoryStateStore()
    if request.param == "folder":
        return LocalStateStore(tmp_path / "new" / "state")
    return FsspecStateStore(f"memory://{uuid.uuid4().hex}/run")


def test_an_object_is_read_as_it_was_written(store):
    store.write("a/b", [b"one ", memoryview(b"two "), bytearray(b"three")])
    assert store.read("a/b") == b"one two three"
    store.write("a/b", b"whole")
    assert store.read("a/b") == b"whole"
    store.write("empty", [])
    assert store.read("empty") == b"" and store.exists("empty")


def test_keys_are_listed_sorted_by_prefix(store):
    for key in ("b/2", "b/10", "b/1", "bc", "a/x/y", "z"):
        store.write(key, b"")
    assert store.list("") == ["a/x/y", "b/1", "b/10", "b/2", "bc", "z"]
    assert store.list("b") == ["b/1", "b/10", "b/2", "bc"]
    assert store.list("b/1") == ["b/1", "b/10"]
    assert store.list("b/") == ["b/1", "b/10", "b/2"]
    assert store.list("nothing/here/") == []


def test_deleting_twice_is_no_error(store):
    store.write("a/b", b"x")
    store.delete("a/b")
    store.delete("a/b")
    assert not store.exists("a/b") and store.list("") == []


def test_a_missing_object_is_named_with_the_place(store):
    assert not store.exists("a")
    with pytest.raises(StateMissingError) as caught:
        store.read("roles/critic/0")
    assert str(caught.value) == f'there is no "roles/critic/0" in the state store at "{store.location}"'


def test_only_one_of_many_creates_an_object(store):
    start, won = threading.Barrier(8), []

    def claim(name: bytes) -> None:
        start.wait()
        if store.create_exclusive("epochs/1", name):
            won.append(name)

    threads = [threading.Thread(target=claim, args=(str(i).encode(),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.read("epochs/1") in won
    if not isinstance(store, FsspecStateStore):  # as exclusive as the file system behind it
        assert won == [store.read("epochs/1")]
    assert not store.create_exclusive("epochs/1", b"late")
    assert store.list("epochs/") == ["epochs/1"]


@pytest.mark.parametrize("key", ["", "/etc/passwd", "../up", "a/../b", "a//b", "a/", ".tmp/x", "a/.hidden", "a\nb"])
def test_a_key_cannot_leave_the_store(store, key):
    for call in (lambda: store.write(key, b""), lambda: store.create_exclusive(key, b"")):
        with pytest.raises(StateStoreError, match="is no key"):
            call()


def test_a_write_that_fails_half_way_leaves_the_old_object(store):
    store.write("a/b", b"old")

    def chunks():
        yield b"half of the new"
        raise RuntimeError("died")

    with pytest.raises(RuntimeError, match="died"):
        store.write("a/b", chunks())
    with pytest.raises(RuntimeError, match="died"):
        store.write("a/c", chunks())
    assert store.read("a/b") == b"old" and store.list("") == ["a/b"]


def test_the_location_chooses_the_store(tmp_path):
    assert isinstance(open_state_store("memory:x"), MemoryStateStore)
    assert open_state_store("memory:x") is open_state_store("memory:x") is not open_state_store("memory:y")
    assert isinstance(open_state_store(str(tmp_path / "a")), LocalStateStore)
    assert open_state_store(f"file://{tmp_path}/b").location == f"{tmp_path}/b"
    assert isinstance(open_state_store("memory://bucket/run"), FsspecStateStore)
    for location, want in (("", "must not be empty"), ("nosuch://bucket/run", "cannot be opened")):
        with pytest.raises(StateStoreError, match=want):
            open_state_store(location)


def test_what_is_no_folder_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateStoreError, match="failed \\(opening it\\)"):
        open_state_store(str(tmp_path / "file"))
