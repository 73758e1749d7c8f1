"""The first article's code: 4.1 as a script, and what `update(loss)` promises."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_models import save_actor, save_encoder
from transformers import AutoModelForCausalLM

from rlhf_runtime.api import Controller, Role, StepError
from rlhf_runtime.workers.text import ActorWorker, CriticWorker, RewardModelWorker

SCRIPT = Path(__file__).with_name("ppo_full_demo.py")
PROMPTS = ["Why is the sky blue?", "What is AI?", "Explain RL in simple terms"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {
        "meta-llama/Llama-3.1-8B-Instruct": save_actor(folder / "actor"),
        "microsoft/deberta-v3-base": save_encoder(folder / "critic", seed=1),
        "OpenAssistant/reward-model-deberta-v3-large": save_encoder(folder / "reward", seed=2, labels=1),
    }


@pytest.fixture
def script(models, tmp_path):
    """The article's script with local models in place of those it names."""
    text = SCRIPT.read_text()
    for name, folder in models.items():
        assert text.count(f'"{name}"') == 1
        text = text.replace(name, folder)
    path = tmp_path / "ppo_full_demo.py"
    path.write_text(text)
    return path


def check_output(lines):
    assert lines[0] == "=== Starting PPO Step 1 ==="
    assert lines[1].startswith("Actor generated: ") and lines[1].endswith("...")
    for line, start in zip(lines[2:5], ["Critic score: ", "RM reward: ", "PPO loss: "], strict=True):
        assert line.startswith(start)
        float(line.removeprefix(start))
    assert lines[5:] == ["Actor updated successfully."]


def run_here(script, capsys):
    """Run the script in this process; gives its controller, all steps done."""
    controller = runpy.run_path(str(script))["controller"]
    controller.finish()
    check_output(capsys.readouterr().out.splitlines())
    return controller


def test_the_full_demo_runs_as_printed(script, capsys, monkeypatch):
    monkeypatch.setenv("RLHF_BACKEND", "in-process")
    controller = run_here(script, capsys)
    assert controller.engine.groups["actor"].version == 1
    controller.close()


def test_a_script_is_finished_when_it_exits_and_its_exit_code_is_right(script):
    environment = os.environ | {"RLHF_BACKEND": "in-process"}
    script.write_text(script.read_text().replace('inputs={"loss": loss_result["loss"]}', 'inputs={"loss": 0.5}'))
    run = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=250)
    check_output(run.stdout.splitlines())  # the last step has no reader, so that it only runs, and fails, at exit
    assert run.returncode == 1
    assert "actor.update failed on actor-worker-000: RefusedError: `update` must be given the loss" in run.stderr


@pytest.mark.ray
def test_the_full_demo_runs_with_each_role_in_a_process_of_its_own(script, capsys, monkeypatch, ray_session):
    monkeypatch.setenv("RLHF_BACKEND", "ray")
    controller = run_here(script, capsys)
    try:
        joined = [seat.joined for group in controller.engine.groups.values() for seat in group.seats]
        assert len({os.getpid(), *(worker.pid for worker in joined)}) == 4
    finally:
        controller.close()


class Recipe:
    """The steps of the article's loop with the models of the test."""

    def __init__(self, controller, models, **actor_kwargs):
        llama, critic, reward = models.values()
        self.controller = controller
        actor_kwargs = {"model_name": llama, "max_new_tokens": 6, "temperature": 1.0} | actor_kwargs
        for name, cls, kwargs in [
            ("actor", ActorWorker, actor_kwargs),
            ("critic", CriticWorker, {"model_name": critic}),
            ("rm", RewardModelWorker, {"model_name": reward}),
        ]:
            controller.register_role(Role(name=name, worker_class=cls, init_kwargs=kwargs))

    def loss(self, prompts=PROMPTS):
        step = self.controller.step
        samples = step(role="actor", method="generate", inputs={"prompt": prompts}, outputs=["responses"])
        values = step(role="critic", method="score", inputs=samples, outputs=["values"])
        rewards = step(role="rm", method="score", inputs=samples, outputs=["rewards"])
        inputs = {**samples, **values, **rewards}
        return inputs, self.step_loss(inputs)

    def step_loss(self, inputs):
        return self.controller.step(role="actor", method="compute_loss", inputs=inputs, outputs=["loss", "gae"])

    def update(self, loss):
        return self.controller.step(role="actor", method="update", inputs={"loss": loss}, outputs=[])


@pytest.fixture
def recipe(models):
    with Controller(backend="in-process") as controller:
        yield lambda **kwargs: Recipe(controller, models, **kwargs)


def weights_of(controller):
    """The actor's weights as they are in its worker."""
    host = controller.engine.groups["actor"].seats[0].process.host
    worker = host.worker_host._executors["actor"].worker
    return {name: value.detach().clone() for name, value in worker.state_dict()["model"].items()}


def reference_gradient(model, tokens, advantages, clip_range=0.2):
    """PPO's surrogate written anew, response by response: its value, its gradient, how many tokens are clipped."""
    objective, count, clipped = 0.0, 0, 0
    for row, advantage in enumerate(advantages):
        prompt = tokens["prompt_ids"][row][tokens["prompt_mask"][row].bool()]
        kept = tokens["response_mask"][row].bool()
        response, old = tokens["responses"][row][kept], tokens["log_probs"][row][kept].double()
        logits = model(torch.cat([prompt, response]).unsqueeze(0)).logits[0, len(prompt) - 1 : -1]
        ratio = (logits.log_softmax(-1)[torch.arange(len(response)), response] - old).exp()
        bounded = ratio.clamp(1 - clip_range, 1 + clip_range) * advantage
        objective = objective + torch.min(ratio * advantage, bounded).sum()
        clipped += int((bounded < ratio * advantage).sum())
        count += len(response)
    loss = -objective / count
    loss.backward()
    return loss.item(), {name: parameter.grad for name, parameter in model.named_parameters()}, clipped


