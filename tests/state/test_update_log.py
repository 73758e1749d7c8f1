import pytest
import torch

from rlhf_runtime import wire
from rlhf_runtime.errors import StateCorruptError, StateMissingError
from rlhf_runtime.resilience.local_store import LocalStateStore
from rlhf_runtime.resilience.state_store import MemoryStateStore
from rlhf_runtime.resilience.update_log import LogEntry, UpdateLog, packed_chunks, unpack_bytes


@pytest.fixture
def store():
    return MemoryStateStore()


@pytest.fixture
def log(store):
    return UpdateLog(store, role="critic", rank=0)


def entry(version: int, *, epoch: int = 1, attempt: int = 1, value: float = 0.0) -> LogEntry:
    arguments = wire.encode({"advantages": torch.full((4, 3), value), "uid": ["a", "b"]})
    return LogEntry(
        version=version,
        update_id=f"u{version}.{epoch}.{attempt}",
        method="update",
        epoch=epoch,
        attempt=attempt,
        arguments=arguments,
    )


def ids(entries) -> list[str]:
    return [one.update_id for one in entries]


@pytest.mark.parametrize("make_store", [lambda _: MemoryStateStore(), LocalStateStore], ids=["memory", "folder"])
def test_arguments_come_back_bit_for_bit_and_aligned(tmp_path, make_store):
    log = UpdateLog(make_store(tmp_path), role="critic", rank=3)
    logged = entry(1, value=0.1)
    log.append(logged)
    (got,) = log.entries(0, 1)
    assert (got.version, got.update_id, got.method, got.epoch, got.attempt) == (1, "u1.1.1", "update", 1, 1)
    assert got.arguments.columns == logged.arguments.columns
    assert got.arguments.buffer.tobytes() == logged.arguments.buffer.tobytes()
    assert wire.decode(got.arguments.columns["advantages"], got.arguments.buffer).data_ptr() % 64 == 0


def test_entries_are_those_after_one_version_up_to_another(log):
    for version in (3, 1, 2, 4):
        log.append(entry(version))
    assert ids(log.entries(1, 3)) == ["u2.1.1", "u3.1.1"]
    assert log.entries(2, 2) == [] and log.versions() == [1, 2, 3, 4]


@pytest.mark.parametrize(("after", "upto", "lacking"), [(0, 3, 1), (1, 6, 4), (4, 6, 6)])
def test_a_gap_is_an_error_and_not_another_result(log, after, upto, lacking):
    for version in (2, 3, 5):
        log.append(entry(version))
    with pytest.raises(StateMissingError, match=f"lacks the update to version {lacking} "):
        log.entries(after, upto)


@pytest.mark.parametrize(
    ("written", "want"),
    [
        ([(1, 1), (1, 2)], (1, 2)),
        ([(1, 2), (1, 1)], (1, 2)),
        ([(2, 1), (1, 9)], (2, 1)),
        ([(1, 9), (1, 10)], (1, 10)),
    ],
    ids=["later attempt", "late write of the earlier attempt", "newer epoch over attempts", "numbers, not text"],
)
def test_the_highest_epoch_and_attempt_wins_whoever_writes_last(log, written, want):
    for epoch, attempt in written:
        log.append(entry(1, epoch=epoch, attempt=attempt))
    assert [(e.epoch, e.attempt) for e in log.entries(0, 1)] == [want]


def test_logs_of_roles_and_ranks_are_apart(store, log):
    log.append(entry(1))
    assert UpdateLog(store, role="critic", rank=1).versions() == []
    assert UpdateLog(store, role="actor", rank=0).versions() == []


def test_dropping_and_pruning_cut_the_ends(log):
    for version in range(1, 7):
        log.append(entry(version))
    log.drop_after(5)
    log.prune_before(3)
    assert log.versions() == [3, 4, 5]


def damage(data: bytes, how: str) -> bytes:
    if how == "flipped bit":
        middle = len(data) - 20
        return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    return {
        "cut at the end": data[:-1],
        "cut in the middle": data[: len(data) // 2],
        "cut in the mark": data[:5],
        "empty": b"",
        "zeros at the end": data[:-64] + bytes(64),
        "longer": data + b"x",
        "foreign": b"PK\x03\x04 something else",
        "pickle": b"\x80\x04\x95" + data,
    }[how]


@pytest.mark.parametrize(
    "how",
    [
        *("flipped bit", "cut at the end", "cut in the middle", "cut in the mark", "empty"),
        *("zeros at the end", "longer", "foreign", "pickle"),
    ],
)
def test_a_torn_or_foreign_entry_is_an_error_that_names_it(store, log, how):
    log.append(entry(1))
    (key,) = store.list("")
    store.write(key, damage(store.read(key), how))
    with pytest.raises(StateCorruptError, match=key):
        log.entries(0, 1)


def test_every_cut_of_a_stored_object_is_noticed():
    whole = b"".join(packed_chunks(wire.encode({"x": torch.ones(3)})))
    assert torch.equal(wire.decode(*_first(unpack_bytes(whole))), torch.ones(3))
    for length in range(len(whole)):
        with pytest.raises(StateCorruptError):
            unpack_bytes(whole[:length])


def test_an_object_under_another_name_or_of_another_kind_is_refused(store, log):
    log.append(entry(1))
    (key,) = store.list("")
    store.write(key.replace("v000000000001", "v000000000002"), store.read(key))
    with pytest.raises(StateCorruptError, match="is not the log entry that its name says"):
        log.entries(1, 2)
    store.write(key, packed_chunks(wire.encode({})))
    with pytest.raises(StateCorruptError, match='is of kind "packed", not "update"'):
        log.entries(0, 1)
    store.write("roles/critic/0/updates/notes.txt", b"")
    with pytest.raises(StateCorruptError, match="somebody else writes into this folder"):
        log.versions()


def _first(packed: wire.Packed):
    return packed.columns["x"], packed.buffer
