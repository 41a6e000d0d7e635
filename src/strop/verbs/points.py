"""From operating points to measured cells: the one way in which studies draw, score and judge."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.errors import UserError, unknown_name
from strop.measure.score import Late
from strop.records.record import SAMPLERS, default_sampler
from strop.served.address import notes_on
from strop.spec.generator import OperatingPoint, PromptSpec, SamplerSpec, swept
from strop.table import Column, Pivot, Table
from strop.tuning.space import fitting
from strop.verbs.parameters import MINIMUM
from strop.verbs.verb import Ask, quoted

if TYPE_CHECKING:
    from strop.denoisers import Model
    from strop.groupeval.judgments import Judgments
    from strop.measure.cells import Scorers
    from strop.measure.evaluator import Evaluator
    from strop.measure.frame import Frame, Measured
    from strop.prompts.canvas import Canvases
    from strop.store import Cell, Folder

TEMPERATURES = (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1)
"""The paper's sweep."""
SHARPENED = {"temperature": 0.9, "precision": "float32"}
"""The paper's sharper setting; a sampler without a fast float32 form takes float64."""
SETTINGS: dict[str, dict[str, Any]] = {"standard": {}, "sharpened": SHARPENED}
"""The two operating points that the paper compares."""
PROFILE, GROUP = "webtext-v1", 8
UNSEEN = 8
"""Prompts held back from a search where there are enough: fewer say little about new ones."""

POINT_COLUMNS = (
    Column("steps", "M", help="Configured updates; not network calls."),
    Column("temperature", "tau", digits=None),
    Column("precision"),
)
MEASURED_COLUMNS = (
    Column("outputs", "n"),
    Column("perplexity", mark="mark"),
    Column("entropy", unit="nats", digits=3),
    Column("diversity", digits=2, help="Across outputs, as a share of held-out texts'."),
    Column("guard", help="On which side of the guard it lies, by entropy and diversity."),
)


def cell_table(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    down: str | None = None,
    extra: Sequence[Column] = (),
) -> Table:
    """Measured cells as a table: its columns are the fields in which they differ.

    `rows` come from `Measured.row`, with more if need be, which `extra` names. With `down` the
    perplexities are spread over a grid, that field going down.
    """
    setting_names = dict.fromkeys(key for facts in SAMPLERS.values() for key in facts.settings)
    fields = [
        name
        for name in (*_shared(), *setting_names)
        if len({str(row.get(name)) for row in rows}) > 1
    ]
    fields += [column.name for column in extra if column.name not in fields]
    by_name = {column.name: column for column in (*POINT_COLUMNS, *extra)}
    columns = [by_name["steps"], *(by_name.get(name, Column(name, digits=None)) for name in fields)]
    seen = {name for row in rows for name, value in row.items() if value is not None}
    columns += [
        column
        for column in MEASURED_COLUMNS
        if column.name not in fields and (column.name != "diversity" or column.name in seen)
    ]
    pivot = None
    if down is not None:
        across = tuple(name for name in ("steps", *fields) if name != down)
        pivot = Pivot((down,), across, "perplexity", ("entropy",))
    return Table(title, tuple(columns), rows, pivot)


# ---------------------------------------------------------------- operating points


def standard(family: str, axes: Mapping[str, Sequence[Any]] | None = None) -> OperatingPoint:
    """What everything is compared with: the family's own sampler, tau 1, float64, all tokens.

    How a server is asked (`api`, `start`) is no choice: where the axes name one way, it is taken.
    """
    name = default_sampler(family)
    settings = SAMPLERS[name].settings if SAMPLERS[name].any_settings else ()
    named = {key: tuple(values) for key, values in (axes or {}).items() if key in settings}
    alike = {key: values[0] for key, values in named.items() if len(values) == 1}
    return OperatingPoint.of(SamplerSpec(name=name, **alike))


