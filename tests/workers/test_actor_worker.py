import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from worker_builders import (
    NEW_TOKENS,
    SEQUENCE,
    a_worker,
    actor_batch,
    actor_settings,
    an_actor,
    at,
    batch,
    same_state,
    stored,
)

from rlhf_runtime.engines.adapters import LoRASettings
from rlhf_runtime.executor import to_proto
from rlhf_runtime.workers.actor import (
    ActorSettings,
    ActorWorker,
    AdvantageSettings,
    GenerationSettings,
    RolloutMismatchError,
)


@pytest.mark.parametrize("samples", [1, 3])
def test_generate_gives_one_row_per_sample(policy: Path, prompts: list[str], samples: int) -> None:
    actor = at(an_actor(policy, samples=samples), version=4)
    given = actor.generate(prompts)
    rows = len(prompts) * samples
    shapes = {name: tuple(value.shape) for name, value in given.items() if isinstance(value, torch.Tensor)}
    assert shapes == {
        "prompt_ids": (rows, 6),
        "prompt_mask": (rows, 6),
        "responses": (rows, NEW_TOKENS),
        "response_mask": (rows, NEW_TOKENS),
        "log_probs": (rows, NEW_TOKENS),
        "policy_version": (rows,),
    }
    assert len(given["texts"]) == rows
    assert given["policy_version"].tolist() == [4] * rows
    assert (given["log_probs"] <= 0).all()
    assert (given["log_probs"][given["response_mask"] == 0] == 0).all()


def test_samples_of_one_prompt_stand_next_to_each_other_and_differ(policy: Path, prompts: list[str]) -> None:
    given = an_actor(policy, samples=3).generate(prompts)
    assert torch.equal(given["prompt_ids"][0], given["prompt_ids"][2])
    assert not torch.equal(given["prompt_ids"][2], given["prompt_ids"][3])
    assert not torch.equal(given["responses"][0], given["responses"][1])


def test_the_same_call_gives_the_same_samples_and_the_next_iteration_others(policy: Path, prompts: list[str]) -> None:
    actor = an_actor(policy)
    first = at(actor, iteration=1).generate(prompts)["responses"]
    assert torch.equal(at(actor, iteration=1).generate(prompts)["responses"], first)
    assert not torch.equal(at(actor, iteration=2).generate(prompts)["responses"], first)
    assert torch.equal(at(an_actor(policy), iteration=1).generate(prompts)["responses"], first)


def test_another_seed_gives_other_samples(policy: Path, prompts: list[str]) -> None:
    other = a_worker(ActorWorker, str(policy), actor_settings(), seed=8)
    assert not torch.equal(other.generate(prompts)["responses"], an_actor(policy).generate(prompts)["responses"])


@pytest.mark.parametrize("samples", [1, 3])
def test_shards_give_what_the_whole_gives(policy: Path, prompts: list[str], samples: int) -> None:
    actor = an_actor(policy, samples=samples)
    whole = actor.generate(prompts)
    first, second = at(actor).generate(prompts[:2]), at(actor, row_offset=2).generate(prompts[2:])
    for name in ("responses", "response_mask"):
        assert torch.equal(torch.cat([first[name], second[name]]), whole[name])
    torch.testing.assert_close(torch.cat([first["log_probs"], second["log_probs"]]), whole["log_probs"])
    assert first["texts"] + second["texts"] == whole["texts"]


def test_padding_changes_nothing(policy: Path, prompts: list[str]) -> None:
    actor = an_actor(policy)
    together = actor.generate(prompts)
    for row, prompt in enumerate(prompts):
        alone = at(actor, row_offset=row).generate([prompt])
        assert alone["prompt_ids"].shape[1] == len(prompt)
        assert torch.equal(alone["responses"][0], together["responses"][row])
        torch.testing.assert_close(alone["log_probs"][0], together["log_probs"][row])


