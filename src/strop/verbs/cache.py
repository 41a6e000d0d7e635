"""A cache is an approximation with a name: how far it is from no cache, and what it saves.

A network that looks both ways has no past that stays as it was: the keys and values of every token
depend on all others, so those that a cache keeps are stale as soon as one changes. The same decoder
runs without a cache and through each, with the same random numbers, and the laws are compared call
by call along the uncached outputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError, unknown_name
from strop.records.record import SAMPLERS
from strop.spec.generator import CheckpointSpec, OperatingPoint, SamplerSpec
from strop.spec.value import Spec
from strop.stats.resample import Statistic, intervals, mean
from strop.table import Column, Table
from strop.verbs import parameters
from strop.verbs.points import load, points
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter, Result

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

    from strop.denoisers.base import Denoiser
    from strop.tasks.running import Grader

CACHES = ("prefix", "dual")
NONE, SEED = "none", "none, another seed"
DECODERS = {"llada": "fast-dllm", "dream": "fast-dllm-dream"}
"""The families' own decoders with caches; `blockwise` does for all."""
LAYERS, WIDTH, ROOM = 4, 64, 512
PROMPT = 16
"""Given tokens of the random model's prompts."""
RANDOM = "a random LLaDA"
RANDOM_NOTE = (
    f"This model is untrained ({RANDOM} of {LAYERS} layers): its laws are broad, and no answer "
    "is right or wrong. It shows that the measurement works and how many positions a cache saves, "
    "not how far off a cache is on a trained model."
)
LAW_NOTE = (
    "KL(uncached || cached) of the network's untempered law per open position, in nats, on the "
    "uncached canvas: tokens that a cache changed earlier do not enter. They do enter the changed "
    "tokens, which grow with every change; two seeds differ in the share of the last line."
)
COST_NOTE = (
    "Positions are rows of the network, the head not counted. The ratio of seconds is this "
    "machine's, and small networks on a CPU save less than their positions."
)
RIGHT, RIGHT_BY_SEED = "right", "right_by_seed"
GRADED = (
    Column("accuracy", percent=True, digits=3),
    Column(
        "gain",
        "minus no cache",
        percent=True,
        signed=True,
        digits=3,
        help="Accuracy minus that without a cache, over the same problems.",
    ),
)
TASK_NOTE = (
    "Accuracy by the task's first filter; its difference from no cache is over the same problems, "
    "with a 95% interval over problems."
)


class CacheCell(Spec):
    """All that one comparison depends on, except the machine."""

    younger = ("task",)
    checkpoint: CheckpointSpec
    sampler: SamplerSpec
    """With its cache; `none` has the cached decoder without one."""
    prompts: str
    """Hash of the given tokens."""
    length: int
    outputs: int
    seed: int
    task: str | None = None
    """Fingerprint of the task that outputs are graded by, where they are."""


def random_llada(directory: Path, *, seed: int = 0, family: str = "llada") -> Path:
    """Write an untrained LLaDA of four layers, or another model with a tokenizer of its own, with
    the embedded model's tokenizer."""
    from strop.checkpoints.config import SHAPES
    from strop.checkpoints.layout import write_random
    from strop.records.record import FAMILIES
    from strop.registry import resolve

    layout = FAMILIES[family].layout
    assert layout is not None
    size = {"hidden_dim": WIDTH, "n_blocks": LAYERS, "n_heads": 4, "length": ROOM}
    vocabulary = {"vocab_size": 4110, "mask_id": 4109}  # the tokenizer's, with special tokens
    write_random(directory, resolve(layout)(replace(SHAPES["tiny"], **size, **vocabulary)), seed)
    return directory


# ---------------------------------------------------------------- model, prompts, settings