def points(
    family: str,
    sampler: str | None,
    axes: Mapping[str, Sequence[Any]],
    usual: Mapping[str, Sequence[Any]],
) -> tuple[tuple[OperatingPoint, ...], tuple[str, ...]]:
    """Every combination of the axes for a family's sampler, and what was left out in words.

    `usual` has the axes that hold unless others are given. Precisions are those that the sampler
    has a fast form for; a setting that one of several samplers lacks is left out for it. The notes
    name both.
    """
    names = [str(name) for name in axes.get("name", [sampler or default_sampler(family)])]
    combinations: dict[OperatingPoint, None] = {}
    notes: dict[str, None] = {}
    setting_names = {
        key for name in names for key in SAMPLERS.find(name, where="`sampler`").settings
    }
    for key in axes:
        if key not in _shared() and not any(SAMPLERS[name].has(key) for name in names):
            raise unknown_name(
                "field of the sampler", key, [*_shared(), *setting_names], where="`axis`"
            )
    for name in names:
        facts = fitting(family, name)
        sampler_axes = {**{k: tuple(v) for k, v in usual.items() if v}, **dict(axes)}
        sampler_axes.pop("name", None)
        if "precision" not in axes:
            sampler_axes["precision"] = _precisions(name, sampler_axes.get("precision", ()), notes)
        for key in [k for k in sampler_axes if k not in _shared() and not facts.has(k)]:
            notes[f"{key} left out for {name}, which has no such setting"] = None
            sampler_axes.pop(key)
        fixed = {} if facts.fast else {"implementation": "dense"}
        if "temperature" in sampler_axes:
            sampler_axes["temperature"] = tuple(
                swept(name, tau) for tau in sampler_axes["temperature"]
            )
        for values in product(*sampler_axes.values()):
            spec = SamplerSpec(
                **{"name": name, **fixed, **dict(zip(sampler_axes, values, strict=True))}
            )
            combinations[OperatingPoint.of(spec)] = None
    return tuple(combinations), tuple(notes)


def named_points(
    family: str, sampler: str | None, named: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, OperatingPoint], tuple[str, ...]]:
    """Operating points under names, each at the nearest precision that its sampler draws fast."""
    name = sampler or default_sampler(family)
    fitting(family, name)
    notes: dict[str, None] = {}
    by_label = {}
    for label, fields in named.items():
        [precision] = _precisions(name, (fields.get("precision", "float64"),), notes)
        fixed = {} if SAMPLERS.find(name, where="`sampler`").fast else {"implementation": "dense"}
        heat = {k: swept(name, v) for k, v in fields.items() if k == "temperature"}
        spec = SamplerSpec(**{"name": name, **fixed, **fields, **heat, "precision": precision})
        by_label[label] = OperatingPoint.of(spec)
    return by_label, tuple(notes)


def chosen_points(
    ask: Ask, family: str, named: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, OperatingPoint], tuple[str, ...]]:
    """The named points, or those of the axes where some were given; and what was left out."""
    by_label, notes = named_points(family, ask["sampler"], named)
    if not ask["axis"]:
        return by_label, notes
    along, notes = points(family, ask["sampler"], ask["axis"], {"temperature": (1.0,)})
    return {str(point): point for point in along}, notes


def _shared() -> list[str]:
    """The fields that every sampler has and an axis may vary; budgets are no axis."""
    return [name for name in SamplerSpec.model_fields if name not in ("steps", "grid", "settings")]


def _precisions(name: str, wanted: Iterable[str], notes: dict[str, None]) -> tuple[str, ...]:
    """The wanted precisions that the sampler draws fast; at least one that it has."""
    facts = SAMPLERS.find(name, where="`sampler`")
    wanted = tuple(wanted) or ("float64", "float32")
    if not facts.fast:
        return wanted
    for precision in wanted:
        if precision not in facts.fast_precisions:
            instead = "" if len(wanted) > 1 else f"; {facts.fast_precisions[0]} is taken"
            notes[f"{precision} left out: {name} has no fast form with it{instead}"] = None
    return tuple(p for p in wanted if p in facts.fast_precisions) or facts.fast_precisions[:1]


