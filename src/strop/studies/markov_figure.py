"""The Markov study as one figure: lower bound, upper bound, likelihood and entropy."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from strop.studies.markov import MarkovStudy
from strop.theory.figures.style import STYLE, panels, tidy

__all__ = ["draw", "save"]


def draw(study: MarkovStudy) -> Figure:
    """Three panels against inverse temperature, one colour per number of steps."""
    figure, (lower, upper, text) = panels(3, 6.4)
    steps = list(dict.fromkeys(row.steps for row in study.rows))
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, len(steps)))
    for count, colour in zip(steps, colours, strict=True):
        lams, pair = study.curve(count, "pair_kl")
        _, error = study.curve(count, "pair_kl_stderr")
        # A corrected estimate can fall below zero; a log axis shows it at its error instead.
        shown = np.maximum(pair, error)
        lower.errorbar(
            lams,
            shown,
            2 * error,
            color=colour,
            marker="o",
            ms=2.5,
            lw=1.2,
            elinewidth=0.7,
            label=f"M = {count}",
        )
        upper.plot(
            lams,
            study.curve(count, "upper")[1] / study.length,
            color=colour,
            marker="o",
            ms=2.5,
            lw=1.2,
        )
        text.plot(lams, study.curve(count, "nll")[1], color=colour, lw=1.2)
        text.plot(lams, study.curve(count, "pair_entropy")[1], color=colour, lw=1.2, ls="--")
    lower.set(yscale="log", ylabel="KL of adjacent pairs, nats")
    upper.set(yscale="log", ylabel="$(B_N + C_N)\\,/\\,L$, nats")
    text.axhline(study.entropy_rate, color="black", lw=0.8, ls=":")
    text.plot([], [], color="black", lw=1.2, label="negative log-likelihood")
    text.plot([], [], color="black", lw=1.2, ls="--", label="entropy H(next | token)")
    text.plot([], [], color="black", lw=0.8, ls=":", label="the target's own")
    text.set(ylabel="nats per token", xlabel="inverse temperature λ")
    lower.legend(
        ncol=3, loc="lower center", bbox_to_anchor=(0.45, 1.0), columnspacing=1.0, handlelength=1.2
    )
    text.legend(loc="upper right")
    for axes in (lower, upper, text):
        axes.set_xscale("log")
        axes.set_xticks([0.8, 1, 1.5, 2, 3], ["0.8", "1", "1.5", "2", "3"])
        axes.minorticks_off()
        axes.axvline(1, color="grey", lw=0.6, ls=":")
        tidy(axes)
    return figure


def save(study: MarkovStudy, folder: Path) -> list[Path]:
    """Write the figure as SVG and PNG."""
    files = [folder / f"markov.{kind}" for kind in ("svg", "png")]
    with matplotlib.rc_context(STYLE):
        figure = draw(study)
        figure.savefig(files[0], metadata={"Date": None})
        figure.savefig(files[1])
    return files
