"""What is true of samplers where the law of text is known: several questions, one record each.

A question names models, the settings that each is sampled with, and a sentence made of the rows.
Outputs of one seed share their random numbers, so that changes are paired by output; differences
between settings that do not (other steps) are taken as independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strop.errors import UserError
from strop.spec.generator import SamplerSpec, label
from strop.spec.value import MOST_STEPS
from strop.stats.interval import Interval
from strop.table import Column, Table
from strop.verbs import parameters
from strop.verbs.study import Sources, Study
from strop.verbs.truth_measured import (
    MODELS,
    NAMES,
    Facts,
    Row,
    bounds,
    canvases_of_language,
    model_of,
    number,
    perplexities,
    profile_grid,
    proxies,
    rare,
    verdicts,
)
from strop.verbs.verb import Ask, Parameter, Result

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from strop.denoisers import Model
    from strop.language import Language

Rows = Sequence[Row]
Cell = Mapping[str, Any]
OWN = tuple(f"checkpoint-{k}" for k in range(8))
"""Run directories of checkpoints, in their order."""
WORDS = 96
ORDER = {"name": "blockwise", "block_length": 0, "precision": "float64"}
"""A quota of positions a call, on the whole text; `score` says which."""
COLUMNS = (
    Column("model"),
    Column("setting"),
    Column("outputs", "n"),
    Column("calls", digits=1, help="Network calls of an output."),
    Column("violations", digits=2, help="Wrong words per text, at the least."),
    Column("change", digits=2, signed=True, help="Of the violations from temperature 1, paired."),
    Column("none", "without any", digits=2),
    Column("excess", unit="nats", digits=1, help="-log P beyond the entropy; 0 for exact draws."),
    Column("modes", digits=1, help="Effective number; exact draws have the law's."),
    Column("overlap", digits=2, help="With the law of the modes, valid texts only."),
)


More = Callable[[Ask, "Language", list[Row], Mapping[str, Any], Facts], Iterable[str]]


@dataclass(frozen=True)
class TruthQuestion:
    """One question: what is drawn, and what the rows say."""

    asks: str
    models: tuple[str, ...]
    cells: tuple[Cell, ...]
    """Settings of the sampler; `models` says that only some are drawn with it."""
    answer: Callable[[Rows], Iterable[str]]
    smoke: tuple[int, ...] = (0,)
    """Which cells a smoke run draws."""
    languages: tuple[str, ...] = ("even", "skewed")
    more: More | None = None
    """What else it measures on the outputs; fills in rows and facts, and returns sentences."""


def swept(steps: Iterable[int], heats: Iterable[Any], **more: Any) -> tuple[Cell, ...]:
    """Every temperature at every number of steps."""
    heats = tuple(heats)
    return tuple({"steps": m, "temperature": tau, **more} for m in steps for tau in heats)


# ---------------------------------------------------------------- sentences


def row_of(rows: Rows, **fields: Any) -> Row | None:
    """The row of a cell, if it was drawn."""
    return next((r for r in rows if all(r.get(k) == v for k, v in fields.items())), None)


def change(after: Interval | float, before: Interval | float) -> str:
    """A difference as a share, in words."""
    return f"{number(after) / max(number(before), 1e-9) - 1:+.0%}"


def apart(left: Interval, right: Interval) -> Interval:
    """The difference of two independent means."""
    gap = left.value - right.value
    half = (left.half**2 + right.half**2) ** 0.5
    return Interval(gap, gap - half, gap + half, n=left.n, how="normal")


def _sharpening(rows: Rows) -> Iterable[str]:
    """What every temperature below one saves and costs, by model and steps."""
    for row in rows:
        base = row_of(
            rows, model=row["model"], kind=row["kind"], steps=row["steps"], temperature=1.0
        )
        if base is None or base is row:
            continue
        yield (
            f"{row['model']}, {row['setting']}: violations {base['violations'].value:.2f} -> "
            f"{row['violations'].value:.2f} ({change(row['violations'], base['violations'])}, "
            f"paired {row['change']:.2f}), modes {base['modes'].value:.1f} -> "
            f"{row['modes'].value:.1f} ({change(row['modes'], base['modes'])})"
        )


def _headline(rows: Rows) -> Iterable[str]:
    """64 sharpened steps against 256 standard ones, then what sharpening does to one at a time."""
    for model in dict.fromkeys(row["model"] for row in rows):
        few = row_of(rows, model=model, kind="ancestral", steps=64, temperature=0.8)
        many = row_of(rows, model=model, kind="ancestral", steps=256, temperature=1.0)
        if few is not None and many is not None:
            gap = apart(few["violations"], many["violations"])
            holds = "holds" if gap.below(0) else "fails" if gap.above(0) else "is undecided"
            yield (
                f"{model}: 64 steps at .8 against 256 at 1 {holds} in truth: "
                f"{few['violations'].value:.2f} against {many['violations'].value:.2f} violations "
                f"({gap:.2f}), modes {few['modes'].value:.1f} against {many['modes'].value:.1f}"
            )
    yield from _sharpening(rows)


AGAINST = {"narrow": "perfect", "narrow-leaky": "perfect", "late": "late"}
AGAINST |= {"early": "late", "tiny": "late"}
"""Which model is the better predictor; by default the first one asked."""


def _narrower(rows: Rows) -> Iterable[str]:
    """Where a worse model generates better: violations and perplexity against the better one."""
    for row in rows:
        better = AGAINST.get(row["model"], rows[0]["model"])
        base = row_of(rows, model=better, setting=row["setting"])
        if row["model"] == better or base is None:
            continue
        fewer = apart(row["violations"], base["violations"])
        words = "fewer violations than" if fewer.below(0) else "as many violations as"
        words = "more violations than" if fewer.above(0) else words
        ratio = ""
        if "perplexity" in row and "perplexity" in base:
            ratio = f", {times(base['perplexity'], row['perplexity']):.2f} times less perplexing"
        yield (
            f"{row['setting']}: {row['model']} has {words} {better} ({fewer:.2f}{ratio}), "
            f"{apart(row['excess'], base['excess']).value:.1f} nats of surprise a text, modes "
            f"{row['modes'].value:.1f} against {base['modes'].value:.1f}"
        )


def times(left: Interval, right: Interval) -> Interval:
    """The ratio of two independent positive numbers."""
    import numpy as np

    half = float(np.hypot(left.half / left.value, right.half / right.value))
    ratio = left.value / right.value
    return Interval(ratio, ratio * np.exp(-half), ratio * np.exp(half), n=left.n, how="delta")


def _orders(rows: Rows) -> Iterable[str]:
    """Settings that surprise cannot distinguish from the law, and settings that lose modes."""
    for model in dict.fromkeys(row["model"] for row in rows):
        own_rows = [row for row in rows if row["model"] == model]
        most_modes = max(row["modes"].value for row in own_rows)
        exact = [r for r in own_rows if r["excess"].low <= 0 <= r["excess"].high]
        if exact:
            least = min(exact, key=lambda r: r["calls"])
            yield (
                f"{model}: surprise does not tell {least['setting']} from the law in "
                f"{least['calls']:.0f} calls, {least['violations']:.2f} violations"
            )
        lost = [r for r in own_rows if r["modes"].high < most_modes / 2]
        for row in lost:
            yield (
                f"{model}: {row['setting']} keeps {row['modes'].value:.1f} modes where another "
                f"keeps {most_modes:.1f}, at {row['violations'].value:.2f} violations"
            )


def _schedules(rows: Rows) -> Iterable[str]:
    """Every schedule beside the constant temperature whose violations are nearest.

    And every grid from a profile beside the uniform one, at temperature 1.
    """
    import numpy as np

    for row in rows:
        own_rows = [r for r in rows if (r["model"], r["steps"]) == (row["model"], row["steps"])]
        plain = [r for r in own_rows if r["kind"] == "ancestral" and not _cools(r)]
        what = f"{row['model']}, M = {row['steps']}"
        base = row_of(plain, temperature=1.0)
        if row["kind"] != "ancestral" and base is not None:
            least = min(plain, key=lambda r: r["violations"].value)
            yield (
                f"{what}: the grid from the profile has {row['violations']:.2f} violations, the "
                f"uniform one {base['violations'].value:.2f} "
                f"({apart(row['violations'], base['violations']):.2f}), the best constant, "
                f"{least['temperature']:g}, {least['violations'].value:.2f}; modes "
                f"{row['modes'].value:.1f}, {base['modes'].value:.1f}, {least['modes'].value:.1f}"
            )
        if not _cools(row):
            continue
        at = row["violations"].value
        near = min(plain, key=lambda cell: abs(cell["violations"].value - at))
        gain, logs = 0.0, []
        for cell, sign in ((row, 1), (near, -1)):
            gain += sign * float(np.log(cell["modes"].value))
            logs.append(float(np.log(cell["modes"].high / cell["modes"].value)))
        error = float(np.hypot(*logs))
        verdict = "more" if gain > error else "less" if -gain > error else "as much"
        moved = "" if row["change"] is None else f", {row['change']:.2f} paired from 1"
        yield (
            f"{what}, {row['temperature']}: {at:.2f} violations{moved}, modes "
            f"{row['modes'].value:.1f}; the nearest constant, {near['temperature']:g}, has "
            f"{near['violations'].value:.2f} and {near['modes'].value:.1f}: it keeps {verdict} "
            f"({gain:+.2f} +- {error:.2f} nats of mode entropy)"
        )


def _cools(row: Row) -> bool:
    return "/" in str(row["temperature"])


def _precisions(rows: Rows) -> Iterable[str]:
    for row in rows:
        rare = ", ".join(f"{k}: {v}" for k, v in row.get("rare", {}).items())
        yield (
            f"{row['model']}, {row['setting']}: {row['violations']:.2f} violations, modes "
            f"{row['modes'].value:.1f}" + (f"; rare words a text, {rare}" if rare else "")
        )


# ---------------------------------------------------------------- the questions

BELOW = (1.0, 0.8, 0.6)
BENT = ("perfect", "leaky", "narrow", "narrow-leaky", "near")
CHEAP = (*BENT, "tiny")
"""Those that costly cells are drawn from: a call of the larger networks takes ten times as long."""
BOUNDED = {**ORDER, "score": "entropy", "commit": "entropy-bound", "steps": WORDS}
FLAT = (1.0, 0.9, 0.8, 0.7, 0.6)
COOLING = ("linear/1/0.6", "linear/0.6/1", "late/1/0.6", "late/0.6/1")
TAKEN = (
    *swept((16, 64), (1.0,)),
    *swept((34, 92), (1.0,), models=("perfect",)),  # as many calls as the entropy bound and ReMDM
    {**ORDER, "score": "random", "steps": 16},
    {**ORDER, "score": "random", "steps": 64, "models": ("perfect",)},
    {**ORDER, "score": "confidence", "steps": 16},
    {**ORDER, "score": "confidence", "steps": 64, "models": ("perfect",)},
    *({**ORDER, "score": s, "steps": 16, "models": ("perfect",)} for s in ("entropy", "margin")),
    {**ORDER, "block_length": 32, "score": "random", "steps": 16, "models": ("perfect",)},
    *({"name": "remdm-cap", "eta": 0.04, "steps": m, "models": ("perfect",)} for m in (16, 64)),
    *({**BOUNDED, "entropy_bound": bound, "models": ("perfect",)} for bound in (1.0, 0.2)),
    {**BOUNDED, "entropy_bound": 0.5},
)
FROM_LEFT = tuple({"name": "autoregressive", "temperature": t} for t in BELOW)
"""What a causal model can be asked."""

QUESTIONS: dict[str, TruthQuestion] = {
    "temperature": TruthQuestion(
        "What temperature and steps do to the truth",
        ("perfect", "late", "tiny"),
        (
            *swept((4, 16), BELOW),
            *swept((64,), (1.0, 0.8)),
            {"steps": 64, "temperature": 0.6, "models": CHEAP},
        ),
        _sharpening,
        smoke=(0, 2),
    ),
    "leak": TruthQuestion(
        "How much of sharpening's gain is the tail of an imperfect predictor",
        ("perfect", "leaky", "late", "tiny", "causal"),
        (
            *swept((64,), (1.0, 0.8)),
            *swept((256,), (1.0,)),
            *swept((1024,), (1.0, 0.8), models=CHEAP),
            *swept((WORDS,), (1.0, 0.8), **ORDER, score="random", models=CHEAP),
            *FROM_LEFT,
        ),
        _headline,
        smoke=(0, 1),
    ),
    "less": TruthQuestion(
        "Less is more: does a worse model collide less",
        ("perfect", "narrow", "narrow-leaky", "late", "early", "tiny"),
        swept((2, 4, 8, 16), (1.0,)),
        _narrower,
        smoke=(0,),
        more=perplexities,
    ),
    "precision": TruthQuestion(
        "float32 against float64 and against a temperature",
        ("perfect", "leaky", "tiny"),
        (*swept((1024,), (1.0, 0.9, 0.8)), *swept((1024,), (1.0,), precision="float32")),
        _precisions,
        smoke=(0,),
        languages=("even", "skewed", "tail"),
        more=rare,
    ),
    "orders": TruthQuestion(
        "Orders and revision at equal calls",
        ("perfect", "leaky", "tiny"),
        TAKEN,
        _orders,
        smoke=(0, 6),
    ),
    "schedules": TruthQuestion(
        "A temperature per round, and grids from a profile, against constant temperatures",
        ("perfect", "tiny"),
        (
            *swept((4, 16), (*FLAT, *COOLING)),
            *swept((4, 16), (1.0,), grid="profile"),
        ),
        _schedules,
        smoke=(0, 8, 18),
    ),
    "proxies": TruthQuestion(
        "Do the proxies tell the truth",
        ("perfect", "leaky", "narrow", "near", "late", "early", "tiny", "causal"),
        (
            *swept((2, 4, 8, 16), BELOW),
            *({**ORDER, "score": s, "steps": 16} for s in ("random", "confidence")),
            *({**ORDER, "score": s, "steps": 16, "models": CHEAP} for s in ("entropy", "margin")),
            *FROM_LEFT,
        ),
        lambda _: (),
        smoke=(0, 8, 14),
        more=proxies,
    ),
    "bound": TruthQuestion(
        "Does the m-path bound name the best temperature",
        ("perfect", "leaky", "tiny"),
        swept((2, 4, 16), (1.1, 1.0, 0.9, 0.8, 0.6)),
        lambda _: (),
        smoke=(1, 3),
        more=bounds,
    ),
    "compare": TruthQuestion(
        "Is the verdict of `strop compare` right",
        ("perfect", "leaky", "narrow", "near", "late", "early", "tiny"),
        (
            {"steps": 4, "models": ("perfect",)},
            {"steps": 8, "models": ("perfect",)},
            {"steps": 16},
            {"steps": 64, "models": ("perfect", "leaky", "narrow")},
            {"steps": 16, "top_p": 0.9, "models": ("perfect",)},
            {"name": "remdm-cap", "steps": 16, "models": ("perfect",)},
            {"name": "llada", "steps": 16, "block_length": 0, "models": ("perfect",)},
        ),
        lambda _: (),
        smoke=(0, 2, 6),
        more=verdicts,
    ),
}


# ---------------------------------------------------------------- running


def _run(ask: Ask) -> Result:
    from strop.language import Language
    from strop.language.reading import DRAWS

    question = QUESTIONS[ask["question"]]
    language = Language.load(ask["language"])
    entropy = language.entropy(DRAWS // 8 if ask.smoke else DRAWS)
    rows: list[Row] = []
    ids: dict[str, NDArray[np.int64]] = {}
    for index, source in enumerate(ask.sources or _usual(question, ask)):
        for row, words in _draw_cells(ask, question, language, source, index, entropy):
            rows.append(row)
            ids[row["id"]] = words
    if not rows:
        raise UserError(
            "No cell of the question is left.",
            where="`steps`",
            got=", ".join(map(str, ask["steps"] or ())),
            fix="leave `steps` out, or name another model",
        )
    _add_changes(rows, ids, language)
    facts: Facts = {}
    sentences = (
        [] if question.more is None else list(question.more(ask, language, rows, ids, facts))
    )
    true = language.posterior([]).reshape(-1)
    import numpy as np

    modes = float(np.exp(-(true[true > 0] * np.log(true[true > 0])).sum()))
    foreign = sum(row["foreign"] for row in rows)
    notes = (
        f"{ask['language']}: entropy {entropy:.2f} nats a text, {modes:.1f} effective modes; "
        f"{ask['n']:,} outputs a cell; intervals are 95%",
        *([f"{foreign} tokens are no words of the language and count as unseen"] * bool(foreign)),
    )
    title = f"{question.asks}, on {ask['language']}"
    facts |= {"answer": [*question.answer(rows), *sentences], "true_modes": modes}
    request = ask.said(question=ask["question"], language=ask["language"])
    return Result(request, Table(title, COLUMNS, rows), facts=facts, notes=notes)


def _usual(question: TruthQuestion, ask: Ask) -> Sequence[str]:
    """The models of a question, as far as any were trained on this language."""
    from strop.assets import embedded_names

    names = [k for k in question.models if k in MODELS or ask["language"] in embedded_names()]
    return names[: 1 if ask.smoke else None]


def _draw_cells(
    ask: Ask,
    question: TruthQuestion,
    language: Language,
    source: str,
    index: int,
    entropy: Interval,
) -> Iterable[tuple[Row, NDArray[np.int64]]]:
    """A row and the words of every cell that a model is asked."""
    from strop.draw import sample_cells

    model, name = model_of(ask, source)
    cells = [_with_grid(cell, model, language) for cell in _cells_of(ask, question, model, source)]
    specs = [SamplerSpec(**cell) for cell in cells]
    folder = name if name in NAMES else OWN[index]
    pools = sample_cells(
        model,
        specs,
        n=ask["n"],
        seed=ask["seed"],
        canvases=canvases_of_language(model, language),
        out=(ask["pools"] or ask.out) / folder,
        grow=True,
        force=bool(ask["force"]),
        progress=ask.progress,
        engine=ask.engine,
    )
    for cell, spec, pool in zip(cells, specs, pools, strict=True):
        words = pool.ids[:, : language.length]
        foreign = int((words >= language.mask_id).sum())
        words = words.clip(max=language.mask_id)
        row = _row(name, cell, spec, words, language, entropy)
        row |= {"calls": float(pool.nfe.mean()), "foreign": foreign, "id": pool.spec.id}
        row |= {"source": source, "folder": folder}
        yield row, words


def _cells_of(ask: Ask, question: TruthQuestion, model: Model, source: str) -> list[Cell]:
    """The settings that a model is sampled with; of a smoke run a few."""
    cells = [
        cell
        for cell in question.cells
        if source in cell.get("models", (source,))
        if (cell.get("name") == "autoregressive") == (model.mask_id is None)
    ]
    if not cells:
        raise UserError(
            f"The question {ask['question']!r} has no cell for such a model.",
            where=source,
            got="a causal model" if model.mask_id is None else "a model that fills masks",
            expected=", ".join(question.models),
        )
    few = [question.cells[k] for k in question.smoke]
    if ask.smoke:
        cells = [cell for cell in cells if cell in few] or cells[:2]
    return [cell for cell in cells if ask["steps"] is None or cell.get("steps") in ask["steps"]]


def _with_grid(cell: Cell, model: Model, language: Language) -> Cell:
    """A cell with the grid that its model's own profile asks for, in place of the word."""
    cell = {k: v for k, v in cell.items() if k != "models"}
    if cell.get("grid") == "profile":
        cell["grid"] = profile_grid(model, language, cell["steps"])
    return cell


