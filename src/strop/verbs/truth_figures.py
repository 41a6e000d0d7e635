"""Figures of the questions about truth; what a question measures beside modes has its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strop.figures import (
    BLUE,
    COLUMN,
    GREEN,
    GREY,
    ORANGE,
    PALETTE,
    PURPLE,
    errors,
    grouped,
    tidy,
)
from strop.verbs.verb import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (*PALETTE, "#b03a48", "#6b5b2e", "#1a9aa0")


def draw(result: Result) -> Figure:
    """The figure of what was asked."""
    from matplotlib.figure import Figure

    question = result.asked.get("question")
    kinds = {"proxies": _ranks, "compare": _verdicts, "bound": _bounds}
    figure = Figure(figsize=(2 * COLUMN, 3.6), layout="constrained")
    figure.suptitle(result.table.title, fontsize=8)
    kinds.get(str(question), _settings)(figure, result)
    return figure


LEAST = 0.01
"""Fewer violations than these are drawn here, open: the axis has no zero."""
LANE, GAP = 0.11, 0.07
"""Inches that a row takes, and those between settings."""


def _settings(figure: Figure, result: Result) -> None:
    """Every setting's violations and, beside them, modes; one colour a model."""
    from matplotlib.ticker import LogLocator, NullFormatter

    rows = list(result.table.rows)
    models = list(dict.fromkeys(row["model"] for row in rows))
    by_setting = grouped(rows, "setting").values()
    tall = sum(LANE * len(own_rows) + GAP for own_rows in by_setting)
    figure.set_size_inches(2 * COLUMN, tall + 1.1)
    left, right = figure.subplots(1, 2, sharey=True)
    y, ticks = 0.0, {}
    for number, own_rows in enumerate(by_setting):
        ends = y - GAP / 2, y + LANE * len(own_rows) + GAP / 2
        if number % 2 == 0:
            for axes in (left, right):
                axes.axhspan(*ends, color="0.94", lw=0, zorder=0)
        ticks[(ends[0] + ends[1]) / 2] = _short(own_rows[0])
        for row in own_rows:
            colour = COLOURS[models.index(row["model"]) % len(COLOURS)]
            _dots(left, right, row, y + LANE / 2, colour)
            y += LANE
        y += GAP
    for model, colour in zip(models, COLOURS, strict=False):
        left.plot([], [], "o", ms=3, color=colour, label=model)
    right.axvline(result.facts["true_modes"], color="black", lw=0.7, ls=":")
    right.plot([], [], color="black", lw=0.7, ls=":", label="modes of the language")
    left.set_yticks(list(ticks), list(ticks.values()), fontsize=6)
    left.set(ylim=(y - GAP / 2, -GAP / 2), xscale="log", xlabel="wrong words a text")
    low, high = left.get_xlim()
    left.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 100 * low else (1.0, 2.0, 5.0)))
    left.xaxis.set_major_formatter("{x:g}")
    left.xaxis.set_minor_formatter(NullFormatter())
    right.set(xlim=(0, None), xlabel="effective modes")
    figure.legend(fontsize=6, loc="outside lower center", ncols=len(models) + 1)
    for axes in (left, right):
        tidy(axes)
        axes.tick_params(axis="y", length=0)


def _dots(left: Axes, right: Axes, row: Mapping[str, Any], y: float, colour: str) -> None:
    look: dict[str, Any] = {"fmt": "o", "ms": 3, "capsize": 1.5, "lw": 0.8, "color": colour}
    wrong, modes = row["violations"], row["modes"]
    right.errorbar(modes.value, y, xerr=errors([modes]), **look)
    if wrong.value < LEAST:
        left.plot(LEAST, y, "o", ms=3, mfc="white", color=colour)
    else:
        reach = wrong.value - max(wrong.low, LEAST / 2), wrong.high - wrong.value
        left.errorbar(wrong.value, y, xerr=[[reach[0]], [reach[1]]], **look)


DROPPED = ("tau=1", "float64", "block_length=0", "blockwise")
WORDS = {
    "autoregressive M=0": "left to right",
    "M=96 score=entropy commit=entropy-bound entropy_bound=": "entropy bound ",
    "score=confidence": "most confident first",
    "score=entropy": "least entropy first",
    "score=margin": "largest margin first",
    "score=random": "random order",
    "block_length=32": "blocks of 32",
    "tau=": "temperature ",
}
"""What a figure says in place of a label's words, in this order."""


