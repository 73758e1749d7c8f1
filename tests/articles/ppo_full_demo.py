# ruff: noqa: RUF003 - the comments are the article's own
# The first article's 4.1 as printed, apart from import lines and model names: a test puts small local models in place
# of the article's.
from rlhf_runtime.api import Controller, DataChannel, Role  # noqa: F401
from rlhf_runtime.workers.text import ActorWorker, CriticWorker, RewardModelWorker

# 1. 初始化控制器和角色（绑定计算流实现）
controller = Controller()
actor = Role(
    name="actor",
    role_type="actor",
    worker_class=ActorWorker,  # 绑定计算流
    init_kwargs={"model_name": "meta-llama/Llama-3.1-8B-Instruct"},
)
critic = Role(
    name="critic",
    role_type="critic",
    worker_class=CriticWorker,
    init_kwargs={"model_name": "microsoft/deberta-v3-base"},
)
rm = Role(
    name="rm",
    role_type="reward_model",
    worker_class=RewardModelWorker,
    init_kwargs={"model_name": "OpenAssistant/reward-model-deberta-v3-large"},
)

# 2. 注册角色到控制器（启动计算流实例）
controller.register_role(actor)
controller.register_role(critic)
controller.register_role(rm)

# 3. 执行一个完整PPO step（控制流驱动）
print("=== Starting PPO Step 1 ===")
samples = controller.step(
    role=actor,
    method="generate",
    inputs={"prompt": ["How does photosynthesis work?"]},
    outputs=["responses"],
)
print(f"Actor generated: {samples['responses'][0][:50]}...")

scores = controller.step(
    role=critic,
    method="score",
    inputs={"responses": samples["responses"]},
    outputs=["values"],
)
print(f"Critic score: {scores['values'][0]:.3f}")

rewards = controller.step(
    role=rm,
    method="score",
    inputs={"responses": samples["responses"]},
    outputs=["rewards"],
)
print(f"RM reward: {rewards['rewards'][0]:.3f}")

loss_result = controller.step(
    role=actor,
    method="compute_loss",
    inputs={
        "responses": samples["responses"],
        "values": scores["values"],
        "rewards": rewards["rewards"],
    },
    outputs=["loss"],
)
print(f"PPO loss: {loss_result['loss']:.4f}")

# 4. 更新actor（触发计算流中的update）
controller.step(
    role=actor,
    method="update",
    inputs={"loss": loss_result["loss"]},
    outputs=[],
)
print("Actor updated successfully.")
