"""What one step costs beyond its method, per call and per megabyte, against a bare Ray actor call in the same run.

Prints one JSON line. "step" is a step of the control flow between two role processes on an embedded Ray; "bare" is the
same payload as torch tensors between two plain Ray actors, in one column and in eight; "simulated" is the engine alone,
without processes. Figures are medians in milliseconds.

    python bench/call_overhead.py [--calls 200] [--megabytes 10]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from rlhf_runtime.api import Controller, Role, Worker, register
from rlhf_runtime.backends.ray_backend import RayBackend
from rlhf_runtime.backends.simulated import SimulatedBackend


class Peer(Worker):
    @register()
    def ping(self) -> dict[str, Any]:
        return {"ok": True}

    @register()
    def make(self, columns: int, floats: int) -> dict[str, Any]:
        return {f"c{i}": torch.ones(floats // columns) for i in range(columns)}

    @register()
    def take(self, **columns: torch.Tensor) -> dict[str, Any]:
        return {"count": len(columns)}


class BarePeer:
    """The same without us."""

    def ping(self) -> bool:
        return True

    def make(self, columns: int, floats: int) -> dict[str, torch.Tensor]:
        return {f"c{i}": torch.ones(floats // columns) for i in range(columns)}

    def take(self, columns: dict[str, torch.Tensor]) -> int:
        return len(columns)


def median_ms(call: Callable[[], object], times: int) -> float:
    for _ in range(3):
        call()
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return 1000 * statistics.median(seconds)


def step_calls(controller: Controller, columns: int, floats: int) -> tuple[Callable[[], object], Callable[[], object]]:
    def ping() -> object:
        return controller.step(role="a", method="ping", outputs=["ok"])["ok"].get()

    def transfer() -> object:
        names = [f"c{i}" for i in range(columns)]
        made = controller.step(role="a", method="make", inputs={"columns": columns, "floats": floats}, outputs=names)
        return controller.step(role="b", method="take", inputs=made, outputs=["count"])["count"].get()

    return ping, transfer


def bare_calls(a: Any, b: Any, columns: int, floats: int) -> tuple[Callable[[], object], Callable[[], object]]:
    import ray

    def ping() -> object:
        return ray.get(a.ping.remote())

    def transfer() -> object:
        return ray.get(b.take.remote(a.make.remote(columns, floats)))

    return ping, transfer


def measure(calls: int, megabytes: float) -> dict[str, Any]:
    import ray

    small, large = 12_500, int(megabytes * 250_000)  # 50 KB, which Ray carries inline, and more than that
    backend = RayBackend()
    found: dict[str, Any] = {"bench": "call_overhead", "calls": calls, "megabytes": megabytes}
    with Controller(backend=backend) as controller:
        for name in ("a", "b"):
            controller.register_role(Role(name=name, worker_class=Peer))
        controller.engine.wait_ready()
        actor = ray.remote(num_cpus=0)(BarePeer)
        a, b = actor.remote(), actor.remote()
        ray.get([a.ping.remote(), b.ping.remote()])
        found["step_ms"] = median_ms(step_calls(controller, 1, small)[0], calls)
        found["bare_ms"] = median_ms(bare_calls(a, b, 1, small)[0], calls)
        for columns in (1, 8):
            for size, floats in (("50kb", small), ("large", large)):
                repeats = calls if size == "50kb" else max(10, calls // 10)
                key = f"pair_{columns}_columns_{size}"
                found[f"step_{key}_ms"] = median_ms(step_calls(controller, columns, floats)[1], repeats)
                found[f"bare_{key}_ms"] = median_ms(bare_calls(a, b, columns, floats)[1], repeats)
    for kind in ("step", "bare"):
        more = found[f"{kind}_pair_1_columns_large_ms"] - found[f"{kind}_pair_1_columns_50kb_ms"]
        found[f"{kind}_ms_per_megabyte"] = more / (megabytes - 0.05)
    with Controller(backend=SimulatedBackend()) as controller:
        controller.register_role(Role(name="a", worker_class=Peer))
        found["simulated_ms"] = median_ms(step_calls(controller, 1, small)[0], calls)
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--megabytes", type=float, default=10.0)
    options = parser.parse_args()
    print(json.dumps(measure(options.calls, options.megabytes)))


if __name__ == "__main__":
    main()