def test_the_sampler_and_a_forward_pass_agree_on_log_probs(policy: Path, prompts: list[str]) -> None:
    actor = an_actor(policy)
    samples = actor.generate(prompts)
    computed = actor.compute_log_probs(batch(samples, *SEQUENCE))["log_probs"]
    torch.testing.assert_close(computed, samples["log_probs"], atol=1e-5, rtol=1e-5)


def test_both_rollout_engines_draw_the_same(policy: Path, prompts: list[str]) -> None:
    ours = an_actor(policy).generate(prompts)
    theirs = an_actor(policy, engine="transformers").generate(prompts)
    assert ours["texts"] == theirs["texts"]
    torch.testing.assert_close(ours["log_probs"], theirs["log_probs"], atol=1e-5, rtol=1e-5)


def test_evaluation_counts_greedy_answers_that_are_right_to_the_letter(policy: Path, prompts: list[str]) -> None:
    actor = an_actor(policy)
    greedy = actor._generator.greedy_texts(prompts)
    assert at(actor, iteration=9).evaluate(prompts, greedy) == {"accuracy": [1.0] * 6}
    assert actor.evaluate(prompts, [*greedy[:3], *(text + "x" for text in greedy[3:])]) == {
        "accuracy": [1.0] * 3 + [0.0] * 3
    }


def test_an_update_moves_the_policy_and_the_next_samples(policy: Path, prompts: list[str]) -> None:
    actor = an_actor(policy)
    samples = actor.generate(prompts)
    advantages = torch.ones_like(samples["log_probs"])
    given = actor.update(batch(samples, *SEQUENCE, "log_probs", advantages=advantages))
    after = actor.compute_log_probs(batch(samples, *SEQUENCE))["log_probs"]
    assert after.sum() > samples["log_probs"].sum()
    assert given["metrics"].keys() >= {"loss", "policy_loss", "clip_fraction", "approx_kl", "grad_norm"}
    fresh = actor.generate(prompts)
    again = actor.compute_log_probs(batch(fresh, *SEQUENCE))["log_probs"]
    torch.testing.assert_close(again, fresh["log_probs"], atol=1e-5, rtol=1e-5)


def test_a_saved_state_gives_the_same_next_update_to_the_bit(policy: Path, prompts: list[str]) -> None:
    actor = an_actor(policy, kl_coefficient=0.05)
    samples = actor.generate(prompts)
    given = actor_batch(samples, ref_log_probs=samples["log_probs"])
    at(actor, iteration=0).update(given)
    saved = stored(actor.state_dict())
    want_metrics = at(actor, iteration=1).update(given)

    restored = an_actor(policy, kl_coefficient=0.05)
    restored.load_state_dict(saved)
    assert at(restored, iteration=1).update(given) == want_metrics
    assert same_state(restored.state_dict(), actor.state_dict())
    assert torch.equal(at(restored).generate(prompts)["responses"], at(actor).generate(prompts)["responses"])


