"""The learning curve as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def draw_curve(lines: Sequence[Mapping[str, Any]], file: Path, *, title: str) -> None:
    """Draw reward, KL and held-out accuracy over the steps.

    Args:
        lines: The lines of `metrics.jsonl`.
        file: Where the PNG goes.
        title: Above the picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no display, no global state
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set(title=title, xlabel="step", ylabel="reward and accuracy")
    axes.grid(alpha=0.25)
    rewards = [(line["step"], line["reward"]) for line in lines if "reward" in line]
    tried = [(line["step"], line["heldout_accuracy"]) for line in lines if "heldout_accuracy" in line]
    divergences = [(line["step"], line["kl"]) for line in lines if "kl" in line]
    if rewards:
        axes.plot(*zip(*rewards, strict=True), color="#2a78d6", label="reward")
    if tried:
        axes.plot(*zip(*tried, strict=True), "o--", color="#1b7f4d", label="held-out accuracy")
        for step, accuracy in tried:
            axes.annotate(f"{accuracy:.2f}", (step, accuracy), textcoords="offset points", xytext=(0, 7), ha="center")
    if divergences:
        right = axes.twinx()
        right.plot(*zip(*divergences, strict=True), color="#c2571a", alpha=0.7, label="KL (right)")
        right.set_ylabel("KL to the reference")
        right.set_ylim(bottom=0)
        axes.plot([], [], color="#c2571a", alpha=0.7, label="KL (right)")
    axes.legend(loc="best", framealpha=0.9)
    figure.savefig(file, bbox_inches="tight", metadata={"Software": None})