def _model(ask: Ask, folder: str) -> Denoiser:
    """The checkpoint; or the random model, written into a folder where workers find it too."""
    from strop.denoisers.base import CachingDenoiser

    if not ask.sources:
        return load(ask, str(random_llada(Path(folder) / "llada")))  # type: ignore[return-value]
    model = load(ask, ask.sources[0])
    if not isinstance(model, CachingDenoiser):
        raise UserError(
            "This model cannot read through a cache.",
            where=ask.sources[0],
            got=f"a checkpoint of the family {model.spec.family!r}",
            expected="one of LLaDA or Dream",
        )
    return model


def _check(ask: Ask) -> None:
    from strop.tasks import TASKS

    if ask["task"] is None:
        return
    TASKS.find(ask["task"], where="`task`")
    if ask["prompts"] is not None or not ask.sources:
        raise UserError(
            "A task brings its own problems, and a model that may know the answers.",
            where="`task`",
            got="`prompts`" if ask.sources else "no checkpoint",
            fix="leave `prompts` out" if ask.sources else "name a checkpoint",
        )


def _prompts(
    ask: Ask, model: Denoiser, length: int, grader: Grader | None
) -> tuple[tuple[int, ...], ...]:
    """Token ids: of the task or the file, of held-out text for the random model, else none."""
    if grader is not None:
        from strop.tasks.running import canvases_of_task

        problems = canvases_of_task(model, grader.entrant, grader.task, length).prompts
        return tuple(tuple(t for t in prompt.given if t is not None) for prompt in problems)
    from strop.assets import HELD_OUT
    from strop.prompts.canvas import PromptReader, resolve
    from strop.prompts.rows import PromptSet

    if ask["prompts"] is not None:
        prompt_set = PromptSet.read(ask["prompts"])
    elif not ask.sources:
        rows = [json.loads(line)["ids"] for line in HELD_OUT.read_text().splitlines()]
        prompt_set = PromptSet.of([{"ids": row[:PROMPT]} for row in rows[: ask["n"]]])
    else:
        return ((),)
    codec: Any = model.codec
    reader = PromptReader(model.vocab_size, model.mask_id, model.length, codec)
    canvases = resolve(prompt_set, reader, length=length).prompts
    return tuple(tuple(t for t in prompt.given if t is not None) for prompt in canvases)


def _points(ask: Ask, family: str) -> Sequence[OperatingPoint]:
    """Every combination of the axes; the cache is what the study varies."""
    name = ask["sampler"] or DECODERS.get(family, "blockwise")
    cached = [sampler for sampler, facts in SAMPLERS.items() if "cache" in facts.settings]
    axes = dict(ask["axis"] or {})
    for sampler in axes.get("name", [name]):
        if sampler not in cached:
            raise unknown_name("sampler with caches", str(sampler), cached, where="`sampler`")
    if "cache" in axes:
        raise UserError(
            "The cache is what this study varies.", where="`axis`", got="cache", fix="leave it out"
        )
    axes.setdefault("precision", ("float64",))
    return points(family, name, axes, {"temperature": ask["temperature"]})[0]


# ---------------------------------------------------------------- measuring


def _run(ask: Ask) -> Result:
    with TemporaryDirectory() as folder:
        return _cache_result(ask, _model(ask, folder))


def _cache_result(ask: Ask, model: Denoiser) -> Result:
    from strop.denoisers.base import usable_length

    grader = grader_of(ask, model)
    usual = None if grader is None else grader.task.length
    room = usable_length(model, ask["length"] or usual)
    prompts = _prompts(ask, model, room, grader)
    rows, steps = [], []
    settings = [(m, p) for p in _points(ask, model.spec.family) for m in ask["steps"] or (room,)]
    tables = _tables_of_decoders(ask, model, [p.at(m) for m, p in settings], prompts, room, grader)
    for (m, point), by_cache in zip(settings, tables, strict=True):
        label = {"steps": m, **point.fields()}
        rows += [{**label, **row} for row in _summaries(by_cache)]
        steps += [{**label, **row} for row in _by_call(by_cache)]
    title = f"{ask.sources[0] if ask.sources else RANDOM}: {ask['n']} outputs of {room} tokens"
    more = {"calls": Table("By call within a block", CALL_COLUMNS, steps, shown=False)}
    notes = (*(() if ask.sources else (RANDOM_NOTE,)), LAW_NOTE, COST_NOTE)
    notes += () if grader is None else (TASK_NOTE,)
    facts = {"checkpoint": model.spec.model_dump(mode="json"), "prompts": len(prompts)}
    return Result(ask.said(length=room), Table(title, _columns(rows), rows), more, facts, notes)


