"""PPO or GRPO on the spelling task in one plain process: the yardstick for the framework's runs.

Prints one JSON line. The models and the task come from the cache and are made first where it has none.

    python bench/plain_loop.py --algorithm PPO --seed 0
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from rlhf_runtime.algorithms.advantages import gae, group_normalized_advantages, kl_penalized_rewards, whiten
from rlhf_runtime.algorithms.counter_rng import StepSeed, permutation
from rlhf_runtime.engines.batches import Batch
from rlhf_runtime.engines.logprobs import compute_log_probs
from rlhf_runtime.engines.rollout import SamplingConfig
from rlhf_runtime.engines.rollout.cached import CachedRollout
from rlhf_runtime.engines.scalar_outputs import compute_scores, compute_values
from rlhf_runtime.engines.training import (
    ActorUpdateConfig,
    CriticUpdateConfig,
    OptimizerConfig,
    actor_update,
    critic_update,
    make_optimizer,
)
from rlhf_runtime.models.builtin import builtin_model
from rlhf_runtime.models.loading import load_causal_lm, load_reward_model, load_scalar_model, load_tokenizer
from rlhf_runtime.tasks.procedural import spell_backward

PROMPT_STREAM, CONTROL_STREAM = 11, 12
TRAINING_PROMPTS = {"PPO": 256, "GRPO": 64}
GROUP_SIZE = {"PPO": 1, "GRPO": 8}


class PlainLoop:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.task = spell_backward()
        folder = builtin_model(self.task)
        self.tokenizer = load_tokenizer(folder)
        self.actor: Any = load_causal_lm(folder)
        self.reference: Any = load_causal_lm(folder)
        self.actor_optimizer = make_optimizer(self.actor, OptimizerConfig(learning_rate=arguments.actor_lr))
        self.engine = CachedRollout(self.actor)
        self.sampling = SamplingConfig(
            max_new_tokens=7,
            eos_token_id=self.tokenizer.eos_token_id,
            pad_token_id=self.tokenizer.pad_token_id,
            samples_per_prompt=GROUP_SIZE[arguments.algorithm],
        )
        self.seconds: dict[str, float] = {}
        self.reward = make_reward(arguments, self.task, folder)
        if arguments.algorithm == "PPO":
            self.critic = load_scalar_model(folder)
            self.critic_optimizer = make_optimizer(self.critic, OptimizerConfig(learning_rate=1e-3))
        # Every prompt gets the width of the longest, so that shapes do not change from step to step.
        self.prompts = self._encode(self.task.train_prompts)
        self.heldout = self._encode(self.task.heldout_prompts)

    def _encode(self, prompts: tuple[str, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        encoded = self.tokenizer(list(prompts), return_tensors="pt", padding=True)
        return encoded["input_ids"], encoded["attention_mask"]

    def accuracy(self, *, greedy: bool = True) -> float:
        ids, mask = self.heldout
        sampling = dataclasses.replace(self.sampling, samples_per_prompt=1, greedy=greedy)
        seed = StepSeed(job=self.arguments.seed, step=-1)
        result = self.engine.generate(ids, prompt_mask=mask, sampling=sampling, seed=seed)
        texts = self._decode(result.responses)
        return sum(self.task.is_correct(texts, self.task.heldout_answers)) / len(texts)

    def _decode(self, responses: torch.Tensor) -> list[str]:
        texts: list[str] = self.tokenizer.batch_decode(responses, skip_special_tokens=True)
        return texts

    def step(self, number: int) -> dict[str, float]:
        seed = StepSeed(job=self.arguments.seed, step=number)
        batch, rows = self._timed("generate", self._rollout, seed)
        batch["scores"] = self._timed("reward", self._score, batch, rows, seed)
        batch["ref_log_probs"] = self._timed("reference", compute_log_probs, self.reference, batch)
        if self.arguments.algorithm == "PPO":
            metrics = self._ppo(batch, seed)
        else:
            metrics = self._grpo(batch, seed)
        return {"score": float(batch["scores"].mean()), **metrics}

    def _rollout(self, seed: StepSeed) -> tuple[Batch, list[int]]:
        count = TRAINING_PROMPTS[self.arguments.algorithm]
        total = len(self.task.train_prompts)
        per_epoch = total // count
        epoch_seed = StepSeed(job=seed.job, step=0)
        order = permutation(total, seed=epoch_seed, stream=PROMPT_STREAM, epoch=seed.step // per_epoch)
        start = seed.step % per_epoch * count
        rows = order[start : start + count]
        ids, mask = (tensor[rows] for tensor in self.prompts)
        result = self.engine.generate(ids, prompt_mask=mask, sampling=self.sampling, seed=seed)
        n = self.sampling.samples_per_prompt
        batch = {
            "prompt_ids": ids.repeat_interleave(n, dim=0),
            "prompt_mask": mask.repeat_interleave(n, dim=0),
            "responses": result.responses,
            "response_mask": result.response_mask,
            "log_probs": result.log_probs,
        }
        return batch, [int(row) for row in rows for _ in range(n)]

    def _score(self, batch: Batch, rows: list[int], seed: StepSeed) -> torch.Tensor:
        scores = self.reward(self, batch, rows)
        if self.arguments.shuffle_rewards:
            order = permutation(len(rows), seed=seed, stream=CONTROL_STREAM)
            scores = scores[torch.from_numpy(order)]
        return scores

    def _ppo(self, batch: Batch, seed: StepSeed) -> dict[str, float]:
        batch["values"] = self._timed("values", compute_values, self.critic, batch)
        rewards = kl_penalized_rewards(
            batch["scores"],
            log_probs=batch["log_probs"],
            ref_log_probs=batch["ref_log_probs"],
            response_mask=batch["response_mask"],
            kl_coefficient=self.arguments.kl,
        )
        advantages, batch["returns"] = gae(
            rewards, values=batch["values"], response_mask=batch["response_mask"], gamma=1.0, lam=0.95
        )
        batch["advantages"] = whiten(advantages, batch["response_mask"])
        actor_config = ActorUpdateConfig(epochs=2, minibatches=2)
        critic_config = CriticUpdateConfig(epochs=2, minibatches=2)
        critic = self._timed(
            "critic",
            critic_update,
            self.critic,
            self.critic_optimizer,
            batch,
            config=critic_config,
            seed=seed,
        )
        actor = self._timed(
            "actor", actor_update, self.actor, self.actor_optimizer, batch, config=actor_config, seed=seed
        )
        difference = (batch["log_probs"] - batch["ref_log_probs"]).sum(dim=1).mean()
        return {**actor, "value_loss": critic["loss"], "sequence_kl": float(difference)}

    def _grpo(self, batch: Batch, seed: StepSeed) -> dict[str, float]:
        batch["advantages"] = group_normalized_advantages(
            batch["scores"], response_mask=batch["response_mask"], group_size=GROUP_SIZE["GRPO"]
        )
        config = ActorUpdateConfig(epochs=1, minibatches=2, kl_coefficient=self.arguments.kl)
        return self._timed("actor", actor_update, self.actor, self.actor_optimizer, batch, config=config, seed=seed)

    def _timed(self, name: str, function: Any, *arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        result = function(*arguments, **options)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        return result


def make_reward(arguments: argparse.Namespace, task: Any, folder: Path) -> Any:
    if arguments.reward == "verifier":

        def verify(loop: PlainLoop, batch: Batch, rows: list[int]) -> torch.Tensor:
            texts = loop._decode(batch["responses"])
            return torch.tensor(task.score(texts, [task.train_answers[row] for row in rows]))

        return verify

    from rlhf_runtime.models.preference import spelling_reward_model

    start = time.perf_counter()
    model = load_reward_model(spelling_reward_model(task, folder))
    print(f"reward model ready after {time.perf_counter() - start:.1f} s", file=sys.stderr)

    def judge(loop: PlainLoop, batch: Batch, rows: list[int]) -> torch.Tensor:
        eos = loop.sampling.eos_token_id
        return compute_scores(model, batch, eos_token_id=eos, missing_eos_score=arguments.missing_eos_score)

    return judge


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", choices=["PPO", "GRPO"], default="PPO")
    parser.add_argument("--reward", choices=["verifier", "model"], help="PPO: model, GRPO: verifier")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--actor-lr", type=float, help="PPO: 2e-4, GRPO: 1e-4")
    parser.add_argument("--kl", type=float, default=0.05)
    parser.add_argument("--missing-eos-score", type=float, default=-2.0)
    parser.add_argument("--shuffle-rewards", action="store_true", help="the control: must not learn")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    arguments.actor_lr = arguments.actor_lr or {"PPO": 2e-4, "GRPO": 1e-4}[arguments.algorithm]
    arguments.reward = arguments.reward or {"PPO": "model", "GRPO": "verifier"}[arguments.algorithm]
    return arguments


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    loop = PlainLoop(arguments)
    start_accuracy, sampled_start = loop.accuracy(), loop.accuracy(greedy=False)
    seconds = 0.0
    middle = 0.0
    for number in range(arguments.steps):
        start = time.perf_counter()
        metrics = loop.step(number)
        seconds += time.perf_counter() - start
        if arguments.verbose and number % 5 == 4:
            print(number + 1, loop.accuracy(), {k: round(v, 3) for k, v in metrics.items()}, flush=True)
        if number + 1 == arguments.steps // 2:
            middle = loop.accuracy()
    samples = TRAINING_PROMPTS[arguments.algorithm] * GROUP_SIZE[arguments.algorithm] * arguments.steps
    summary = {
        "algorithm": arguments.algorithm,
        "reward": arguments.reward,
        "seed": arguments.seed,
        "shuffled": arguments.shuffle_rewards,
        "steps": arguments.steps,
        "threads": arguments.threads,
        "heldout_accuracy_start": start_accuracy,
        "heldout_accuracy_middle": middle,
        "heldout_accuracy_end": loop.accuracy(),
        "heldout_sampled_start": sampled_start,
        "heldout_sampled_end": loop.accuracy(greedy=False),
        "seconds": round(seconds, 2),
        "samples_per_second": round(samples / seconds, 1),
        "seconds_by_part": {name: round(value, 2) for name, value in loop.seconds.items()},
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
