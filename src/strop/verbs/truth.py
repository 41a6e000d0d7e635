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
from strop.verbs.result import Result
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from strop.denoisers import Model
    from strop.language import Language
    from strop.prompts.canvas import Canvases

Row = dict[str, Any]
Rows = Sequence[Row]
Cell = Mapping[str, Any]

PERFECT: dict[str, Mapping[str, Any]] = {"perfect": {}}
MODELS: dict[str, Mapping[str, Any]] = {
    **PERFECT,
    "leaky": {"leak": 0.02},
    "narrow": {"narrow": 100},
    "early": {"narrow": 100, "leak": 0.02},
    "near": {"near": 1},
}
"""Denoisers that need no training, by the settings that bend them (docs/language.md)."""
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


@dataclass(frozen=True)
class TruthQuestion:
    """One question: what is drawn, and what the rows say."""

    asks: str
    models: tuple[str, ...]
    cells: tuple[Cell, ...]
    """Settings of the sampler."""
    answer: Callable[[Rows], Iterable[str]]
    smoke: tuple[int, ...] = (0,)
    """Which cells a smoke run draws."""
    languages: tuple[str, ...] = ("even", "skewed")
    more: Callable[[Ask, Language, list[Row], Mapping[str, Any]], Iterable[str]] | None = None
    """What else it measures on the outputs; fills in rows and returns sentences."""


def swept(steps: Iterable[int], heats: Iterable[Any], **more: Any) -> tuple[Cell, ...]:
    """Every temperature at every number of steps."""
    heats = tuple(heats)
    return tuple({"steps": m, "temperature": tau, **more} for m in steps for tau in heats)


# ---------------------------------------------------------------- sentences


def found(rows: Rows, **fields: Any) -> Row | None:
    """The row of a cell, if it was drawn."""
    return next((r for r in rows if all(r.get(k) == v for k, v in fields.items())), None)


def change(after: Interval | float, before: Interval | float) -> str:
    """A difference as a share, in words."""
    return f"{_number(after) / max(_number(before), 1e-9) - 1:+.0%}"


def _number(value: Interval | float) -> float:
    return value.value if isinstance(value, Interval) else value


def apart(one: Interval, other: Interval) -> Interval:
    """The difference of two independent means."""
    gap = one.value - other.value
    half = (one.half**2 + other.half**2) ** 0.5
    return Interval(gap, gap - half, gap + half, n=one.n, how="normal")


