"""The posterior study as one figure: the price of sharpening, the best temperature, the profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from strop.studies.figure import write_figure
from strop.theory.figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, panels, tidy

__all__ = ["draw", "save"]

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, GREY)


def draw(result: dict[str, Any]) -> Figure:
    """One colour per checkpoint; the last panel is missing where no profile was measured."""
    profile = result["profile"]
    figure, axes = panels(3 if profile else 2, 6.4 if profile else 4.4)
    names = [one["name"] for one in result["checkpoints"]]
    for place, name in enumerate(names):
        colour = COLOURS[place % len(COLOURS)]
        _contrast(axes[0], result, name, colour, place, len(names))
        _grid(axes[1], result, name, colour)
        if profile:
            _levels(axes[2], profile, name, colour)
    tau = result["asked"]["sharpened"]
    axes[0].axhline(0, color="black", lw=0.7)
    axes[0].set(ylabel=f"loss at τ = {tau:g} minus\nat τ = 1, nats per token", xlabel="steps M")
    steps = result["asked"]["steps"]
    axes[0].set_xticks(range(len(steps)), [f"{m:,}" for m in steps])
    axes[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2, handlelength=1.2)
    axes[1].axvline(1, color="grey", lw=0.6, ls=":")
    axes[1].set(
        ylabel="loss minus that at τ = 1\n(all budgets, one line each)", xlabel="temperature τ"
    )
    if profile:
        axes[2].set(ylabel="$c(a)\\,/\\,L$ at τ = 1, nats", xlabel="visible probability a")
    for one in axes:
        tidy(one)
    return figure


def _rows(result: dict[str, Any], name: str, estimator: str) -> list[dict[str, Any]]:
    return [
        row
        for row in result["losses"]
        if row["checkpoint"] == name and row["estimator"] == estimator
    ]


def _contrast(
    axes: Axes, result: dict[str, Any], name: str, colour: str, place: int, of: int
) -> None:
    """Both estimators side by side: filled the mean over hidden positions, open the one target."""
    for estimator, fill, shift in (("masked", colour, -0.04), ("target", "white", 0.04)):
        points = [
            at["minus_one"]
            for row in _rows(result, name, estimator)
            for at in row["temperatures"]
            if at["temperature"] == result["asked"]["sharpened"]
        ]
        mean = np.array([point["mean"] for point in points])
        reach = np.abs(np.array([[p["low"], p["high"]] for p in points]).T - mean)
        axes.errorbar(
            np.arange(len(points)) + shift + 0.2 * (place - (of - 1) / 2),
            mean,
            reach,
            color=colour,
            mfc=fill,
            marker="o",
            ms=3.5,
            ls="none",
            lw=1,
            label=f"{name}, {'all hidden' if estimator == 'masked' else 'one target'}",
        )


def _grid(axes: Axes, result: dict[str, Any], name: str, colour: str) -> None:
    for row in _rows(result, name, "masked"):
        grid = sorted(row["temperatures"], key=lambda at: at["temperature"])
        axes.plot(
            [at["temperature"] for at in grid],
            [at["minus_one"]["mean"] for at in grid],
            color=colour,
            lw=0.9,
            marker="o",
            ms=2,
        )


def _levels(axes: Axes, profile: dict[str, Any], name: str, colour: str) -> None:
    levels = [one for one in profile["levels"] if one["checkpoint"] == name]
    a = [one["visible"] for one in levels]
    axes.plot(a, [one["loss"]["mean"] for one in levels], color=colour, lw=1.2)
    low, high = ([one["loss"][end] for one in levels] for end in ("low", "high"))
    axes.fill_between(a, low, high, color=colour, alpha=0.2, lw=0)


def save(result: dict[str, Any], files: Sequence[Path]) -> None:
    """Write the figure as SVG and PNG."""
    write_figure(lambda: draw(result), files)
