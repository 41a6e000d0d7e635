"""What questions about truth measure beside violations and modes, and of which models.

`strop study truth` names the questions; here is what some of them ask of the same outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from strop.errors import UserError
from strop.spec.generator import SamplerSpec
from strop.stats.interval import Interval
from strop.verbs.verb import Ask

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from strop.denoisers import Model
    from strop.language import Language
    from strop.prompts.canvas import Canvases

Row = dict[str, Any]
Facts = dict[str, Any]

MODELS: dict[str, Mapping[str, Any]] = {
    "perfect": {},
    "leaky": {"leak": 0.02},
    "narrow": {"narrow": 100},
    "narrow-leaky": {"narrow": 100, "leak": 0.02},
    "near": {"near": 1},
}
"""Denoisers that need no training, by the settings that bend them (docs/language.md)."""
TRAINED = {"late": "", "early": "-early", "tiny": "-tiny", "causal": "-ar"}
"""Those that were trained on a language, by what the names of the models that ship end in."""
NAMES = (*MODELS, *TRAINED)


def model_of(ask: Ask, source: str) -> tuple[Model, str]:
    """A model by its name here, or any checkpoint; and its name."""
    from strop.assets import EMBEDDED, embedded_names
    from strop.denoisers import load_model

    device = ask.engine.at_home(ask["device"])
    if source in MODELS:
        load = {"language": ask["language"], **MODELS[source]}
        return load_model("embedded:perfect", device=device, load=load), source
    if source in TRAINED:
        shipped = ask["language"] + TRAINED[source]
        if shipped not in embedded_names():
            raise UserError(
                "No such model of this language ships.",
                where=f"the model {source!r}",
                got=ask["language"],
                fix="take even or skewed, or name a checkpoint that was trained on it by its path",
            )
        return load_model(EMBEDDED + shipped, device=device), source
    return load_model(source, device=device, dtype=ask["dtype"]), name_of(ask, source)


def name_of(ask: Ask, source: str) -> str:
    """The end of a checkpoint's path, or all of it where the end is not unique."""

    def end(path: str) -> str:
        return path.rpartition(":")[2].rstrip("/").rpartition("/")[2]

    alike = [other for other in ask.sources if end(other) == end(source)]
    return end(source) if len(alike) < 2 else source


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


@dataclass(frozen=True)
class AfterPrompt:
    """A network that goes on from a prompt, as a denoiser of the text behind it alone."""

    model: Any
    prompt: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def hidden(self, ids: Any, sigma: Any) -> Any:
        """States of texts behind the prompt."""
        from torch.nn.functional import pad

        return self.model.hidden(pad(ids, (1, 0), value=self.prompt), sigma)

    def logits(self, hidden: Any, sequence: Any, position: Any) -> Any:
        """Scores at positions of the text."""
        return self.model.logits(hidden, sequence, position + 1)


def after_prompt(model: Model, language: Language) -> Any:
    """A model as a denoiser of whole texts."""
    canvases = canvases_of_language(model, language)
    return model if canvases is None else AfterPrompt(model, language.mask_id + 1)


LEVELS, PROFILED, PROFILE_SEED = 32, 128, 77
"""Of a profile: shares of the text that is seen, texts at each, and which."""


def loss_profile(denoiser: Any, language: Language) -> list[float]:
    """What a denoiser loses on a hidden word, at every share of the text that it sees.

    Texts are not those that anything else is measured on.
    """
    import numpy as np

    from strop.instruments.posterior import level_contexts, measure

    ids, texts = language.draw(PROFILED, PROFILE_SEED), np.arange(PROFILED)
    losses = []
    for level in range(LEVELS):
        where = level_contexts(level, LEVELS, seed=0, sequences=texts, length=language.length)
        losses.append(float(measure(denoiser, ids, where, [1.0]).masked.mean()))
    return losses


def profile_grid(model: Model, language: Language, steps: int) -> tuple[float, ...]:
    """The reveal masses with the least summed loss, by a model's own profile."""
    from strop.theory.schedules import grid_of_profile

    return grid_of_profile(loss_profile(after_prompt(model, language), language), steps)[0]


def number(value: Interval | float) -> float:
    """The value of an interval, or the number itself."""
    return value.value if isinstance(value, Interval) else value


def rare(
    _: Ask, language: Language, rows: list[Row], ids: Mapping[str, Any], __: Facts
) -> Iterable[str]:
    """How often words occur that are rare in the language, and how often they should."""
    import numpy as np

    law = language.unigram
    edges = [(0.0, 2e-6), (2e-6, 1e-5), (1e-5, 1e-4), (1e-4, 1.0)]
    for row in rows:
        seen = np.append(law, 0.0)[ids[row["id"]]]
        row["rare"] = {}
        for low, high in edges:
            counts = ((seen > low) & (seen <= high)).sum(1)
            half = 1.96 * counts.std() / len(counts) ** 0.5
            should = law[(law > low) & (law <= high)].sum() * language.length
            row["rare"][f"{low:g} to {high:g}"] = (
                f"{counts.mean():.3f} +- {half:.3f} of {should:.3f}"
            )
    return ()