def _tables_of_decoders(
    ask: Ask,
    model: Denoiser,
    specs: Sequence[SamplerSpec],
    prompts: tuple[tuple[int, ...], ...],
    length: int,
    grader: Grader | None,
) -> list[dict[str, pa.Table]]:
    """For every decoder a table per cache, a row per output; read from disk if all exist."""
    from strop.engine.workers import Blocks
    from strop.instruments.blocks import compare_caches, measure_with
    from strop.samplers.caches import CacheBench

    assert ask.folder is not None
    folder = ask.folder
    usual = {"length": length, "seed": ask["seed"], "prompts": prompts}
    content = hashlib.sha256(json.dumps(prompts).encode()).hexdigest()
    benches, blocks, cells = [], [], []
    for spec in specs:
        by_cache = {
            cache: CacheCell(
                checkpoint=model.spec,
                sampler=spec.model_copy(update={"cache": cache}),
                prompts=content,
                length=length,
                outputs=ask["n"],
                seed=ask["seed"],
                task=None if grader is None else grader.task.fingerprint,
            )
            for cache in (NONE, *CACHES)
        }
        through, size = by_cache[CACHES[0]].sampler, ask["batch_size"]
        bench = partial(CacheBench, spec=through, batch_size=size, **usual)
        batches = [batch.tolist() for batch in bench(model, outputs=range(ask["n"])).batches()]
        tables = {cache: by_cache[cache] for cache in (*CACHES, NONE)}
        join = partial(_join_batches, tables, model, grader)
        words = f"{OperatingPoint.of(spec)}, {spec.steps} steps: {ask['n']} outputs"
        benches.append(bench)
        blocks.append(Blocks([cell.id for cell in tables.values()], words, batches, join))
        cells.append(by_cache)
    measure = partial(compare_caches, benches, CACHES)
    measure_with(model, measure, blocks, folder, ask.engine, ask.note, "outputs")
    return [
        {
            cache: table
            for cache, cell in by_cache.items()
            if (table := folder.cell(cell.id)) is not None
        }
        for by_cache in cells
    ]


def _join_batches(
    cells: Mapping[str, CacheCell], model: Denoiser, grader: Grader | None, parts: list[pa.Table]
) -> list[pa.Table]:
    """The tables of a decoder, graded, from all its batches."""
    import pyarrow as pa

    from strop.instruments.blocks import OTHER, Compared
    from strop.measure.entropy import entropy

    compared = Compared.read(parts, CACHES)
    plain, other = compared.outputs[NONE].ids, compared.outputs[OTHER].ids
    n, by_seed = len(plain), None if grader is None else right_answers(grader, model, other)
    tables = []
    for cache, cell in cells.items():
        outputs, laws = compared.outputs[cache], compared.laws.get(cache)
        columns = {
            "changed": (outputs.ids != plain).mean(1),
            "changed_by_seed": (other != plain).mean(1),
            "entropy": entropy(outputs.ids),
            "calls": outputs.calls,
            "positions": outputs.positions,
            "seconds": np.full(n, outputs.seconds / n),
        }
        by_call = {name: np.zeros((n, 1)) for name in ("kl", "moved", "open")}
        if laws is not None:
            used = int(np.flatnonzero(laws.open.any(0)).max()) + 1
            by_call = {name: table[:, :used] for name, table in vars(laws).items()}
        columns |= {name: list(table) for name, table in by_call.items()}
        if grader is not None:
            right = right_answers(grader, model, outputs.ids)
            columns |= {RIGHT: right, RIGHT_BY_SEED: by_seed}
        table = pa.table(columns)
        tables.append(table.replace_schema_metadata({"strop.cell": cell.canonical()}))
    return tables


