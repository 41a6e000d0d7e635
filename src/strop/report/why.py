"""Why a worse predictor can be the better generator, on the smallest case there is."""

from __future__ import annotations

import numpy as np

from strop.report.drawing import Drawing, blank
from strop.theory.figures.style import BLUE, GREY, ORANGE, tidy
from strop.theory.pair import pair

__all__ = ["two_bits_drawing"]

AGREEMENT, SHARED = 0.7, 0.5
"""The bits agree with probability .7; in two equal rounds they share one with probability .5."""


def two_bits_drawing() -> Drawing:
    """Posterior loss and output error of a perfect model of two bits, against temperature."""
    best = pair(AGREEMENT, SHARED).lambda_star
    assert best is not None  # finite for these two numbers
    taus = np.linspace(0.3, 1.6, 120)
    curve = [pair(AGREEMENT, SHARED, float(1 / tau)) for tau in taus]
    figure, axes = blank()
    axes.plot(taus, [one.C_N for one in curve], color=ORANGE, label="posterior loss")
    axes.plot(taus, [one.KL_out for one in curve], color=BLUE, label="error of the outputs")
    axes.axvline(1, color=GREY, lw=0.7, ls=":")
    for tau, colour, text in (
        (1.0, ORANGE, "best predictor\nτ 1"),
        (1 / best, BLUE, f"exact outputs\nτ {1 / best:.2f}"),
    ):
        axes.plot(tau, 0, "o", ms=4.5, color=colour, clip_on=False, zorder=4)
        axes.annotate(text, (tau, 0), (tau, 0.004), color=colour, fontsize=6.8, ha="center")
    axes.set(xlabel="temperature τ", ylabel="nats", xlim=(0.15, 1.65), ylim=(0, 0.08))
    axes.legend(loc="upper right", fontsize=6.8)
    tidy(axes)
    return Drawing(
        "two-bits",
        "Two bits, a perfect model",
        f"Two bits that agree with probability {AGREEMENT:g}, drawn in two equal rounds by a model "
        "that predicts perfectly. Half the time both are drawn at once and know nothing of each "
        f"other. Its loss is least at τ 1; its outputs have the right law at τ {1 / best:.2f}.",
        figure,
    )