def soft_overlap(ids: NDArray[np.int64], language: Language) -> float:
    """As `overlap`, a text with v violations counting exp(-v / 4): few steps have none without."""
    import numpy as np

    law = language.posterior([]).reshape(-1)
    modes = language.posterior(ids).reshape(len(ids), -1).argmax(1)
    weight = np.exp(-language.violations(ids) / 4)
    return float(np.minimum(law, np.bincount(modes, weight, len(law)) / len(ids)).sum())


def bounds(
    ask: Ask, language: Language, rows: list[Row], ids: Mapping[str, Any], _: Facts
) -> Iterable[str]:
    """Which temperature the m-path bound on exact texts names, and which one is the best."""
    from strop.instruments.posterior import path_scores
    from strop.samplers.machinery.start import reveal_grid
    from strop.theory.mpath import bound_from_scores

    texts, most = (
        language.draw(4 if ask.smoke else 48, seed=ask["seed"] + 1),
        2 if ask.smoke else 16,
    )
    for name in dict.fromkeys(row["model"] for row in rows):
        source = next(row["source"] for row in rows if row["model"] == name)
        model = after_prompt(model_of(ask, source)[0], language)
        for m in dict.fromkeys(row["steps"] for row in rows):
            own_rows = [row for row in rows if (row["model"], row["steps"]) == (name, m)]
            taus, masses = (
                [row["temperature"] for row in own_rows],
                reveal_grid(SamplerSpec(steps=m)).masses,
            )
            lams = [1 / tau for tau in taus]
            scores = path_scores(model, texts, masses, paths=most, lams=lams, seed=ask["seed"])
            named = []
            for paths in sorted({1, most}):
                part = scores.log_q[:, :, :paths], scores.slope[:, :, :paths]
                values = bound_from_scores(scores.lams, *part).value
                named.append(f"{taus[int(values.argmin())]:g} with {paths}")
                for row, value in zip(own_rows, values, strict=True):
                    row[f"bound {paths}"] = float(value)
            for row in own_rows:
                row["soft"] = soft_overlap(ids[row["id"]], language)
            best = max(own_rows, key=lambda row: row["soft"])
            overlaps = ", ".join(f"{row['temperature']:g}: {row['soft']:.3f}" for row in own_rows)
            if language.mask_id**language.length <= ENUMERABLE and name == "perfect" and m <= 2:
                exact = divergences(language, m, taus)
                by_tau = ", ".join(
                    f"{tau:g}: {kl:.4f}" for tau, kl in zip(taus, exact, strict=True)
                )
                yield f"{name}, M = {m}: KL(P || output law) is exactly {by_tau}"
            yield (
                f"{name}, M = {m}: the bound names temperature {', '.join(named)} paths; the soft "
                f"overlap is largest at {best['temperature']:g} ({overlaps})"
            )


ENUMERABLE = 5000
"""Texts of a language that are all looked at."""