def budgets(model: Model, steps: Sequence[int]) -> tuple[int, ...]:
    """The numbers of steps; a causal model has one, its length."""
    return (0,) if SAMPLERS[default_sampler(model.spec.family)].causal else tuple(steps)


# ---------------------------------------------------------------- drawing and scoring


def load(ask: Ask, source: str) -> Model:
    """A checkpoint on the device and in the dtype that were asked for."""
    from strop.denoisers import load_model

    device = ask.engine.at_home(ask["device"])
    return load_model(source, device=device, dtype=ask.values.get("dtype", "auto"))


def draw(
    ask: Ask,
    model: Model,
    cells: Sequence[tuple[int, OperatingPoint]],
    out: Path | Folder,
    *,
    n: int | Sequence[int] | None = None,
    seed: int | None = None,
    searched: int = 0,
) -> list[Cell]:
    """One cell per budget and point; whatever is in `out` already is not drawn again.

    `searched` prompts were chosen on: outputs answer the others, where there are enough.
    """
    each: int | Sequence[int] = ask["n"] if n is None else n
    root: int = ask["seed"] if seed is None else seed
    if isinstance(model, Late):
        drawn = _finished(ask, model, cells, out, each, root)
        if drawn is not None:
            return drawn
        model = model.loaded
    from strop.denoisers.base import usable_length
    from strop.draw import sample_cells
    from strop.measure.guard import held_out_guard
    from strop.store import Folder, Run

    # Files that cannot be read should be refused before hours of work.
    _check_evaluators(ask)
    held_out = ask.values.get("held_out")
    if held_out is not None:
        held_out_guard(Path(held_out), usable_length(model, ask.values.get("length")), model)
    sample_cells(
        model,
        [point.at(steps) for steps, point in cells],
        n=each,
        seed=root,
        length=ask.values.get("length"),
        canvases=unseen(canvases_of_ask(ask, model), searched),
        out=out if isinstance(out, Folder) else Folder(out, "run", ask.verb.name),
        force=bool(ask.values.get("force")),
        progress=ask.progress,
        engine=ask.engine,
    )
    return Run.open(out).cells()


def _finished(
    ask: Ask,
    model: Late,
    cells: Sequence[tuple[int, OperatingPoint]],
    out: Path | Folder,
    n: int | Sequence[int],
    seed: int,
) -> list[Cell] | None:
    """The cells, if all that is asked of them is on disk, so that no network has to be loaded.

    Where the model is needed to say which cells these are (prompts, held-out texts, batches of a
    dense sampler), it is loaded.
    """
    from strop.spec.generator import CellSpec, GeneratorSpec
    from strop.store import Run

    needs_model = (ask.values.get(name) for name in ("force", "prompts", "held_out"))
    length = ask.values.get("length") or model.facts["length"]
    dense = any(point.sampler.implementation == "dense" for _, point in cells)
    if any(needs_model) or dense or not _marked(out):
        return None
    generators = [GeneratorSpec.of(model.spec, point.at(m), length) for m, point in cells]
    counts = [n] * len(generators) if isinstance(n, int) else n
    wanted = {
        CellSpec.of(generator, seed, n=count, batch_size=count).id: count
        for generator, count in zip(generators, counts, strict=True)
    }
    run = Run.open(out)
    in_run = run.wanted()
    if set(in_run) != set(wanted) or any(in_run[name] < count for name, count in wanted.items()):
        return None
    drawn = run.cells()
    complete = all(cell.indices() >= set(range(wanted[cell.id])) for cell in drawn)
    return drawn if complete else None


def _marked(out: str | os.PathLike[str]) -> bool:
    """Whether the mark of a run can be read; one that is lost or damaged is written again."""
    from strop.store import Run
    from strop.store.folder import Damaged

    try:
        return Run(out).mark is not None
    except Damaged:
        return False


def canvases_of_ask(ask: Ask, model: Model) -> Canvases | None:
    """What the outputs answer, where a study takes prompts and was given some."""
    prompts = ask.values.get("prompts")
    if prompts is None:
        return None
    from strop.denoisers.prompting import canvases_of

    return canvases_of(
        model, Path(prompts), length=ask.values.get("length"), chat=bool(ask.values.get("chat"))
    )


