"""The offline judges: counted things, for demonstrations and tests. No language model.

They read the same sheets, answer in the same schema and pass the same validation as any judge, in
series of their own. Grades follow from text features by fixed thresholds. Modes follow from
similarity: in offline-v1 by average linkage and a threshold; in offline-v2, the default, by content
before surface (`sorting.py`) where texts answer something, which agrees far better with people
(docs/validation.md), and as in offline-v1 where they do not: those are long, and by content too
many are joined. Equal texts get equal answers, always. Changing a threshold makes another judge.

Text features are what can be counted without understanding. They lean on English (function words,
Latin letters) and on the surface. A fluent lie, a topic that drifts politely and a clever page all
look the same to them.

Under a task's rubric no answer is checked. `success` is 1, "it cannot be told", for every valid
response; the other grades see noise, loops, and whether a response speaks of what the task speaks
of. A wrong answer in good form has the grades of a right one, and using a number that does not
matter earns one more: so against labels it is near chance, or below.

offline-v2 sorts texts into modes by content before surface. Two texts are alike as far as their
embeddings agree once the context's direction is taken out of them (what every answer owes to the
question is no agreement), and as far as their character n-grams agree. From this likeness s follows
the chance z = 1 / (1 + exp((threshold - s) / width)) that they are of one mode, and from the
chances how many modes the group has:

    H = mean over texts i of -log(mean over texts j of z_ij)

which is the entropy of modes where every z is 0 or 1 (the diversity of order one of Leinster and
Cobbold 2012, with z for the similarity of kinds). The sorting is that cut of three trees (average,
complete and single linkage) whose entropy is nearest to log n (H / (full log n)) ** power. Copies
are never split, and what is surely apart is never joined.

The numbers were chosen on conTest by cross-validation over contexts (scripts/choose_sorting.py
and docs/validation.md). Changing one makes another judge: it would be offline-v3.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError, unknown_name
from strop.groupeval.profile import Profile, documents, preprocess
from strop.groupeval.scores import entropy
from strop.groupeval.session import Answer
from strop.registry import resolve
from strop.spec.value import JudgeSpec

# ---------------------------------------------------------------------------------------- sorting

Floats = NDArray[np.float64]
Clusters = list[list[int]]

SAME = 1 - 1e-6
"""Likeness from which two texts are copies."""
SURE = 2.5
"""Widths below the threshold from which two modes are surely apart."""
REPEATS = 0.3
"""Length of what is left of a text below which it only says again what the context says."""
CLEAR, UNSURE = 0.05, 0.12
"""How far the cut may be from what is looked for, as shares of log n, to be sure or half sure."""


@dataclass(frozen=True)
class Sorting:
    """What a likeness is made of, and from where on it makes one mode."""

    surface: float
    """The share of n-grams in the likeness; the rest is that of embeddings."""
    threshold: float
    """The likeness at which two texts are of one mode as likely as not."""
    width: float
    """How far around it there is doubt."""
    power: float
    """How much rather people see few modes than many; 1 takes the entropy as it is."""
    full: float = 1.0
    """The soft entropy, as a share of log n, from which all texts are taken to be apart: texts on
    one subject share n-grams by chance."""


SORTINGS = {
    "minilm": Sorting(surface=0.3, threshold=0.4, width=0.07, power=1.5),
    "ngrams": Sorting(surface=1.0, threshold=0.1, width=0.03, power=1.0, full=0.9),
}
"""By the features that there are."""


def without(vectors: Floats, context: Floats | None) -> Floats:
    """Unit vectors without the context's direction; those that repeat it stay as they are."""
    if context is None:
        return vectors
    residual = vectors - np.outer(vectors @ context, context)
    length = np.linalg.norm(residual, axis=1, keepdims=True)
    return np.where(length < REPEATS, vectors, residual / np.maximum(length, REPEATS))


def likeness(surface: Floats, content: Floats | None, share: float) -> Floats:
    """Of every two texts, from their n-grams and, where there are any, their embeddings."""
    similarity = surface @ surface.T
    if content is not None:
        similarity = share * similarity + (1 - share) * (content @ content.T)
    np.fill_diagonal(similarity, 1.0)
    return similarity


