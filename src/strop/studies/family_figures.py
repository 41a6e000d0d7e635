"""Figures of the studies across families."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from strop.studies.figure import write_figure
from strop.theory.figures.style import (
    BLUE,
    COLUMN,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    log_y,
    panels,
    tidy,
)

__all__ = ["save_cross_model", "save_didi_grids", "save_exact_output"]

COLOURS = {
    "MDLM-Small": BLUE,
    "DUO": GREEN,
    "DUO-DCD": PURPLE,
    "SEDD": GREY,
    "DiDi-Instruct": ORANGE,
    "GPT-2": "#222222",
}
BUDGETS = (BLUE, ORANGE, GREEN, PURPLE, GREY)


def save_cross_model(result: dict[str, Any], files: Sequence[Path]) -> None:
    """Perplexity and entropy against updates, one line per row, the reference dotted."""
    write_figure(lambda: _cross_model(result["rows"], result["guards"]), files)


def save_didi_grids(result: dict[str, Any], files: Sequence[Path]) -> None:
    """Perplexity against temperature at each budget, with and without the reward."""
    write_figure(lambda: _didi_grids(result["rows"]), files)


def save_exact_output(result: dict[str, Any], files: Sequence[Path]) -> None:
    """The ratio of perplexities and the difference of judged quality, comparison by comparison."""
    write_figure(lambda: _exact_output(result), files)


def _cross_model(rows: list[dict[str, Any]], guards: list[dict[str, Any]]) -> Figure:
    figure, axes = panels(2, 4.6)
    for name, setting in dict.fromkeys((r["model"], _setting(r)) for r in rows):
        points = [r for r in rows if (r["model"], _setting(r)) == (name, setting)]
        colour, style = COLOURS[name], "--" if setting else "-"
        label = name + (", sharpened" if setting else "")
        if points[0]["steps"] is None:
            for one, column in zip(axes, ("perplexity", "entropy"), strict=True):
                if points[0][column] is not None:
                    one.axhline(points[0][column], color=colour, ls=":", lw=1.0, label=label)
            continue
        steps = [p["steps"] for p in points]
        level = [p["perplexity"] for p in points]
        error = [
            [p["perplexity"] - p["low"] for p in points],
            [p["high"] - p["perplexity"] for p in points],
        ]
        look: dict[str, Any] = {"color": colour, "ls": style, "marker": "o", "ms": 3, "lw": 1.1}
        axes[0].errorbar(steps, level, error, capsize=2, label=label, **look)
        if all(p["entropy"] is not None for p in points):
            axes[1].plot(steps, [p["entropy"] for p in points], **look)
    budgets = sorted({r["steps"] for r in rows if r["steps"] is not None})
    axes[0].set(ylabel="perplexity")
    log_y(axes[0])
    axes[1].set(ylabel="entropy (nats)", xlabel="configured updates M")
    for guard in guards:
        if guard["threshold"] is not None:
            axes[1].axhline(guard["threshold"], color=GREY, ls=(0, (1, 1)), lw=0.8)
            where = (0.01, guard["threshold"])
            axes[1].annotate("guard", where, xycoords=("axes fraction", "data"), fontsize=6.5)
    for one in axes:
        if budgets:
            _budget_axis(one, budgets)
        tidy(one)
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncol=2, fontsize=6
    )
    return figure


def _setting(row: dict[str, Any]) -> str:
    """Empty for the standard sampler."""
    standard = (row["temperature"], row["precision"]) == (1.0, "float64")
    return "" if standard else f"({row['temperature']:g}, {row['precision']})"


def _budget_axis(axes: Axes, budgets: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(budgets, [f"{m:,}" for m in budgets])
    axes.minorticks_off()


def _didi_grids(rows: list[dict[str, Any]]) -> Figure:
    names = list(dict.fromkeys(row["sampler"] for row in rows))
    figure, axes = panels(len(names), 2.4 * len(names))
    budgets = sorted({row["steps"] for row in rows})
    for one, name in zip(axes, names, strict=True):
        for colour, steps in zip(BUDGETS * len(budgets), budgets, strict=False):
            for precision, style in (("float64", "-"), ("float32", "--")):
                points = sorted(
                    (
                        (row["temperature"], row["perplexity"])
                        for row in rows
                        if (row["sampler"], row["steps"], row["precision"])
                        == (name, steps, precision)
                    ),
                )
                if points:
                    x, y = zip(*points, strict=True)
                    label = f"M={steps:,}" if precision == "float64" else None
                    one.plot(x, y, style, color=colour, marker="o", ms=2.5, lw=1.0, label=label)
        one.set(ylabel="perplexity", title=f"{name}; float32 dashed")
        log_y(one)
        tidy(one)
    axes[-1].set_xlabel("temperature")
    axes[0].legend(ncol=2, fontsize=6)
    return figure


def _exact_output(result: dict[str, Any]) -> Figure:
    rows, judges = result["comparisons"], result["judges"]
    figure = Figure(figsize=(2 * COLUMN, 0.6 + 0.32 * len(rows)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    places = range(len(rows))
    evaluators = result["asked"]["evaluators"]
    for number, name in enumerate(evaluators):
        shift = 0.18 * (number - (len(evaluators) - 1) / 2)
        ratios = [row["ratios"][name] for row in rows]
        _bars(left, ratios, [place + shift for place in places], (BLUE, GREEN)[number % 2], name)
    left.axvline(1, color=GREY, lw=0.8)
    first, second = result["asked"]["names"]
    left.set(xlabel=f"perplexity, {first} over {second}", xscale="log")
    low, high = left.get_xlim()
    ticks = [t for t in (0.25, 0.33, 0.5, 0.67, 1, 1.5, 2, 3, 4, 5, 7, 10) if low <= t <= high]
    left.set_xticks(ticks or [1], [f"{t:g}" for t in ticks or [1]])
    left.minorticks_off()
    left.set_yticks(list(places), [f"{row['steps']:,} {row['setting']}" for row in rows])
    left.invert_yaxis()
    for number, judge in enumerate(judges):
        found = [
            {
                "value": row["judged"][judge]["difference"],
                "low": row["judged"][judge]["low"],
                "high": row["judged"][judge]["high"],
            }
            for row in rows
        ]
        shift = 0.18 * (number - (len(judges) - 1) / 2)
        colour = (ORANGE, PURPLE, GREY)[number % 3]
        _bars(right, found, [place + shift for place in places], colour, judge)
    right.axvline(0, color=GREY, lw=0.8)
    right.set(xlabel=f"GEQ, {first} minus {second}")
    for one in (left, right):
        one.legend(fontsize=6, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2)
        tidy(one)
    return figure


def _bars(
    axes: Axes, found: list[dict[str, float]], places: list[float], colour: str, label: str
) -> None:
    """Values with their intervals, one below the other."""
    error = [
        [one["value"] - one["low"] for one in found],
        [one["high"] - one["value"] for one in found],
    ]
    values = [one["value"] for one in found]
    axes.errorbar(
        values, places, xerr=error, fmt="o", ms=3, capsize=2, lw=1.0, color=colour, label=label
    )
