"""The order within a role, as a pure function of the declared steps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlhf_runtime.control.graph import EffectOrder, Node, NodeState
from rlhf_runtime.worker import Effect, MethodSpec

EFFECTS = {"R": Effect.READ, "W": Effect.WRITE, "N": Effect.NONE}

programs = st.lists(st.text(alphabet="RWN", max_size=6), min_size=1, max_size=5)  # one text for each iteration


def _node(iteration: int, ordinal: int, effect: str) -> Node:
    spec = MethodSpec(effect=EFFECTS[effect])
    return Node(iteration=iteration, ordinal=ordinal, role="r", method=effect, spec=spec, inputs={}, outputs=())


def _placed(program: list[str], lag: int, *, finish: bool = False) -> list[tuple[Node, set[Node]]]:
    order = EffectOrder(lag=lag)
    placed = []
    for iteration, letters in enumerate(program):
        for ordinal, letter in enumerate(letters):
            node = _node(iteration, ordinal, letter)
            placed.append((node, order.place(node)))
            if finish:
                node.state = NodeState.DONE
    return placed


def _ancestors(placed: list[tuple[Node, set[Node]]]) -> dict[Node, set[Node]]:
    before: dict[Node, set[Node]] = {}
    for node, needs in placed:
        before[node] = set(needs).union(*(before[n] for n in needs)) if needs else set()
    return before


@settings(max_examples=200, deadline=None)
@given(programs, st.integers(0, 2))
def test_writes_keep_program_order_and_come_after_every_earlier_read(program: list[str], lag: int) -> None:
    placed = _placed(program, lag)
    before = _ancestors(placed)
    for index, (node, _) in enumerate(placed):
        for earlier, _ in placed[:index]:
            if node.method == "W" and earlier.method in "RW":
                assert earlier in before[node]
            if "N" in (node.method, earlier.method):
                assert earlier not in before[node]


@settings(max_examples=200, deadline=None)
@given(programs, st.integers(0, 2))
def test_a_read_comes_after_exactly_the_writes_that_its_lag_lets_it_see(program: list[str], lag: int) -> None:
    placed = _placed(program, lag)
    before = _ancestors(placed)
    for index, (node, _) in enumerate(placed):
        if node.method != "R":
            continue
        for earlier, _ in placed[:index]:
            if earlier.method == "W":
                visible = earlier.iteration == node.iteration or earlier.iteration < node.iteration - lag
                if lag == 0:
                    assert visible
                assert (earlier in before[node]) or not visible
                if not visible and not any(
                    w.method == "W" and w.iteration == node.iteration for w, _ in placed[:index]
                ):
                    assert earlier not in before[node]


@given(programs, st.integers(0, 2))
def test_nothing_waits_for_what_comes_later(program: list[str], lag: int) -> None:
    seen: set[Node] = set()
    for node, needs in _placed(program, lag):
        assert needs <= seen
        seen.add(node)


@pytest.mark.parametrize("lag", [0, 1])
def test_what_is_finished_is_forgotten(lag: int) -> None:
    order = EffectOrder(lag=lag)
    for iteration in range(50):
        for ordinal, letter in enumerate("RRWRW"):
            node = _node(iteration, ordinal, letter)
            order.place(node)
            node.state = NodeState.DONE
    assert len(order._writes) + len(order._reads_since_write) < 20


def test_reads_that_no_write_follows_are_forgotten_too() -> None:
    order = EffectOrder()
    for ordinal in range(1000):
        node = _node(0, ordinal, "R")
        order.place(node)
        node.state = NodeState.DONE
    assert len(order._reads_since_write) <= 16


def test_a_long_script_of_one_iteration_keeps_one_write() -> None:
    order = EffectOrder()
    for ordinal in range(100):
        order.place(_node(0, ordinal, "W"))
    assert len(order._writes) == 1
