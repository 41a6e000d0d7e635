"""What a training run measured, read and drawn; without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from strop.figures import BLUE, ORANGE, tidy
from strop.store.folder import damaged
from strop.table import revived

METRICS = "metrics.jsonl"
FIX = "the curve begins where the run is continued"


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """All measurements of a run, by step; a line cut off by a crash is left out."""
    path = run / METRICS
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    entries = []
    for line in content.splitlines():
        try:
            entries.append(revived(json.loads(line)))
        except ValueError:
            break  # a crash while writing: what follows is written again
        if not (isinstance(entries[-1], dict) and {"kind", "step"} <= entries[-1].keys()):
            why = f"line {len(entries)} is not a measurement"
            raise damaged(path, why, f"delete {path} and run the command again: {FIX}")
    return entries


def draw_losses(metrics: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """Training loss and held-out loss with its interval, against the step."""
    figure = Figure(figsize=(4.4, 2.8), layout="constrained")
    axes = figure.add_subplot()
    tidy(axes)
    train = [entry for entry in metrics if entry["kind"] == "train"]
    held = [entry for entry in metrics if entry["kind"] == "held_out"]
    axes.plot(
        [entry["step"] for entry in train],
        [entry["loss"] for entry in train],
        color=BLUE,
        linewidth=0.8,
        label="training",
    )
    if held:
        steps = [entry["step"] for entry in held]
        losses = [entry["nats_per_token"] for entry in held]
        low, high = zip(*(loss.ends for loss in losses), strict=True)
        values = [loss.value for loss in losses]
        axes.plot(steps, values, "o-", color=ORANGE, markersize=3, label="held out")
        axes.fill_between(steps, low, high, color=ORANGE, alpha=0.2)
    axes.set(xlabel="step", ylabel="nats per token", title=title)
    axes.legend(frameon=False)
    return figure
