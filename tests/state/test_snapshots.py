import random
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from rlhf_runtime.errors import StateCorruptError, StateMissingError, UnsupportedValueError
from rlhf_runtime.resilience.checkpoint import SnapshotStore
from rlhf_runtime.resilience.local_store import LocalStateStore
from rlhf_runtime.resilience.state_store import MemoryStateStore


@pytest.fixture
def store():
    return MemoryStateStore()


@pytest.fixture
def snapshots(store):
    return SnapshotStore(store, role="actor", rank=0)


class Tied(nn.Module):
    """A model with tied weights, a buffer and two types."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.hidden = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight
        self.gain = nn.Parameter(torch.randn(8).bfloat16())

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.hidden(self.embed(ids)) * self.gain.float()))


def make(seed: int):
    torch.manual_seed(seed)
    model = Tied()
    decay, plain = [model.hidden.weight], [p for p in model.parameters() if p is not model.hidden.weight]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    return model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))


def train(model, optimizer, schedule, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randint(20, (6,))).logsumexp(-1).mean().backward()
        optimizer.step()
        schedule.step()


def bits(tensors) -> list[bytes]:
    return [t.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for t in tensors]


def test_training_goes_on_bit_for_bit_as_if_uninterrupted(tmp_path):
    model, optimizer, schedule = make(0)
    train(model, optimizer, schedule, 3)
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": {k: v for k, v in schedule.state_dict().items() if k != "lr_lambdas"},
        "torch_rng": torch.get_rng_state(),
        "python_rng": random.getstate(),
        "numpy_rng": np.random.RandomState(3).get_state(),
    }
    snapshots = SnapshotStore(LocalStateStore(tmp_path), role="actor", rank=0)
    snapshots.save(3, state)
    train(model, optimizer, schedule, 4)

    other, other_optimizer, other_schedule = make(1)
    loaded = snapshots.load(3)
    other.load_state_dict(loaded["model"])
    other_optimizer.load_state_dict(loaded["optimizer"])
    other_schedule.load_state_dict(loaded["schedule"] | {"lr_lambdas": [None, None]})
    torch.set_rng_state(loaded["torch_rng"])
    assert loaded["python_rng"] == state["python_rng"]
    assert np.array_equal(loaded["numpy_rng"][1], state["numpy_rng"][1])
    train(other, other_optimizer, other_schedule, 4)

    assert bits(other.state_dict().values()) == bits(model.state_dict().values())
    moments = [
        [s[k] for s in o.state_dict()["state"].values() for k in sorted(s)] for o in (optimizer, other_optimizer)
    ]
    assert bits(moments[0]) == bits(moments[1])
    assert other_optimizer.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]


def test_types_and_nesting_are_kept(snapshots):
    state = {
        "ints": {0: "zero", 1: {"deep": [1, (2, 3.5, None), []]}},
        "odd": [True, float("inf"), -0.0, 2**70, "é\x00"],
        "scalar": torch.tensor(3, dtype=torch.int16),
        "empty": torch.zeros(0, 4),
        "strided": torch.arange(6).view(2, 3).t(),
        "array": np.arange(3, dtype=np.uint32),
        "ordered": OrderedDict(b=1, a=2),
        "": {},
    }
    snapshots.save(1, state)
    got = snapshots.load(1)
    for name in ("scalar", "empty", "strided"):
        want, tensor = state.pop(name), got.pop(name)
        assert tensor.dtype == want.dtype and torch.equal(tensor, want)
    array = got.pop("array")
    assert array.dtype == np.uint32 and array.tolist() == state.pop("array").tolist()
    assert got == state
    assert list(got["ordered"]) == ["b", "a"] and type(got["ints"][1]["deep"][1]) is tuple


def test_tied_weights_are_stored_once_and_stay_tied(store, snapshots):
    weight = torch.randn(100, 100)
    snapshots.save(1, {"embed": weight, "head": weight, "row": weight[0]})
    got = snapshots.load(1)
    assert got["embed"] is got["head"] and torch.equal(got["row"], weight[0])
    (key,) = store.list("")
    assert len(store.read(key)) < 2 * weight.nbytes


def test_arrays_that_come_and_go_are_not_taken_for_each_other(snapshots):
    snapshots.save(1, {"arrays": [np.full(64, value) for value in range(20)]})
    assert [array[0] for array in snapshots.load(1)["arrays"]] == list(range(20))


def test_a_snapshot_does_not_move_with_the_training(snapshots):
    weight = torch.ones(3)
    snapshots.save(1, {"w": weight})
    weight.zero_()
    assert snapshots.load(1)["w"].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("state", "want"),
    [
        ({"a": [1, {"fn": len}]}, r"state\['a'\]\[1\]\['fn'\] is a \"builtin"),
        ({"a": {(1, 2): 1}}, r"state\['a'\] has the key \(1, 2\)"),
        ({"a": {False: 1}}, r"state\['a'\] has the key False"),
        ({"a": torch.ones(2).to_sparse()}, r"state\['a'\] is a Tensor of layout torch.sparse_coo"),
        ({"a": np.array([None])}, r"state\['a'\] is a numpy array of type object"),
    ],
    ids=["function", "tuple key", "bool key", "sparse", "object array"],
)
def test_what_cannot_be_stored_is_named_by_its_path(store, snapshots, state, want):
    with pytest.raises(UnsupportedValueError, match=want):
        snapshots.save(1, state)
    assert store.list("") == []


def test_a_missing_or_damaged_snapshot_is_named(store, snapshots):
    with pytest.raises(StateMissingError, match="snapshots/v000000000007"):
        snapshots.load(7)
    snapshots.save(7, {"w": torch.ones(50)})
    (key,) = store.list("")
    data = store.read(key)
    for damaged in (data[:-10], data[:60] + b"?" + data[61:], b"\x80\x04", b""):
        store.write(key, damaged)
        with pytest.raises(StateCorruptError, match="v000000000007"):
            snapshots.load(7)
    store.write(key.replace("7", "8"), data)
    with pytest.raises(StateCorruptError, match="is not the snapshot that its name says"):
        snapshots.load(8)


@pytest.mark.parametrize(
    ("keep", "needed", "want"),
    [(2, None, [9, 10]), (1, 7, [5, 10]), (2, 10, [9, 10]), (9, None, [1, 5, 9, 10]), (1, 0, [10])],
    ids=["newest", "and what the commit is restored from", "needed among the newest", "more than there are", "none"],
)
def test_pruning_keeps_the_newest_and_what_is_needed(snapshots, keep, needed, want):
    for version in (1, 10, 5, 9):
        snapshots.save(version, {})
    snapshots.prune(keep=keep, needed=needed)
    assert snapshots.versions() == want
