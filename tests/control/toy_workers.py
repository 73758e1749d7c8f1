"""Workers whose arithmetic shows at a glance whether an update was made never, once or twice."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rlhf_runtime.worker import Dispatch, Effect, Worker, register

SIZE = 4


class Counter(Worker):
    """State: one number and the ids of the updates that made it."""

    def __init__(self, start: float = 0.0) -> None:
        self.total = start
        self.applied: list[str] = []

    @register()
    def look(self, **_: Any) -> dict[str, Any]:
        return {"total": self.total, "seen": list(self.applied)}

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self, amount: float = 1.0, **_: Any) -> dict[str, Any]:
        self.total = 2 * self.total + float(amount)  # the order of updates shows as well
        self.applied.append(f"{self.context.call.iteration}.{self.context.call.ordinal}")
        return {"total": self.total}

    @register(effect=Effect.NONE)
    def where(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "worker": self.context.worker_name}

    def state_dict(self) -> Mapping[str, Any]:
        return {"total": self.total, "applied": list(self.applied)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.total, self.applied = state["total"], list(state["applied"])


class Echo(Worker):
    """No state; gives back what it gets, and fails when told to."""

    @register()
    def same(self, x: Any) -> dict[str, Any]:
        return {"x": x}

    @register()
    def texts(self, count: int) -> dict[str, Any]:
        return {"texts": [f"text {i}" for i in range(count)], "loss": 0.42776}

    @register()
    def bare(self, x: float) -> float:
        return x + 1

    @register()
    def rows(self, x: torch.Tensor) -> dict[str, Any]:
        call = self.context.call
        return {
            "x": x * 2,
            "rank": torch.full((len(x),), self.context.rank),
            "index": torch.arange(len(x)) + call.row_offset,
        }

    @register()
    def big(self, rows: int) -> dict[str, Any]:
        return {"big": torch.arange(rows * 1000, dtype=torch.float32).view(rows, 1000)}

    @register()
    def norm(self, big: torch.Tensor) -> dict[str, Any]:
        return {"norm": float(big.double().sum()), "rows": len(big)}

    @register(effect=Effect.NONE)
    def aside(self, **_: Any) -> dict[str, Any]:
        return {"done": True}

    @register()
    def fail(self, message: str = "this is wrong", **_: Any) -> dict[str, Any]:
        raise ValueError(message)

    @register()
    def out_of_memory(self, **_: Any) -> dict[str, Any]:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    @register(repeatable=False)
    def once(self, **_: Any) -> dict[str, Any]:
        return {"done": True}

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self, **_: Any) -> None:
        pass

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def bad_update(self, **_: Any) -> None:
        raise RuntimeError("half of the weights are new")

    @register(effect=Effect.WRITE, dispatch=Dispatch.RANK_ZERO)
    def lonely_update(self) -> None:
        pass


class FailsBelow(Worker):
    """Fails while its process is among the first `attempts` of its rank."""

    def __init__(self, attempts: int) -> None:
        self.attempts = attempts
        self.total = 0

    @register()
    def score(self, **_: Any) -> dict[str, Any]:
        if self.context.attempt < self.attempts:
            # What is free differs every time: the words of a real one are never twice the same.
            free = 1.5 + self.context.attempt
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate 2.00 GiB. {free} GiB is free")
        return {"done": True}

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self) -> dict[str, Any]:
        self.total += 1
        if self.context.attempt < self.attempts:
            raise RuntimeError("half of the weights are new")
        return {"total": self.total}


class Plain:
    """Not a `Worker`, declares nothing."""

    def __init__(self) -> None:
        self.total = 0.0

    def look(self) -> float:
        return self.total

    def update(self, loss: float) -> None:
        self.total += loss

    def _hidden(self) -> None:
        pass


class BadConstructor(Worker):
    def __init__(self) -> None:
        raise FileNotFoundError("no such model: /models/none")

    def look(self) -> None:
        pass


class Process(Counter):
    """For real processes: tells its id, and blocks on marker files so that a test can choose the moment."""

    def __init__(self, folder: str = "", start: float = 0.0) -> None:
        super().__init__(start)
        self.folder = Path(folder)

    def _gate(self, name: str) -> None:
        """Block while `hold-NAME` is there, after `in-NAME` has told the test that the method is running."""
        hold = self.folder / f"hold-{name}"
        if self.folder.name and hold.exists():
            (self.folder / f"in-{name}").write_text(str(os.getpid()))
            while hold.exists():
                time.sleep(0.005)

    @register()
    def generate(self, prompts: list[str]) -> dict[str, Any]:
        self._gate(f"{self.context.role}-generate")
        return {"responses": [f"{p}:{self.total:g}" for p in prompts], "big": torch.full((64, 1000), self.total)}

    @register()
    def score(self, responses: list[str]) -> dict[str, Any]:
        self._gate(f"{self.context.role}-generate")
        return {"scores": [float(len(r)) + self.total for r in responses]}

    @register(effect=Effect.WRITE, dispatch=Dispatch.ONE_TO_ALL)
    def update(self, amount: float = 1.0, **_: Any) -> dict[str, Any]:
        answer = super().update(amount)
        self._gate(f"{self.context.role}-update")
        return answer

    @register(effect=Effect.NONE)
    def setting(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "nice": os.getpriority(os.PRIO_PROCESS, 0),
            "threads": torch.get_num_threads(),
        }

    @register()
    def say(self, text: str) -> dict[str, Any]:
        print(text)
        return {"said": True}

    @register()
    def crash(self, folder: str, kind: str) -> dict[str, Any]:
        """Die in the given way, unless a marker says that this was done before."""
        marker = Path(folder) / f"crashed-{kind}"
        if not marker.exists():
            marker.write_text(str(os.getpid()))
            if kind == "segfault":
                import ctypes

                ctypes.string_at(0)
            os.kill(os.getpid(), 9)
        return {"alive": True}