def soft_entropy(alike: Floats, rule: Sorting) -> float:
    """The entropy of modes that are not cut yet, as a share of log n."""
    with np.errstate(over="ignore"):
        chance = 1 / (1 + np.exp((rule.threshold - alike) / rule.width))
    np.fill_diagonal(chance, 1.0)
    return float(-np.log(chance.mean(1)).mean() / np.log(len(alike)))


def sort_by_content(alike: Floats, rule: Sorting) -> tuple[list[str], list[bool], str]:
    """Letters, whether each is a hybrid, and the confidence."""
    n = len(alike)
    if n < 2:
        return ["A"] * n, [False] * n, "high"
    target = min(1.0, soft_entropy(alike, rule) / rule.full) ** rule.power
    gap, clusters = min(
        ((abs(_entropy_share(cut, n) - target), cut) for cut in cuts(alike, rule)),
        key=lambda pair: pair[0],
    )
    clusters = sorted(clusters, key=min)
    letters = {i: chr(ord("A") + k) for k, members in enumerate(clusters) for i in members}
    between = [
        any(alike[i, members].mean() >= rule.threshold for members in clusters if i not in members)
        for i in range(n)
    ]
    sure = "high" if gap < CLEAR else "medium" if gap < UNSURE else "low"
    return [letters[i] for i in range(n)], between, sure


def cuts(alike: Floats, rule: Sorting) -> Iterator[Clusters]:
    """Every sorting that a tree has, from all apart to as few as may be; average linkage first."""
    for linkage in ("average", "complete", "single"):
        yield from _tree(alike, linkage, rule.threshold - SURE * rule.width)


def _tree(alike: Floats, linkage: str, least: float) -> Iterator[Clusters]:
    near = alike.copy()
    np.fill_diagonal(near, -np.inf)
    clusters: list[list[int]] = [[i] for i in range(len(alike))]
    while len(clusters) > 1:
        a, b = sorted(divmod(int(near.argmax()), len(near)))
        best = near[a, b]
        if best < SAME:
            yield [list(cluster) for cluster in clusters]
        if best < least:
            return
        near[a] = near[:, a] = _linked(
            near[a], near[b], len(clusters[a]), len(clusters[b]), linkage
        )
        near[a, a] = -np.inf
        near = np.delete(np.delete(near, b, 0), b, 1)
        clusters[a] += clusters.pop(b)
    yield [list(cluster) for cluster in clusters]


def _linked(first: Floats, second: Floats, m: int, n: int, linkage: str) -> Floats:
    if linkage == "average":
        return (m * first + n * second) / (m + n)
    return np.minimum(first, second) if linkage == "complete" else np.maximum(first, second)


def _entropy_share(clusters: Sequence[Sequence[int]], n: int) -> float:
    return entropy([len(cluster) for cluster in clusters]) / float(np.log(n))


# ---------------------------------------------------------------------------------------- offline

NAME, SECOND = VERSIONS = ("offline-v1", "offline-v2")
FEATURES = ("auto", "minilm", "ngrams")
EMBEDDINGS = "strop.measure.embeddings"
"""By name: metrics lie beside this package, and only these features need what they need."""
GRAM = 4
"""Characters per n-gram."""

PIECE, PIECES = 150, 8
"""Words per piece that is embedded, and how many pieces of a text are."""

Embed = Callable[[Sequence[str]], NDArray[Any]]
"""Texts to vectors of length one, one row each."""

THRESHOLD = {"ngrams": 0.30, "minilm": 0.45}
"""Mean similarity from which two clusters are one mode."""
NEAR = 0.03
"""How close to the threshold a similarity makes the sorting unsure."""


