"""The figure of a comparison: both frontiers, budget by budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strop.verbs.verb import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHADE = 0.18
"""How dense the common range is: a share of a colour that the page has for light and for dark."""


def draw(result: Result) -> Figure:
    """Perplexity against entropy; rings: as published, stars: tuned, grey: the common range; light
    blue: where A lies with all entropies of that range held together."""
    from strop.figures import BLUE, GREY, ORANGE, log_y, panels, tidy

    rows = list(result.more["frontier"].rows)
    budgets = list(dict.fromkeys(row["budget"] for row in rows))
    figure, axes = panels(len(budgets), 0.5 + 2.2 * len(budgets))
    guard = result.facts["guard"]["threshold"]
    a, b = called = tuple(result.facts.get("called", ("A", "B")))
    for panel, number in zip(axes, budgets, strict=True):
        equal = result.facts["equal"][str(number)]
        if equal is not None:
            panel.axvspan(equal["low"], equal["high"], color=GREY, alpha=SHADE, lw=0)
        entropies = [row["entropy"] for row in rows if row["budget"] == number]
        if guard is not None and min(entropies) - 0.1 < guard < max(entropies) + 0.1:
            panel.axvline(guard, color=GREY, lw=0.8, ls=":")
        for side, colour in zip(called, (BLUE, ORANGE), strict=True):
            side_rows = [r for r in rows if (r["budget"], r["side"]) == (number, side)]
            _frontier(panel, side_rows, colour, on_top=side == a)
        if equal is not None and "band" in equal:  # else it was written before there was one
            rows_of_b = [r for r in rows if (r["budget"], r["side"]) == (number, b)]
            _band(panel, equal, rows_of_b)
        verdict = result.facts["verdicts"][str(number)]["kind"]
        panel.set(ylabel="perplexity", title=f"M = {number:,}: {a} against {b}, {verdict}")
        log_y(panel)
        tidy(panel)
    axes[-1].set(xlabel="entropy of an output (nats)")
    figure.legend(*_legend(a, b), loc="outside lower center", ncol=3, fontsize=6.5)
    return figure


def _band(panel: Any, equal: Any, below: list[Any]) -> None:
    """Where A lies if the whole band holds: B's frontier times its ends."""
    import numpy as np

    from strop.figures import BLUE

    line = sorted((r["entropy"], r["perplexity"]) for r in below if "frontier" in r["part"])
    where = np.array(equal["entropies"])
    entropy, perplexity = np.array(line).T
    base = np.interp(where, entropy, np.log(perplexity))
    ends = [base + np.array([interval.ends[k] for interval in equal["band"]]) for k in (0, 1)]
    if len(where) > 1:
        panel.fill_between(where, np.exp(ends[0]), np.exp(ends[1]), color=BLUE, alpha=0.2, lw=0)
    else:
        panel.vlines(where, np.exp(ends[0]), np.exp(ends[1]), color=BLUE, alpha=0.4, lw=3)


def _frontier(panel: Any, rows: list[Any], colour: str, *, on_top: bool) -> None:
    line = sorted((r for r in rows if "frontier" in r["part"]), key=lambda row: row["entropy"])
    # B is wider and lies below, so that frontiers that coincide are both seen.
    look = {"lw": 1.2, "ms": 3.0, "zorder": 3} if on_top else {"lw": 3, "ms": 6, "alpha": 0.6}
    panel.plot(
        [row["entropy"] for row in line],
        [row["perplexity"] for row in line],
        color=colour,
        marker="o",
        **look,
    )
    for part, marker, size in (("published", "o", 60), ("tuned", "*", 70)):
        points = [row for row in rows if part in row["part"]]
        panel.scatter(
            [row["entropy"] for row in points],
            [row["perplexity"] for row in points],
            s=size,
            marker=marker,
            fc="none" if part == "published" else colour,
            ec=colour,
            lw=1,
            zorder=4,
        )


def _legend(a: str, b: str) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    from strop.figures import BLUE, GREY, ORANGE

    ring: dict[str, Any] = {"color": "black", "ls": "", "mfc": "none"}
    handles = [
        Line2D([], [], color=BLUE, marker="o", ms=3, lw=1.2),
        Line2D([], [], color=ORANGE, marker="o", ms=5, lw=3, alpha=0.6),
        Patch(color=GREY, alpha=SHADE),
        Patch(color=BLUE, alpha=0.2),
        Line2D([], [], marker="o", ms=6, **ring),
        Line2D([], [], color="black", ls="", marker="*", ms=7),
    ]
    return handles, [a, b, "common range", f"{a}, band", "as published", "tuned"]