# ---------------------------------------------------------------- answers to a task


def grader_of(ask: Ask, model: Denoiser) -> Grader | None:
    """What decides which outputs are right; None without a task."""
    if ask["task"] is None:
        return None
    from strop.tasks import TASKS, ready
    from strop.tasks.running import Grader, decided, entrant_of

    task, entrant = TASKS[ask["task"]], entrant_of(model, ask.sources[0], None, None)
    ask.note(decided(entrant))
    return Grader(task, entrant, ready(task))


def right_answers(grader: Grader, model: Denoiser, ids: NDArray) -> NDArray[np.float64]:
    """Which outputs answer their problems rightly."""
    from strop.measure.metric import PASSED

    codec: Any = model.codec
    texts = [codec.decode(row.tolist(), mask_id=model.mask_id) for row in ids]
    graded = grader.columns(np.arange(len(ids)), texts, ids)
    right = np.zeros(len(ids))  # a lost verdict does not count as right
    right[graded["index"]] = graded[f"{PASSED}{grader.task.filters[0].name}"]
    return right


def accuracies(
    right: NDArray[np.float64], plain: NDArray[np.float64], *, same: bool = False
) -> dict[str, Any]:
    """Accuracy with its interval, and its paired difference from no cache."""
    means = {"accuracy": mean(right)} | ({} if same else {"gain": mean(right - plain)})
    return {"gain": None, **intervals(means)}


# ---------------------------------------------------------------- tables and figure


def _summaries(tables: Mapping[str, pa.Table]) -> list[dict[str, Any]]:
    """A row per cache, and one without a cache under another seed."""
    plain = _arrays(tables[NONE])
    rows = []
    for cache, table in tables.items():
        arrays = _arrays(table)
        estimates = intervals({"changed": mean(arrays["changed"])} | _law_means(arrays))
        row: dict[str, Any] = {"cache": cache}
        for name in ("kl", "moved", "changed"):
            row[name] = estimates.get(name) or 0.0
        row |= {name: float(arrays[name].mean()) for name in ("entropy", "calls", "positions")}
        row["saved"] = 1 - row["positions"] / float(plain["positions"].mean())
        row["time"] = float(arrays["seconds"].mean() / plain["seconds"].mean())
        if RIGHT in arrays:
            row |= accuracies(arrays[RIGHT], plain[RIGHT], same=cache == NONE)
        rows.append(row)
    other = intervals({"changed": mean(plain["changed_by_seed"])})["changed"]
    last = {"cache": SEED, "changed": other}
    if RIGHT in plain:
        last |= accuracies(plain[RIGHT_BY_SEED], plain[RIGHT])
    return [*rows, last]


def _arrays(table: pa.Table) -> dict[str, NDArray[np.float64]]:
    return {name: np.array(table[name].to_pylist(), float) for name in table.column_names}