@pytest.mark.parametrize("updates_before", [0, 1], ids=["on its own policy", "with ratios that are clipped"])
def test_update_changes_the_weights_by_exactly_the_gradient_of_the_loss(recipe, models, updates_before):
    learning_rate = 0.03
    demo = recipe(optimizer="sgd", learning_rate=learning_rate)
    inputs, result = demo.loss()
    advantages = [r - v for r, v in zip(inputs["rewards"], inputs["values"], strict=True)]
    for _ in range(updates_before):
        demo.update(result["loss"])
        result = demo.step_loss(inputs)
    assert result["gae"].get() == advantages

    before = weights_of(demo.controller)
    model = AutoModelForCausalLM.from_pretrained(models["meta-llama/Llama-3.1-8B-Instruct"], dtype=torch.float64).eval()
    model.load_state_dict(before)
    want_loss, gradient, clipped = reference_gradient(model, inputs["responses"].get().tokens, advantages)
    assert bool(clipped) == bool(updates_before)
    assert float(result["loss"]) == pytest.approx(want_loss, abs=1e-6)

    demo.update(result["loss"]).wait()
    after = weights_of(demo.controller)
    # The workers compute in float32: a weight of 1 is stored to 6e-8, a gradient good to some 1e-6 of its largest.
    largest = max(float(g.abs().max()) for g in gradient.values())
    tolerance = 1e-5 * largest + 6e-8 / learning_rate
    assert tolerance < 1e-4 * largest
    for name, exact in gradient.items():
        change = (after[name].double() - before[name].double()) / -learning_rate
        assert torch.allclose(change, exact, rtol=1e-5, atol=tolerance), name


def test_a_second_update_with_one_loss_is_refused_and_changes_nothing(recipe):
    demo = recipe()
    _, result = demo.loss()
    demo.update(result["loss"]).wait()
    weights = weights_of(demo.controller)
    with pytest.raises(StepError, match=r"version 1; this one was computed for version 0: compute it again"):
        demo.update(result["loss"]).wait()
    after = weights_of(demo.controller)
    assert all(torch.equal(weights[name], after[name]) for name in weights)
    assert demo.controller.engine.groups["actor"].restarts == 0


def test_a_bare_float_is_refused(recipe):
    demo = recipe()
    _, result = demo.loss()
    with pytest.raises(StepError, match=r"a bare number \(.*\) does not say what it is the loss of"):
        demo.update(float(result["loss"])).wait()


class PlainActor:
    """A class of the user's own: it gets the float."""

    def __init__(self):
        self.got = []

    def compute_loss(self, rewards: list[float]) -> dict:
        return {"loss": sum(rewards) / len(rewards)}

    def update(self, loss: float):
        self.got.append(loss)
        return {"kind": type(loss).__name__, "total": sum(self.got)}


def test_a_plain_class_gets_the_float():
    with Controller(backend="in-process") as controller:
        controller.register_role(Role(name="actor", worker_class=PlainActor))
        loss = controller.step(role="actor", method="compute_loss", inputs={"rewards": [1.0, 2.0]}, outputs=["loss"])
        done = controller.step(role="actor", method="update", inputs=loss, outputs=["kind", "total"])
        assert (done["kind"].get(), done["total"].get()) == ("float", 1.5)


class SafetyModel:
    def score(self, responses: list[str]) -> dict:
        return {"safety": [0.0 if "kill" in response else -1.0 for response in responses]}


def test_a_safety_model_is_one_more_step(recipe):
    demo = recipe()
    demo.controller.register_role(Role(name="safety", worker_class=SafetyModel))
    inputs, _ = demo.loss()
    responses = {"responses": inputs["responses"]}
    safety = demo.controller.step(role="safety", method="score", inputs=responses, outputs=["safety"])
    rewards = [r + s for r, s in zip(inputs["rewards"], safety["safety"], strict=True)]
    loss = demo.step_loss({**inputs, "rewards": rewards})
    assert loss["gae"].get() == [r - v for r, v in zip(rewards, inputs["values"], strict=True)]
    demo.update(loss["loss"]).wait()


def test_a_new_process_of_the_actor_replays_its_updates_to_the_same_bits(recipe):
    demo = recipe(learning_rate=1e-2)
    for iteration in range(2):
        demo.controller.begin_iteration(iteration)
        demo.update(demo.loss()[1]["loss"]).wait()
    engine = demo.controller.engine
    weights = weights_of(demo.controller)
    engine.pool.start(engine.groups["actor"].seats[0].process)
    engine.wait_ready()
    again = weights_of(demo.controller)
    assert all(torch.equal(weights[name], again[name]) for name in weights)


def test_generations_differ_from_step_to_step_and_not_by_how_many_ranks_make_them(models):
    def texts(replicas):
        folder = models["meta-llama/Llama-3.1-8B-Instruct"]
        kwargs = {"model_name": folder, "max_new_tokens": 6, "temperature": 1.0, "max_prompt_length": 64}
        with Controller(backend="in-process") as controller:
            actor = Role(name="actor", worker_class=ActorWorker, init_kwargs=kwargs, replicas=replicas)
            controller.register_role(actor)
            made = [
                controller.step(role=actor, method="generate", inputs={"prompt": PROMPTS}, outputs=["responses"])
                for _ in range(2)
            ]
            return [list(samples["responses"]) for samples in made]

    alone = texts(1)
    assert alone == texts(2)
    assert alone[0] != alone[1]
