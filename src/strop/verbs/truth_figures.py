"""Figures of the questions about truth; what a question measures beside modes has its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strop.figures import BLUE, COLUMN, GREEN, GREY, ORANGE, PALETTE, PURPLE, errors, tidy
from strop.verbs.verb import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (*PALETTE, "#b03a48", "#6b5b2e", "#1a9aa0")


def draw(result: Result) -> Figure:
    """The figure of what was asked."""
    from matplotlib.figure import Figure

    question = result.asked.get("question")
    kinds = {"proxies": _ranks, "compare": _verdicts, "bound": _bounds}
    figure = Figure(figsize=(2 * COLUMN, 3.6), layout="constrained")
    kinds.get(str(question), _scatter)(figure, result)
    return figure


def _scatter(figure: Figure, result: Result) -> None:
    """Violations against modes: to the right and down is better; one colour a model.

    A line joins the temperatures of one sampler, or its steps where there is one temperature.
    """
    rows, axes = list(result.table.rows), figure.subplots()
    models = list(dict.fromkeys(row["model"] for row in rows))
    alone = len({str(row["temperature"]) for row in rows}) == 1
    for row in rows:
        colour = COLOURS[models.index(row["model"]) % len(COLOURS)]
        x, y = row["modes"], row["violations"]
        look: dict[str, Any] = {"fmt": "o", "ms": 3, "capsize": 1.5, "lw": 0.7, "color": colour}
        at = (x.value, max(y.value, 0.01))
        axes.errorbar(*at, yerr=errors([y]), xerr=errors([x]), **look)
    for model in models:
        colour = COLOURS[models.index(model) % len(COLOURS)]
        axes.plot([], [], "o", ms=3, color=colour, label=model)
        lines: dict[Any, list[Any]] = {}
        for row in rows:
            if row["model"] == model and "/" not in str(row["temperature"]):
                lines.setdefault((row["kind"], None if alone else row["steps"]), []).append(row)
        for line in lines.values():
            ends = [(one["modes"].value, max(one["violations"].value, 0.01)) for one in line]
            axes.plot(*zip(*ends, strict=True), color=colour, lw=0.6, alpha=0.5)
    true = result.facts["true_modes"]
    axes.axvline(true, color="black", lw=0.7, ls=":", label="modes of the law")
    axes.set(xlabel="effective modes", ylabel="violations per text", yscale="log")
    figure.legend(fontsize=6, loc="outside right upper")
    tidy(axes)
    _label(figure, axes, rows)


def _label(figure: Figure, axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Every point's setting beside it, above or below so that no two labels lie on each other."""
    figure.draw_without_rendering()  # now points have their places
    taken: list[tuple[float, float, float]] = []
    for row in rows:
        at, words = (row["modes"].value, max(row["violations"].value, 0.01)), _short(row)
        x, y = axes.transData.transform(at) * 72 / figure.dpi
        wide, up = 2.6 * len(words), 2.0
        for up in (2, -7, 8, -13, 14, -19, 20, -25, 26):
            if not any(x < r and left < x + wide and abs(y + up - h) < 6 for left, r, h in taken):
                break
        taken.append((x, x + wide, y + up))
        axes.annotate(words, at, (3, up), textcoords="offset points", fontsize=5)


def _short(row: Mapping[str, Any]) -> str:
    words = row["setting"].removeprefix("blockwise ")
    for word in (" float64", "block_length=0", "commit=entropy-bound", "tau=1 ", "score="):
        words = words.replace(word, "")
    if row["sampler"].get("settings", {}).get("block_length"):
        words += " in blocks"
    return " ".join(words.removesuffix("tau=1").split())


def _ranks(figure: Figure, result: Result) -> None:
    """Every proxy's rank correlations with what is true; zero is no use."""
    axes, ranks = figure.subplots(), result.facts["ranks"]
    names = list(ranks)
    truths = {"quality": BLUE, "diversity": ORANGE, "both": GREEN}
    for k, (what, colour) in enumerate(truths.items()):
        for place, name in enumerate(names):
            value, low, high = ranks[name][what]
            y = -place - (k - 1) * 0.22
            axes.plot([low, high], [y, y], color=colour, lw=1)
            axes.plot(value, y, "o", ms=3, color=colour, label=None if place else what)
    axes.axvline(0, color="black", lw=0.7, ls=":")
    axes.set_yticks([-place for place in range(len(names))], names, fontsize=6)
    axes.set(xlabel="rank correlation with the truth, 95%", xlim=(-1.05, 1.05))
    figure.legend(fontsize=6, loc="outside right upper")
    tidy(axes)


def _bounds(figure: Figure, result: Result) -> None:
    """The bound over temperatures, beside the overlap with the law of the modes."""
    rows = list(result.table.rows)
    left, right = figure.subplots(1, 2)
    lines = dict.fromkeys((row["model"], row["steps"]) for row in rows)
    for (model, steps), colour in zip(lines, COLOURS, strict=False):
        mine = [row for row in rows if (row["model"], row["steps"]) == (model, steps)]
        mine.sort(key=lambda row: row["temperature"])
        taus = [row["temperature"] for row in mine]
        most = max((key for key in mine[0] if key.startswith("bound ")), key=len)
        for axes, key, side in ((left, most, min), (right, "soft", max)):
            values = [row[key] for row in mine]
            best = side(values)
            shown = [one - best if axes is left else one / max(best, 1e-12) for one in values]
            label = f"{model}, M = {steps}" if axes is left else None
            axes.plot(taus, shown, "o-", ms=3, lw=0.8, color=colour, label=label)
    left.set(xlabel="temperature", ylabel="m-path bound above its least, nats")
    right.set(xlabel="temperature", ylabel="soft overlap, of its largest")
    figure.legend(fontsize=6, loc="outside lower center", ncols=3)
    for axes in (left, right):
        tidy(axes)


LOOKS = {"right": GREEN, "cannot tell": GREY, "wrong": ORANGE}


def _verdicts(figure: Figure, result: Result) -> None:
    """Every pair: what is true (letter) and whether `compare` said so (colour)."""
    from matplotlib.patches import Rectangle

    rows, axes = list(result.table.rows), figure.subplots()
    figure.set_size_inches(2 * COLUMN, 5)
    names = [f"{row['model']}, {_short(row)}" for row in rows]
    for pair in result.facts["pairs"]:
        at = (pair["a"], -pair["b"])
        colour = LOOKS.get(pair["how"], PURPLE)
        corner = (at[0] - 0.5, at[1] - 0.5)
        shade = 0.15 if pair["truth"] == "close" else 0.75
        axes.add_patch(Rectangle(corner, 1, 1, color=colour, alpha=shade, lw=0))
        axes.text(*at, pair["truth"][0], ha="center", va="center", fontsize=6)
    _named(axes, names)
    for how, colour in (*LOOKS.items(), ("a verdict on a close pair", PURPLE)):
        axes.plot([], [], "s", color=colour, label=how)
    figure.legend(fontsize=6, loc="outside lower center", ncols=4)
    axes.set_title("The column is b better, w worse, m mixed, c close", fontsize=7)


def _named(axes: Axes, names: Sequence[str]) -> None:
    """One name a row and a column."""
    count = len(names)
    axes.set(xlim=(-0.5, count - 1.5), ylim=(-count + 0.5, -0.5))
    axes.set_xticks(range(count - 1), names[:-1], rotation=60, ha="right", fontsize=6)
    axes.set_yticks([-k for k in range(1, count)], names[1:], fontsize=6)
    tidy(axes)
