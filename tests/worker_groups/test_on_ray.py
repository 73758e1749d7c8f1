"""The same over real processes: where the bytes go, and that colocation changes none of them."""

import group_workers
import pytest
import ray.cloudpickle
import test_futures
import torch
from test_colocation import train
from test_futures import MEGABYTE, BigWorker, group, prompts

from rlhf_runtime.api import Controller

for module in (group_workers, test_futures):  # Ray's processes do not have the tests on their path
    ray.cloudpickle.register_pickle_by_value(module)

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_session")]


def test_a_megabyte_passes_from_process_to_process_without_the_controller():
    with Controller(backend="ray") as controller:
        maker, taker = (group(BigWorker, controller, name=name) for name in ("maker", "taker"))
        total = taker.total(prompts(8).union(maker.generate(prompts(8)))).wait()
        assert controller.engine.bytes_read == 0
        assert total.get().batch["total"].tolist() == [MEGABYTE / 32] * 8
        assert controller.engine.bytes_read < 1000


def test_colocated_processes_give_the_bits_of_dedicated_ones():
    dedicated, colocated = (train("ray", colocated=together, steps=2, places=1) for together in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(dedicated, colocated, strict=True))
