"""Processes that act as the ranks of a role; they are started once, since imports take most of their time."""

from __future__ import annotations

import io
import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from rlhf_runtime.engines.ranks import open_meeting_place
from rlhf_runtime.worker import WorkerContext

PATIENCE = 120.0


class RankProcesses:
    """Runs functions of a module on several ranks at once."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ends: list[Connection] = []
        self._processes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            self._ends.append(ours)
            self._processes.append(process)
        self._runs = 0

    def run(self, ranks: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What `function(context, *arguments)` gives on each of so many ranks."""
        self._runs += 1
        place, store = open_meeting_place() if ranks > 1 else ("", None)
        contexts = [
            WorkerContext(role="tested", rank=rank, world_size=ranks, attempt=self._runs, seed=7, meeting_place=place)
            for rank in range(ranks)
        ]
        for end, context in zip(self._ends, contexts, strict=False):
            end.send_bytes(_packed((function, context, arguments)))
        answers = [self._answer(rank) for rank in range(ranks)]
        del store
        if failed := [text for ok, text in answers if not ok]:
            raise AssertionError("\n\n".join(failed))
        return [value for _, value in answers]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def _answer(self, rank: int) -> tuple[bool, Any]:
        if not self._ends[rank].poll(PATIENCE):
            return False, f"rank {rank} did not answer within {PATIENCE:g} s"
        answer: tuple[bool, Any] = torch.load(io.BytesIO(self._ends[rank].recv_bytes()), weights_only=False)
        return answer


def _packed(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _serve(end: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        function, context, arguments = torch.load(io.BytesIO(end.recv_bytes()), weights_only=False)
        try:
            answer = True, function(context, *arguments)
        except BaseException:  # the test that asked shows it
            answer = False, f"rank {context.rank}: {traceback.format_exc()}"
        end.send_bytes(_packed(answer))
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
