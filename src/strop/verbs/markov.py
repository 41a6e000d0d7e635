"""A perfect model at full length: the real samplers on a Markov chain whose law is known.

Against inverse temperature, for every number of steps M:

- the KL of adjacent pairs, KL(P(X_i, X_i+1) || pooled pairs of the outputs): by the data-processing
  inequality and convexity a lower bound on the output error KL(P || pi). The plug-in estimate is
  too large when outputs are few; a jackknife over outputs takes the bias out;
- B_N + C_N, exact from the chain's profiles: an upper bound on the output error;
- the true negative log-likelihood of the outputs and their entropy, both per token.

Outputs are independent, the pairs inside one are not: whole outputs are counted, resampled and left
out together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.spec.generator import SamplerSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from strop.theory.accounting import Chain

Floats = NDArray[np.float64]


STEPS = (4, 16, 64, 256, 1024)
LAMBDAS = (0.8, 0.9, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0)


@dataclass(frozen=True)
class MarkovStudy:
    """All rows, and what the target itself scores."""

    values: int
    length: int
    outputs: int
    seed: int
    entropy_rate: float
    """What a perfect generator has as NLL and as pair entropy, per token."""
    rows: list[dict[str, Any]]
    """A generator each, M updates at one inverse temperature, as `_measure` says."""

    def curve(self, steps: int, name: str) -> tuple[Floats, Floats]:
        """One column against lambda."""
        points = [(row["lam"], row[name]) for row in self.rows if row["steps"] == steps]
        lams, values = np.array(points, dtype=float).T
        return lams, values

    def best(self) -> list[dict[str, Any]]:
        """Where the pair KL is least, and where the NLL meets the entropy rate."""
        out: list[dict[str, Any]] = []
        for steps in dict.fromkeys(row["steps"] for row in self.rows):
            lams, pair = self.curve(steps, "pair_kl")
            _, error = self.curve(steps, "pair_kl_stderr")
            _, nll = self.curve(steps, "nll")
            k, at_one = int(pair.argmin()), int(np.abs(lams - 1).argmin())
            out.append(
                {
                    "steps": steps,
                    "lambda_star_pairs": vertex(lams, pair),
                    "pair_kl_at_1": float(pair[at_one]),
                    "pair_kl_best": float(pair[k]),
                    "stderr": float(np.hypot(error[k], error[at_one])),
                    "lambda_at_entropy_rate": crossing(lams, nll, self.entropy_rate),
                }
            )
        return out

    def as_dict(self) -> dict[str, Any]:
        """The study as one JSON document."""
        return {**asdict(self), "best": self.best()}


def run_markov_study(
    *,
    values: int = 8,
    length: int = 1024,
    outputs: int = 128,
    steps: Sequence[int] = STEPS,
    lams: Sequence[float] = LAMBDAS,
    seed: int = 0,
    note: Callable[[str], None] = lambda _: None,
) -> MarkovStudy:
    """Sample every generator and measure it against the chain."""
    from strop.denoisers.tabular import MarkovDenoiser
    from strop.draw import sample
    from strop.theory.accounting import random_chain
    from strop.theory.sampler import clipped_masses

    chain = random_chain(values, length, np.random.default_rng([seed, 3]))
    denoiser = MarkovDenoiser(chain.kernel, length)
    rows = []
    for count in steps:
        price, loss = chain.account(clipped_masses(count), lams)
        for lam, error in zip(lams, loss, strict=True):
            # `draw` treats the last round like any other; with `greedy` it would be another law.
            spec = SamplerSpec(steps=count, temperature=1 / lam, finish="draw")
            pool = sample(denoiser, spec, n=outputs, seed=seed, batch_size=outputs)
            measured = _measure(chain, pool.ids)
            upper = {"upper": price + float(error)}  # B_N + C_N, nats a sequence, exact
            rows.append({"steps": count, "lam": float(lam), **measured, **upper})
            words = f"pair KL {measured['pair_kl']:.5f}, NLL {measured['nll']:.4f}"
            note(f"M = {count}, lambda = {lam:g}: {words}")
    return MarkovStudy(values, length, outputs, seed, chain.entropy_rate, rows)


def _measure(chain: Chain, ids: NDArray[np.int64]) -> dict[str, float]:
    """Of outputs: the bias-corrected KL of adjacent pairs, at most the output error; -log P(x) / L
    under the chain itself; H(X_i+1 | X_i), bias-corrected, at least their entropy rate; and the
    mean entropy of the token counts inside one output, as the field reports it."""
    counts = pair_counts(ids, chain.values)
    distance, pair_error = jackknife(counts, lambda c: pair_kl(chain.pairs.reshape(-1), c))
    pair_entropy, _ = jackknife(counts, lambda c: conditional_entropy(c, chain.values))
    nll = -chain.log_likelihood(ids) / chain.length
    tokens = np.stack([(ids == v).mean(axis=1) for v in range(chain.values)], axis=1)
    unigram = -np.where(tokens > 0, tokens * np.log(np.maximum(tokens, 1e-300)), 0.0).sum(axis=1)
    return {
        "pair_kl": distance,
        "pair_kl_stderr": pair_error,
        "nll": float(nll.mean()),
        "nll_stderr": float(nll.std(ddof=1) / np.sqrt(len(nll))),
        "pair_entropy": pair_entropy,
        "unigram_entropy": float(unigram.mean()),
    }


def draw(study: MarkovStudy) -> Figure:
    """Three panels against inverse temperature, one colour per number of steps."""
    from strop.figures import panels, plain_ticks, shades

    figure, (lower, upper, text) = panels(3, 6.4)
    steps = list(dict.fromkeys(row["steps"] for row in study.rows))
    for count, colour in zip(steps, shades(len(steps)), strict=True):
        lams, pair = study.curve(count, "pair_kl")
        _, error = study.curve(count, "pair_kl_stderr")
        # A corrected estimate can fall below zero; a log axis shows it at its error instead.
        visible = np.maximum(pair, error)
        look: dict[str, Any] = {"color": colour, "marker": "o", "ms": 2.5, "lw": 1.2}
        lower.errorbar(lams, visible, 2 * error, elinewidth=0.7, label=f"M = {count}", **look)
        upper.plot(lams, study.curve(count, "upper")[1] / study.length, **look)
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
        plain_ticks(axes.xaxis, [0.8, 1, 1.5, 2, 3])
        axes.axvline(1, color="grey", lw=0.6, ls=":")
    return figure


def save(study: MarkovStudy, folder: Path) -> list[Path]:
    """Write the figure as SVG and PNG."""
    from strop.figures import write_figure

    files = [folder / f"markov.{kind}" for kind in ("svg", "png")]
    write_figure(lambda: draw(study), files)
    return files


def pair_counts(ids: NDArray[np.int64], values: int) -> Floats:
    """How often each adjacent pair occurs in each output: shape `(outputs, V * V)`."""
    codes = ids[:, :-1] * values + ids[:, 1:]
    offset = np.arange(len(ids))[:, None] * values**2
    flat = np.bincount((codes + offset).reshape(-1), minlength=len(ids) * values**2)
    return flat.reshape(len(ids), -1).astype(float)


def jackknife(counts: Floats, statistic: Callable[[Floats], Floats]) -> tuple[float, float]:
    """A statistic of pooled counts without its first-order bias, and its standard error.

    Outputs are independent, the pairs inside one are not: whole outputs are left out.
    """
    n = len(counts)
    total = counts.sum(axis=0)
    without = statistic(total - counts)
    corrected = n * float(statistic(total[None])[0]) - (n - 1) * float(without.mean())
    return corrected, float(np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum()))


def pair_kl(law: Floats, counts: Floats) -> Floats:
    """KL(law || counts) per row; half a count where a pair was never seen."""
    seen = np.maximum(counts, 0.5)
    return (law * (np.log(law) - np.log(seen / seen.sum(axis=1, keepdims=True)))).sum(axis=1)


def conditional_entropy(counts: Floats, values: int) -> Floats:
    """H(X_i+1 | X_i) per row of counts."""
    joint = (counts / counts.sum(axis=1, keepdims=True)).reshape(-1, values, values)
    first = joint.sum(axis=2, keepdims=True)
    ratio = np.where(joint > 0, joint / np.maximum(first, 1e-300), 1.0)
    return -(joint * np.log(ratio)).sum(axis=(1, 2))


def vertex(lams: Floats, values: Floats) -> float:
    """The least point of the parabola in log lambda through the best value and its neighbours."""
    k = int(values.argmin())
    if k in (0, len(lams) - 1):
        return float(lams[k])
    a, b, _ = np.polyfit(np.log(lams[k - 1 : k + 2]), values[k - 1 : k + 2], 2)
    return float(np.exp(-b / (2 * a)))


def crossing(lams: Floats, values: Floats, level: float) -> float | None:
    """Where a falling curve meets a level, by linear interpolation; None if it does not."""
    (above,) = np.nonzero((values[:-1] >= level) & (values[1:] < level))
    if not above.size:
        return None
    k = int(above[0])
    part = (values[k] - level) / (values[k] - values[k + 1])
    return float(lams[k] + part * (lams[k + 1] - lams[k]))
