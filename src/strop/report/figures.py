"""The report's figures. Colour says the temperature, the line says the precision.

Open markers lie below the entropy guard, everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from strop.report.comparisons import judged_drawing, posterior_drawing
from strop.report.costs import cost_drawing
from strop.report.data import CORNERS, DAGGER, Cell, Estimate, Model, Report, Setting
from strop.report.drawing import Drawing, bar, blank
from strop.report.svg import FILE_STYLE, INK, PAPER
from strop.report.why import two_bits_drawing
from strop.theory.figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, log_y, tidy

__all__ = ["drawings"]

COLOURS = {1.0: BLUE, 0.9: ORANGE, 0.85: PURPLE}
OTHERS = (GREEN, GREY)
MARKERS = {"float64": "o", "float32": "D"}
MOST_LINES = 6
"""Beyond these a figure against steps shows the corners only."""


def drawings(report: Report) -> list[Drawing]:
    """Every figure that the report's data allow."""
    evaluator = report.evaluators[0] if report.evaluators else None
    with matplotlib.rc_context(FILE_STYLE):
        found = [
            drawing
            for i, model in enumerate(report.models)
            for drawing in _of_model(i, model, evaluator)
        ]
        if report.cost:
            found.append(cost_drawing(report.cost))
        if report.models:
            found.append(two_bits_drawing())
        if any(row.ratio is not None for row in report.posterior):
            found.append(posterior_drawing(report))
        if any(row.geq is not None and row.ged is not None for row in report.judged):
            found.append(judged_drawing(report.judged))
        return found


def _of_model(i: int, model: Model, evaluator: str | None) -> Iterable[Drawing]:
    note = _open_note(model)
    if evaluator is not None and any(evaluator in cell.perplexity for cell in model.cells):
        yield Drawing(
            f"perplexity-{i + 1}",
            "Perplexity against steps",
            f"Generative perplexity under {evaluator}, with 95% intervals; lower is more "
            f"predictable.{note}",
            _against_steps(model, lambda cell: cell.perplexity.get(evaluator), "perplexity", True),
            i,
        )
    if any(cell.entropy is not None for cell in model.cells):
        guard = "" if model.guard is None else f" The line is the guard, {model.guard.value:.2f}."
        figure = _against_steps(model, lambda cell: cell.entropy, "entropy, nats", False)
        if model.guard is not None:
            _guard_line(figure.axes[0].axhline, model.guard.value)
        yield Drawing(
            f"entropy-{i + 1}",
            "Entropy against steps",
            f"Unigram entropy of single outputs, averaged.{guard}{note}",
            figure,
            i,
        )
    if evaluator is not None and any(
        evaluator in cell.perplexity and cell.entropy is not None for cell in model.cells
    ):
        yield Drawing(
            f"frontier-{i + 1}",
            "The frontier",
            "Perplexity against entropy: down is more predictable, right is more varied. Numbers "
            f"at the points are steps.{note}",
            _frontier(model, evaluator),
            i,
        )


def _open_note(model: Model) -> str:
    below = any(cell.below_guard for cell in model.cells)
    return f" Open markers ({DAGGER}) lie below the guard." if below else ""


def _against_steps(
    model: Model, value: Callable[[Cell], Estimate | None], label: str, log: bool
) -> Figure:
    figure, axes = blank()
    settings = _few(model.settings())
    shown: list[Setting] = []
    for rank, setting in enumerate(settings):
        # Beside each other, so that intervals at the same budget can be told apart.
        aside = 1.05 ** (rank - (len(settings) - 1) / 2)
        points = [
            (cell.steps * aside, estimate, cell.below_guard)
            for cell in sorted(model.cells, key=lambda cell: cell.steps)
            if cell.setting == setting and (estimate := value(cell)) is not None
        ]
        if not points:
            continue
        shown.append(setting)
        xs, ys = [x for x, _, _ in points], [estimate.value for _, estimate, _ in points]
        axes.plot(xs, ys, color=_colour(setting), ls=_line(setting), lw=1.2)
        for x, estimate, below in points:
            bar(axes, x, estimate, _colour(setting))
            _point(axes, x, estimate.value, setting, below)
    axes.set_xscale("log", base=2)
    steps = model.steps()
    axes.set_xticks(steps, [str(m) for m in steps], rotation=0 if len(steps) < 8 else 45)
    axes.minorticks_off()
    if log:
        log_y(axes)
    axes.set(xlabel="steps M", ylabel=label)
    _legend(figure, shown)
    tidy(axes)
    return figure


def _frontier(model: Model, evaluator: str) -> Figure:
    figure, axes = blank()
    shown: list[Setting] = []
    for setting in model.settings():
        cells = [
            cell
            for cell in sorted(model.cells, key=lambda cell: cell.steps)
            if cell.setting == setting and evaluator in cell.perplexity and cell.entropy is not None
        ]
        if not cells:
            continue
        shown.append(setting)
        xs = [cell.entropy.value for cell in cells if cell.entropy is not None]
        ys = [cell.perplexity[evaluator].value for cell in cells]
        axes.plot(xs, ys, color=_colour(setting), ls=_line(setting), lw=1.0, alpha=0.7)
        for x, y, cell in zip(xs, ys, cells, strict=True):
            _point(axes, x, y, setting, cell.below_guard)
        for end in {0, len(cells) - 1}:
            axes.annotate(
                str(cells[end].steps),
                (xs[end], ys[end]),
                (4, 3),
                textcoords="offset points",
                color=_colour(setting),
                fontsize=6.5,
            )
    if model.guard is not None:
        _guard_line(axes.axvline, model.guard.value)
    log_y(axes)
    axes.margins(x=0.08)
    axes.set(xlabel="entropy, nats", ylabel="perplexity")
    _legend(figure, _few(shown) if len(shown) > MOST_LINES else shown)
    tidy(axes)
    return figure


def _few(settings: list[Setting]) -> list[Setting]:
    if len(settings) <= MOST_LINES:
        return settings
    return [setting for setting in settings if setting in CORNERS] or settings[:MOST_LINES]


def _colour(setting: Setting) -> str:
    known = COLOURS.get(setting.temperature)
    return known or OTHERS[int(setting.temperature > 0.9)]


def _line(setting: Setting) -> str:
    return "-" if setting.precision == "float64" else (0, (4, 1.6))  # type: ignore[return-value]


def _point(axes: Axes, x: float, y: float, setting: Setting, below: bool) -> None:
    colour = _colour(setting)
    marker = MARKERS.get(setting.precision, "s")
    size = 4.2 if marker == "o" else 3.8
    face = PAPER if below else colour
    axes.plot(x, y, marker, ms=size, mfc=face, mec=colour, mew=1.0, zorder=3)


def _guard_line(draw: Callable[..., object], value: float) -> None:
    draw(value, color=INK, lw=0.8, ls=(0, (1, 1.5)), zorder=1)


def _legend(figure: Figure, settings: list[Setting]) -> None:
    handles = [
        Line2D(
            [],
            [],
            color=_colour(setting),
            ls=_line(setting),
            marker=MARKERS.get(setting.precision, "s"),
            ms=3.6,
            lw=1.2,
            label=setting.label,
        )
        for setting in settings
    ]
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncol=-(-len(settings) // 2),  # filled by columns: one temperature in each
        fontsize=6.8,
        columnspacing=1.0,
        handlelength=2.0,
        handletextpad=0.5,
        borderpad=0,
    )
