"""What every state store promises, asked of each."""

import threading
import uuid

import pytest

from rlhf_runtime.errors import StateMissingError, StateStoreError
from rlhf_runtime.resilience.fsspec_store import FsspecStateStore
from rlhf_runtime.resilience.local_store import LocalStateStore
from rlhf_runtime.resilience.state_store import MemoryStateStore, open_state_store


@pytest.fixture(scope="session")
def s3():
    """A server that speaks S3, played by moto; gives the options with which s3fs reaches it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "secret"}
    server.stop()


@pytest.fixture
def bucket(s3, monkeypatch):
    """A URI in a bucket of that server, reached with what a job has in `spec.env`: nothing but variables."""
    import boto3

    for name, value in (s3 | {"AWS_DEFAULT_REGION": "us-east-1"}).items():
        monkeypatch.setenv(name, value)
    name = uuid.uuid4().hex
    boto3.client("s3").create_bucket(Bucket=name)
    return f"s3://{name}/rlhf/lab/job"


@pytest.fixture(params=["memory", "folder", "fsspec", "s3"])
def store(request, tmp_path):
    if request.param == "s3":
        return open_state_store(request.getfixturevalue("bucket"))
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


@pytest.mark.parametrize("write", ["write", "create_exclusive"])
def test_a_mistyped_bucket_is_not_made(bucket, write):
    import boto3

    store = open_state_store("s3://none-such/run")
    with pytest.raises(StateStoreError, match=r'"s3://none-such/run" failed .*none-such|bucket'):
        getattr(store, write)("a", b"x")
    assert "none-such" not in [found["Name"] for found in boto3.client("s3").list_buckets()["Buckets"]]


def test_what_a_driver_raises_names_the_place(bucket, monkeypatch):
    import s3fs

    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(StateStoreError, match=r"failed \(writing \"a\"\): NoCredentialsError"):
        open_state_store(bucket).write("a", b"x")
    s3fs.S3FileSystem.clear_instance_cache()