def offline_spec(
    profile: Profile, *, features: str = "auto", model: str | None = None
) -> JudgeSpec:
    """Who judges: the choice of features is part of it, with the hash of their weights.

    `auto` is embeddings where their package and torch are installed, else n-grams. Without modes
    there is nothing to embed, and nothing in which offline-v2 would differ.
    """
    if model is None:
        model = SECOND if profile.modes else NAME
    if model not in VERSIONS:
        raise unknown_name("offline judge", model, VERSIONS, where="`model`")
    if model == SECOND and not profile.modes:
        raise UserError(
            f"{SECOND} is another way to sort texts into modes, and {profile.name} has none.",
            where="`model`",
            fix="leave `model` out",
        )
    kinds = FEATURES if profile.modes else ("auto", TASK_FEATURES)
    if features not in kinds:
        raise unknown_name("kind of features", features, kinds, where="`features`")
    if features == "auto" and not profile.modes:
        features = TASK_FEATURES
    if features == "auto":
        available = resolve(f"{EMBEDDINGS}:embedder_available")()
        features = "minilm" if available else "ngrams"
    weights = resolve(f"{EMBEDDINGS}:embedding_spec")().sha256 if features == "minilm" else None
    return JudgeSpec(
        kind="offline",
        model=model,
        name=f"{model}/{features}",
        features=features,
        weights_sha256=weights,
    )


def offline_client(spec: JudgeSpec, profile: Profile, embed: Embed | None = None) -> Answer:
    """What answers a sheet; `embed` is given where it has vectors already."""
    wanted = set(profile.dimensions)
    if not profile.modes and wanted == set(RESPONSE_GRADES):
        return lambda labels, texts, task: task_reply(texts, labels, profile, task)
    for_answers = profile.kind == "answers" and wanted == ANSWERED
    if not profile.modes or not (for_answers or wanted == set(GRADES)):
        raise UserError(
            f"The offline judge cannot use the profile {profile.name}.",
            got=", ".join(profile.dimensions),
            expected="the dimensions of a profile that ships: nothing else can be counted",
            fix="strop groupeval judge RUN --base-url URL --model NAME",
        )
    features = str(spec.features)
    if features == "minilm" and embed is None:
        embed = _remembering(resolve(f"{EMBEDDINGS}:embed"))
    embed = embed if features == "minilm" else None
    by_content = spec.model == SECOND and profile.kind == "answers"

    def answer(labels: Sequence[str], texts: Sequence[str], task: str | None) -> str:
        graded = [_answer(text, profile, task or "") for text in texts] if for_answers else None
        sort = _second(task, embed) if by_content else linked(embed, features)
        return reply(texts, labels, profile, sort, graded)

    return answer


Sort = Callable[[list[str]], tuple[list[str], list[bool], str]]
"""From valid texts to their modes, whether each is a hybrid, and the confidence."""


def linked(embed: Embed | None, features: str) -> Sort:
    """As offline-v1 sorts: by average linkage and a threshold."""
    vectors = ngrams if embed is None else partial(_pieces, embed=embed)
    return lambda plain: sort_modes(vectors(plain), THRESHOLD[features])


def _second(context: str | None, embed: Embed | None) -> Sort:
    rule = SORTINGS["ngrams" if embed is None else "minilm"]
    return lambda plain: sort_by_content(text_likeness(plain, context, embed, rule.surface), rule)


def text_likeness(
    texts: Sequence[str], context: str | None, embed: Embed | None, surface: float
) -> NDArray[np.float64]:
    """How alike every two answers to a context are, by offline-v2."""
    content = None
    if embed is not None:
        has_words = context is not None and bool(context.split())
        direction = _pieces([context or ""], embed)[0] if has_words else None
        content = without(_pieces(texts, embed), direction)
    return likeness(ngrams(texts), content, surface)


def reply(
    texts: Sequence[str],
    labels: Sequence[str],
    profile: Profile,
    sort: Sort,
    graded: Sequence[Mapping[str, int] | None] | None = None,
) -> str:
    """The answer to one sheet, as JSON of the frozen schema.

    `graded` has the grades of each text, None of one that is invalid; left out, those of texts
    without an instruction are counted here. Modes are those of `sort`.
    """
    parts = [documents(text, profile) for text in texts]
    graded = (
        [_grades_of(documents_of_text) for documents_of_text in parts] if graded is None else graded
    )
    valid = [i for i, grades in enumerate(graded) if grades is not None]
    plain = ["\n".join(parts[i]) for i in valid]
    modes, hybrids, confidence = [], [], "high"
    if plain:
        modes, hybrids, confidence = sort(plain)
    rank = {i: k for k, i in enumerate(valid)}
    outputs = [
        {
            "id": label,
            "valid": i in rank,
            **{name: 0 if grades is None else grades[name] for name in profile.dimensions},
            "mode": modes[rank[i]] if i in rank else None,
            "hybrid": i in rank and hybrids[rank[i]],
        }
        for i, (label, grades) in enumerate(zip(labels, graded, strict=True))
    ]
    return json.dumps({"outputs": outputs, "confidence": confidence})


