"""Accuracy against tokens per network call, for every decoder of blocks, on a task.

A decoder buys speed by committing several tokens at a call, each drawn as if the others were not.
What that costs depends on which positions are taken together, so all decoders answer the same
problems greedily, each over its own dial: how many tokens at a step, or how sure it must be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strop.engine.plan import all_parts
from strop.errors import UserError
from strop.records.record import SAMPLERS, reads_as
from strop.table import Column, Table
from strop.verbs import parameters
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from strop.denoisers import Model
    from strop.tasks import TaskSetting

STEPS = "steps"
SHARES = (1.0, 0.5, 1 / 3, 0.25, 1 / 6, 1 / 12)
"""Steps of a quota, as shares of the positions."""
SURE = (0.99, 0.95, 0.9, 0.7, 0.5)
FACTORS = (0.1, 0.5, 1.0, 1.5)
BOUNDS = (0.01, 0.1, 0.5, 1.5)
TICKS = (0.5, 1, 2, 4, 8, 16, 32, 64)
BLOCKS = 3
"""Blocks of a response, for the decoders with a cache: without blocks there is nothing to keep."""
TASK_NOTE = (
    "Greedy (DiffusionGemma's decoder at its public schedule), every decoder on the same problems. "
    "Tokens per call count the tokens before the end of a response and the end token itself; "
    "intervals resample problems. A difference is paired with the first line, problem by problem."
)
CONTROL = "causal control"
TASK_RUN = "task"
SUMS, SUMS_AR = "embedded:sums", "embedded:sums-ar"


@dataclass(frozen=True)
class DecoderCurve:
    """One decoder and its dial."""

    title: str
    sampler: str
    dial: str
    """`steps`, or the setting that is turned."""
    values: tuple[float, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    blocks: bool = False
    """Whether the response is cut into blocks, one after the other."""
    native: bool = False
    """Whether it is for models that were trained in blocks or canvases, whose length it keeps."""

    def settings_at(self, value: float, length: int) -> tuple[int, dict[str, Any]]:
        """Steps and settings at one value of the dial, for responses of some length."""
        settings = dict(self.settings)
        if "block_length" in SAMPLERS[self.sampler].settings:
            settings["block_length"] = max(1, -(-length // BLOCKS)) if self.blocks else 0
        if self.dial != STEPS:
            return length, settings | {self.dial: value}
        return max(1, round(length * value)), settings


CURVES = (
    DecoderCurve("most confident first", "llada", STEPS, SHARES),
    DecoderCurve("most confident first, in blocks", "llada", STEPS, SHARES, blocks=True),
    DecoderCurve("random order", "llada", STEPS, SHARES, {"remasking": "random"}),
    DecoderCurve("left to right", "blockwise", STEPS, SHARES, {"score": "left"}),
    DecoderCurve("largest margin first", "blockwise", STEPS, SHARES, {"score": "margin"}),
    DecoderCurve("least entropy first", "dream", STEPS, SHARES, {"alg": "entropy"}),
    DecoderCurve("threshold", "fast-dllm", "threshold", SURE, {"commit": "threshold"}),
    DecoderCurve("factor", "fast-dllm", "factor", FACTORS, {"commit": "factor"}),
    DecoderCurve(
        "entropy bound",
        "blockwise",
        "entropy_bound",
        BOUNDS,
        {"commit": "entropy-bound", "score": "entropy"},
    ),
    DecoderCurve("threshold, in blocks", "fast-dllm", "threshold", SURE, blocks=True),
    *(
        DecoderCurve(
            f"the same, {cache} cache", "fast-dllm", "threshold", SURE, {"cache": cache}, True
        )
        for cache in ("prefix", "dual")
    ),
)
"""A curve with a cache follows the same curve without one."""
NATIVE = (
    DecoderCurve("SDAR's", "sdar", "threshold", SURE, native=True),
    DecoderCurve("LLaDA 2.0's", "llada2", "threshold", SURE, native=True),
    DecoderCurve("LLaDA 2.1's, with edits", "llada2-edit", "threshold", SURE, native=True),
    DecoderCurve("Fast-dLLM v2's", "fast-dllm-v2", "threshold", SURE, native=True),
    DecoderCurve("BD3-LM's, on a grid", "bd3lm", STEPS, SHARES, {"update": "grid"}, native=True),
    DecoderCurve(
        "DiffusionGemma's", "diffusion-gemma", "entropy_bound", (0.01, 0.1, 1), native=True
    ),
)
"""Steps are shares of a block. DiffusionGemma's temperature is its public schedule: its output is
the best token at every position all the same."""


@dataclass(frozen=True)
class _DialPoint:
    """One point of the figure."""

    curve: DecoderCurve
    value: float
    steps: int
    settings: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.curve.title}, {self.row()['said']}"

    def row(self) -> dict[str, Any]:
        """Its columns in the table."""
        dial, value = self.curve.dial, self.value
        words = f"{dial.replace('_', ' ')} {value:g}"
        if dial == STEPS:
            value, words = self.steps, f"{self.steps} steps"
        fields = {"decoder": self.curve.title, "dial": dial, "value": value, "said": words}
        return {**fields, "sampler": self.curve.sampler, **self.settings}


def _dial_points(model: Any, length: int) -> Iterator[_DialPoint]:
    from strop.denoisers.base import CachingDenoiser

    block, reads = getattr(model, "block_length", None), reads_as(model.spec.family)
    for curve in CURVES if block is None else (*CURVES, *NATIVE):
        if SAMPLERS[curve.sampler].family != reads:
            continue
        if "cache" in curve.settings and not isinstance(model, CachingDenoiser):
            continue
        seen = set()
        for value in curve.values:
            steps, settings = curve.settings_at(value, int(block or 0) if curve.native else length)
            if (steps, str(settings)) not in seen:
                seen.add((steps, str(settings)))
                yield _DialPoint(curve, value, steps, settings)


def _run(ask: Ask) -> Result:
    from strop.tasks import TASKS, results
    from strop.verbs.points import load

    checkpoint, *control = ask.sources
    model = load(ask, checkpoint)
    if model.mask_id is None:
        raise UserError(
            "A causal model has one order and one token per call.",
            where=checkpoint,
            expected="a model that fills in masks; the causal control comes second",
        )
    task = TASKS.find(ask["task"], where="`task`")
    length = ask["length"] or task.length
    points = list(_dial_points(model, length))
    with all_parts() as part:
        for number, point in enumerate(points):
            ask.note(f"{number + 1} of {len(points)}: {point}")
            with part():
                _answer(ask, model, length, point, anew=ask["force"] and number == 0)
        for source in control:
            with part():
                _answer(ask, load(ask, source), length, None)
    task_results = results(ask.out / TASK_RUN)
    name, label = task_results.filters[0], task_results.labels[0]
    answered = [(point, _setting(task_results.of_label(label), point)) for point in points]
    first = answered[0][1]
    rows = [{**point.row(), **_numbers(setting, first, name)} for point, setting in answered]
    rows += [
        {"decoder": f"{CONTROL} ({setting.label})", **_numbers(setting, first, name)}
        for setting in task_results.settings
        if setting.label != label and setting.temperature == 0
    ]
    title = f"{checkpoint} at {task.name}: {len(first.index)} problems, greedy"
    return Result(ask.said(length=length), Table(title, COLUMNS, rows), notes=(TASK_NOTE,))


def _answer(
    ask: Ask, model: Model, length: int, point: _DialPoint | None, *, anew: bool = False
) -> None:
    """Let a model answer the problems greedily, at one value of a decoder's dial."""
    from strop.tasks import run_task

    how: dict[str, Any] = {"temperatures": (0.0,)}
    if point is not None:
        cooling = SAMPLERS[point.curve.sampler].schedule
        how = {"temperatures": (cooling or 0.0,), "steps": (point.steps,), "precision": "float64"}
        how |= {"sampler": point.curve.sampler, "settings": point.settings}
    run_task(
        ask["task"],
        model,
        ask.out / TASK_RUN,
        seeds=1,
        limit=ask["n"],
        length=length,
        unsafe_run=ask["unsafe_run"],
        force=anew,
        progress=ask.progress,
        engine=ask.engine,
        **how,
    )


