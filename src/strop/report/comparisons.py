"""Figures across checkpoints and judges: loss against samples, quality against diversity."""

from __future__ import annotations

from matplotlib.lines import Line2D

from strop.report.data import Judged, Report
from strop.report.drawing import Drawing, bar, blank, short
from strop.report.svg import PAPER
from strop.theory.figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, tidy

__all__ = ["judged_drawing", "posterior_drawing"]


def posterior_drawing(report: Report) -> Drawing:
    """Posterior loss against the perplexity of the samples."""
    figure, axes = blank()
    names = list(dict.fromkeys(row.model for row in report.posterior))
    alike = len({row.temperature for row in report.posterior}) == 1
    palette = (ORANGE, BLUE, GREEN, PURPLE, GREY)
    for row in report.posterior:
        if row.ratio is None:
            continue
        colour = palette[names.index(row.model) % len(palette)]
        x, y = row.difference, row.ratio
        if x.low is not None and x.high is not None:
            axes.plot([x.low, x.high], [y.value, y.value], color=colour, lw=0.8)
        bar(axes, x.value, y, colour)
        axes.plot(x.value, y.value, "o", ms=4, color=colour)
        axes.annotate(
            f"M {row.steps}" if alike else f"M {row.steps}, τ {row.temperature:g}",
            (x.value if x.low is None else x.low, y.value),
            (-4, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=6.5,
            color=colour,
        )
    axes.axvline(0, color=GREY, lw=0.7, ls=":")
    axes.axhline(1, color=GREY, lw=0.7, ls=":")
    axes.margins(x=0.2, y=0.15)
    axes.set(
        xlabel="worse predictor →   nats per token", ylabel="better samples →   perplexity ratio"
    )
    if len(names) > 1:
        handles = [
            Line2D(
                [], [], color=palette[i % len(palette)], marker="o", ms=4, lw=0, label=short(name)
            )
            for i, name in enumerate(names)
        ]
        figure.legend(handles=handles, loc="outside upper left", ncol=2, handletextpad=0.2)
    tidy(axes)
    return Drawing(
        "posterior",
        "Worse predictor, better generator",
        "Across: held-out posterior loss above that of temperature one. Up: how many times lower "
        "the perplexity of the samples is. Both with 95% intervals.",
        figure,
    )


def judged_drawing(rows: tuple[Judged, ...]) -> Drawing:
    """GEQ against GED, a colour per judge."""
    figure, axes = blank()
    series = list(dict.fromkeys(row.series for row in rows))
    palette = (BLUE, ORANGE, GREEN, PURPLE, GREY)
    for row in rows:
        if row.geq is None or row.ged is None:
            continue
        colour = palette[series.index(row.series) % len(palette)]
        low, high = row.geq.low, row.geq.high
        if low is not None and high is not None:
            axes.plot([low, high], [row.ged, row.ged], color=colour, lw=0.8)
        face = PAPER if row.below_guard else colour
        axes.plot(row.geq.value, row.ged, "o", ms=4.5, mfc=face, mec=colour)
        axes.annotate(
            short(row.name),
            (row.geq.value, row.ged),
            (0, 5),
            textcoords="offset points",
            ha="center",
            fontsize=6.5,
            color=colour,
        )
    # At least this much around: a small difference should not fill the figure.
    across, up = axes.dataLim.intervalx, axes.dataLim.intervaly
    axes.set(xlim=(max(across[0] - 1, -0.3), across[1] + 1), ylim=(max(up[0] - 1, -0.3), up[1] + 1))
    axes.set(xlabel="quality GEQ", ylabel="diversity GED")
    if len(series) > 1:
        handles = [
            Line2D(
                [], [], color=palette[i % len(palette)], marker="o", ms=4, lw=0, label=short(name)
            )
            for i, name in enumerate(series)
        ]
        figure.legend(handles=handles, loc="outside upper left", ncol=1, handletextpad=0.2)
    tidy(axes)
    return Drawing(
        "groupeval",
        "Quality and diversity",
        "GroupEval: quality with its 95% interval, diversity without one. Up and right is better.",
        figure,
    )