def _sharpening(rows: Rows) -> Iterable[str]:
    """What every temperature below one saves and costs, by model and steps."""
    for row in rows:
        base = found(
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
        few = found(rows, model=model, kind="ancestral", steps=64, temperature=0.8)
        many = found(rows, model=model, kind="ancestral", steps=256, temperature=1.0)
        if few is not None and many is not None:
            gap = apart(few["violations"], many["violations"])
            holds = "holds" if gap.below(0) else "fails" if gap.above(0) else "is undecided"
            yield (
                f"{model}: 64 steps at .8 against 256 at 1 {holds} in truth: "
                f"{few['violations'].value:.2f} against {many['violations'].value:.2f} violations "
                f"({gap:.2f}), modes {few['modes'].value:.1f} against {many['modes'].value:.1f}"
            )
    yield from _sharpening(rows)


def _narrower(rows: Rows) -> Iterable[str]:
    """Where a worse model generates better: surprise and violations of every other against it."""
    first = rows[0]["model"]
    for row in rows:
        base = found(rows, model=first, setting=row["setting"])
        if row["model"] == first or base is None:
            continue
        fewer = apart(row["violations"], base["violations"])
        nats = apart(row["excess"], base["excess"])
        words = "fewer violations than" if fewer.below(0) else "as many violations as"
        words = "more violations than" if fewer.above(0) else words
        yield (
            f"{row['setting']}: {row['model']} has {words} {first} "
            f"({fewer:.2f}), {nats:.1f} nats of surprise a text, modes {row['modes'].value:.1f} "
            f"against {base['modes'].value:.1f}"
        )


def _orders(rows: Rows) -> Iterable[str]:
    """Who is not told from the law, and who loses modes."""
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        whole = max(row["modes"].value for row in mine)
        exact = [r for r in mine if r["excess"].low <= 0 <= r["excess"].high]
        if exact:
            least = min(exact, key=lambda r: r["calls"])
            yield (
                f"{model}: surprise does not tell {least['setting']} from the law in "
                f"{least['calls']:.0f} calls, {least['violations']:.2f} violations"
            )
        lost = [r for r in mine if r["modes"].high < whole / 2]
        for row in lost:
            yield (
                f"{model}: {row['setting']} keeps {row['modes'].value:.1f} modes where another "
                f"keeps {whole:.1f}, at {row['violations'].value:.2f} violations"
            )


def _schedules(rows: Rows) -> Iterable[str]:
    """Every schedule beside the constant temperature whose violations are nearest."""
    import numpy as np

    for m in dict.fromkeys(row["steps"] for row in rows):
        mine = [row for row in rows if row["steps"] == m]
        plain = [row for row in mine if not _cools(row)]
        for row in filter(_cools, mine):
            at = row["violations"].value
            near = min(plain, key=lambda one: abs(one["violations"].value - at))
            gain, logs = 0.0, []
            for one, sign in ((row, 1), (near, -1)):
                gain += sign * float(np.log(one["modes"].value))
                logs.append(float(np.log(one["modes"].high / one["modes"].value)))
            error = float(np.hypot(*logs))
            verdict = "more" if gain > error else "less" if -gain > error else "as much"
            moved = "" if row["change"] is None else f", {row['change']:.2f} paired from 1"
            yield (
                f"M = {m}, {row['temperature']}: {at:.2f} violations{moved}, modes "
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
            f"{row['setting']}: {row['violations']:.2f} violations, modes {row['modes'].value:.1f}"
            + (f"; rare words a text, {rare}" if rare else "")
        )


def _rare(_: Ask, language: Language, rows: list[Row], ids: Mapping[str, Any]) -> Iterable[str]:
    """How often words occur that are rare in the language, and how often they should."""
    import numpy as np

    law = language.unigram
    edges = [(0.0, 2e-6), (2e-6, 1e-5), (1e-5, 1e-4), (1e-4, 1.0)]
    for row in rows:
        seen = np.append(law, 0.0)[ids[row["id"]]]
        row["rare"] = {}
        for low, high in edges:
            here = ((seen > low) & (seen <= high)).sum(1)
            half = 1.96 * here.std() / len(here) ** 0.5
            should = law[(law > low) & (law <= high)].sum() * language.length
            row["rare"][f"{low:g} to {high:g}"] = f"{here.mean():.3f} +- {half:.3f} of {should:.3f}"
    return ()


def soft_overlap(ids: NDArray[np.int64], language: Language) -> float:
    """As `overlap`, a text with v violations counting exp(-v / 4): few steps have none without."""
    import numpy as np

    law = language.posterior([]).reshape(-1)
    modes = language.posterior(ids).reshape(len(ids), -1).argmax(1)
    weight = np.exp(-language.violations(ids) / 4)
    return float(np.minimum(law, np.bincount(modes, weight, len(law)) / len(ids)).sum())


def _bounds(ask: Ask, language: Language, rows: list[Row], ids: Mapping[str, Any]) -> Iterable[str]:
    """Which temperature the m-path bound on exact texts names, and which one is the best."""
    from strop.instruments.posterior import path_scores
    from strop.samplers.machinery.grid import reveal_grid
    from strop.theory.mpath import bound_from_scores

    texts, most = (
        language.draw(4 if ask.smoke else 48, seed=ask["seed"] + 1),
        2 if ask.smoke else 16,
    )
    for name in dict.fromkeys(row["model"] for row in rows):
        model: Any = _model(ask, name)[0]
        for m in dict.fromkeys(row["steps"] for row in rows):
            mine = [row for row in rows if (row["model"], row["steps"]) == (name, m)]
            taus, masses = (
                [row["temperature"] for row in mine],
                reveal_grid(_spec({"steps": m})).masses,
            )
            lams = [1 / tau for tau in taus]
            got = path_scores(model, texts, masses, paths=most, lams=lams, seed=ask["seed"])
            named = []
            for paths in sorted({1, most}):
                part = got.log_q[:, :, :paths], got.slope[:, :, :paths]
                values = bound_from_scores(got.lams, *part).value
                named.append(f"{taus[int(values.argmin())]:g} with {paths}")
                for row, value in zip(mine, values, strict=True):
                    row[f"bound {paths}"] = float(value)
            for row in mine:
                row["soft"] = soft_overlap(ids[row["id"]], language)
            best = max(mine, key=lambda row: row["soft"])
            shown = ", ".join(f"{row['temperature']:g}: {row['soft']:.3f}" for row in mine)
            yield (
                f"{name}, M = {m}: the bound names temperature {', '.join(named)} paths; the soft "
                f"overlap is largest at {best['temperature']:g} ({shown})"
            )


KINDS = ("eight best repeated", "typos", "glued halves", "half of another")


def _control(
    kind: str, ids: NDArray[np.int64], other: NDArray[np.int64], language: Language
) -> Any:
    """A generator whose flaw is known, made of outputs."""
    import numpy as np

    rng = np.random.default_rng(len(ids))
    if kind == "eight best repeated":
        best = np.argsort(-language.log_p(ids), kind="stable")[:8]
        return np.tile(ids[best], (-(-len(ids) // 8), 1))[: len(ids)]
    if kind == "typos":
        words = rng.integers(language.mask_id, size=ids.shape)
        return np.where(rng.random(ids.shape) < 0.03, words, ids)
    if kind == "glued halves":
        ends = np.cumsum([one.length for one in language.grammar.segments])
        cut = int(ends[(len(ends) - 1) // 2])
        return np.concatenate([ids[:, :cut], np.roll(ids, 1, axis=0)[:, cut:]], axis=1)
    return np.concatenate([ids[::2], other[1::2]])


def _proxies(
    ask: Ask, language: Language, rows: list[Row], ids: Mapping[str, Any]
) -> Iterable[str]:
    """Rank correlations of proxies with the truth, over generators and as many controls."""
    import numpy as np

    pools = {f"{row['model']}, {row['setting']}": ids[row["id"]] for row in rows}
    names = list(pools)
    for k, name in enumerate(names):
        kind, other = KINDS[k % len(KINDS)], pools[names[k - 1]]
        pools[f"{name}: {kind}"] = _control(kind, pools[name], other, language)
    from strop.language.reading import truth

    entropy = language.entropy(500)
    found = [truth(one, language, entropy) for one in pools.values()]
    true = {
        "quality": [-one.violations.value for one in found],
        "diversity": [one.mode_entropy for one in found],
        "both": [soft_overlap(one, language) for one in pools.values()],
    }
    proxies = _scored(ask, language, pools) | {"-surprise, exact": [-f.excess.value for f in found]}
    rng = np.random.default_rng(ask["seed"])
    draws = rng.integers(len(pools), size=(200 if ask.smoke else 1000, len(pools)))
    yield f"{len(names)} generators and {len(pools) - len(names)} controls"
    for name, values in proxies.items():
        said = []
        for what, truths in true.items():
            x, y = np.array(values), np.array(truths)
            rho = float(_ranked(x[None], y[None])[0])
            low, high = np.nanquantile(_ranked(x[draws], y[draws]), (0.025, 0.975))
            said.append(f"{what} {rho:.2f} [{low:.2f}, {high:.2f}]")
        yield f"{name}: {', '.join(said)}"
    yield from _fooled(proxies, true, pools, language)


def _ranked(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spearman's rank correlation of every row."""
    import numpy as np
    from scipy.stats import rankdata

    one, other = (rankdata(some, axis=1) for some in (x, y))
    one, other = (some - some.mean(1, keepdims=True) for some in (one, other))
    with np.errstate(invalid="ignore"):  # a resample of one value has no rank
        return (one * other).sum(1) / np.sqrt((one**2).sum(1) * (other**2).sum(1))


def _scored(ask: Ask, language: Language, pools: Mapping[str, Any]) -> dict[str, list[float]]:
    """Every proxy of every pool."""
    import numpy as np

    from strop.groupeval import judge_run
    from strop.groupeval.bootstrap import score
    from strop.verbs.points import judge_texts

    grams = [
        np.lib.stride_tricks.sliding_window_view(one, 4, 1).reshape(-1, 4) for one in pools.values()
    ]
    proxies: dict[str, list[float]] = {
        "unigram entropy": [
            float(np.mean([_entropy(row) for row in one])) for one in pools.values()
        ],
        "distinct-4": [len(np.unique(one, axis=0)) / len(one) for one in grams],
    }
    texts = {
        f"g{k}": [language.decode(row) for row in one[:GROUPED]]
        for k, one in enumerate(pools.values())
    }
    folder = ask.out / "groupeval"
    judge_texts(texts, folder, seed=ask["seed"])
    judge_run(folder, "oracle", language=ask["language"])
    for judge, judgments in judge_texts(texts, folder, seed=ask["seed"]).items():
        cells = score(judgments, replicates=2)["cells"]
        for what in ("geq", "ged"):
            values = [_number(cells[name][what]) for name in texts]
            proxies[f"{what.upper()}, {judge}"] = values
    if ask["evaluator"]:
        from strop.measure.cells import score_texts

        values = []
        for one in texts.values():
            found: Any = score_texts(one, ask.evaluator, ["first-document"])[0]
            values.append(-float(np.log(found.values["pooled"].value)))
        proxies[f"-log perplexity, {ask['evaluator']}"] = values
    return proxies


GROUPED = 64
"""Outputs of a generator that judges and evaluator read."""


def _entropy(row: NDArray[np.int64]) -> float:
    import numpy as np

    share = np.unique(row, return_counts=True)[1] / len(row)
    return float(-(share * np.log(share)).sum())


def _fooled(
    proxies: Mapping[str, Sequence[float]],
    true: Mapping[str, Sequence[float]],
    pools: Mapping[str, Any],
    language: Language,
) -> Iterable[str]:
    """For every proxy the pool that it ranks highest above its true place, with a text of it."""
    import numpy as np

    truth, names = np.argsort(np.argsort(true["both"])), list(pools)
    for name, values in proxies.items():
        gap = np.argsort(np.argsort(values)) - truth
        worst = int(gap.argmax())
        text = language.decode(pools[names[worst]][0])
        yield (
            f"{name} is fooled most by {names[worst]} ({-true['quality'][worst]:.1f} violations, "
            f"{np.exp(true['diversity'][worst]):.1f} modes), {gap[worst]} of {len(names)} places "
            f"too high: {text[:160]}..."
        )


# ---------------------------------------------------------------- the questions

BELOW = (1.0, 0.8, 0.6)
ONE = {**ORDER, "score": "random", "steps": WORDS}
"""One word a call, in an order that does not look: exact for a perfect model at temperature 1."""
FLAT = (1.0, 0.9, 0.8, 0.7, 0.6)
COOLING = ("linear/1/0.6", "linear/0.6/1", "linear/1.1/0.6", "linear/0.7/1", "late/1/0.6")
COOLING += ("late/0.6/1",)
TAKEN = (
    *swept((16, 64), (1.0,)),
    {"name": "remdm-cap", "eta": 0.04, "steps": 64},
    *({**ORDER, "score": score, "steps": m} for score in ("random", "entropy") for m in (16, 64)),
    *(
        {**ORDER, "score": score, "steps": m}
        for score in ("confidence", "margin")
        for m in (16, 64)
    ),
    *(
        {
            **ORDER,
            "score": "entropy",
            "commit": "entropy-bound",
            "entropy_bound": bound,
            "steps": 96,
        }
        for bound in (1.0, 0.5, 0.2)
    ),
    {**ORDER, "block_length": 32, "score": "random", "steps": 64},
    {**ORDER, "block_length": 32, "score": "confidence", "steps": 64},
)

QUESTIONS: dict[str, TruthQuestion] = {
    "temperature": TruthQuestion(
        "A perfect model: what temperature and steps do to the truth",
        ("perfect",),
        swept((4, 16, 64), BELOW),
        _sharpening,
        smoke=(0, 2),
    ),
    "leak": TruthQuestion(
        "How much of sharpening's gain is the tail of an imperfect predictor",
        ("perfect", "leaky"),
        (*swept((16, 64, 256), (1.0, 0.8)), *({**ONE, "temperature": t} for t in (1.0, 0.8))),
        _headline,
        smoke=(0, 1),
    ),
    "less": TruthQuestion(
        "Less is more: does a narrower model collide less",
        ("perfect", "narrow", "early"),
        swept((2, 4, 8, 16, 64), (1.0,)),
        _narrower,
        smoke=(0,),
    ),
    "precision": TruthQuestion(
        "float32 against float64 and against a temperature",
        ("perfect",),
        (*swept((1024,), (1.0, 0.9, 0.8)), *swept((1024,), (1.0,), precision="float32")),
        _precisions,
        smoke=(0,),
        languages=("even", "tail"),
        more=_rare,
    ),
    "orders": TruthQuestion(
        "Orders and revision at equal calls", ("perfect", "leaky"), TAKEN, _orders, smoke=(0, 7)
    ),
    "schedules": TruthQuestion(
        "A temperature per round against constant ones",
        ("perfect",),
        swept((4, 16), (*FLAT, *COOLING)),
        _schedules,
        smoke=(0, 4, 5),
    ),
    "proxies": TruthQuestion(
        "Do the proxies tell the truth",
        ("perfect", "leaky", "narrow", "near"),
        (
            *swept((2, 4, 8, 16), BELOW),
            *(
                {**ORDER, "score": s, "steps": 16}
                for s in ("random", "confidence", "margin", "entropy")
            ),
        ),
        lambda _: (),
        smoke=(0, 8, 13),
        more=_proxies,
    ),
    "bound": TruthQuestion(
        "Does the m-path bound name the best temperature",
        ("perfect", "leaky"),
        swept((4, 16), (1.1, 1.0, 0.9, 0.8, 0.6)),
        lambda _: (),
        smoke=(1, 3),
        more=_bounds,
    ),
}


# ---------------------------------------------------------------- running


def _run(ask: Ask) -> Result:
    from strop.draw import sample_cells
    from strop.language import Language
    from strop.language.reading import DRAWS

    question = QUESTIONS[ask["question"]]
    language = Language.load(ask["language"])
    entropy = language.entropy(DRAWS // 8 if ask.smoke else DRAWS)
    cells = [question.cells[k] for k in question.smoke] if ask.smoke else question.cells
    cells = [one for one in cells if ask["steps"] is None or one["steps"] in ask["steps"]]
    rows: list[Row] = []
    ids: dict[str, NDArray[np.int64]] = {}
    chosen = ask.sources or question.models[: 1 if ask.smoke else None]
    for number, source in enumerate(chosen):
        model, name = _model(ask, source)
        specs = [_spec(cell) for cell in cells]
        pools = sample_cells(
            model,
            specs,
            n=ask["n"],
            seed=ask["seed"],
            canvases=_canvases(model, language),
            out=ask.out / (name if name in MODELS else OWN[number]),
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
            rows.append(row)
            ids[row["id"]] = words
    _paired(rows, ids, language)
    told = [] if question.more is None else list(question.more(ask, language, rows, ids))
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
    facts = {"answer": [*question.answer(rows), *told], "true_modes": modes}
    said = ask.said(question=ask["question"], language=ask["language"])
    return Result(said, Table(title, COLUMNS, rows), facts=facts, notes=notes)


def _model(ask: Ask, source: str) -> tuple[Model, str]:
    """A model that needs no training by its name here, or any checkpoint; and its name."""
    from strop.denoisers import load_model

    device = ask.engine.at_home(ask["device"])
    if source in MODELS:
        load = {"language": ask["language"], **MODELS[source]}
        return load_model("embedded:perfect", device=device, load=load), source
    name = source.rpartition(":")[2].rstrip("/").rpartition("/")[2]
    return load_model(source, device=device, dtype=ask["dtype"]), name


def _canvases(model: Model, language: Language) -> Canvases | None:
    """A network that was trained on a language goes on from the token that stood before a text."""
    from strop.denoisers.prompting import canvases_of
    from strop.language.reading import PROMPT, tokenizer

    if model.spec.family == "language":
        return None
    codec = model.codec
    words = tokenizer(language)["model"]["vocab"]
    if codec is None or codec.encode(PROMPT) != [words[PROMPT]]:
        raise UserError(
            "The checkpoint was not trained on this language.",
            where=model.source,
            expected=f"a tokenizer made by scripts/make-language.py, with {PROMPT!r}",
        )
    return canvases_of(model, [PROMPT], length=language.length)


def _spec(cell: Cell) -> SamplerSpec:
    return SamplerSpec(**cell)


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

    one = truth(ids, language, entropy)
    reach = (0.0, -one.mode_error, one.mode_error + one.mode_unseen)
    ends = [np.exp(one.mode_entropy + k) for k in reach]
    same = {k: v for k, v in cell.items() if k not in ("temperature", "steps")}
    return {
        "model": name,
        "setting": label(spec) + (" score=confidence" if _by_default(spec) else ""),
        "kind": spec.name if not same else str(same),
        "steps": spec.steps,
        "temperature": spec.temperature,
        "outputs": len(ids),
        "violations": one.violations,
        "none": one.without,
        "excess": one.excess,
        "modes": Interval(*map(float, ends), n=len(ids), how="delta"),
        "overlap": one.overlap,
    }


def _by_default(spec: SamplerSpec) -> bool:
    """Whether it goes by confidence, which its label leaves out."""
    return spec.settings.get("score") == "confidence"


def _paired(rows: list[Row], ids: Mapping[str, Any], language: Language) -> None:
    """The change of the violations from temperature 1, output by output."""
    from strop.language.law import normal

    wrong = {row["id"]: language.violations(ids[row["id"]]) for row in rows}
    for row in rows:
        fields = {k: row[k] for k in ("model", "kind", "steps")}
        base = found(rows, **fields, temperature=1.0)
        row["change"] = None
        if base is not None and base is not row:
            row["change"] = normal(wrong[row["id"]] - wrong[base["id"]])


def _draw(result: Result) -> Figure:
    """Violations against modes: to the right and down is better; one colour a model."""
    from matplotlib.figure import Figure

    from strop.figures import COLUMN, PALETTE, errors, tidy

    rows = list(result.table.rows)
    figure = Figure(figsize=(2 * COLUMN, 3.6), layout="constrained")
    axes = figure.subplots()
    for colour, model in zip(PALETTE * 9, dict.fromkeys(r["model"] for r in rows), strict=False):
        mine = [row for row in rows if row["model"] == model]
        x, y = [r["modes"] for r in mine], [r["violations"] for r in mine]
        at = [one.value for one in x], [max(one.value, 0.01) for one in y]
        look: dict[str, Any] = {"fmt": "o", "ms": 3, "capsize": 1.5, "lw": 0.7, "color": colour}
        axes.errorbar(*at, yerr=errors(y), xerr=errors(x), label=model, **look)
        for row, a, b in zip(mine, *at, strict=True):
            axes.annotate(_short(row), (a, b), (3, 2), textcoords="offset points", fontsize=5)
    true = result.facts["true_modes"]
    axes.axvline(true, color="black", lw=0.7, ls=":", label="modes of the law")
    axes.set(xlabel="effective modes", ylabel="violations per text", yscale="log")
    axes.legend(fontsize=6)
    tidy(axes)
    return figure


def _short(row: Mapping[str, Any]) -> str:
    words = row["setting"].removeprefix("blockwise ")
    for word in (" float64", "block_length=0", "commit=entropy-bound", "tau=1 "):
        words = words.replace(word, "")
    return " ".join(words.split())


def _check(ask: Ask) -> None:
    question = QUESTIONS[ask["question"]]
    if ask["language"] in ("even", "skewed", "tail") and ask["language"] not in question.languages:
        raise UserError(
            f"The question {ask['question']!r} is not asked of this language.",
            where="`language`",
            got=ask["language"],
            expected=" or ".join(question.languages),
        )
    known = {one["steps"] for one in question.cells}
    if not set(ask["steps"] or known) & known:
        raise UserError(
            "The question has nothing with so many steps.",
            where="`steps`",
            got=", ".join(map(str, ask["steps"])),
            expected="among " + ", ".join(map(str, sorted(known))),
        )
    if len(ask.sources) > len(OWN):
        raise UserError(
            "So many models are too many.",
            where="`checkpoint`",
            got=str(len(ask.sources)),
            expected=f"at most {len(OWN)}",
        )
    for source in ask.sources:
        if source not in MODELS and ":" not in source and "/" not in source:
            raise UserError(
                "There is no such model.",
                where="`checkpoint`",
                got=source,
                expected=", ".join(MODELS) + ", or a checkpoint as for `strop sample`",
            )


STUDY = Study(
    name="truth",
    title="What is true of samplers where the law of text is known",
    about="Ask one question of models of a known language: "
    + "; ".join(f"{name}: {one.asks}" for name, one in QUESTIONS.items())
    + ". Without models, those that the question is about.",
    sources=Sources(
        ("MODEL...",), "perfect, leaky, narrow, early, near, or a checkpoint trained on it.", ()
    ),
    parameters=(
        Parameter("question", "Which.", "temperature", choices=tuple(QUESTIONS)),
        Parameter("language", "even, skewed, tail, or a grammar's file.", "even"),
        Parameter.counts("steps", "Only what has so many.", most=MOST_STEPS + 1),
        parameters.outputs(1024, smoke=32, words="Outputs per cell.", least=2),
        Parameter("evaluator", "Of the proxies: a causal model that was trained on it."),
        *parameters.DRAWN,
    ),
    run=_run,
    draw=_draw,
    check=_check,
    runs=(*MODELS, *OWN),
    examples=("strop study truth --question orders --smoke -o runs/orders",),
)
