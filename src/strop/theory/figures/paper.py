"""The three panels of the paper's theory figure, computed here from the exact laws."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from strop.figures import BLUE, COLUMN, GREEN, GREY, ORANGE, panels, tidy
from strop.theory.examples import example
from strop.theory.pair import pair
from strop.theory.random_targets import run_study
from strop.theory.sampler import path_log_law
from strop.theory.target import Array
from strop.theory.temperature import best_temperature

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
    tidy(axes)
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
        mine = study.concentration == concentration
        axes.plot(
            study.lambda_star[mine],
            (rows + spread)[mine],
            "o",
            ms=2.6,
            mew=0,
            alpha=0.75,
            color=colour,
            label=f"{concentration:g}",
        )
    axes.axvline(1, color="black", lw=0.8)
    axes.set_xscale("log")
    ticks = [0.8, 1, 1.5, 2, 3, 5, 10, 20, 50]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
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
    tidy(axes)
    return figure


def _cells(axes: Axes, law: Array) -> None:
    axes.imshow(law, cmap=SHADES, vmin=0, vmax=0.5)
    for i in range(2):
        for j in range(2):
            axes.text(j, i, f"{law[i, j]:.2f}".lstrip("0"), ha="center", va="center")
    axes.set_xticks([])
    axes.set_yticks([])