def _law_means(arrays: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    """Per open position, over all calls: ratios of sums over outputs."""
    if not arrays["open"].any():
        return {}
    total = arrays["open"].sum(1)
    return {
        name: Statistic(np.stack([arrays[name].sum(1), total], 1), lambda t: t[..., 0] / t[..., 1])
        for name in ("kl", "moved")
    }


def _by_call(tables: Mapping[str, pa.Table]) -> list[dict[str, Any]]:
    """Means over the open positions of all outputs and blocks at the same call of a block."""
    rows = []
    for cache in CACHES:
        sums = {name: _arrays(tables[cache])[name].sum(0) for name in ("kl", "moved", "open")}
        for call, seen in enumerate(sums["open"]):
            means = {name: sums[name][call] / seen for name in ("kl", "moved")}
            rows.append({"cache": cache, "call": call + 1, "positions": seen, **means})
    return rows


CALL_COLUMNS = (
    Column("cache"),
    Column("call"),
    Column("kl", "KL", unit="nats"),
    Column("moved", "best token moved", percent=True),
)
COLUMNS = (
    Column("cache"),
    Column("kl", "KL", unit="nats", help="Per open position."),
    Column(
        "moved", "best token moved", percent=True, bare=True, help="Share of the open positions."
    ),
    Column(
        "changed",
        "changed tokens",
        percent=True,
        help="Share of the output's tokens that differ from those without a cache.",
    ),
    Column("entropy", unit="nats", help="Of an output's tokens."),
    Column("calls", digits=4, help="Network calls per output."),
    Column("positions", digits=4, help="Positions that the network computes per output."),
    Column("saved", percent=True, help="Share of the positions."),
    Column("time", "times the seconds", digits=2),
)


def _columns(rows: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The measured columns, after the fields in which the points differ."""
    columns = (COLUMNS[0], *GRADED, *COLUMNS[1:]) if "accuracy" in rows[0] else COLUMNS
    fields = [k for k in rows[0] if k not in {column.name for column in columns}]
    differing = [k for k in fields if len({str(row[k]) for row in rows}) > 1]
    names = {"steps": "M", "temperature": "tau"}
    return (*(Column(k, names.get(k, ""), digits=None) for k in differing), *columns)


def _draw(result: Result) -> Figure:
    """Colour: the cache; line: the operating point."""
    from strop.figures import PALETTE, legend_below, log_y, panels

    rows = list(result.more["calls"].rows)
    differing = [c.name for c in result.table.columns if c not in (*COLUMNS, *GRADED)]
    dashes: Any = ("-", (0, (4, 1.6)), (0, (1, 1.4)), (0, (6, 1.5, 1, 1.5)))
    kinds = list(dict.fromkeys(tuple((name, row[name]) for name in differing) for row in rows))
    figure, axes = panels(2, 4.0)
    for number, kind in enumerate(kinds):
        for colour, cache in zip(PALETTE, CACHES, strict=False):
            calls = [r for r in rows if r["cache"] == cache and all(r[k] == v for k, v in kind)]
            calls = [r for r in calls if r["call"] > 1]  # the call that fills the cache is exact
            words = ", ".join([cache, *(f"{k} {v}" for k, v in kind)])
            look: dict[str, Any] = {"color": colour, "ls": dashes[number % len(dashes)], "lw": 1.2}
            x = [r["call"] for r in calls]
            axes[0].plot(x, [r["kl"] for r in calls], label=words, **look)
            axes[1].plot(x, [100 * r["moved"] for r in calls], **look)
    axes[0].set(ylabel="KL per open position, nats")
    if any(row["kl"] > 0 and row["call"] > 1 for row in rows):
        log_y(axes[0])
    axes[1].set(ylabel="best token moved, %", xlabel="call within the block", ylim=(0, None))
    legend_below(figure, axes[0])
    return figure


STUDY = Study(
    name="cache",
    title="What a cache of keys and values changes, and what it saves",
    about="Run a decoder of CHECKPOINT (LLaDA or Dream) without a cache and through each cache, "
    "all else equal: KL call by call, changed tokens, cost. Without CHECKPOINT: a random LLaDA.",
    sources=Sources(smoke=()),
    parameters=(
        Parameter.counts(
            "steps", "Updates M, where a quota is committed.", shown="one per position"
        ),
        Parameter("temperature", "Temperatures of the sweep.", (0.0, 1.0), "floats"),
        parameters.outputs(32, smoke=4),
        Parameter.file("prompts", "JSON lines; output i follows prompt i mod P."),
        Parameter("task", "Grade outputs: output i answers problem i of this task."),
        Parameter.count("batch_size", "Outputs at a time.", 16, most=2**20),
        Parameter.count(
            "length", "Generated tokens per output.", smoke=64, shown="the model's own"
        ),
        parameters.SAMPLER,
        parameters.AXES,
        *parameters.MEASURED,
    ),
    run=_run,
    draw=_draw,
    check=_check,
    examples=(
        "strop study cache --smoke -o runs/cache",
        "strop study cache CHECKPOINT --prompts FILE --axis block_length=16,32 -o runs/cache",
    ),
)