def divergences(language: Language, steps: int, taus: Sequence[float]) -> list[float]:
    """KL(P || law of the outputs) of a perfect model, over all texts and all reveal paths."""
    from itertools import product

    import numpy as np

    from strop.language.reading import log_along

    ranges = range(language.mask_id), range(steps)
    texts, paths = (np.array(list(product(values, repeat=language.length))) for values in ranges)
    true, results = language.log_p(texts), []
    for tau in taus:
        laws = [
            log_along(language, texts, np.tile(path, (len(texts), 1)), 1 / tau) for path in paths
        ]
        output = np.logaddexp.reduce(laws) - np.log(len(paths))
        results.append(float((np.exp(true) * (true - output)).sum()))
    return results


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
        ends = np.cumsum([segment.length for segment in language.grammar.segments])
        cut = int(ends[(len(ends) - 1) // 2])
        return np.concatenate([ids[:, :cut], np.roll(ids, 1, axis=0)[:, cut:]], axis=1)
    return np.concatenate([ids[::2], other[1::2]])


def proxies(
    ask: Ask, language: Language, rows: list[Row], ids: Mapping[str, Any], facts: Facts
) -> Iterable[str]:
    """Rank correlations of proxies with the truth, over generators and as many controls."""
    import numpy as np

    pools = {f"{row['model']}, {row['setting']}": ids[row["id"]] for row in rows}
    names = list(pools)
    for k, name in enumerate(names):
        kind, other = KINDS[k % len(KINDS)], pools[names[k - 1]]
        pools[f"{name}: {kind}"] = control(kind, pools[name], other, language)
    from strop.language.reading import truth

    entropy = language.entropy(500)
    measures = [truth(pool, language, entropy) for pool in pools.values()]
    true = {
        "quality": [-measured.violations.value for measured in measures],
        "diversity": [measured.mode_entropy for measured in measures],
        "both": [soft_overlap(pool, language) for pool in pools.values()],
    }
    proxies = _proxy_values(ask, language, pools) | {
        "-surprise, exact": [-f.excess.value for f in measures]
    }
    rng = np.random.default_rng(ask["seed"])
    draws = rng.integers(len(pools), size=(200 if ask.smoke else 1000, len(pools)))
    yield f"{len(names)} generators and {len(pools) - len(names)} controls"
    ranks = facts["ranks"] = {name: {} for name in proxies}
    for name, values in proxies.items():
        words = []
        for what, truths in true.items():
            x, y = np.array(values), np.array(truths)
            rho = float(ranked(x[None], y[None])[0])
            low, high = np.nanquantile(ranked(x[draws], y[draws]), (0.025, 0.975))
            ranks[name][what] = [rho, float(low), float(high)]
            words.append(f"{what} {rho:.2f} [{low:.2f}, {high:.2f}]")
        yield f"{name}: {', '.join(words)}"
    yield from _worst_ranked(proxies, true, pools, language)


def ranked(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spearman's rank correlation of every row."""
    import numpy as np
    from scipy.stats import rankdata

    ranks_x, ranks_y = (rankdata(values, axis=1) for values in (x, y))
    ranks_x, ranks_y = (ranks - ranks.mean(1, keepdims=True) for ranks in (ranks_x, ranks_y))
    with np.errstate(invalid="ignore"):  # a resample of one value has no rank
        return (ranks_x * ranks_y).sum(1) / np.sqrt((ranks_x**2).sum(1) * (ranks_y**2).sum(1))


def _proxy_values(ask: Ask, language: Language, pools: Mapping[str, Any]) -> dict[str, list[float]]:
    """Every proxy of every pool."""
    import numpy as np

    from strop.groupeval.bootstrap import score
    from strop.verbs.points import judge_texts

    grams = [
        np.lib.stride_tricks.sliding_window_view(pool, 4, 1).reshape(-1, 4)
        for pool in pools.values()
    ]
    proxies: dict[str, list[float]] = {
        "unigram entropy": [
            float(np.mean([_entropy(row) for row in pool])) for pool in pools.values()
        ],
        "distinct-4": [len(np.unique(gram, axis=0)) / len(gram) for gram in grams],
    }
    texts = {
        f"g{k}": [language.decode(row) for row in pool[:GROUPED]]
        for k, pool in enumerate(pools.values())
    }
    folder = ask.out / "groupeval"
    judges = [("offline", {"features": "ngrams"})]  # embeddings of so many texts take an hour
    judges += [("oracle", {"language": ask["language"], "valid": most}) for most in (8, 24)]
    judged = judge_texts(texts, folder, seed=ask["seed"], judges=judges)
    for judge, judgments in judged.items():
        cells = score(judgments, replicates=2)["cells"]
        for what in ("geq", "ged"):
            values = [number(cells[name][what]) for name in texts]
            proxies[f"{what.upper()}, {judge}"] = values
    source = causal_of(ask)
    if source:
        proxies[f"-log perplexity, {source}"] = [
            -float(np.log(perplexity(ask, source, own_texts).value)) for own_texts in texts.values()
        ]
    return proxies


def causal_of(ask: Ask) -> str | None:
    """The evaluator that was named, or the causal model of the language, if one ships."""
    from strop.assets import EMBEDDED, embedded_names

    name = ask["language"] + TRAINED["causal"]
    return ask["evaluator"] or (EMBEDDED + name if name in embedded_names() else None)


def perplexity(ask: Ask, source: str, texts: Sequence[str]) -> Interval:
    """Of texts behind the prompt, under a causal model that was trained on the language."""
    from strop.language.reading import PROMPT
    from strop.measure.cells import score_texts
    from strop.measure.score import known_evaluator

    evaluator = known_evaluator(source, device=ask.engine.at_home(ask["device"]))
    scores: Any = score_texts([f"{PROMPT} {text}" for text in texts], evaluator, ["first-document"])
    return scores[0].values["pooled"]


def perplexities(
    ask: Ask, language: Language, rows: list[Row], ids: Mapping[str, Any], _: Facts
) -> Iterable[str]:
    """Every row's perplexity under the causal model."""
    source = causal_of(ask)
    for row in rows if source else ():
        texts = [language.decode(row_ids) for row_ids in ids[row["id"]][:SCORED]]
        row["perplexity"] = perplexity(ask, source or "", texts)
    yield f"perplexities are those of {source}" if source else "no causal model reads this language"


SCORED = 256
"""Outputs of a row that perplexity is of."""
GROUPED = 64
"""Outputs of a generator that judges and evaluator read."""


def _entropy(row: NDArray[np.int64]) -> float:
    import numpy as np

    share = np.unique(row, return_counts=True)[1] / len(row)
    return float(-(share * np.log(share)).sum())


def _worst_ranked(
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


FEWER, LOST = 0.1, 0.1
"""From which a difference counts: of violations as a share, and in mode entropy."""


def truth_of(a: Row, b: Row) -> str:
    """What is true of a pair, by outputs that no verdict sees: better, worse, mixed, or close."""
    import numpy as np

    gap = a["violations"].value - b["violations"].value
    doubt = float(np.hypot(a["violations"].half, b["violations"].half))
    if abs(gap) - doubt < FEWER * max(a["violations"].value, b["violations"].value):
        return "close"
    cleaner, other = (a, b) if gap < 0 else (b, a)
    lost = float(np.log(other["modes"].value / cleaner["modes"].value))
    off = float(np.hypot(*(np.log(row["modes"].value / row["modes"].low) for row in (a, b))))
    if lost - off > LOST:
        return "mixed"
    if lost + off > 2 * LOST:
        return "close"  # whether modes are lost is not known well enough
    return "better" if cleaner is a else "worse"


def outcome(verdict: str, right: str) -> str:
    """Whether a verdict is right; the verdict itself if a pair is too close to have an answer."""
    if verdict == "cannot tell" or right == "close":
        return verdict
    return "right" if verdict == right else "wrong"


def verdicts(
    ask: Ask, language: Language, rows: list[Row], _: Mapping[str, Any], facts: Facts
) -> Iterable[str]:
    """What the rules of `strop compare` say of every pair of rows, and how often it is true.

    The evaluator is the law; every side has an eighth of the outputs at each of seven temperatures.
    """
    from collections import Counter

    from strop.comparing.compare import compare
    from strop.comparing.diversity import held_out_diversity
    from strop.measure.guard import guard

    if len(rows) < 2:
        raise UserError(
            "One generator makes no pair.",
            where="`checkpoint`",
            got=rows[0]["model"],
            fix="name another model beside it",
        )
    held = guard(language.length, language.draw(2048, seed=5), source="exact texts")
    sides = [_side(ask, language, row) for row in rows]
    assert held.pairs is not None
    diversity = [held.pairs.diversity(published) for _, published in sides]
    facts["pairs"], rates = [], {}
    for a, b in combinations(range(len(rows)), 2):
        against_texts = held_out_diversity([diversity[a], diversity[b]], held)
        judged = [] if against_texts is None else [against_texts]
        verdict = compare(sides[a][0], sides[b][0], floor=held.threshold, judged=judged).verdict
        right = truth_of(rows[a], rows[b])
        how = outcome(verdict.kind, right)
        kind = "better or worse" if right in ("better", "worse") else right
        rates.setdefault(kind, Counter())[how] += 1
        facts["pairs"].append({"a": a, "b": b, "truth": right, "said": verdict.kind, "how": how})
        if how == "wrong":
            names = [f"{rows[k]['model']} {rows[k]['setting']}" for k in (a, b)]
            yield (
                f"wrong: {names[0]} against {names[1]} is {right}, "
                f"{verdict.kind} was said: {verdict.why}"
            )
    for right, counts in rates.items():
        counted = ", ".join(f"{count} {how}" for how, count in counts.most_common())
        yield f"{right}: {counts.total()} pairs, {counted}"


def _side(ask: Ask, language: Language, row: Row) -> tuple[Any, Any]:
    """A row's generator over the temperatures of `compare`, and its outputs as published."""
    import numpy as np

    from strop.comparing.diversity import COPIES, copies
    from strop.comparing.outputs import seed_of
    from strop.comparing.side import Sample, Side
    from strop.draw import sample_cells
    from strop.measure.entropy import entropy
    from strop.verbs.points import TEMPERATURES

    model, _ = model_of(ask, row["source"])
    samples, n = [], max(ask["n"] // 8, 8)
    published = np.zeros((0, 0), np.int64)
    for tau in TEMPERATURES:
        [pool] = sample_cells(
            model,
            [SamplerSpec(**{**row["sampler"], "temperature": tau})],
            n=n,
            seed=seed_of(ask["seed"], tau),
            canvases=canvases_of_language(model, language),
            out=(ask["pools"] or ask.out) / row["folder"],
            grow=True,
        )
        words = pool.ids[:, : language.length].clip(max=language.mask_id)
        published = words if tau == 1 else published
        tokens = np.full(n, float(language.length))
        surprise, spread = -language.log_p(words), entropy(words)
        samples.append(Sample(surprise, tokens, spread, {COPIES: copies(words)}))
    return Side(samples, published=samples[TEMPERATURES.index(1.0)]), published