def test_the_export_loads_with_transformers(policy: Path, prompts: list[str], tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    actor = an_actor(policy)
    samples = actor.generate(prompts)
    actor.update(actor_batch(samples))
    folder = actor.export(str(tmp_path / "runs" / "model"))["folder"]
    exported, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert same_state(dict(exported.state_dict()), dict(actor.state_dict()["model"]))
    assert tokenizer(["cat="])["input_ids"] == [[token for token in samples["prompt_ids"][0].tolist() if token > 0]]
    assert an_actor(Path(folder)).generate(prompts)["texts"] == actor.generate(prompts)["texts"]


def judge(**settings: Any) -> ActorWorker:
    """An actor's judgement alone, which needs no model."""
    worker = ActorWorker.__new__(ActorWorker)
    worker._settings = ActorSettings(
        generation=GenerationSettings(max_new_tokens=2),
        optimizer=actor_settings().optimizer,
        advantages=AdvantageSettings(**settings),
    )
    return worker


ONES = torch.ones(4, 2)


def test_scores_of_several_roles_are_added_and_each_is_reported() -> None:
    scores = {"scores/model": torch.tensor([0.0, 1.0, 0.0, 1.0]), "scores/rule": torch.tensor([1, 1, 1, 5])}
    both = to_proto({"response_mask": ONES, "log_probs": -ONES, **scores})
    together = to_proto({"response_mask": ONES, "log_probs": -ONES, "scores": sum(scores.values())})
    given, want = (judge(group_size=2).compute_advantages(data) for data in (both, together))
    assert torch.equal(given["advantages"], want["advantages"])
    assert given["metrics"] == {"reward": 2.5, "reward/model": 0.5, "reward/rule": 2.0, "tokens": 8.0}


def test_a_group_is_judged_against_its_own_mean() -> None:
    data = to_proto({"response_mask": ONES, "log_probs": -ONES, "scores": torch.tensor([0.0, 1.0, 5.0, 7.0])})
    advantages = judge(group_size=2).compute_advantages(data)["advantages"]
    assert (advantages[[0, 2]] < 0).all() and (advantages[[1, 3]] > 0).all()


def test_without_a_reference_there_is_no_penalty_and_no_kl() -> None:
    columns = {
        "response_mask": ONES,
        "log_probs": -ONES,
        "scores": torch.tensor([0.0, 1.0, 0.0, 1.0]),
        "values": 0 * ONES,
    }
    worker = judge(kl_coefficient=0.5, whiten=False, gae_lambda=1.0)
    given = worker.compute_advantages(to_proto(columns))
    assert given["returns"].tolist() == [[0, 0], [1, 1], [0, 0], [1, 1]]
    assert "kl" not in given["metrics"]
    penalized = worker.compute_advantages(to_proto(columns | {"ref_log_probs": -2 * ONES}))
    assert penalized["metrics"]["kl"] == 1.0
    assert penalized["returns"].tolist() == [[-1, -0.5], [0, 0.5], [-1, -0.5], [0, 0.5]]


def test_another_engines_log_probs_may_differ_by_so_much_and_no_more() -> None:
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1.0, 0.0]])
    told = -ONES + 0.05 * mask + 9 * (1 - mask)  # what is masked does not count

    def judged(rollout_log_probs: torch.Tensor) -> dict[str, Any]:
        columns = {"response_mask": mask, "log_probs": -ONES, "rollout_log_probs": rollout_log_probs}
        return judge(group_size=2).compute_advantages(to_proto(columns | {"scores": torch.arange(4.0)}))

    assert judged(told)["metrics"]["rollout_log_prob_difference"] == pytest.approx(0.05)
    for wrong in (told + 0.06 * mask, told * float("nan")):
        with pytest.raises(RolloutMismatchError, match=r"more than `generation.maxLogProbDifference` 0\.1 allows"):
            judged(wrong)


def test_an_actor_with_adapters_learns_is_restored_and_exports_a_plain_model(
    policy: Path, prompts: list[str], tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    settings = dataclasses.replace(actor_settings(), lora=LoRASettings(rank=4))
    actor = a_worker(ActorWorker, str(policy), settings)
    samples = actor.generate(prompts)
    assert samples["texts"] == an_actor(policy).generate(prompts)["texts"]
    at(actor, iteration=0).update(actor_batch(samples))
    after = actor.compute_log_probs(batch(samples, *SEQUENCE))["log_probs"]
    assert not torch.equal(after, samples["log_probs"])
    assert all(".lora_" in name for name in actor.state_dict()["model"])

    restored = a_worker(ActorWorker, str(policy), settings)
    restored.load_state_dict(stored(actor.state_dict()))
    assert torch.equal(restored.compute_log_probs(batch(samples, *SEQUENCE))["log_probs"], after)

    folder = restored.export(str(tmp_path / "model"))["folder"]
    plain = {name for name, _ in AutoModelForCausalLM.from_pretrained(policy).named_parameters()}
    assert {name for name, _ in AutoModelForCausalLM.from_pretrained(folder).named_parameters()} == plain
    torch.testing.assert_close(
        an_actor(Path(folder)).compute_log_probs(batch(samples, *SEQUENCE))["log_probs"], after, atol=1e-5, rtol=1e-4
    )
