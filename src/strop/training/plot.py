"""The loss over the steps, as a picture."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from strop.disk import write

__all__ = ["plot_losses"]


def plot_losses(metrics: list[dict[str, Any]], path: Path, title: str) -> None:
    """Training loss and held-out loss with its interval, against the step."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    train = [entry for entry in metrics if entry["kind"] == "train"]
    held = [entry for entry in metrics if entry["kind"] == "held_out"]
    axes.plot(
        [entry["step"] for entry in train],
        [entry["loss"] for entry in train],
        linewidth=0.8,
        alpha=0.6,
        label="training",
    )
    if held:
        steps = [entry["step"] for entry in held]
        losses = [entry["nats_per_token"] for entry in held]
        axes.plot(steps, [one.value for one in losses], "o-", markersize=3, label="held out")
        axes.fill_between(steps, [e.low for e in losses], [e.high for e in losses], alpha=0.2)
    axes.set(xlabel="step", ylabel="nats per token", title=title)
    axes.legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write(path, buffer.getvalue())
