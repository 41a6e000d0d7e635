"""The theory figures, each as SVG and PNG, legible at the width of a paper's column.

The three panels of the paper's theory figure are computed here from the exact laws. The others show
what goes beyond the paper: schedules, the m-path bound, the counterexamples.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from strop.disk import disk
from strop.figures import (
    BLUE,
    COLUMN,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    panels,
    plain_ticks,
    write_figure,
)
from strop.theory.accounting import account
from strop.theory.document import deflation_target, example
from strop.theory.mpath import exact_bound, mpath_problems, run_mpath_study
from strop.theory.sampler import LawProblem, path_log_law
from strop.theory.schedules import ROWS, run_schedule_study, run_study
from strop.theory.target import Array, Target
from strop.theory.temperature import best_temperature, output_errors, pair


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
    return figure


SHADES = LinearSegmentedColormap.from_list("shades", ["#ffffff", "#9dbfe3"])


def branches(lam: float) -> tuple[Array, Array, Array]:
    """The laws of two bits drawn in the same round, in turn, and their mixture, for s = .7."""
    problem = example("pair")
    law = problem.paths()
    path = np.exp(path_log_law(problem.denoiser.tempered(lam), law)).reshape(-1, 2, 2)
    together = law.rounds[:, 0] == law.rounds[:, 1]
    nu = law.weights[:, None, None]
    same = (nu * path)[together].sum(axis=0) / nu[together].sum()
    apart = (nu * path)[~together].sum(axis=0) / nu[~together].sum()
    return same, apart, (nu * path).sum(axis=0)


def mixture() -> Figure:
    """The output law as an average of two branches, at lambda = 1 and at lambda*."""
    star = best_temperature(example("pair")).lambda_star
    figure = Figure(figsize=(COLUMN, 2.9), layout="constrained")
    grid = figure.subplots(2, 3)
    titles = ("same round\n(probability ½)", "in turn\n(probability ½)", "output")
    for row, (lam, verdict) in enumerate(((1.0, "too random"), (star, "exact"))):
        for column, law in enumerate(branches(lam)):
            axes = grid[row, column]
            _cells(axes, law)
            agree = law[0, 0] + law[1, 1]
            last = f"\n{verdict}" if column == 2 else ""
            axes.set_xlabel(f"agree {agree:.2f}{last}", labelpad=3)
            if row == 0:
                axes.set_title(titles[column])
        grid[row, 0].set_ylabel(f"λ = {lam:.2f}" if row else "λ = 1", labelpad=4)
    return figure


def loss_against_error() -> Figure:
    """Posterior loss has its minimum at 1, output error at lambda*."""
    lams = np.linspace(0.4, 4.5, 200)
    curve = [pair(0.7, 0.5, float(lam)) for lam in lams]
    star = curve[0].lambda_star or np.nan
    figure, (axes,) = panels(1, 2.2)
    axes.plot(lams, [p.C_N for p in curve], color=ORANGE, label="posterior loss $C_N$")
    axes.plot(
        lams,
        [p.KL_out for p in curve],
        color=BLUE,
        label="output error KL$(P\\,\\|\\,\\pi_\\lambda)$",
    )
    axes.axvline(1, color=GREY, lw=0.7, ls=":")
    axes.plot([1, star], [0, 0], "o", color="black", ms=4, clip_on=False, zorder=5)
    top = max(p.C_N for p in curve)
    axes.annotate("Bayes", (1, 0), (1.08, top * 0.45), color=ORANGE)
    axes.annotate(
        f"λ* = {star:.2f}", (star, 0), (star - 0.35, -top * 0.13), annotation_clip=False, color=BLUE
    )
    axes.set(xlabel="inverse temperature λ", ylabel="nats", xlim=(lams[0], lams[-1]))
    axes.set_ylim(-top * 0.17, top * 1.02)
    axes.legend(loc="upper left", bbox_to_anchor=(0.16, 1.0))
    return figure


def best_temperatures(seed: int) -> Figure:
    """lambda* of the exact denoiser on 280 random targets, one row per (L, V, N)."""
    study = run_study(seed)
    settings = list(dict.fromkeys(study.settings))
    rows = np.array([settings.index(s) for s in study.settings])
    spread = np.random.default_rng(seed).uniform(-0.28, 0.28, rows.size)
    figure, (axes,) = panels(1, 2.5)
    colours = {0.3: ORANGE, 1.0: BLUE, 3.0: GREEN}
    for concentration, colour in colours.items():
        chosen = study.concentration == concentration
        axes.plot(
            study.lambda_star[chosen],
            (rows + spread)[chosen],
            "o",
            ms=2.6,
            mew=0,
            alpha=0.75,
            color=colour,
            label=f"{concentration:g}",
        )
    axes.axvline(1, color="black", lw=0.8)
    axes.set_xscale("log")
    plain_ticks(axes.xaxis, [0.8, 1, 1.5, 2, 3, 5, 10, 20, 50])
    axes.set_yticks(range(len(settings)), [f"{a}, {b}, {c}" for a, b, c in settings])
    axes.invert_yaxis()
    low = min(0.8, float(study.lambda_star.min()) * 0.95)
    axes.set(
        xlabel="best inverse temperature λ*",
        ylabel="L, V, N",
        xlim=(low, max(5.0, float(study.lambda_star.max()) * 1.1)),
    )
    above = int((study.g < 0).sum())
    axes.set_title(f"sharpening improves {above} of {study.g.size}")
    axes.legend(title="concentration", loc="lower right", handletextpad=0.1, borderpad=0.2)
    return figure


def _cells(axes: Axes, law: Array) -> None:
    axes.imshow(law, cmap=SHADES, vmin=0, vmax=0.5)
    for i in range(2):
        for j in range(2):
            axes.text(j, i, f"{law[i, j]:.2f}".lstrip("0"), ha="center", va="center")
    axes.set_xticks([])
    axes.set_yticks([])


FIGURES: dict[str, Callable[[int], Figure]] = {
    "mixture": lambda _seed: mixture(),
    "loss-against-error": lambda _seed: loss_against_error(),
    "best-temperature": best_temperatures,
    "removed-error": removed_error,
    "path-bound": path_bound,
    "counterexamples": lambda _seed: counterexamples(),
}
"""Name of the file -> how it is drawn from a seed."""


def draw_all(folder: Path, seed: int = 0) -> list[Path]:
    """Write every figure into the folder and return the files."""
    with disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for name, draw in FIGURES.items():
        paths = [folder / f"{name}.{kind}" for kind in ("svg", "png")]
        write_figure(partial(draw, seed), paths)
        files += paths
    return files
