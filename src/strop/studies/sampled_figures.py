"""Figures of the studies of sampled outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from strop.studies.figure import write_figure
from strop.theory.figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, log_y, panels, tidy

__all__ = ["save_frontier", "save_ratios"]

SAMPLERS = {"standard": BLUE, "sharpened": ORANGE, "stronger": GREEN}
BUDGETS = (BLUE, ORANGE, GREEN, PURPLE, GREY)
MARKERS = {"float64": "o", "float32": "s"}


def save_ratios(result: dict[str, Any], files: Sequence[Path]) -> None:
    """Less is more: the ratio against steps, one line per sampler."""
    write_figure(lambda: _ratios(result["rows"]), files)


def save_frontier(result: dict[str, Any], files: Sequence[Path]) -> None:
    """Perplexity and entropy against temperature, one line per budget and precision."""
    write_figure(lambda: _frontier(result), files)


def _steps_axis(axes: Axes, steps: list[int]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(steps, [f"{m:,}" for m in steps])
    axes.minorticks_off()


def _ratios(rows: list[dict[str, Any]]) -> Figure:
    figure, [axes] = panels(1, 2.4)
    axes.axhline(1, color=GREY, lw=0.8)
    for name, colour in SAMPLERS.items():
        points = [row for row in rows if row["sampler"] == name]
        x, y = [p["steps"] for p in points], [p["ratio"] for p in points]
        error = [[p["ratio"] - p["low"] for p in points], [p["high"] - p["ratio"] for p in points]]
        axes.errorbar(x, y, error, color=colour, marker="o", ms=3, capsize=2, lw=1.2, label=name)
    axes.set(xlabel="configured updates M", ylabel="perplexity, more over less", yscale="log")
    _steps_axis(axes, sorted({row["steps"] for row in rows}))
    low = min(row["low"] for row in rows)
    high = max(row["high"] for row in rows)
    marks = (0.25, 0.33, 0.5, 0.67, 0.8, 1, 1.25, 1.5, 2, 3)
    ticks = [t for t in marks if t == 1 or low * 0.9 < t < high * 1.1]
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.legend()
    tidy(axes)
    return figure


def _frontier(result: dict[str, Any]) -> Figure:
    rows = result["rows"]
    figure, axes = panels(2, 4.0)
    budgets = sorted({row["steps"] for row in rows})
    for colour, steps in zip(BUDGETS * len(budgets), budgets, strict=False):
        for precision, marker in MARKERS.items():
            points = sorted(
                (row for row in rows if (row["steps"], row["precision"]) == (steps, precision)),
                key=lambda row: row["temperature"],
            )
            if not points:
                continue
            x = [p["temperature"] for p in points]
            style: dict[str, Any] = {"color": colour, "lw": 1.0, "marker": marker, "ms": 3}
            style["ls"] = "-" if precision == "float64" else "--"
            axes[0].plot(
                x, [p["perplexity"] for p in points], label=f"M={steps:,}, {precision}", **style
            )
            axes[1].plot(x, [p["entropy"] for p in points], **style)
    threshold = result["guard"]["threshold"]
    if threshold is not None:
        axes[1].axhline(threshold, color=GREY, lw=0.8)
        axes[1].annotate(
            "guard",
            (max(r["temperature"] for r in rows), threshold),
            fontsize=7,
            color=GREY,
            ha="right",
            va="bottom",
        )
    axes[0].set(ylabel="perplexity")
    log_y(axes[0])
    axes[1].set(ylabel="entropy (nats)", xlabel="temperature")
    axes[0].legend(fontsize=6, ncol=2)
    for one in axes:
        tidy(one)
    return figure