def _row(
    name: str,
    cell: Cell,
    spec: SamplerSpec,
    ids: NDArray[np.int64],
    language: Language,
    entropy: Interval,
) -> Row:
    """What is true of one cell."""
    import numpy as np

    from strop.language.reading import truth

    measured = truth(ids, language, entropy)
    reach = (0.0, -measured.mode_error, measured.mode_error + measured.mode_unseen)
    ends = [np.exp(measured.mode_entropy + k) for k in reach]
    same = {k: v for k, v in cell.items() if k not in ("temperature", "steps")}
    same |= {"grid": "profile"} if "grid" in same else {}
    return {
        "model": name,
        "setting": label(spec) + (" score=confidence" if _by_default(spec) else ""),
        "kind": spec.name if not same else str(same),
        "steps": spec.steps,
        "temperature": spec.temperature,
        "sampler": spec.model_dump(mode="json"),
        "outputs": len(ids),
        "violations": measured.violations,
        "none": measured.without,
        "excess": measured.excess,
        "modes": Interval(*map(float, ends), n=len(ids), how="delta"),
        "overlap": measured.overlap,
    }


def _by_default(spec: SamplerSpec) -> bool:
    """Whether it goes by confidence, which its label leaves out."""
    return spec.settings.get("score") == "confidence"