def _setting(settings: Iterable[TaskSetting], point: _DialPoint) -> TaskSetting:
    """The answers at one value of a dial."""
    for setting in settings:
        spec = setting.sampler
        same = (spec.name, spec.steps) == (point.curve.sampler, point.steps)
        if same and all(spec.settings[k] == v for k, v in point.settings.items()):
            return setting
    raise UserError(
        "The answers of a decoder were removed.",
        where=str(point),
        fix="start anew with `force`",
    )


def _numbers(setting: TaskSetting, first: TaskSetting, name: str) -> dict[str, Any]:
    from strop.tasks import paired

    return {
        "accuracy": setting.accuracy(name),
        "tokens_per_call": setting.tokens_per_call,
        "calls": setting.calls,
        "seconds": setting.seconds,
        "difference": None if setting is first else paired(setting, first, name),
    }


COLUMNS = (
    Column("decoder"),
    Column("said", "dial"),
    Column("accuracy", percent=True, digits=3),
    Column("difference", "against the first", percent=True, digits=2, signed=True),
    Column("tokens_per_call", "tokens per call", digits=3),
    Column("calls", digits=3, help="Network calls per response."),
)


def _draw(result: Result) -> Figure:
    """Accuracy against tokens per call: a panel of orders and rules, one of blocks and caches."""
    from strop.figures import GREY, PALETTE, bars, panels, plain_ticks

    rows = [row for row in result.table.rows if row.get("dial")]
    control = [row for row in result.table.rows if not row.get("dial")]
    figure, axes = panels(1, 3.2, 2, 2, sharex=True, sharey=True)
    for axis, blocks in zip(axes, (False, True), strict=True):
        curves = (curve for curve in (*CURVES, *NATIVE) if (curve.blocks or curve.native) == blocks)
        for number, curve in enumerate(curves):
            points = [row for row in rows if row["decoder"] == curve.title]
            points.sort(key=lambda row: row["tokens_per_call"])
            if not points:
                continue
            right = [r["accuracy"].mapped(lambda share: 100 * share) for r in points]
            turned = number >= len(PALETTE)  # colours come again, with other lines
            look: dict[str, Any] = {
                "color": PALETTE[number % len(PALETTE)],
                "ls": (0, (3, 1.5)) if turned else "-",
                "marker": "D" if turned else "o",
            }
            look |= {"lw": 1.1, "ms": 3, "elinewidth": 0.4}
            bars(axis, [r["tokens_per_call"] for r in points], right, label=curve.title, **look)
        for row in control:
            axis.axhline(100 * row["accuracy"].value, color=GREY, lw=0.8, ls=(0, (4, 2)))
            axis.annotate(
                row["decoder"],
                (1.0, 100 * row["accuracy"].value),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="bottom",
                fontsize=7,
                color=GREY,
            )
        axis.set(xlabel="tokens per network call", ylim=(0, 108), xscale="log")
        seen = [tick for tick in TICKS if tick <= 1.1 * max(r["tokens_per_call"] for r in rows)]
        plain_ticks(axis.xaxis, seen)
        # Above the panel: curves reach every corner of it.
        if axis.get_legend_handles_labels()[0]:  # a family may have decoders in one panel alone
            axis.legend(fontsize=6, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2)
    axes[0].set(ylabel="right answers, %")
    return figure


STUDY = Study(
    name="decoders",
    title="Accuracy against tokens per network call, for every decoder",
    about="Let CHECKPOINT answer a task greedily by every order, rule, block and cache, each over "
    "its dial, and CONTROL, a causal model, beside it.",
    sources=Sources(("CHECKPOINT", "CONTROL"), "As for `strop sample`.", (SUMS, SUMS_AR)),
    parameters=(
        Parameter("task", "One of `strop task list`.", "sums"),
        Parameter.count(
            "n", "Problems, from the first.", smoke=16, most=2**31, shown="all of the task"
        ),
        parameters.LENGTH,
        Parameter.flag("unsafe_run", "Run programs without a sandbox, as yourself."),
        *parameters.ANSWERED,
    ),
    run=_run,
    draw=_draw,
    runs=(TASK_RUN,),
    examples=(
        "strop study decoders -o runs/decoders",
        "strop study decoders --smoke -o runs/decoders-smoke",
    ),
)
