"""Channels: a step returns at once, and reading waits."""

import pytest
import torch
from builders import RunBuilder, a_run
from toy_workers import Counter, Echo, Plain

from rlhf_runtime.control.graph import NodeState
from rlhf_runtime.errors import StepError, UnknownMethodError, UnsupportedValueError


@pytest.fixture(params=["simulated", "in-process"])
def runs(request: pytest.FixtureRequest) -> RunBuilder:
    return a_run() if request.param == "simulated" else a_run().in_process()


def test_a_step_returns_at_once_and_reading_waits(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo).start()
    channels = run.step("echo", "same", ["x"], x=3)
    assert channels.node.state is not NodeState.DONE
    assert channels["x"].get() == 3
    assert channels.node.state is NodeState.DONE


def test_a_step_lasts_as_long_as_its_method_and_declaring_it_takes_no_time() -> None:
    run = a_run().role("echo", Echo).lasting("echo.same", 7.0).start()
    channel = run.step("echo", "same", ["x"], x=3)["x"]
    assert run.backend.now() == 0.0
    assert channel.get() == 3
    assert run.backend.now() == 7.0


def test_reading_looks_like_the_value_itself(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo).start()
    out = run.step("echo", "texts", ["texts", "loss"], count=3)
    assert out["texts"][0] == "text 0"
    assert out["texts"][1:] == ["text 1", "text 2"]
    assert list(out["texts"]) == ["text 0", "text 1", "text 2"]
    assert len(out["texts"]) == 3
    assert f"{out['loss']:.4f}" == "0.4278"
    assert f"{out['texts'][0][:4]}..." == "text..."
    assert float(out["loss"]) == 0.42776
    assert str(out["loss"]) == "0.42776"
    assert bool(out["texts"])
    assert not run.step("echo", "same", ["x"], x=[])["x"]


def test_a_representation_does_not_wait(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo).start()
    out = run.step("echo", "texts", ["texts"], count=3)
    assert "echo.texts" in repr(out)
    assert "'texts'" in repr(out["texts"])
    assert not out.node.finished


def test_the_length_of_a_tensor_moves_no_bytes(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo).start()
    big = run.step("echo", "big", ["big"], rows=50)["big"]
    assert len(big) == 50
    assert run.controller.engine.bytes_read == 0


def test_tensors_above_100_kb_go_from_role_to_role_without_the_controller(runs: RunBuilder) -> None:
    run = runs.role("maker", Echo).role("user", Echo).start()
    big = run.step("maker", "big", ["big"], rows=50)
    norm = run.step("user", "norm", ["norm"], big=big["big"])
    assert norm["norm"].get() == sum(range(50_000))
    engine = run.controller.engine
    assert (engine.bytes_read, engine.bytes_sent) == (0, 0)
    assert big["big"].get().shape == (50, 1000)
    assert engine.bytes_read == 200_000


def test_a_tensor_of_the_controllers_is_sent_once_and_counted(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo).start()
    assert run.step("echo", "norm", ["rows"], big=torch.zeros(4, 1000))["rows"].get() == 4
    assert run.controller.engine.bytes_sent == 16_000


def test_an_output_that_the_step_does_not_declare_is_named(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo).start()
    out = run.step("echo", "texts", ["texts"], count=1)
    with pytest.raises(KeyError) as caught:
        out["text"]
    assert str(caught.value) == 'step 0.0 echo.texts declares no output "text"; its outputs: "texts"'


def test_an_output_that_the_method_does_not_return_fails_the_step(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo).start()
    out = run.step("echo", "texts", ["texts", "scores"], count=1)
    with pytest.raises(StepError, match=r'must return the output "scores"; it returned "texts", "loss"'):
        out["texts"].get()


def test_without_declared_outputs_any_may_be_read(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo).start()
    out = run.step("echo", "texts", count=1)
    assert out["loss"].get() == 0.42776
    with pytest.raises(StepError, match=r'gave no output "scores"; it gave: "texts", "loss"'):
        out["scores"].get()