def _grades_of(parts: Sequence[str]) -> dict[str, int] | None:
    """The grades of one text, None if it is invalid."""
    s = text_features(parts)
    valid = s.words >= 5 and s.wordlike >= 0.6 and s.function_words >= 0.08 and s.repetition < 0.9
    return {name: grade(s) for name, grade in GRADES.items()} if valid else None


ANSWERED = {"readability", "coherence", "fulfilment", "nondegeneration"}
"""What an answer to a prompt is graded in."""


def _answer(text: str, profile: Profile, prompt: str) -> dict[str, int] | None:
    """The grades of an answer to a prompt: short ones are valid, and success cannot be told."""
    response = response_features(preprocess(text, profile), prompt)
    if not is_valid(response):
        return None
    return {
        "readability": RESPONSE_GRADES["readability"](response),
        "coherence": GRADES["coherence"](text_features(documents(text, profile))),
        "fulfilment": RESPONSE_GRADES["success"](response),
        "nondegeneration": RESPONSE_GRADES["nondegeneration"](response),
    }


def _grade(best: bool, good: bool) -> int:
    return 2 if best else 1 if good else 0


GRADES: dict[str, Callable[[TextFeatures], int]] = {
    "readability": lambda s: _grade(
        s.wordlike >= 0.97 and s.misplaced <= 0.05 and 4 <= s.sentence_words <= 45,
        s.wordlike >= 0.9 and s.misplaced <= 0.2,
    ),
    "coherence": lambda s: _grade(
        s.continuity >= 0.6 and s.misplaced <= 0.05, s.continuity >= 0.25 and s.misplaced <= 0.2
    ),
    # Much variety can come from disorder and little from loops: content is in between.
    "substance": lambda s: _grade(
        s.words >= 40 and 0.62 <= s.variety <= 0.95 and s.function_words >= 0.3,
        s.words >= 15 and s.variety >= 0.45 and s.function_words >= 0.15,
    ),
    "nondegeneration": lambda s: _grade(
        s.repetition <= 0.05 and s.compression >= 0.3 and s.empty_documents <= 0.1,
        s.repetition <= 0.3 and s.compression >= 0.15,
    ),
}


def ngrams(texts: Sequence[str]) -> NDArray[np.float64]:
    """Character n-grams; those that most texts of the group have count for little."""
    spaced = [" ".join(text.lower().split()) for text in texts]
    starts = [range(max(1, len(text) - GRAM + 1)) for text in spaced]
    counts = [
        Counter(text[i : i + GRAM] for i in range_of_text)
        for text, range_of_text in zip(spaced, starts, strict=True)
    ]
    everywhere = Counter(gram for grams in counts for gram in grams)
    column = {gram: k for k, gram in enumerate(sorted(everywhere))}
    table = np.zeros((len(texts), max(1, len(column))))
    for row, grams in enumerate(counts):
        for gram, count in grams.items():
            rarity = np.log((1 + len(texts)) / everywhere[gram])
            table[row, column[gram]] = (1 + np.log(count)) * rarity
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    return table / np.where(norms == 0, 1.0, norms)


def _remembering(embed: Embed) -> Embed:
    """The same vectors; a text that is in a group of every partition is embedded once."""
    cached = lru_cache(maxsize=4096)(embed)
    return lambda texts: cached(tuple(texts))


def _pieces(texts: Sequence[str], embed: Embed) -> NDArray[np.float64]:
    """The mean embedding of a text's pieces, because an encoder reads a few hundred words."""
    rows = []
    for text in texts:
        mean = np.asarray(embed(pieces(text)), np.float64).mean(0)
        rows.append(mean / np.linalg.norm(mean))
    return np.stack(rows)


