"""Where the bytes go, who works at the same time, and how rows are split, between real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from builders import RunBuilder
from real_processes import Gate
from toy_workers import Echo, Process

pytestmark = pytest.mark.ray


class Crossings:
    """Bytes that Ray serializes or deserializes in this process: counted at Ray's own door, not by our engine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from ray._private.worker import global_worker

        self.nbytes = 0
        context = global_worker.get_serialization_context()
        serialize, deserialize = context.serialize, context.deserialize_objects

        def serialized(value: object) -> object:
            result = serialize(value)
            self.nbytes += result.total_bytes
            return result

        def deserialized(objects: list, *arguments: object, **named: object) -> object:
            for data, _metadata, *_ in objects:
                self.nbytes += len(data) if data is not None else 0
            return deserialize(objects, *arguments, **named)

        monkeypatch.setattr(context, "serialize", serialized)
        monkeypatch.setattr(context, "deserialize_objects", deserialized)


@pytest.fixture
def crossings(ray_session: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crossings]:
    yield Crossings(monkeypatch)


def test_four_megabytes_go_from_role_to_role_and_not_through_the_controller(
    runs: RunBuilder, crossings: Crossings
) -> None:
    run = runs.role("maker", Echo).role("user", Echo).start()
    run.controller.engine.wait_ready()
    crossings.nbytes = 0
    big = run.step("maker", "big", ["big"], rows=1000)
    norm = run.step("user", "norm", ["norm", "rows"], big=big["big"])
    assert norm["rows"].get() == 1000
    assert len(big["big"]) == 1000
    engine = run.controller.engine
    assert (engine.bytes_read, engine.bytes_sent) == (0, 0)
    assert 0 < crossings.nbytes < 50_000  # requests and replies

    crossings.nbytes = 0
    assert big["big"].get().double().sum().item() == norm["norm"].get()  # reading it does bring it here
    assert engine.bytes_read == 4_000_000
    assert crossings.nbytes >= 4_000_000


def test_what_the_controller_gives_crosses_once_however_many_steps_use_it(
    runs: RunBuilder, crossings: Crossings
) -> None:
    run = runs.role("one", Echo).role("two", Echo).start()
    run.controller.engine.wait_ready()
    crossings.nbytes = 0
    first = run.step("one", "same", ["x"], x=torch.ones(250_000))
    sums = [run.step(role, "norm", ["rows"], big=first["x"])["rows"] for role in ("one", "two")]
    assert [s.get() for s in sums] == [250_000] * 2
    assert 1_000_000 <= crossings.nbytes < 1_100_000
    assert run.controller.engine.bytes_sent == 1_000_000


def test_several_critics_judge_one_actors_data_and_a_slow_scorer_blocks_nobody(
    runs: RunBuilder, tmp_path: Path
) -> None:
    roles = {"actor": 0.0, "critic-a": 10.0, "critic-b": 20.0, "scorer": 0.0}
    for name, start in roles.items():
        runs = runs.role(name, Process, init_kwargs={"folder": str(tmp_path), "start": start})
    run = runs.start()
    run.controller.engine.wait_ready()
    with Gate(tmp_path, "scorer-generate") as gate:
        samples = run.step("actor", "generate", ["responses"], prompts=["p", "q"])
        slow = run.step("scorer", "score", ["scores"], responses=samples["responses"])
        judged = [run.step(c, "score", ["scores"], responses=samples["responses"]) for c in ("critic-a", "critic-b")]
        gate.wait_inside()
        assert [j["scores"].get() for j in judged] == [[13.0, 13.0], [23.0, 23.0]]
        for step in range(1, 4):  # the actor goes on learning and generating meanwhile
            run.step("actor", "update", [], amount=1.0)
            more = run.step("actor", "generate", ["responses"], prompts=["p"])
            assert more["responses"].get() == [f"p:{2**step - 1}"]
        assert not slow.node.finished
    assert slow["scores"].get() == [3.0, 3.0]
    assert len({pid for pids in run.pids.values() for pid in pids}) == len(roles)


def test_three_replicas_split_the_rows_and_keep_their_order(runs: RunBuilder) -> None:
    run = runs.role("reward", Echo, replicas=3).start()
    out = run.step("reward", "rows", ["x", "rank", "index"], x=torch.arange(8.0))
    assert out["x"].get().tolist() == [2.0 * i for i in range(8)]
    assert out["rank"].get().tolist() == [0, 0, 1, 1, 1, 2, 2, 2]
    assert out["index"].get().tolist() == list(range(8))
    assert len(set(run.pids["reward"])) == 3
