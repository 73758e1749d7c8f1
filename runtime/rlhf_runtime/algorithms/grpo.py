"""GRPO's control flow: Shao et al. 2024 (arXiv:2402.03300). No critic: each response is judged against its group.

actor.generate ─┬─► reward.compute_scores ─► actor.compute_advantages ─┐
                └─► reference.compute_log_probs ───────────────────────┴─► actor.update
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlhf_runtime.algorithms.on_policy import OnPolicyController, judged, sequences


class GRPOController(OnPolicyController):
    """Actor, reward and, where the KL counts, reference."""

    def _build_dag(self) -> Mapping[str, Any]:
        """One GRPO step."""
        samples = self.generate()
        references = self.reference_log_probs(samples)
        verdict = self.step(
            role=self.flow.actor,
            method="compute_advantages",
            inputs=judged(samples) | self.scores(samples) | references,
            outputs=["advantages", "metrics"],
        )
        policy = self.step(
            role=self.flow.actor,
            method="update",
            inputs=sequences(samples)
            | {"log_probs": samples["log_probs"], "advantages": verdict["advantages"]}
            | references,
            outputs=["metrics"],
        )
        return {"": verdict["metrics"], "actor": policy["metrics"]}
