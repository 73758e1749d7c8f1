"""What the text workers score, and what they refuse."""

import pytest
import torch
from small_models import TINY, save_actor, save_encoder

from rlhf_runtime.api import DataProto, TokenizedText
from rlhf_runtime.errors import DataError
from rlhf_runtime.models.builtin import make_model, make_tokenizer
from rlhf_runtime.models.heads import with_scalar_head
from rlhf_runtime.models.loading import ModelNotFoundError
from rlhf_runtime.workers.text import ActorWorker, CriticWorker, RewardModelWorker

PROMPTS = ["short?", "a longer prompt?"]


def save_scalar(folder, *, seed=3):
    model = with_scalar_head(make_model(TINY, make_tokenizer(), seed=seed))
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(seed))
    model.save(folder)
    make_tokenizer().save_pretrained(folder)
    return str(folder)


def responses(prompts, texts):
    ids = torch.zeros(len(texts), 1, dtype=torch.long)
    tokens = DataProto.from_dict({"responses": ids}, {"prompt": list(prompts), "ended": [True] * len(texts)})
    return TokenizedText(texts, tokens)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


SCORERS = {
    "a scalar head": save_scalar,
    "a sequence classifier": lambda folder: save_encoder(folder, labels=1),
    "a bare encoder": save_encoder,
    "a causal language model": save_actor,
}


@pytest.mark.parametrize("kind", SCORERS)
def test_a_critic_values_the_prompt_whatever_came_after_it(folder, kind):
    critic = CriticWorker(SCORERS[kind](folder / f"critic {kind}"))
    together = critic.score(responses(PROMPTS, ["x", "yy"]))["values"]
    other = critic.score(responses(PROMPTS, ["zzz", ""]))["values"]
    alone = [critic.score(responses([prompt], ["x"]))["values"][0] for prompt in PROMPTS]
    assert together == other
    assert together == pytest.approx(alone, abs=1e-5)
    assert (together[0] != together[1]) == (kind != "a causal language model")  # whose new head is zeros


@pytest.mark.parametrize("kind", ["a scalar head", "a sequence classifier"])
def test_a_reward_model_judges_the_response_to_its_prompt(folder, kind):
    reward = RewardModelWorker(SCORERS[kind](folder / f"reward {kind}"))
    one, two = reward.score(responses(["same", "same"], ["good", "bad"]))["rewards"]
    other = reward.score(responses(["else"], ["good"]))["rewards"][0]
    assert len({one, two, other}) == 3
    assert reward.score(responses(["same"], ["good"]))["rewards"] == pytest.approx([one], abs=1e-5)
    assert len(reward.score(["plain", "strings"])["rewards"]) == 2


def test_a_label_chooses_among_a_classifiers_outputs(folder):
    path = save_encoder(folder / "three", labels=3)
    scores = {RewardModelWorker(path, label=label).score(["text"])["rewards"][0] for label in range(3)}
    assert len(scores) == 3
    with pytest.raises(ValueError, match="`label` must be one of the model's 3 outputs; got 3"):
        RewardModelWorker(path, label=3)


@pytest.mark.parametrize("kind", ["a bare encoder", "a causal language model"])
def test_a_reward_model_that_nobody_trained_is_refused(folder, kind):
    with pytest.raises(ModelNotFoundError, match="must be a trained reward model"):
        RewardModelWorker(SCORERS[kind](folder / f"untrained {kind}"))


def test_a_model_that_is_not_there_is_refused(folder):
    for cls in (ActorWorker, CriticWorker, RewardModelWorker):
        with pytest.raises(ModelNotFoundError, match="`model_name`"):
            cls(str(folder / "nowhere"))


def test_the_actor_refuses_what_it_cannot_compute_with(folder):
    path = save_actor(folder / "actor")
    actor = ActorWorker(path, max_new_tokens=3)
    made = actor.generate(PROMPTS)["responses"]
    assert made.tokens["prompt"] == PROMPTS
    with pytest.raises(DataError, match="plain strings have lost their prompts"):
        actor.compute_loss(list(made), [0.0, 0.0], [1.0, 1.0])
    with pytest.raises(DataError, match="one value and one reward for each of the 2 responses; got 2 values and 1"):
        actor.compute_loss(made, [0.0, 0.0], [1.0])
    with pytest.raises(ValueError, match='`optimizer` must be "adamw" or "sgd"'):
        ActorWorker(path, optimizer="lion")
    with pytest.raises(ValueError, match="the model takes at most"):
        actor.generate(["long" * 100])


def test_a_greedy_actor_says_the_same_every_time(folder):
    actor = ActorWorker(save_actor(folder / "greedy"), max_new_tokens=4, temperature=0)
    first = actor.generate(PROMPTS)["responses"]
    actor.context.seed = 5
    assert actor.generate(PROMPTS)["responses"] == first