def pieces(text: str) -> list[str]:
    """What of a text is embedded."""
    words = text.split()
    return [" ".join(words[i : i + PIECE]) for i in range(0, len(words), PIECE)][:PIECES]


def sort_modes(vectors: NDArray[np.float64], threshold: float) -> tuple[list[str], list[bool], str]:
    """Letters by average linkage, whether each is a hybrid, and the confidence."""
    similarity = vectors @ vectors.T
    clusters = [[i] for i in range(len(vectors))]
    closest = []
    while len(clusters) > 1:
        pairs = [(a, b) for a in range(len(clusters)) for b in range(a + 1, len(clusters))]
        means = [similarity[np.ix_(clusters[a], clusters[b])].mean() for a, b in pairs]
        best = int(np.argmax(means))
        closest.append(abs(means[best] - threshold))
        if means[best] < threshold:
            break
        a, b = pairs[best]
        clusters[a] += clusters.pop(b)
    clusters.sort(key=min)
    letters = {i: chr(ord("A") + k) for k, members in enumerate(clusters) for i in members}
    modes = [letters[i] for i in range(len(vectors))]
    # A hybrid is about as near to another mode as it would need to be in it.
    hybrids = [
        any(similarity[i, them].mean() >= threshold - NEAR for them in clusters if i not in them)
        for i in range(len(vectors))
    ]
    unsure = sum(gap < NEAR for gap in closest)
    return modes, hybrids, "high" if unsure == 0 else "medium" if unsure == 1 else "low"


ARTICLES = frozenset(("a", "an", "the"))
FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a an the and or but nor if of in on at by for from to into with without as than then
        that this these those is are was were be been being am do does did has have had will would
        can could shall should may might must not no it its he she they we you i him her them us me
        his their our your my who whom which what when where why how there here so very too also up
        out about over under after before between through during because while until although""",
    )
)
AFTER_NO_ARTICLE = FUNCTION_WORDS - {"no", "very", "too", "then", "who", "what", "how", "not"}
"""Words that hardly ever follow an article in English; shuffled words put them there often."""
WINDOW = 40
"""Words per stretch of text where neighbouring stretches are compared."""


@dataclass(frozen=True)
class TextFeatures:
    """One text in numbers; shares are from 0 to 1."""

    words: int
    wordlike: float
    """Share of the visible characters that belong to words or usual punctuation."""
    function_words: float
    """Share of function words among the words; running English has about half."""
    misplaced: float
    """Share of articles that are followed by a word which cannot follow them."""
    sentence_words: float
    """Mean words per sentence."""
    repetition: float
    """Share of four-word sequences that stood before in the same text."""
    compression: float
    """Compressed bytes over bytes; loops are near 0, ordinary prose of a page is 0.4 to 0.6."""
    variety: float
    """Mean share of different words in a window."""
    continuity: float
    """Share of neighbouring windows of a document that share a longer word."""
    documents: int
    empty_documents: float
    """Share of documents without a word among those between boundaries."""


def text_features(documents: Sequence[str]) -> TextFeatures:
    """Those of one text, given as its documents."""
    text = " ".join(documents)
    visible = re.sub(r"\s", "", text)
    good = re.sub(r"[^\w.,;:!?'\"’“”()\-–—$%&/]|_|\ufffd", "", visible)
    raw = text.encode()
    per_document = [_words(document) for document in documents]
    words = [word for document in per_document for word in document]
    sentences = [s for s in re.split(r"[.!?]+(?:\s|$)", text) if _words(s)]
    followers = [b for a, b in pairwise(words) if a in ARTICLES]
    sequences = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    return TextFeatures(
        words=len(words),
        wordlike=len(good) / len(visible) if visible else 0.0,
        function_words=_share(word in FUNCTION_WORDS for word in words),
        misplaced=_share(word in AFTER_NO_ARTICLE for word in followers),
        sentence_words=len(words) / max(1, len(sentences)),
        repetition=1 - len(set(sequences)) / len(sequences) if sequences else 0.0,
        # Short texts do not compress for want of material, and are not the worse for it.
        compression=len(zlib.compress(raw, 9)) / len(raw) if len(raw) >= 200 else 1.0,
        variety=_variety(words),
        continuity=_continuity(per_document),
        documents=len(documents),
        empty_documents=_share(not document for document in per_document),
    )


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+(?:['’][^\W\d_]+)*", text.lower())


def _share(truths: Iterable[bool]) -> float:
    values = list(truths)
    return sum(values) / len(values) if values else 0.0


def _variety(words: list[str]) -> float:
    windows = [words[i : i + WINDOW] for i in range(0, len(words), WINDOW)]
    full = [w for w in windows if len(w) == WINDOW] or [w for w in windows if w]
    return sum(len(set(w)) / len(w) for w in full) / len(full) if full else 0.0


def _continuity(documents: list[list[str]]) -> float:
    shared = []
    for words in documents:
        content = [
            {w for w in words[i : i + WINDOW] if len(w) > 4 and w not in FUNCTION_WORDS}
            for i in range(0, len(words) - WINDOW // 2, WINDOW)  # a short rest says nothing
        ]
        shared += [bool(a & b) for a, b in pairwise(content)]
    return _share(shared) if shared else 1.0


# ---------------------------------------------------------------- responses to a task

TASK_FEATURES = "counts"
SEQUENCE = 4
"""Pieces per repeated sequence."""
LONG = 5
"""Letters from which a word says what is spoken of."""


@dataclass(frozen=True)
class ResponseFeatures:
    """One response in numbers; shares are from 0 to 1."""

    plain: float
    """Share of the visible characters that are letters or digits; code and sums have symbols."""
    odd: float
    """Share of those that cannot be printed, or stand for what could not be decoded."""
    repetition: float
    """Share of sequences of four words, numbers or signs that stood before."""
    shared: float
    """Share of its numbers and longer words that the task has too."""
    used: float
    """Share of the task's numbers that it has; 1 where the task has none."""


