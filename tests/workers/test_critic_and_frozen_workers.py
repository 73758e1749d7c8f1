from pathlib import Path
from typing import Any

import pytest
import torch
from worker_builders import (
    SEQUENCE,
    a_critic,
    a_worker,
    an_actor,
    at,
    batch,
    critic_batch,
    same_state,
    stored,
)

from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.errors import RlhfError
from rlhf_runtime.workers.reference import ReferenceWorker
from rlhf_runtime.workers.reward import RewardWorker


@pytest.fixture
def samples(policy: Path, prompts: list[str]) -> dict[str, Any]:
    return an_actor(policy).generate(prompts)


def a_reward(reward_model: Path, policy: Path, **kwargs: Any) -> RewardWorker:
    return a_worker(RewardWorker, str(reward_model), str(policy), **kwargs)


def shifted(data: DataProto, pad: int) -> DataProto:
    """The same rows with more padding on the left of the prompts."""
    ids, mask = (torch.nn.functional.pad(data.batch[name], (pad, 0)) for name in ("prompt_ids", "prompt_mask"))
    return DataProto.from_dict({**data.batch, "prompt_ids": ids, "prompt_mask": mask})


def test_the_first_values_are_zero(policy: Path, samples: dict[str, Any]) -> None:
    values = a_critic(policy).compute_values(batch(samples, *SEQUENCE))["values"]
    assert values.shape == samples["responses"].shape
    assert (values == 0).all()


def test_a_value_update_brings_values_nearer_to_the_returns(policy: Path, samples: dict[str, Any]) -> None:
    critic, given = a_critic(policy), critic_batch(samples)
    mask = samples["response_mask"].bool()
    metrics = critic.update(given)["metrics"]
    values = critic.compute_values(batch(samples, *SEQUENCE))["values"]
    returns = given.batch["returns"]
    assert (values - returns)[mask].square().sum() < returns[mask].square().sum()
    assert metrics.keys() == {"loss", "grad_norm"}


def test_a_critics_saved_state_gives_the_same_next_update_to_the_bit(policy: Path, samples: dict[str, Any]) -> None:
    critic, given = a_critic(policy), critic_batch(samples)
    critic.update(given)
    saved = stored(critic.state_dict())
    want_metrics = at(critic, iteration=1).update(given)
    restored = a_critic(policy)
    restored.load_state_dict(saved)
    assert at(restored, iteration=1).update(given) == want_metrics
    assert same_state(restored.state_dict(), critic.state_dict())


def test_the_shuffle_of_an_update_follows_the_iteration_alone(policy: Path, samples: dict[str, Any]) -> None:
    first, again, later = (a_critic(policy) for _ in range(3))
    given = critic_batch(samples)
    for critic, iteration in ((first, 1), (again, 1), (later, 2)):
        at(critic, iteration=iteration).update(given)
    assert same_state(first.state_dict(), again.state_dict())
    assert not same_state(first.state_dict(), later.state_dict())


def test_the_reference_starts_where_the_actor_does(policy: Path, samples: dict[str, Any]) -> None:
    reference = a_worker(ReferenceWorker, str(policy))
    given = reference.compute_log_probs(batch(samples, *SEQUENCE))["ref_log_probs"]
    torch.testing.assert_close(given, samples["log_probs"], atol=1e-5, rtol=1e-5)


def test_scores_are_one_number_per_response(policy: Path, reward_model: Path, samples: dict[str, Any]) -> None:
    ended = batch(samples, *SEQUENCE)
    ended.batch["responses"][:, 1], ended.batch["response_mask"][:, 2:] = 1, 0  # token 1 ends a response
    scores = a_reward(reward_model, policy).compute_scores(ended)["scores"]
    assert scores.shape == (len(samples["texts"]),)
    assert scores.unique().numel() > 1


def test_a_response_that_was_cut_off_gets_the_fixed_score(
    policy: Path, reward_model: Path, samples: dict[str, Any]
) -> None:
    given = batch(samples, *SEQUENCE)
    given.batch["responses"] = given.batch["responses"].clamp(min=3)  # no row has the end token
    given.batch["response_mask"] = torch.ones_like(given.batch["response_mask"])
    assert a_reward(reward_model, policy).compute_scores(given)["scores"].tolist() == [-2.0] * 6
    harsher = a_reward(reward_model, policy, missing_end_score=-5.0)
    assert harsher.compute_scores(given)["scores"].tolist() == [-5.0] * 6


@pytest.mark.parametrize("kind", ["critic", "reference", "reward"])
def test_shards_and_padding_give_what_the_whole_gives(
    policy: Path, reward_model: Path, samples: dict[str, Any], kind: str
) -> None:
    critic, data = a_critic(policy), batch(samples, *SEQUENCE)
    critic.update(critic_batch(samples))
    compute = {
        "critic": critic.compute_values,
        "reference": a_worker(ReferenceWorker, str(policy)).compute_log_probs,
        "reward": a_reward(reward_model, policy).compute_scores,
    }[kind]
    (whole,) = compute(data).values()
    shards = torch.cat([value for part in (data[:2], data[2:]) for value in compute(part).values()])
    (padded,) = compute(shifted(data, 3)).values()
    mask = samples["response_mask"].bool() if whole.ndim == 2 else slice(None)
    torch.testing.assert_close(shards[mask], whole[mask], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(padded[mask], whole[mask], atol=1e-5, rtol=1e-5)


def test_a_model_without_a_trained_head_is_no_reward_model(policy: Path) -> None:
    with pytest.raises(RlhfError, match=r"`spec\.roles\[2\]\.model`: .* must be a reward model"):
        a_worker(RewardWorker, str(policy), str(policy), model_field="spec.roles[2].model")


@pytest.mark.parametrize("cls", [ReferenceWorker, RewardWorker])
def test_a_missing_model_names_the_manifests_field(cls: Any, policy: Path, tmp_path: Path) -> None:
    more = [str(policy)] if cls is RewardWorker else []
    with pytest.raises(RlhfError, match=r"`spec\.roles\[1\]\.model`: there is no folder"):
        a_worker(cls, str(tmp_path / "none"), *more, model_field="spec.roles[1].model")