def test_a_bare_value_takes_the_name_of_the_one_output(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo).start()
    assert run.step("echo", "bare", ["y"], x=1.0)["y"].get() == 2.0


def test_a_plain_class_works_and_its_update_writes(runs: RunBuilder) -> None:
    run = runs.role("plain", Plain).start()
    before = run.step("plain", "look", ["total"])
    run.step("plain", "update", [], loss=2.5)
    after = run.step("plain", "look", ["total"])
    assert (before["total"].get(), after["total"].get()) == (0.0, 2.5)
    assert run.controller.engine.groups["plain"].version == 1


def test_two_roles_cannot_have_one_name(runs: RunBuilder) -> None:
    with pytest.raises(ValueError, match='two roles cannot both be named "echo"'):
        runs.role("echo", Echo).role("echo", Counter).start()


def test_a_step_must_name_a_registered_role(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo).role("counter", Counter).start()
    with pytest.raises(ValueError, match=r'role "eco" must be registered .*; registered: "echo", "counter"'):
        run.step("eco", "same", ["x"], x=1)


@pytest.mark.parametrize("method", ["upgrade", "_hidden", "total"])
def test_an_unknown_method_lists_those_of_the_class(runs: RunBuilder, method: str) -> None:
    run = runs.role("plain", Plain).start()
    with pytest.raises(UnknownMethodError, match=f'must have the method "{method}"; it has: look, update'):
        run.step("plain", method)


def test_outputs_must_be_distinct(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo).start()
    with pytest.raises(ValueError, match="must be distinct"):
        run.step("echo", "same", ["x", "x"], x=1)


def test_a_value_that_cannot_travel_is_refused_where_it_is_given(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo).start()
    with pytest.raises(UnsupportedValueError, match="cannot travel"):
        run.step("echo", "same", ["x"], x=object())


def test_channels_of_several_steps_are_merged_as_inputs(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo).start()
    first = run.step("echo", "same", ["x"], x=1)
    second = run.step("echo", "bare", ["y"], x=2.0)
    merged = first | second | {"z": 5}
    assert set(merged) == {"x", "y", "z"}
    assert {**second, **first}.keys() == {"x", "y"}


def test_rows_are_split_over_replicas_and_joined_in_order(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo, replicas=3).start()
    out = run.step("echo", "rows", ["x", "rank", "index"], x=torch.arange(8.0))
    assert out["x"].get().tolist() == [2.0 * i for i in range(8)]
    assert out["rank"].get().tolist() == [0, 0, 1, 1, 1, 2, 2, 2]
    assert out["index"].get().tolist() == list(range(8))


def test_a_worker_whose_share_is_empty_is_not_called(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo, replicas=3).start()
    out = run.step("echo", "rows", ["x", "rank"], x=torch.arange(2.0))
    assert out["x"].get().tolist() == [0.0, 2.0]
    assert len(out.node.shards) == 2


def test_inputs_of_different_length_are_named(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo, replicas=2).start()
    out = run.step("echo", "fail", [], a=[1, 2], b=[1, 2, 3])
    with pytest.raises(StepError, match='"a" has 2, "b" has 3'):
        out.wait()


@pytest.mark.parametrize("method", ["lonely_update"])
def test_a_write_must_reach_every_worker_of_a_role(runs: RunBuilder, method: str) -> None:
    run = runs.role("echo", Echo, replicas=2).start()
    with pytest.raises(StepError, match="must reach all 2 workers"):
        run.step("echo", method, []).wait()


def test_closing_ends_whoever_waits(runs: RunBuilder) -> None:
    run = runs.role("echo", Echo).start()
    out = run.step("echo", "same", ["x"], x=3)
    run.close()
    with pytest.raises(Exception, match="closed"):
        out["x"].get()
    with pytest.raises(Exception, match="closed"):
        run.step("echo", "same", ["x"], x=3)
