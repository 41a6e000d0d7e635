"""What sampling costs against the number of updates."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from strop.report.data import CostRow
from strop.report.drawing import Drawing
from strop.theory.figures.style import BLUE, COLUMN, GREEN, ORANGE, PURPLE, log_y, tidy

__all__ = ["cost_drawing"]

COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
LINES = {"dense": "-", "fast": (0, (4, 1.6))}


def cost_drawing(rows: Sequence[CostRow]) -> Drawing:
    """Seconds per sequence, and peak memory where it was measured."""
    settings = list(dict.fromkeys(row.setting for row in rows))
    memory = any(row.memory_mb is not None for row in rows)
    figure = Figure(figsize=(COLUMN, 4.2 if memory else 2.6), layout="constrained")
    axes = list(figure.subplots(1 + memory, 1, sharex=True, squeeze=False)[:, 0])
    for implementation in dict.fromkeys(row.implementation for row in rows):
        for number, setting in enumerate(settings):
            mine = sorted(
                (r for r in rows if (r.implementation, r.setting) == (implementation, setting)),
                key=lambda row: row.steps,
            )
            look = {
                "color": COLOURS[number % len(COLOURS)],
                "ls": LINES.get(implementation, ":"),
                "marker": "o",
                "ms": 3.2,
                "lw": 1.2,
            }
            axes[0].plot(
                [row.steps for row in mine],
                [row.seconds for row in mine],
                label=" · ".join(filter(None, (implementation, setting))),
                **look,
            )
            known = [row for row in mine if row.memory_mb is not None]
            if memory and known:
                axes[1].plot([r.steps for r in known], [r.memory_mb for r in known], **look)
    for one, label in zip(axes, ("seconds per sequence", "peak memory, MB"), strict=False):
        one.set(ylabel=label)
        log_y(one)
    steps = sorted({row.steps for row in rows})
    axes[-1].set_xscale("log", base=2)
    axes[-1].set_xticks(steps, [str(m) for m in steps], rotation=0 if len(steps) < 8 else 45)
    axes[-1].minorticks_off()
    axes[-1].set(xlabel="updates M")
    figure.legend(loc="outside upper left", ncol=2, fontsize=6.8)
    for one in axes:
        tidy(one)
    return Drawing(
        "cost",
        "Cost against steps",
        "Amortised seconds per sequence and peak memory on top of the weights; dense is the public "
        "code's way, fast has the same law. Both axes are logarithmic.",
        figure,
    )