def _add_changes(rows: list[Row], ids: Mapping[str, Any], language: Language) -> None:
    """The change of the violations from temperature 1, output by output."""
    from strop.language.law import normal

    wrong = {row["id"]: language.violations(ids[row["id"]]) for row in rows}
    for row in rows:
        fields = {k: row[k] for k in ("model", "kind", "steps")}
        base = row_of(rows, **fields, temperature=1.0)
        row["change"] = None
        if base is not None and base is not row:
            row["change"] = normal(wrong[row["id"]] - wrong[base["id"]])


def _draw(result: Result) -> Figure:
    from strop.verbs.truth_figures import draw

    return draw(result)


def _check(ask: Ask) -> None:
    question = QUESTIONS[ask["question"]]
    if ask["language"] in ("even", "skewed", "tail") and ask["language"] not in question.languages:
        raise UserError(
            f"The question {ask['question']!r} is not asked of this language.",
            where="`language`",
            got=ask["language"],
            expected=" or ".join(question.languages),
        )
    step_counts = {cell["steps"] for cell in question.cells if "steps" in cell}
    if not set(ask["steps"] or step_counts) & step_counts:
        raise UserError(
            "The question has no cell with so many steps.",
            where="`steps`",
            got=", ".join(map(str, ask["steps"])),
            expected="among " + ", ".join(map(str, sorted(step_counts))),
        )
    if len(ask.sources) > len(OWN):
        raise UserError(
            "There are too many models.",
            where="`checkpoint`",
            got=str(len(ask.sources)),
            expected=f"at most {len(OWN)}",
        )
    if len(set(ask.sources)) < len(ask.sources):
        raise UserError("A model is named twice.", where="`checkpoint`", got=", ".join(ask.sources))
    for source in ask.sources:
        if source not in NAMES and ":" not in source and "/" not in source:
            raise UserError(
                "There is no such model.",
                where="`checkpoint`",
                got=source,
                expected=", ".join(NAMES) + ", or a checkpoint as for `strop sample`",
            )


STUDY = Study(
    name="truth",
    title="What is true of samplers where the law of text is known",
    about="Ask one question of models of a known language: "
    + "; ".join(f"{name}: {question.asks}" for name, question in QUESTIONS.items())
    + ". Without models, those that the question is about.",
    sources=Sources(("MODEL...",), f"{', '.join(NAMES)}, or a checkpoint trained on it.", ()),
    parameters=(
        Parameter("question", "Which.", "temperature", choices=tuple(QUESTIONS)),
        Parameter("language", "even, skewed, tail, or a grammar's file.", "even"),
        Parameter.counts("steps", "Only what has so many.", most=MOST_STEPS + 1),
        parameters.outputs(1024, smoke=32, words="Outputs per cell.", least=2),
        Parameter("evaluator", "A causal model that was trained on it, if not the one that ships."),
        Parameter("pools", "Where questions share outputs; else they lie here.", kind="place"),
        *parameters.DRAWN,
    ),
    run=_run,
    draw=_draw,
    check=_check,
    runs=(*NAMES, *OWN),
    examples=("strop study truth --question orders --smoke -o runs/orders",),
)
