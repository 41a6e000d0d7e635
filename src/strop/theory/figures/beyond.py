"""Figures of what goes beyond the paper: schedules, the m-path bound, the counterexamples."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from strop.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, panels, tidy
from strop.theory.accounting import account
from strop.theory.examples import deflation_target
from strop.theory.mpath import exact_bound
from strop.theory.mpath_quality import mpath_problems, run_mpath_study
from strop.theory.sampler import LawProblem
from strop.theory.schedule_gains import ROWS, run_schedule_study
from strop.theory.target import Target
from strop.theory.temperature import best_temperature, output_errors


def removed_error(seed: int) -> Figure:
    """The share of output error that each freedom removes, on equal starting grids."""
    study = run_schedule_study(seed)
    figure, (axes,) = panels(1, 2.9)
    for row, plan in enumerate(ROWS):
        values = study.shares[plan]
        offset = np.linspace(-0.25, 0.25, values.size)
        axes.plot(values, row + offset, "o", ms=1.8, mew=0, alpha=0.5, color=GREY)
        middle = float(np.median(values))
        axes.plot([middle, middle], [row - 0.36, row + 0.36], color=BLUE, lw=2.2)
        axes.text(1.03, row, f"{middle:.0%}", va="center", color=BLUE)
    axes.text(1.03, -0.9, "median", va="center", color=BLUE)
    axes.set_yticks(range(len(ROWS)), list(ROWS.values()))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25%", "50%", "75%", "100%"])
    axes.set(xlim=(-0.03, 1.0), ylim=(len(ROWS) - 0.5, -0.6), xlabel="output error removed")
    tidy(axes)
    return figure


def path_bound(seed: int) -> Figure:
    """The bound's curves on one target, and what a finite sample makes of it."""
    problem = mpath_problems(seed)[0][6]
    lams = np.sort(np.append(np.geomspace(0.6, 3.6, 60), 1.0))
    figure, (top, bottom) = panels(2, 4.3)
    shades = {1: ORANGE, 2: PURPLE, 4: GREEN, 8: BLUE}
    for m, colour in shades.items():
        gap = exact_bound(problem, lams, m) - problem.target.entropy
        top.plot(lams, gap, color=colour, label=f"m = {m}")
        top.plot(lams[gap.argmin()], gap.min(), "o", ms=3.5, color=colour)
    error = output_errors(problem, lams)
    top.plot(lams, error, color="black", ls="--", label="output error")
    top.plot(lams[error.argmin()], error.min(), "o", ms=3.5, color="black")
    top.set(xlabel="inverse temperature λ", ylabel="bound − H(X), nats")
    top.legend(ncol=2, columnspacing=1.0, handlelength=1.4, loc="upper center")
    top.set_ylim(0, top.get_ylim()[1] * 1.25)
    rows = run_mpath_study(seed)
    ms = [row.m for row in rows]
    series = (
        ([r.captured for r in rows], "gain captured, exact", BLUE, "-"),
        ([r.finite_captured for r in rows], "gain captured, 256 texts", BLUE, ":"),
        ([r.right_sharpen for r in rows], "right sign (sharpen)", ORANGE, "-"),
        ([r.right_smooth for r in rows], "right sign (smooth)", GREEN, "-"),
    )
    for values, label, colour, line in series:
        bottom.plot(ms, values, color=colour, ls=line, marker="o", ms=3, label=label)
    bottom.set_xscale("log", base=2)
    bottom.set_xticks(ms, [str(m) for m in ms])
    bottom.set_yticks([0, 0.5, 1], ["0", "50%", "100%"])
    bottom.set(xlabel="paths per sequence m", ylabel="share", ylim=(-0.1, 1.05))
    bottom.legend(loc="lower right")
    for axes in (top, bottom):
        tidy(axes)
    return figure


def counterexamples() -> Figure:
    """Entropy can deflate at L = 3; smoothing can be right."""
    figure, (top, bottom) = panels(2, 4.4)
    sizes = 2 ** np.arange(8, 17)
    for rounds, colour in ((2, BLUE), (3, ORANGE), (4, GREEN)):
        grid = np.array([0, 0.63, 1]) if rounds == 2 else np.linspace(0, 1, rounds + 1)
        excess = []
        for values in sizes:
            a = account(LawProblem.bayes(deflation_target(int(values)), grid))
            excess.append(a.H_pi - a.H_X)
        label = "N = 2, first mass .63" if rounds == 2 else f"N = {rounds}, equal masses"
        top.plot(sizes, excess, color=colour, marker="o", ms=2.5, label=label)
    top.axhline(0, color="black", lw=0.8)
    top.set_xscale("log", base=2)
    top.set(xlabel="symbols of the third coordinate", ylabel="H(π$_1$) − H(P), nats")
    top.legend(loc="upper right")
    lams = np.geomspace(0.6, 1.4, 81)
    for length, first, colour in ((3, 0.2, BLUE), (6, 0.2, ORANGE), (6, 0.5, GREEN)):
        problem = LawProblem.bayes(Target.one_hot(length, smoothing=1e-3), [0, first, 1])
        at_1 = output_errors(problem, np.array([1.0]))[0]
        best = best_temperature(problem)
        bottom.plot(
            lams,
            output_errors(problem, lams) / at_1,
            color=colour,
            label=f"L = {length}, first mass {first:g}: λ* = {best.lambda_star:.3f}",
        )
        bottom.plot(best.lambda_star, best.KL_at_star / at_1, "o", ms=3.5, color=colour)
    bottom.axvline(1, color="black", lw=0.8)
    bottom.set(
        xlabel="inverse temperature λ (one-hot targets)",
        ylabel="error / error at λ = 1",
        ylim=(0.975, 1.075),
    )
    bottom.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0))
    for axes in (top, bottom):
        tidy(axes)
    return figure
