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
    "Tokens per call count what stands before the end of a response and the end token itself; "
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
    own: bool = False
    """Whether it is for models that were trained in blocks or canvases, whose length it keeps."""

    def settings_at(self, value: float, length: int) -> tuple[int, dict[str, Any]]:
        """Steps and settings at one place of the dial, for responses of some length."""
        own = dict(self.settings)
        if "block_length" in SAMPLERS[self.sampler].settings:
            own["block_length"] = max(1, -(-length // BLOCKS)) if self.blocks else 0
        if self.dial != STEPS:
            return length, own | {self.dial: value}
        return max(1, round(length * value)), own


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
"""Where a cache is named, the curve before it is the same without one."""
OWN = (
    DecoderCurve("SDAR's", "sdar", "threshold", SURE, own=True),
    DecoderCurve("LLaDA 2.0's", "llada2", "threshold", SURE, own=True),
    DecoderCurve("LLaDA 2.1's, with edits", "llada2-edit", "threshold", SURE, own=True),
    DecoderCurve("Fast-dLLM v2's", "fast-dllm-v2", "threshold", SURE, own=True),
    DecoderCurve("BD3-LM's, on a grid", "bd3lm", STEPS, SHARES, {"update": "grid"}, own=True),
    DecoderCurve("DiffusionGemma's", "diffusion-gemma", "entropy_bound", (0.01, 0.1, 1), own=True),
)
"""Steps are shares of a block. DiffusionGemma's temperature is its public schedule: its output is
the best token at every position all the same."""


@dataclass(frozen=True)
class _Place:
    """One point of the figure."""

    curve: DecoderCurve
    value: float
    steps: int
    settings: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.curve.title}, {self.row()['said']}"

    def row(self) -> dict[str, Any]:
        """Where it is, for the table."""
        dial, value = self.curve.dial, self.value
        said = f"{dial.replace('_', ' ')} {value:g}"
        if dial == STEPS:
            value, said = self.steps, f"{self.steps} steps"
        known = {"decoder": self.curve.title, "dial": dial, "value": value, "said": said}
        return {**known, "sampler": self.curve.sampler, **self.settings}


def _places(model: Any, length: int) -> Iterator[_Place]:
    from strop.denoisers.base import CachingDenoiser

    block, reads = getattr(model, "block_length", None), reads_as(model.spec.family)
    for curve in CURVES if block is None else (*CURVES, *OWN):
        if SAMPLERS[curve.sampler].family != reads:
            continue
        if "cache" in curve.settings and not isinstance(model, CachingDenoiser):
            continue
        told = set()
        for value in curve.values:
            steps, settings = curve.settings_at(value, int(block or 0) if curve.own else length)
            if (steps, str(settings)) not in told:
                told.add((steps, str(settings)))
                yield _Place(curve, value, steps, settings)


def _run(ask: Ask) -> Result:
    from strop.tasks import TASKS, results
    from strop.verbs.points import load

    checkpoint, *control = ask.sources
    model = load(ask, checkpoint)
    if model.mask_id is None:
        raise UserError(
            "A causal model has one order and one token per call.",
            where=checkpoint,
            expected="a model that fills in masks; a causal one is the second",
        )
    task = TASKS.find(ask["task"], where="`task`")
    length = ask["length"] or task.length
    places = list(_places(model, length))
    with all_parts() as part:
        for number, place in enumerate(places):
            ask.note(f"{number + 1} of {len(places)}: {place}")
            with part():
                _answer(ask, model, length, place, anew=ask["force"] and number == 0)
        for source in control:
            with part():
                _answer(ask, load(ask, source), length, None)
    found = results(ask.out / TASK_RUN)
    name, label = found.filters[0], found.labels[0]
    mine = [(place, _setting(found.of_label(label), place)) for place in places]
    first = mine[0][1]
    rows = [{**place.row(), **_numbers(one, first, name)} for place, one in mine]
    rows += [
        {"decoder": f"{CONTROL} ({one.label})", **_numbers(one, first, name)}
        for one in found.settings
        if one.label != label and one.temperature == 0
    ]
    title = f"{checkpoint} at {task.name}: {len(first.index)} problems, greedy"
    return Result(ask.said(length=length), Table(title, COLUMNS, rows), notes=(TASK_NOTE,))


def _answer(
    ask: Ask, model: Model, length: int, place: _Place | None, *, anew: bool = False
) -> None:
    """Let a model answer the problems greedily, at one place of a decoder's dial."""
    from strop.tasks import run_task

    how: dict[str, Any] = {"temperatures": (0.0,)}
    if place is not None:
        cooling = SAMPLERS[place.curve.sampler].schedule
        how = {"temperatures": (cooling or 0.0,), "steps": (place.steps,), "precision": "float64"}
        how |= {"sampler": place.curve.sampler, "settings": place.settings}
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


def _setting(found: Iterable[TaskSetting], place: _Place) -> TaskSetting:
    """What was answered at one place."""
    for one in found:
        spec = one.sampler
        same = (spec.name, spec.steps) == (place.curve.sampler, place.steps)
        if same and all(spec.settings[k] == v for k, v in place.settings.items()):
            return one
    raise UserError(
        "The answers of a decoder were removed.",
        where=str(place),
        fix="start anew with `force`",
    )


def _numbers(one: TaskSetting, first: TaskSetting, name: str) -> dict[str, Any]:
    from strop.tasks import paired

    return {
        "accuracy": one.accuracy(name),
        "tokens_per_call": one.tokens_per_call,
        "calls": one.calls,
        "seconds": one.seconds,
        "difference": None if one is first else paired(one, first, name),
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
        here = (one for one in (*CURVES, *OWN) if (one.blocks or one.own) == blocks)
        for place, curve in enumerate(here):
            own = [row for row in rows if row["decoder"] == curve.title]
            own.sort(key=lambda row: row["tokens_per_call"])
            if not own:
                continue
            right = [r["accuracy"].mapped(lambda share: 100 * share) for r in own]
            turned = place >= len(PALETTE)  # colours come again, with other lines
            look: dict[str, Any] = {
                "color": PALETTE[place % len(PALETTE)],
                "ls": (0, (3, 1.5)) if turned else "-",
                "marker": "D" if turned else "o",
            }
            look |= {"lw": 1.1, "ms": 3, "elinewidth": 0.4}
            bars(axis, [r["tokens_per_call"] for r in own], right, label=curve.title, **look)
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
        seen = [one for one in TICKS if one <= 1.1 * max(r["tokens_per_call"] for r in rows)]
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