def unseen(canvases: Canvases | None, searched: int) -> Canvases | None:
    """The prompts behind those that were chosen on, if these are enough; else all of them."""
    remaining = () if canvases is None else canvases.prompts[searched:]
    return (
        type(canvases)(remaining) if canvases is not None and len(remaining) >= UNSEEN else canvases
    )


def prompt_notes(
    outputs: int, prompts: PromptSpec | None, fresh: PromptSpec | None = None
) -> list[str]:
    """For which prompts intervals are meant, and whether a gain was measured on other ones."""
    if prompts is None:
        return []
    note = "intervals hold for other prompts of the same kind, not for these alone: "
    count = min(prompts.count, outputs)
    if prompts.count == 1:
        note = "all outputs answer one prompt: intervals hold for this prompt alone"
    elif outputs > count:
        note += (
            f"{outputs} outputs answer {count} prompts, so they are Student's t over prompts "
            f"({count - 1} degrees of freedom); ratios are paired by prompt"
        )
    else:
        note += "every output answers a prompt of its own; ratios are paired by prompt"
    if fresh is None:
        return [note]
    if fresh != prompts:
        return [note, f"the fresh outputs answer {fresh.count} prompts that nothing was chosen on"]
    wanted = f"{outputs + UNSEEN} prompts or more would keep at least {UNSEEN} for them"
    return [note, f"the fresh outputs answer the prompts that the choice was made on; {wanted}"]


def scorers(ask: Ask, evaluators: Sequence[Evaluator] | None = None, **more: Any) -> Scorers:
    """The scorers of a study: by default the evaluator that was asked for."""
    from strop.measure.cells import Scorers

    named = ask.values.get("span")
    if evaluators is None:
        _check_evaluators(ask)
    return Scorers(
        evaluators=[lambda: ask.evaluator]
        if evaluators is None
        else [lambda evaluator=evaluator: evaluator for evaluator in evaluators],
        engine=ask.engine,
        progress=ask.progress,
        device=ask["device"],
        **({} if named is None else {"spans": (named,)}),
        **more,
    )


def _check_evaluators(ask: Ask) -> None:
    """Refuse names that no evaluator has."""
    from strop.measure.score import check_evaluator_name

    named = ask.values.get("evaluator")
    for name in [named] if isinstance(named, str) else named or ():
        check_evaluator_name(name)


def score(
    ask: Ask, model: Model, cells: Sequence[Cell], evaluators: Sequence[Evaluator] | None = None
) -> Frame:
    """Score cells of one run, and read them under one guard."""
    from strop.measure.cells import measure
    from strop.measure.guard import guard_of
    from strop.store import Run

    held_out, run = ask.values.get("held_out"), Run(cells[0].path.parents[1])
    run_guard = guard_of(
        cells[0].spec.generator,
        run,
        held_out=None if held_out is None else Path(held_out),
        vocabulary=model,
    )
    guard = replace(run_guard, rule=ask.values.get("guard_rule", "interval"))
    if guard.rule != run_guard.rule:  # later readers of the run use the same rule
        run.keep_guard(asdict(guard))
    return measure(cells, None, scorers(ask, evaluators), guard=guard)


def measure_cells(
    ask: Ask,
    source: str,
    cells: Sequence[tuple[int, OperatingPoint]],
    out: Path | Folder,
    *,
    n: int | Sequence[int] | None = None,
    model: Model | None = None,
) -> Frame:
    """Draw and score one checkpoint's cells, in the order in which they are asked for."""
    model = load(ask, source) if model is None else model
    return score(ask, model, draw(ask, model, cells, out, n=n))


def scored_columns(row: Measured) -> dict[str, Any]:
    """Output by output: nats and tokens under the evaluator, and entropy."""
    perplexity, entropy = row.of("perplexity"), row.of("entropy")
    assert perplexity is not None  # both were scored a moment ago
    assert entropy is not None
    columns = {name: perplexity.columns[name] for name in ("nll", "tokens")}
    return columns | {"entropy": entropy.columns["entropy"]}


