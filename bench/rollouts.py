"""Tokens per second of each rollout engine, and what bringing it new weights takes; prints one JSON line.

python bench/rollouts.py                # 0.5 M and 119 M parameters
python bench/rollouts.py --sizes tiny

The peer is transformers' own `generate`. Each engine has a process of its own, all as many threads; they take turns, so
that a slow minute of the machine is not one engine's alone. A weight sync is compared with copying as many bytes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

from ranks import SIZES, make_model

ENGINES = ("transformers", "cached", "vllm")
PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 64, 16, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", choices=list(SIZES), nargs="+", default=list(SIZES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"bench": "rollouts", "prompts": PROMPTS, "new_tokens": NEW_TOKENS, **vars(arguments)}
    for size in arguments.sizes:
        measured = measure(size, threads=arguments.threads, repeats=arguments.repeats)
        peer = measured["transformers"]["tokens_per_second"]
        for engine in measured.values():
            engine["ratio"] = round(engine["tokens_per_second"] / peer, 3)
        found[size] = measured
    print(json.dumps(found))


def measure(size: str, *, threads: int, repeats: int) -> dict[str, dict[str, Any]]:
    """Medians per engine; one generates at a time."""
    context = multiprocessing.get_context("spawn")
    ends: dict[str, Connection] = {}
    processes = []
    for engine in ENGINES:
        ends[engine], theirs = context.Pipe()
        processes.append(context.Process(target=_serve, args=(theirs, engine, size, threads)))
        processes[-1].start()
        theirs.close()  # so that a process that dies is noticed
        ends[engine].recv()
    rounds: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
    for _ in range(repeats):
        for engine, end in ends.items():
            end.send("go")
            rounds[engine].append(end.recv())
    for end, process in zip(ends.values(), processes, strict=True):
        end.send("")
        process.join()
    return {
        engine: {name: round(statistics.median(one[name] for one in all_rounds), 2) for name in all_rounds[0]}
        for engine, all_rounds in rounds.items()
    }


def _serve(end: Connection, engine: str, size: str, threads: int) -> None:
    import torch

    from rlhf_runtime.engines.rollout import SamplingConfig, VLLMSettings, make_rollout_engine

    torch.set_num_threads(threads)
    model = make_model(size)
    limits = VLLMSettings(max_model_length=PROMPT_TOKENS + NEW_TOKENS, max_sequences=PROMPTS)
    rollout = make_rollout_engine(engine, model, limits)
    torch.set_num_threads(threads)
    prompts = torch.randint(2, 80, (PROMPTS, PROMPT_TOKENS), generator=torch.Generator().manual_seed(0))
    sampling = SamplingConfig(max_new_tokens=NEW_TOKENS, eos_token_id=1, pad_token_id=0, greedy=True)
    _generate(rollout, prompts, sampling)
    end.send("ready")
    while end.recv():
        tokens, seconds = _generate(rollout, prompts, sampling)
        end.send({"tokens_per_second": tokens / seconds, **_sync(rollout, model)})


def _generate(rollout: Any, prompts: Any, sampling: Any) -> tuple[int, float]:
    import torch

    from rlhf_runtime.algorithms.counter_rng import StepSeed

    started = time.perf_counter()
    result = rollout.generate(
        prompts, prompt_mask=torch.ones_like(prompts), sampling=sampling, seed=StepSeed(job=0, step=0)
    )
    return int(result.response_mask.sum()), time.perf_counter() - started


def _sync(rollout: Any, model: Any) -> dict[str, float]:
    weights = [parameter.detach() for parameter in model.parameters()]
    nbytes = sum(weight.numel() * weight.element_size() for weight in weights)
    started = time.perf_counter()
    copies = [weight.clone() for weight in weights]
    copied = time.perf_counter() - started
    del copies
    started = time.perf_counter()
    rollout.refresh()
    brought = time.perf_counter() - started
    return {
        "sync_ms": brought * 1e3,
        "sync_mb_per_second": nbytes / 1e6 / brought if rollout.name == "vllm" else 0.0,
        "copy_mb_per_second": nbytes / 1e6 / copied,
    }


if __name__ == "__main__":
    main()
