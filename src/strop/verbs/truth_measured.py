"""What questions about truth measure beside violations and modes, and of which models.

`strop study truth` names the questions; here is what some of them ask of the same outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strop.errors import UserError
from strop.spec import SamplerSpec
from strop.stats.interval import Interval
from strop.verbs.verb import Ask

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from strop.denoisers import Model
    from strop.language import Language
    from strop.prompts import Canvases

Row = dict[str, Any]
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


def model_of(ask: Ask, source: str) -> tuple[Model, str]:
    """A model that needs no training by its name here, or any checkpoint; and its name."""
    from strop.denoisers import load_model

    device = ask.engine.at_home(ask["device"])
    if source in MODELS:
        load = {"language": ask["language"], **MODELS[source]}
        return load_model("embedded:perfect", device=device, load=load), source
    name = source.rpartition(":")[2].rstrip("/").rpartition("/")[2]
    return load_model(source, device=device, dtype=ask["dtype"]), name


def canvases_of_language(model: Model, language: Language) -> Canvases | None:
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


def spec_of(cell: Cell) -> SamplerSpec:
    """The sampler of a cell."""
    return SamplerSpec(**cell)


def number(value: Interval | float) -> float:
    """The value of an interval, or the number itself."""
    return value.value if isinstance(value, Interval) else value


def rare(_: Ask, language: Language, rows: list[Row], ids: Mapping[str, Any]) -> Iterable[str]:
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


def bounds(ask: Ask, language: Language, rows: list[Row], ids: Mapping[str, Any]) -> Iterable[str]:
    """Which temperature the m-path bound on exact texts names, and which one is the best."""
    from strop.instruments.posterior import path_scores
    from strop.samplers.machinery.grid import reveal_grid
    from strop.theory.mpath import bound_from_scores

    texts, most = (
        language.draw(4 if ask.smoke else 48, seed=ask["seed"] + 1),
        2 if ask.smoke else 16,
    )
    for name in dict.fromkeys(row["model"] for row in rows):
        model: Any = model_of(ask, name)[0]
        for m in dict.fromkeys(row["steps"] for row in rows):
            mine = [row for row in rows if (row["model"], row["steps"]) == (name, m)]
            taus, masses = (
                [row["temperature"] for row in mine],
                reveal_grid(spec_of({"steps": m})).masses,
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


def control(kind: str, ids: NDArray[np.int64], other: NDArray[np.int64], language: Language) -> Any:
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


def proxies(ask: Ask, language: Language, rows: list[Row], ids: Mapping[str, Any]) -> Iterable[str]:
    """Rank correlations of proxies with the truth, over generators and as many controls."""
    import numpy as np

    pools = {f"{row['model']}, {row['setting']}": ids[row["id"]] for row in rows}
    names = list(pools)
    for k, name in enumerate(names):
        kind, other = KINDS[k % len(KINDS)], pools[names[k - 1]]
        pools[f"{name}: {kind}"] = control(kind, pools[name], other, language)
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
            rho = float(ranked(x[None], y[None])[0])
            low, high = np.nanquantile(ranked(x[draws], y[draws]), (0.025, 0.975))
            said.append(f"{what} {rho:.2f} [{low:.2f}, {high:.2f}]")
        yield f"{name}: {', '.join(said)}"
    yield from _fooled(proxies, true, pools, language)


def ranked(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
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
            values = [number(cells[name][what]) for name in texts]
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
