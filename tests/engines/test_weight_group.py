"""Weights through a group of two: whole, of the right version, and nobody waits for who is gone."""

import subprocess
import sys
import threading
from datetime import timedelta

import pytest
import torch
from torch._C import _distributed_c10d as stores

from rlhf_runtime.engines import weight_group
from rlhf_runtime.engines.weight_group import ThroughGroup, receive_from_group
from rlhf_runtime.errors import WeightsLostError

CPU = torch.device("cpu")
WEIGHTS = {
    "matrix": torch.arange(12.0).view(3, 4),
    "view": torch.arange(12.0).view(3, 4).T,
    "half": torch.randn(5, 3).bfloat16(),
    "count": torch.tensor(7),
    "empty": torch.zeros(0, 4),
}


@pytest.fixture
def trainer():
    made = ThroughGroup(seconds=20)
    yield made
    made.close()


def assert_same(got):
    assert got.keys() == WEIGHTS.keys()
    for name, value in WEIGHTS.items():
        assert got[name].dtype == value.dtype
        assert torch.equal(got[name], value), name


def test_all_shapes_and_types_arrive_also_in_pieces(trainer, monkeypatch):
    monkeypatch.setattr(weight_group, "_PIECE_BYTES", 16)
    assert_same(receive_from_group(trainer.publish(WEIGHTS, 3), CPU))


def test_several_replicas_are_served_at_once_and_again(trainer):
    told = trainer.publish(WEIGHTS, 3)
    got = []
    threads = [threading.Thread(target=lambda: got.append(receive_from_group(told, CPU))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(got) == 4
    for each in got:
        assert_same(each)
    assert_same(receive_from_group(told, CPU))


def test_a_replica_that_asked_and_died_holds_up_nobody(trainer):
    told = trainer.publish(WEIGHTS, 3)
    host, _, port = told["meet"].rpartition(":")
    dead = stores.TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=5))
    dead.set(f"asked/{dead.add('numbers', 1) - 1}", b"")  # takes a number, and never comes
    assert_same(receive_from_group(told, CPU, seconds=10))


def test_weights_of_an_older_version_are_gone(trainer):
    old = trainer.publish(WEIGHTS, 3)
    new = trainer.publish({**WEIGHTS, "count": torch.tensor(8)}, 4)
    with pytest.raises(WeightsLostError, match="has weights of version 4, not 3"):
        receive_from_group(old, CPU)
    assert int(receive_from_group(new, CPU)["count"]) == 8


def test_a_trainer_that_is_gone_is_named(trainer):
    told = {**trainer.publish(WEIGHTS, 3), "meet": "127.0.0.1:1"}
    with pytest.raises(WeightsLostError, match=r"weights of version 3 did not come from the trainer at 127\.0\.0\.1:1"):
        receive_from_group(told, CPU, seconds=2)


def test_a_process_that_has_served_ends_as_it_should():
    program = (
        "import torch\n"
        "from rlhf_runtime.engines import weight_group\n"
        "from rlhf_runtime.engines.weight_group import ThroughGroup, receive_from_group\n"
        "weight_group._LOOK_SECONDS = 0.0\n"  # nearly always in torch's code
        "told = ThroughGroup(seconds=20).publish({'w': torch.ones(3)}, 1)\n"
        "print(receive_from_group(told, torch.device('cpu'))['w'].tolist())\n"
    )
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        assert (ended.returncode, ended.stdout) == (0, "[1.0, 1.0, 1.0]\n"), ended.stderr