def guard_notes(cells: Iterable[Measured]) -> tuple[str, ...]:
    """Notes on the guards and on small pools, each once."""
    from strop.measure.frame import SMALL, cut_notes

    cells = list(cells)
    notes = [*(str(cell.guard) for cell in cells), *cut_notes(cells), *_few(cells)]
    notes += notes_on(cell.spec.generator.checkpoint for cell in cells)
    least = min((cell.outputs for cell in cells if not cell.by_prompt), default=SMALL)
    if least < SMALL:
        notes.append(
            f"pools of fewer than {SMALL} outputs (here {least}): their bootstrap intervals are "
            "too short, about 91% instead of 95% at 8"
        )
    return tuple(dict.fromkeys(notes))


def guard_facts(cell: Measured) -> dict[str, Any]:
    """The guard of a result's cells, for its figure."""
    return {"guard": {"threshold": cell.guard.threshold, "source": cell.guard.source}}


def _few(cells: Iterable[Measured]) -> Iterable[str]:
    """Where diversity across outputs does not decide, though there is something to compare with."""
    from strop.measure.across import DECIDES

    held = [cell for cell in cells if cell.guard.pairs is not None]
    if any(cell.guard.rule == "mean" for cell in held):
        yield "diversity is reported but does not decide: cells pass by their mean entropy"
    elif any(cell.outputs < DECIDES for cell in held):
        least = min(cell.outputs for cell in held)
        yield (
            f"diversity across outputs decides from {DECIDES} outputs on (here {least}): below "
            "that the guard does not see a collapse"
        )


# ---------------------------------------------------------------- judging


def check_groups(ask: Ask) -> None:
    """Refuse a number of outputs that cannot be judged in groups."""
    if ask["n"] % GROUP:
        raise UserError(
            "The judge reads groups of eight.",
            where="`n`",
            got=ask["n"],
            expected="a multiple of 8",
        )


def judge_command(ask: Ask) -> str:
    """What comes next where texts were planned in OUT/groupeval: a judge that reads them."""
    return f"strop groupeval judge {quoted(ask.out)}/groupeval --base-url URL --model NAME"


def texts_of(cell: Cell, n: int | None = None) -> list[str]:
    """The texts of a cell; a cell without any is refused."""
    texts = cell.pool(n).texts
    if texts is None:
        raise UserError("The outputs have no texts to judge.", where=cell.path)
    return texts


def judge_texts(
    texts: Mapping[str, Sequence[str]],
    out: Path,
    *,
    seed: int,
    profile: str = PROFILE,
    prompts: Sequence[str] | None = None,
    partition: str = MINIMUM,
    judges: Sequence[tuple[str, Mapping[str, Any]]] = (("offline", {}),),
) -> dict[str, Judgments]:
    """Plan some generators' texts in `out` and judge them offline; the verdicts by series.

    The offline judge counts; it is no language model, and its series' name says so. Series of other
    judges that are there already are read too: `strop groupeval judge OUT --base-url URL`.
    `prompts` are what the texts answer, under a profile that shows them.
    """
    from strop.groupeval import Profile, Source, judge_run, list_series, load_judgments, make_plan
    from strop.groupeval.inputs import fitted
    from strop.groupeval.series import write_plan

    judging_profile = Profile.load(profile)
    prompt_texts = None if prompts is None else tuple(prompts)
    sources = [
        Source(name, tuple(own_texts), prompt_texts, name) for name, own_texts in texts.items()
    ]
    sources, _ = fitted(sources, judging_profile)
    plan, frozen = make_plan(sources, judging_profile, seed=seed, method=partition)
    write_plan(out, plan, judging_profile, frozen)
    for judge, settings in judges:
        judge_run(out, judge, **settings)
    return {series.name: load_judgments(f"{out}@{series.id}") for series in list_series(out)}
