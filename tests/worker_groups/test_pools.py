import pytest
import torch
from group_workers import ActorRolloutWorker, CriticWorker, PlaceWorker, ReferencePolicyWorker

from rlhf_runtime.api import Controller, RayClassWithInitArgs, RayResourcePool, RayWorkerGroup, default_controller
from rlhf_runtime.backends.simulated import SimulatedBackend
from rlhf_runtime.errors import ResourcePoolError, UnknownMethodError

CLASSES = [ActorRolloutWorker, CriticWorker, ReferencePolicyWorker, PlaceWorker]


def groups_on(pool, controller, classes=CLASSES):
    return [RayWorkerGroup(pool, RayClassWithInitArgs(cls), controller=controller) for cls in classes]


def processes_of(group):
    return [seat.process for seat in group.controller.engine.groups[group.name].seats]


def shared(groups):
    """The index of the first group that has each group's processes."""
    first = [processes_of(group)[0] for group in groups]
    return [first.index(process) for process in first]


SHARING = {
    "each its own": (4, 1, [0, 1, 2, 3]),
    "two and two": (2, 2, [0, 0, 2, 2]),
    "three and one": (2, 3, [0, 0, 0, 3]),
    "all together": (1, 4, [0, 0, 0, 0]),
}


@pytest.mark.parametrize(("places", "count", "want_shared"), SHARING.values(), ids=SHARING)
def test_so_many_groups_share_processes(controller, places, count, want_shared):
    pool = RayResourcePool([1] * places, use_gpu=False, max_colocate_count=count)
    groups = groups_on(pool, controller)
    assert shared(groups) == want_shared
    assert [group.world_size for group in groups] == [places] * 4


def test_each_rank_of_colocated_groups_lives_with_the_same_rank_of_the_others(controller):
    groups = groups_on(RayResourcePool([2, 1], use_gpu=False, max_colocate_count=4), controller)
    assert processes_of(groups[0]) == processes_of(groups[3])
    assert len(set(map(id, processes_of(groups[0])))) == 3


def test_a_group_that_finds_no_place_is_told_what_to_change(controller):
    pool = RayResourcePool([1], use_gpu=False)
    groups_on(pool, controller, CLASSES[:1])
    with pytest.raises(ResourcePoolError, match=r'no place for the group "critic".*taken by "actor-rollout".*own'):
        groups_on(pool, controller, CLASSES[1:2])


def test_a_pool_is_free_again_when_its_controller_is_closed():
    pool = RayResourcePool([1], use_gpu=False)
    for _ in range(2):
        with Controller(backend="in-process") as controller:
            groups_on(pool, controller, CLASSES[:1])


def test_gpus_that_are_not_there_are_named_with_what_to_change(controller, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ResourcePoolError, match=r'needs 1 GPUs, but the "in-process" backend finds none: set `use_gpu'):
        groups_on(RayResourcePool([1]), controller)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ResourcePoolError, match=r"needs 4 GPUs, but .* finds 2: .* lower `process_on_nodes`"):
        groups_on(RayResourcePool([2, 2]), controller)


def test_a_simulation_has_the_gpus_that_it_is_asked_for():
    with Controller(backend=SimulatedBackend()) as controller:
        assert groups_on(RayResourcePool([4] * 2), controller)[0].world_size == 8


BAD_POOLS = {
    "no node": ({"process_on_nodes": []}, "process_on_nodes"),
    "an empty node": ({"process_on_nodes": [2, 0]}, "process_on_nodes"),
    "no group per process": ({"process_on_nodes": [1], "max_colocate_count": 0}, "max_colocate_count"),
}


@pytest.mark.parametrize(("arguments", "want_named"), BAD_POOLS.values(), ids=BAD_POOLS)
def test_impossible_pools_are_refused(arguments, want_named):
    with pytest.raises(ResourcePoolError, match=f"`{want_named}` must"):
        RayResourcePool(**arguments)


NAMES = {
    ActorRolloutWorker: "actor-rollout",
    "some.module:RuleEngineWorker": "rule-engine",
    "some.module:APIScoreWorker": "api-score",
    "some.module:Worker": "group",
    "some.module:LLMJudge2": "llm-judge2",
}


@pytest.mark.parametrize("cls", NAMES, ids=NAMES.values())
def test_a_group_is_named_after_its_class(cls):
    assert RayClassWithInitArgs(cls).name == NAMES[cls]


def test_names_are_numbered_where_they_are_taken(controller):
    pool = RayResourcePool([1] * 3, use_gpu=False)
    assert [g.name for g in groups_on(pool, controller, [CriticWorker] * 3)] == ["critic", "critic-2", "critic-3"]
    with pytest.raises(ValueError, match='two groups cannot both be named "critic"'):
        RayWorkerGroup(pool, RayClassWithInitArgs(CriticWorker), name="critic", controller=controller)


def test_constructor_arguments_come_as_keywords_or_as_a_mapping(controller):
    pool = RayResourcePool([1], use_gpu=False)
    cls = RayClassWithInitArgs(cls=ActorRolloutWorker, init_kwargs={"hidden": 3}, size=2)
    group = RayWorkerGroup(resource_pool=pool, ray_cls_with_init=cls, controller=controller)
    assert group.weights().get()["weights"].shape == (2 * 3 + 3 + 3 * 2 + 2,)


def test_what_is_no_class_is_refused():
    with pytest.raises(TypeError, match=r"without `ray\.remote`"):
        RayClassWithInitArgs(cls=ActorRolloutWorker())


def test_an_unknown_method_is_an_attribute_error_that_names_the_others(controller):
    (group,) = groups_on(RayResourcePool([1], use_gpu=False), controller, [CriticWorker])
    assert not hasattr(group, "compute_value")
    with pytest.raises(UnknownMethodError, match="compute_values"):
        _ = group.compute_value


def test_groups_without_a_controller_share_one_and_get_a_new_one_after_it_is_closed(monkeypatch):
    monkeypatch.setenv("RLHF_BACKEND", "in-process")
    for _ in range(2):
        pool = RayResourcePool([1] * 2, use_gpu=False)
        groups = groups_on(pool, None, CLASSES[1:3])
        assert groups[0].controller is groups[1].controller is default_controller()
        assert not default_controller().engine.closed
        default_controller().close()