def _short(row: Mapping[str, Any]) -> str:
    words = " ".join(word for word in row["setting"].split() if word not in DROPPED)
    if row["sampler"].get("settings", {}).get("block_length") and "block_length" not in words:
        words += f" block_length={row['sampler']['settings']['block_length']}"
    for word, plain in WORDS.items():
        words = words.replace(word, plain)
    return re.sub(r"M=(\d+)", r"\1 steps", words)


def _ranks(figure: Figure, result: Result) -> None:
    """Every proxy's rank correlations with what is true; zero is no use."""
    axes, ranks = figure.subplots(), result.facts["ranks"]
    names = list(ranks)
    truths = {"quality": BLUE, "diversity": ORANGE, "both": GREEN}
    for k, (what, colour) in enumerate(truths.items()):
        for position, name in enumerate(names):
            value, low, high = ranks[name][what]
            y = -position - (k - 1) * 0.22
            axes.plot([low, high], [y, y], color=colour, lw=1)
            axes.plot(value, y, "o", ms=3, color=colour, label=None if position else what)
    axes.axvline(0, color="black", lw=0.7, ls=":")
    axes.set_yticks([-position for position in range(len(names))], names, fontsize=6)
    axes.set(xlabel="rank correlation with the truth, 95%", xlim=(-1.05, 1.05))
    figure.legend(fontsize=6, loc="outside right upper")
    tidy(axes)


DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1, 1.4)))
"""One a number of steps."""


def _bounds(figure: Figure, result: Result) -> None:
    """The bound over temperatures, beside the overlap with the law of the modes."""
    rows = list(result.table.rows)
    left, right = figure.subplots(1, 2)
    models = list(dict.fromkeys(row["model"] for row in rows))
    budgets = list(dict.fromkeys(row["steps"] for row in rows))
    for model, steps in dict.fromkeys((row["model"], row["steps"]) for row in rows):
        colour, dashes = COLOURS[models.index(model)], DASHES[budgets.index(steps) % len(DASHES)]
        own_rows = [row for row in rows if (row["model"], row["steps"]) == (model, steps)]
        own_rows.sort(key=lambda row: row["temperature"])
        taus = [row["temperature"] for row in own_rows]
        most = max((key for key in own_rows[0] if key.startswith("bound ")), key=len)
        for axes, key, side in ((left, most, min), (right, "soft", max)):
            values = [row[key] for row in own_rows]
            best = side(values)
            heights = [
                value - best if axes is left else value / max(best, 1e-12) for value in values
            ]
            label = f"{model}, M = {steps}" if axes is left else None
            axes.plot(taus, heights, "o", ls=dashes, ms=3, lw=0.9, color=colour, label=label)
    left.set(xlabel="temperature", ylabel="m-path bound above its least, nats")
    right.set(xlabel="temperature", ylabel="soft overlap, of its largest")
    figure.legend(fontsize=6, loc="outside lower center", ncols=3)
    for axes in (left, right):
        tidy(axes)


LOOKS = {"right": GREEN, "cannot tell": GREY, "wrong": ORANGE}


def _verdicts(figure: Figure, result: Result) -> None:
    """Every pair: what is true (letter) and whether `compare` said so (colour)."""
    from matplotlib.patches import Rectangle

    rows, axes = list(result.table.rows), figure.subplots()
    figure.set_size_inches(2 * COLUMN, 5.2)
    names = [f"{row['model']}, {_short(row)}" for row in rows]
    for pair in result.facts["pairs"]:
        at = (pair["a"], -pair["b"])
        colour = LOOKS.get(pair["how"], PURPLE)
        corner = (at[0] - 0.5, at[1] - 0.5)
        shade = 0.15 if pair["truth"] == "close" else 0.75
        axes.add_patch(Rectangle(corner, 1, 1, color=colour, alpha=shade, lw=0))
        axes.text(*at, pair["truth"][0], ha="center", va="center", fontsize=6)
    _named(axes, names)
    for how, colour in (*LOOKS.items(), ("a verdict on a close pair", PURPLE)):
        axes.plot([], [], "s", color=colour, label=how)
    figure.legend(fontsize=6, loc="outside lower center", ncols=4)
    axes.set_title("The column is b better, w worse, m mixed, c close", fontsize=7)


def _named(axes: Axes, names: Sequence[str]) -> None:
    """One name a row and a column."""
    count = len(names)
    axes.set(xlim=(-0.5, count - 1.5), ylim=(-count + 0.5, -0.5))
    axes.set_xticks(range(count - 1), names[:-1], rotation=60, ha="right", fontsize=6)
    axes.set_yticks([-k for k in range(1, count)], names[1:], fontsize=6)
    tidy(axes)
