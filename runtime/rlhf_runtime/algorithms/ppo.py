"""PPO's control flow: Schulman et al. 2017 (arXiv:1707.06347), with RLHF's KL penalty per token.

    actor.generate ─┬─► critic.compute_values ───────┐
                    ├─► reward.compute_scores ───────┼─► actor.compute_advantages ─┬─► actor.update
                    └─► reference.compute_log_probs ─┘                             └─► critic.update

Nothing here says where a role runs or how it computes; what runs at the same time follows from who needs what.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlhf_runtime.algorithms.on_policy import OnPolicyController, judged, sequences


class PPOController(OnPolicyController):
    """Actor, critic, reward and, where the KL counts, reference."""

    def _build_dag(self) -> Mapping[str, Any]:
        """One PPO step."""
        actor, critic = self.flow.actor, self.flow.critic or "critic"
        samples = self.generate()
        scores = self.scores(samples)
        references = self.reference_log_probs(samples)
        values = self.step(role=critic, method="compute_values", inputs=sequences(samples), outputs=["values"])
        verdict = self.step(
            role=actor,
            method="compute_advantages",
            inputs=judged(samples) | scores | references | dict(values),
            outputs=["advantages", "returns", "metrics"],
        )
        policy = self.step(
            role=actor,
            method="update",
            inputs=sequences(samples) | {"log_probs": samples["log_probs"], "advantages": verdict["advantages"]},
            outputs=["metrics"],
        )
        value = self.step(
            role=critic,
            method="update",
            inputs=sequences(samples) | {"values": values["values"], "returns": verdict["returns"]},
            outputs=["metrics"],
        )
        return {"": verdict["metrics"], "actor": policy["metrics"], "critic": value["metrics"]}
