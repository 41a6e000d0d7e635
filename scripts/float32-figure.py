"""Draw docs/figures/float32.svg and .png: what the float32 draw does to rare tokens.

    python scripts/float32-figure.py [DIRECTORY]

Lines are the closed form, dots the exact 24-bit law, summed over the lattice.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from strop.samplers.machinery.lattice import Lattice, first_order

HIDDEN = 0.5
TOP = 2**21  # lattice points that matter to a rare token; all others it loses at


def exact_share(p: float, t: float, s: float) -> float:
    """P(token of probability p is revealed in the update) over its plain value p (t - s) / t."""
    lattice, mass = Lattice(), np.float32(t - s)
    clocks = lattice.clock(np.arange(lattice.size - TOP, lattice.size))
    scores = np.float32(p) * mass / clocks

    def below(weight: np.float32) -> np.ndarray:
        """P(score of a class of this weight stays below each of our scores)."""
        return lattice.first(np.full_like(scores, weight), scores) / lattice.size

    won = (below(np.float32(1 - p) * mass) * below(np.float32(s))).sum() / lattice.size
    return float(won / (p * (t - s) / t))


def main(directory: Path) -> None:
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    p = np.logspace(-7.5, -2.5, 300)
    dots = np.logspace(-7, -3, 9)
    colours = plt.get_cmap("viridis")(np.linspace(0.1, 0.85, 4))
    for steps, colour in zip((16, 64, 256, 1024), colours, strict=True):
        s = HIDDEN - (1 - 1e-5) / steps
        plain = p * (HIDDEN - s) / HIDDEN
        axes.semilogx(p, first_order(p, HIDDEN, s) / plain, color=colour, label=f"M = {steps}")
        axes.semilogx(dots, [exact_share(q, HIDDEN, s) for q in dots], "o", ms=4, color=colour)
    axes.set_xlabel("probability of a token under the model")
    axes.set_ylabel("chance kept by the float32 draw")
    axes.set_ylim(-0.03, 1.08)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="lower right", title="steps")
    axes.set_title("float32 truncates rare tokens, more so with more steps", fontsize=11)
    directory.mkdir(parents=True, exist_ok=True)
    for suffix in ("svg", "png"):
        figure.savefig(
            directory / f"float32.{suffix}",
            dpi=150,
            metadata={"Date": None} if suffix == "svg" else None,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/figures"))
