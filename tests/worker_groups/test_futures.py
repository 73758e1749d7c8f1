import pytest
import torch
from group_workers import ActorRolloutWorker, CriticWorker, PlaceWorker, ReferencePolicyWorker, prompts

from rlhf_runtime.api import BaseWorker, DataProto, RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from rlhf_runtime.errors import DataError, StepError
from rlhf_runtime.references import Reference, held

MEGABYTE = 1_000_000


def group(cls, controller, *, places=1, name=None, **kwargs):
    pool = RayResourcePool([places], use_gpu=False)
    return RayWorkerGroup(pool, RayClassWithInitArgs(cls, **kwargs), name=name, controller=controller)


class BigWorker(BaseWorker):
    def generate(self, batch):
        return DataProto.from_dict(
            {"big": torch.ones(8, MEGABYTE // 32), "small": torch.arange(8)}, {"text": ["long" * 100] * 8}
        )

    def total(self, batch):
        return DataProto.from_dict({"total": batch.batch["big"].sum(dim=1)}, meta_info={"texts": len(batch)})

    def total_of(self, big: torch.Tensor) -> float:
        return float(big.sum())


@pytest.fixture
def two(controller):
    return group(BigWorker, controller, name="maker"), group(BigWorker, controller, name="taker")


PATHS = {
    "the future itself": lambda batch, made: made,
    "a union": lambda batch, made: batch.union(made),
    "a union of unions": lambda batch, made: DataProto().union(batch).union(made),
    "some of its columns": lambda batch, made: batch.union(made).select(["big", "id"]),
    "all but some": lambda batch, made: batch.union(made).drop(["text"]),
    "renamed and back": lambda b, m: b.union(m).rename({"big": "x"}).rename({"x": "big"}),
    "only its references": lambda batch, made: made.references(),
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_column_passes_from_group_to_group_without_the_controller(controller, two, path):
    maker, taker = two
    batch = DataProto.from_dict({"id": torch.arange(8)}, meta_info={"temperature": 1.0})
    passed = path(batch, maker.generate(batch))
    total = taker.total(passed).wait()
    assert controller.engine.bytes_read == 0
    assert controller.engine.bytes_sent < 1000
    assert total.get().batch["total"].tolist() == [MEGABYTE / 32] * 8
    assert controller.engine.bytes_read < 1000


def test_a_column_reaches_a_plain_step_by_reference_too(controller, two):
    made = two[0].generate(prompts(8))
    steps = [
        controller.step(role="taker", method="total_of", inputs={"big": made["big"]}, outputs=["sum"]),
        controller.step(role="taker", method="total", inputs=made, outputs=["total"]),
        controller.step(role="taker", method="total", inputs=made.channels, outputs=["total"]),
        controller.step(role="taker", method="total", inputs=prompts(8).union(made), outputs=["total"]),
    ]
    controller.finish()
    assert controller.engine.bytes_read == 0
    assert float(steps[0]["sum"]) == MEGABYTE / 4


def test_only_the_columns_that_are_read_are_fetched(controller, two):
    union = prompts(8).union(two[0].generate(prompts(8)))
    assert (len(union), union.columns) == (8, ["prompts", "big", "small", "text"])
    assert "big: elsewhere" in repr(union)
    assert controller.engine.bytes_read == 0
    assert union["small"].tolist() == list(range(8))
    assert controller.engine.bytes_read == 64
    assert union.batch.get("big").shape == (8, MEGABYTE // 32)
    assert union.batch["big"] is union.batch["big"]
    assert MEGABYTE < controller.engine.bytes_read < MEGABYTE + 1000


def test_a_batch_of_references_reads_like_any_other(controller):
    actor = group(ActorRolloutWorker, controller, places=2)
    lazy = prompts().union(actor.generate_sequences(prompts()))
    plain = prompts().union(actor.generate_sequences(prompts()).get())
    assert not any(isinstance(column, Reference) for column in held(plain.batch).values())
    assert any(isinstance(column, Reference) for column in held(lazy.batch).values())
    assert lazy.equals(plain)
    assert plain.equals(lazy)
    assert lazy[1:4].equals(plain[1:4])
    assert lazy.repeat(2).equals(plain.repeat(2))
    assert DataProto.concat([lazy, plain]).equals(DataProto.concat([plain, plain]))
    assert [part.non_tensor_batch["uid"] for part in lazy.chunk(2)] == [["0/0", "0/1", "0/2"], ["1/0", "1/1", "1/2"]]
    assert {**lazy.batch}.keys() == dict(lazy.batch).keys() == {"prompts", "responses"}
    assert all(isinstance(column, torch.Tensor) for column in dict(lazy.batch).values())
    assert all(isinstance(column, torch.Tensor) for column in {**lazy.batch}.values())
    assert all(isinstance(column, torch.Tensor) for column in (lazy.batch | {}).values())
    lazy.batch["values"] = torch.ones(6)
    assert lazy.batch.pop("responses").shape == (6, 4)
    assert lazy.columns == ["prompts", "values", "uid"]


def test_a_batch_of_references_is_saved_whole(controller, tmp_path):
    actor = group(ActorRolloutWorker, controller)
    lazy = prompts().union(actor.generate_sequences(prompts()))
    lazy.save(tmp_path / "batch")
    assert DataProto.load(tmp_path / "batch").equals(lazy)


def test_a_column_that_both_have_must_be_equal(controller, two):
    maker, _ = two
    union = maker.generate(prompts(8)).references()
    assert union.union(union).columns == union.columns
    assert controller.engine.bytes_read == 0
    assert union.union(DataProto.from_dict({"small": torch.arange(8)})).columns == union.columns
    with pytest.raises(DataError, match='column "small" is in both batches and differs'):
        union.union(DataProto.from_dict({"small": torch.zeros(8, dtype=torch.long)}))
    with pytest.raises(DataError, match="8 rows cannot be united with one of 6 rows"):
        union.union(prompts(6))


def test_meta_info_keeps_its_lists_and_the_ranks_values(controller):
    actor = group(ActorRolloutWorker, controller, places=2)
    made = actor.generate_sequences(prompts())
    assert made.get().meta_info == {"rank": [0, 1], "stops": [1, 2, 3]}
    union = prompts().union(made)
    want = {"temperature": 0.5, "eos": [7, 8], "rank": [0, 1], "stops": [1, 2, 3]}
    assert {**union.meta_info} == want
    for passed in (union, prompts().union(made.get())):
        seen = actor.execute_all("seen_meta", passed).get()
        assert seen == [{"seen": {"meta": want, "columns": ["prompts", "responses", "uid"]}}] * 2


def test_data_parallel_rows_meet_their_ranks_whatever_made_them(controller):
    actor = group(ActorRolloutWorker, controller, places=3)
    critic = group(CriticWorker, controller, places=2)
    made = actor.generate_sequences(prompts(7))
    values = critic.compute_values(made)
    assert torch.allclose(values.get().batch["values"], made.get().batch["responses"].sum(dim=1) * 0.5)


def test_two_critics_learn_from_one_actors_data(controller):
    actor = group(ActorRolloutWorker, controller)
    critics = [group(CriticWorker, controller, scale=scale) for scale in (0.5, 2.0)]
    batch = prompts().union(actor.generate_sequences(prompts()))
    first, second = [critic.compute_values(batch) for critic in critics]
    with pytest.raises(DataError, match='"values" is in both batches'):
        batch.union(first).union(second)
    both = batch.union(first.references().rename({"values": "values_a"})).union(second)
    assert torch.allclose(both["values_a"] * 4, both["values"])


class OddWorker(BaseWorker):
    def bare(self, batch):
        return [1, 2]

    def nothing(self, batch):
        return None

    def named(self, batch):
        return {"score": torch.ones(len(batch)), "mean": 1.0}

    def fails(self, batch):
        raise RuntimeError("no such luck")

    def two_things(self, batch, factor):
        return None

    def add(self, a: int, b: int = 10) -> int:
        return a + b


def test_a_future_gives_what_the_method_returned(controller):
    odd = group(OddWorker, controller)
    assert odd.bare(prompts()).get() == [1, 2]
    assert odd.nothing(prompts()).get() is None
    assert odd.named(prompts()).get()["mean"] == 1.0
    assert prompts().union(odd.named(prompts())).meta_info["mean"] == 1.0
    assert odd.add(1).get() == 11
    assert odd.add(1, b=2).get() == 3
    with pytest.raises(DataError, match=r"odd\.bare gave a bare value"):
        prompts().union(odd.bare(prompts()))
    with pytest.raises(DataError, match=r"odd\.two_things: a batch must be the only argument"):
        odd.two_things(prompts(), 2)
    with pytest.raises(TypeError, match="too many positional arguments"):
        odd.add(1, 2, 3)


def test_a_failure_reaches_whoever_reads_and_what_needs_it_is_skipped(controller):
    odd = group(OddWorker, controller)
    failed = odd.fails(prompts())
    after = odd.named(failed)
    other = odd.named(prompts())
    with pytest.raises(StepError, match=r"odd-worker-000: RuntimeError: no such luck"):
        prompts().union(failed)
    with pytest.raises(StepError, match=r"was not run: .*no such luck"):
        after.get()
    assert other.get()["mean"] == 1.0


def test_a_reference_group_takes_what_is_there(controller):
    actor, reference = group(ActorRolloutWorker, controller), group(ReferencePolicyWorker, controller)
    lazy = reference.compute_ref_log_prob(actor.generate_sequences(prompts()))
    assert lazy.channels.node.state.value == "waiting"
    assert lazy.get().batch["ref_log_prob"].shape == (6,)


def test_ranks_answer_one_by_one_and_rank_zero_alone(controller):
    places = group(PlaceWorker, controller, places=3)
    assert [answer["rank"] for answer in places.execute_all("whereabouts").get()] == [0, 1, 2]
    assert places.execute_all("add", 1, b=1).get() == [2, 3, 4]
    assert places.execute_rank_zero("add", 1).get() == 11
    assert places.execute_rank_zero("whereabouts").get()["rank"] == 0
    with pytest.raises(ValueError, match="must be called on all ranks"):
        places.execute_rank_zero("update_nothing")