def response_features(text: str, task: str) -> ResponseFeatures:
    """Those of one response to a task."""
    visible = re.sub(r"\s", "", text)
    pieces = re.findall(r"[^\W\d_]+|\d+|[^\w\s]", text.lower())
    grams = [tuple(pieces[i : i + SEQUENCE]) for i in range(len(pieces) - SEQUENCE + 1)]
    of_text, of_task = _subjects(text), _subjects(task)
    numbers = {subject for subject in of_task if subject.isdigit()}
    return ResponseFeatures(
        plain=_share(c.isalnum() for c in visible),
        odd=_share(not c.isprintable() or c == "\ufffd" for c in visible),
        repetition=(len(grams) - len(set(grams))) / max(1, len(grams)),
        shared=_share(subject in of_task for subject in of_text),
        used=_share(number in of_text for number in numbers) if numbers else 1.0,
    )


def _subjects(text: str) -> set[str]:
    pieces = re.findall(r"[^\W\d_]+|\d+", text.lower())
    return {piece for piece in pieces if piece.isdigit() or len(piece) >= LONG}


def is_valid(s: ResponseFeatures) -> bool:
    """Whether it says anything; a number alone does."""
    return s.plain >= 0.2 and s.odd <= 0.3 and s.repetition < 0.9


RESPONSE_GRADES: dict[str, Callable[[ResponseFeatures], int]] = {
    "readability": lambda s: _grade(
        s.plain >= 0.4 and s.odd == 0, s.plain >= 0.25 and s.odd <= 0.05
    ),
    "reasoning": lambda s: _grade(s.shared >= 0.3 and s.used >= 0.9, s.shared >= 0.1),
    "success": lambda _: 1,
    # Programs and written-out steps repeat themselves more than prose.
    "nondegeneration": lambda s: _grade(s.repetition <= 0.3, s.repetition <= 0.6),
}


def task_reply(
    texts: Sequence[str], labels: Sequence[str], profile: Profile, task: str | None
) -> str:
    """The answer to one sheet, as JSON of the frozen schema; always unsure."""
    outputs = []
    for name, text in zip(labels, texts, strict=True):
        measured = response_features(preprocess(text, profile), task or "")
        valid = is_valid(measured)
        grades = {key: RESPONSE_GRADES[key](measured) if valid else 0 for key in profile.dimensions}
        outputs.append({"id": name, "valid": valid, **grades})
    return json.dumps({"outputs": outputs, "confidence": "low"})
