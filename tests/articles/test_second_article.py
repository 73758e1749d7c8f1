# ruff: noqa: RUF003 - the comments are the article's own
"""The second article's code, with `RayWorkerGroup` in place of the Megatron name, on the in-process backend."""

import pytest
import torch

from rlhf_runtime.api import (
    BaseWorker,
    DataProto,
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    default_controller,
)


class ActorRolloutWorker(BaseWorker):
    def generate_sequences(self, batch: DataProto) -> DataProto:
        prompts = batch.batch["prompts"]
        return DataProto.from_dict({"responses": prompts * 2}, {"texts": [f"{row}" for row in range(len(prompts))]})


class CriticWorker(BaseWorker):
    def compute_values(self, batch):
        return DataProto.from_dict({"values": batch.batch["prompts"].float().mean(dim=1)})


class ReferencePolicyWorker(BaseWorker):
    def compute_ref_log_prob(self, batch):
        return DataProto.from_dict({"ref_log_prob": -batch.batch["prompts"].float().sum(dim=1)})


class RuleEngineWorker(BaseWorker):
    def compute_rule_score(self, batch):
        scores = [1.0 if text == "3" else 0.0 for text in batch.non_tensor_batch["texts"]]
        return DataProto.from_dict({"rule_score": torch.tensor(scores)})


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    monkeypatch.setenv("RLHF_BACKEND", "in-process")
    yield
    controller = default_controller()
    try:
        controller.finish()
    finally:
        controller.close()


def article_groups():
    """1.2, as printed but for the group's class and `use_gpu`."""
    # 定义资源池：每节点4卡，共2节点 → 总共8卡可用
    resource_pool = RayResourcePool(
        process_on_nodes=[4] * 2,  # 每节点4卡
        use_gpu=False,
        max_colocate_count=1,  # 关键！控制是否合并WorkerGroup
    )

    # 分别定义各角色worker类
    actor_rollout_cls = RayClassWithInitArgs(cls=ActorRolloutWorker)
    critic_cls = RayClassWithInitArgs(cls=CriticWorker)
    ref_cls = RayClassWithInitArgs(cls=ReferencePolicyWorker)

    # 创建独立WorkerGroup
    actor_wg = RayWorkerGroup(resource_pool=resource_pool, ray_cls_with_init=actor_rollout_cls)
    critic_wg = RayWorkerGroup(resource_pool=resource_pool, ray_cls_with_init=critic_cls)
    ref_wg = RayWorkerGroup(resource_pool=resource_pool, ray_cls_with_init=ref_cls)
    return actor_wg, critic_wg, ref_wg


class Trainer:
    """Section 3's loop around the article's own lines."""

    def __init__(self) -> None:
        self.actor_rollout_wg, self.critic_wg, self.ref_policy_wg = article_groups()
        self.use_reference_policy = True

    def step(self, batch: DataProto, gen_batch: DataProto) -> DataProto:
        # 1. Actor生成序列（异步，非阻塞）
        gen_batch_output = self.actor_rollout_wg.generate_sequences(gen_batch)

        # 2. Reference Policy计算log_prob（并行发起）
        if self.use_reference_policy:
            ref_log_prob = self.ref_policy_wg.compute_ref_log_prob(batch)

        # 3. Critic计算values（并行发起）
        values = self.critic_wg.compute_values(batch)

        # 4. 主进程聚合结果（显式等待）
        batch = batch.union(gen_batch_output).union(ref_log_prob).union(values)
        return batch


def prompts_batch(rows: int = 8) -> DataProto:
    return DataProto.from_dict({"prompts": torch.arange(rows * 3).reshape(rows, 3)})


def test_the_three_groups_have_eight_processes_each_and_share_none():
    groups = article_groups()
    assert [group.name for group in groups] == ["actor-rollout", "critic", "reference-policy"]
    assert [group.world_size for group in groups] == [8, 8, 8]
    registered = default_controller().engine.groups.values()
    processes = [seat.process for group in registered for seat in group.seats]
    assert len(processes) == len(set(map(id, processes))) == 24


def test_the_loop_of_section_3_gathers_what_all_groups_made():
    trainer = Trainer()
    for _ in range(3):
        batch = trainer.step(prompts_batch(), prompts_batch())
    assert batch.columns == ["prompts", "responses", "ref_log_prob", "values", "texts"]
    prompts = prompts_batch()["prompts"]
    assert torch.equal(batch.batch["responses"], prompts * 2)
    assert torch.equal(batch.batch["values"], prompts.float().mean(dim=1))
    assert torch.equal(batch.batch["ref_log_prob"], -prompts.float().sum(dim=1))
    # One row for each rank, in rank order.
    assert batch.non_tensor_batch["texts"] == ["0"] * 8
    # Each time around is an iteration of its own.
    assert default_controller().iteration == 2


def test_a_rule_engine_is_added_in_three_steps():
    actor_rollout_wg, _, _ = article_groups()
    batch = prompts_batch(16).union(actor_rollout_wg.generate_sequences(prompts_batch(16)))

    # 1. 写一个RuleEngineWorker类: above
    # 2. 在初始化处添加：
    rule_resource_pool = RayResourcePool(process_on_nodes=[1], use_gpu=False)
    rule_engine_cls = RayClassWithInitArgs(cls=RuleEngineWorker)
    rule_engine_wg = RayWorkerGroup(resource_pool=rule_resource_pool, ray_cls_with_init=rule_engine_cls)

    # 3. 在训练循环中插入：
    rule_score = rule_engine_wg.compute_rule_score(batch)
    batch = batch.union(rule_score)

    assert batch.batch["rule_score"].tolist() == [0.0] * 16
    assert rule_engine_wg.name == "rule-engine"
