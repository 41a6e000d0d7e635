"""offline-v1: a judge of counted things, for demonstrations and tests. No language model.

It reads the same sheets, answers in the same schema and passes the same validation as any judge,
in a series of its own. Grades follow from statistics by fixed thresholds, modes from similarity
by average linkage. Equal texts get equal answers, always. Changing a threshold here makes another
judge: it would be offline-v2.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.groupeval.payload import documents
from strop.groupeval.plan import Sheet
from strop.groupeval.profile import Profile
from strop.groupeval.series import Series
from strop.groupeval.statistics import Statistics, measure

__all__ = ["NAME", "Features", "judge_offline", "offline_judge", "reply"]

NAME = "offline-v1"
GRAM = 4
"""Characters per n-gram."""

PIECE, PIECES = 150, 8
"""Words per piece that is embedded, and how many pieces of a text are."""

Features = Callable[[Sequence[str]], NDArray[Any]]
"""Texts to vectors of length one, one row each."""

THRESHOLD = {"ngrams": 0.30, "minilm": 0.45}
"""Mean similarity from which two clusters are one mode."""
NEAR = 0.03
"""How close to the threshold a similarity makes the sorting unsure."""


def offline_judge(features: str, weights: str | None = None) -> dict[str, Any]:
    """Who judges: the choice of features is part of it, with the hash of their weights."""
    judge = {"kind": "offline", "model": NAME, "name": f"{NAME}/{features}", "features": features}
    return judge if weights is None else {**judge, "weights_sha256": weights}


def judge_offline(
    series: Series,
    questions: Sequence[tuple[Sheet, int]],
    embed: Features | None,
    told: Callable[[str], None],
) -> None:
    """Answer every question; `embed` makes sentence embeddings, None means character n-grams."""
    if not series.profile.modes or set(GRADES) != set(series.profile.dimensions):
        raise UserError(
            f"The offline judge cannot use the profile {series.profile.name}.",
            expected="webtext-v1: whether a task was solved cannot be counted",
            fix="strop groupeval judge RUN --base-url URL --model NAME",
        )
    for sheet, repeat in questions:
        texts, _ = series.sheet_texts(sheet)
        answer = reply(texts, sheet.labels, series.profile, embed, series.judge["features"])
        series.append(
            {
                "sheet": sheet.id,
                "repeat": repeat,
                "attempt": 1,
                "outcome": "verdict",
                "reply": answer,
                "model": NAME,
            }
        )
        told("verdict")


def reply(
    texts: Sequence[str],
    labels: Sequence[str],
    profile: Profile,
    embed: Features | None,
    features: str = "ngrams",
) -> str:
    """The answer to one sheet, as JSON of the frozen schema."""
    parts = [documents(text, profile) for text in texts]
    measured = [measure(one) for one in parts]
    valid = [i for i, one in enumerate(measured) if _valid(one)]
    plain = ["\n".join(parts[i]) for i in valid]
    vectors = (
        np.zeros((0, 1)) if not plain else ngrams(plain) if embed is None else _pieces(plain, embed)
    )
    modes, hybrids, confidence = sort_modes(vectors, THRESHOLD[features])
    place = {i: k for k, i in enumerate(valid)}
    outputs = [
        {
            "id": label,
            "valid": i in place,
            **{name: GRADES[name](one) if i in place else 0 for name in profile.dimensions},
            "mode": modes[place[i]] if i in place else None,
            "hybrid": i in place and hybrids[place[i]],
        }
        for i, (label, one) in enumerate(zip(labels, measured, strict=True))
    ]
    return json.dumps({"outputs": outputs, "confidence": confidence})


def _valid(s: Statistics) -> bool:
    return s.words >= 5 and s.wordlike >= 0.6 and s.function_words >= 0.08 and s.repetition < 0.9


def _grade(two: bool, one: bool) -> int:
    return 2 if two else 1 if one else 0


def _readability(s: Statistics) -> int:
    return _grade(
        s.wordlike >= 0.97 and s.misplaced <= 0.05 and 4 <= s.sentence_words <= 45,
        s.wordlike >= 0.9 and s.misplaced <= 0.2,
    )


def _coherence(s: Statistics) -> int:
    return _grade(
        s.continuity >= 0.6 and s.misplaced <= 0.05, s.continuity >= 0.25 and s.misplaced <= 0.2
    )


def _substance(s: Statistics) -> int:
    # Much variety can come from disorder and little from loops: content is in between.
    return _grade(
        s.words >= 40 and 0.62 <= s.variety <= 0.95 and s.function_words >= 0.3,
        s.words >= 15 and s.variety >= 0.45 and s.function_words >= 0.15,
    )


def _nondegeneration(s: Statistics) -> int:
    return _grade(
        s.repetition <= 0.05 and s.compression >= 0.3 and s.empty_documents <= 0.1,
        s.repetition <= 0.3 and s.compression >= 0.15,
    )


GRADES: dict[str, Callable[[Statistics], int]] = {
    "readability": _readability,
    "coherence": _coherence,
    "substance": _substance,
    "nondegeneration": _nondegeneration,
}


def ngrams(texts: Sequence[str]) -> NDArray[np.float64]:
    """Character n-grams; those that most texts of the group have count for little."""
    counts = [_grams(text) for text in texts]
    everywhere = Counter(gram for one in counts for gram in one)
    column = {gram: k for k, gram in enumerate(sorted(everywhere))}
    table = np.zeros((len(texts), max(1, len(column))))
    for row, one in enumerate(counts):
        for gram, count in one.items():
            rarity = np.log((1 + len(texts)) / everywhere[gram])
            table[row, column[gram]] = (1 + np.log(count)) * rarity
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    return table / np.where(norms == 0, 1.0, norms)


def _pieces(texts: Sequence[str], embed: Features) -> NDArray[np.float64]:
    """The mean embedding of a text's pieces, because an encoder reads a few hundred words."""
    rows = []
    for text in texts:
        words = text.split()
        cut = [" ".join(words[i : i + PIECE]) for i in range(0, len(words), PIECE)][:PIECES]
        mean = np.asarray(embed(cut), np.float64).mean(0)
        rows.append(mean / np.linalg.norm(mean))
    return np.stack(rows)


def _grams(text: str) -> Counter[str]:
    text = " ".join(text.lower().split())
    return Counter(text[i : i + GRAM] for i in range(max(1, len(text) - GRAM + 1)))


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
    hybrids = [_hybrid(i, clusters, similarity, threshold) for i in range(len(vectors))]
    unsure = sum(gap < NEAR for gap in closest)
    return modes, hybrids, "high" if unsure == 0 else "medium" if unsure == 1 else "low"


def _hybrid(
    i: int, clusters: list[list[int]], similarity: NDArray[np.float64], threshold: float
) -> bool:
    """Whether a text is about as near to another mode as it would need to be in it."""
    others = [members for members in clusters if i not in members]
    return any(similarity[i, members].mean() >= threshold - NEAR for members in others)
