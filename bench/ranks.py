"""What several ranks cost and save: samples/s, peak memory per rank, snapshots; prints one JSON line.

python bench/ranks.py                  # 0.5 M and 119 M parameters, on 1 and 2 ranks
python bench/ranks.py --sizes tiny

The peer is plain torch in one process with as many threads as there are ranks: the same processors, no sharding.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SIZES: Mapping[str, Mapping[str, int]] = {
    "tiny": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "vocab_size": 80},
    "119M": {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "vocab_size": 8000},
}
ROWS: Mapping[str, int] = {"tiny": 512, "119M": 16}
PROMPT, RESPONSE = 16, 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", choices=list(SIZES), nargs="+", default=list(SIZES))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"bench": "ranks", "ranks": arguments.ranks, "repeats": arguments.repeats}
    for size in arguments.sizes:
        peer = measure(size, 1, threads=arguments.ranks, repeats=arguments.repeats)
        several = measure(size, arguments.ranks, threads=1, repeats=arguments.repeats)
        found[size] = {
            "plain_torch": peer,
            "fsdp2": several,
            "samples_per_second_ratio": round(several["samples_per_second"] / peer["samples_per_second"], 3),
            "training_memory_ratio": round(several["training_mb_per_rank"] / peer["training_mb_per_rank"], 3),
        }
    print(json.dumps(found))


def measure(size: str, ranks: int, *, threads: int, repeats: int) -> dict[str, Any]:
    """Medians of this many ranks; memory is that of the largest."""
    from rlhf_runtime.engines.ranks import open_meeting_place

    context = multiprocessing.get_context("spawn")
    place, store = open_meeting_place() if ranks > 1 else ("", None)
    ends: list[Connection] = []
    processes = []
    with tempfile.TemporaryDirectory(prefix="rlhf-ranks-") as folder:
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            ends.append(ours)
            processes.append(
                context.Process(target=_run, args=(theirs, size, rank, ranks, place, threads, repeats, folder))
            )
            processes[-1].start()
        answers: list[dict[str, Any]] = [end.recv() for end in ends]
        for process in processes:
            process.join()
    del store
    slowest: dict[str, Any] = {}
    for name in answers[0]:
        values = [answer[name] for answer in answers]
        slowest[name] = min(values) if name.endswith("per_second") else max(values)
    return slowest


def _run(
    end: Connection, size: str, rank: int, ranks: int, place: str, threads: int, repeats: int, folder: str
) -> None:
    import torch

    from rlhf_runtime.algorithms.counter_rng import StepSeed
    from rlhf_runtime.engines.ranks import ALONE, join_ranks
    from rlhf_runtime.engines.training import ActorUpdateConfig, actor_update
    from rlhf_runtime.resilience.checkpoint import SnapshotStore
    from rlhf_runtime.resilience.local_store import LocalStateStore
    from rlhf_runtime.worker import WorkerContext

    torch.set_num_threads(threads)
    who = WorkerContext(role="actor", rank=rank, world_size=ranks, meeting_place=place)
    group = join_ranks(who) if ranks > 1 else ALONE
    before = _memory("VmRSS")
    trained = _model(size, group)
    parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    batch = _batch(size)
    config = ActorUpdateConfig(epochs=1, minibatches=1, max_tokens=4096)

    def update(step: int) -> float:
        started = time.perf_counter()
        seed = StepSeed(job=0, step=step)
        actor_update(trained.model, trained.optimizer, batch, config=config, seed=seed, ranks=group)
        return time.perf_counter() - started

    update(0)
    seconds = statistics.median(update(step + 1) for step in range(repeats))
    peak = _memory("VmHWM")
    snapshots = SnapshotStore(LocalStateStore(Path(folder)), role="actor", rank=rank, parts=ranks)
    saved, restored = [], []
    for version in range(repeats):
        started = time.perf_counter()
        snapshots.save(version, trained.state_dict())
        saved.append(time.perf_counter() - started)
        group.most(0)  # a snapshot is there when every rank has written its part
        started = time.perf_counter()
        trained.load_state_dict(snapshots.load(version))
        restored.append(time.perf_counter() - started)
        group.most(0)
    megabytes = (
        sum(file.stat().st_size for file in Path(folder).glob(f"roles/actor/{rank}/snapshots/*")) / repeats / 1e6
    )
    end.send(
        {
            "parameters": parameters,
            "threads_per_rank": threads,
            "samples_per_second": round(ROWS[size] / seconds, 2),
            "peak_mb_per_rank": round(peak / 1e6),
            "training_mb_per_rank": round((peak - before) / 1e6),
            "snapshot_mb_per_rank": round(megabytes, 2),
            "save_seconds": round(statistics.median(saved), 3),
            "restore_seconds": round(statistics.median(restored), 3),
            "save_mb_per_second": round(megabytes / statistics.median(saved), 1),
            "restore_mb_per_second": round(megabytes / statistics.median(restored), 1),
        }
    )


def make_model(size: str) -> Any:
    """A model with random weights."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    heads = SIZES[size]["hidden_size"] // 32
    config = Qwen3Config(
        **SIZES[size],
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=32,
        max_position_embeddings=128,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config)


def _model(size: str, ranks: Any) -> Any:
    from rlhf_runtime.engines.logprobs import response_statistics
    from rlhf_runtime.engines.trained import TrainedModel
    from rlhf_runtime.engines.training import OptimizerConfig

    return TrainedModel(
        make_model(size),
        optimizer=OptimizerConfig(learning_rate=1e-5),
        ranks=ranks,
        forward_methods=[response_statistics],
    )


def _batch(size: str) -> dict[str, Any]:
    import torch

    rows, vocabulary = ROWS[size], SIZES[size]["vocab_size"]
    generator = torch.Generator().manual_seed(0)

    def tokens(length: int) -> torch.Tensor:
        return torch.randint(vocabulary, (rows, length), generator=generator)

    mask = torch.ones(rows, RESPONSE, dtype=torch.long)
    return {
        "prompt_ids": tokens(PROMPT),
        "prompt_mask": torch.ones(rows, PROMPT, dtype=torch.long),
        "responses": tokens(RESPONSE),
        "response_mask": mask,
        "log_probs": -5.0 * mask,
        "advantages": torch.randn(rows, RESPONSE, generator=generator),
    }


def _memory(field: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


if __name__ == "__main__":
    main()
