"""What makes the `sums` models beside their problems: a tokenizer, and exact baselines."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator

from strop.tasks import sums
from strop.tasks.sums import END, MAN, MEN, OPENING, QUESTION, SAYINGS, THINGS, WOMAN, WOMEN

UNKNOWN = "<|unknown|>"


def words() -> list[str]:
    """Every word of a problem, with the space before it where it has one, sorted."""
    found = {*WOMEN, *MEN, *(f" {word}" for word in (*WOMEN, *MEN, *THINGS))}
    for text in (QUESTION, *itertools.chain.from_iterable(SAYINGS.values())):
        for who in (WOMAN, MAN):
            said = text.format(n=0, things="", name="", Other="", **who)
            found |= {f" {word}" for word in re.findall(r"[A-Za-z]+", said)}
    found |= {f" {word}" for word in re.findall(r"[a-z]+", OPENING.format(name="", n=0, things=""))}
    return sorted(found)


def tokenizer() -> dict[str, object]:
    """A tokenizer.json: one token per word of a problem, else one per character.

    Digits have no longer token than themselves. Anything printable in ASCII comes back as it was.
    """
    characters = ["\n", *map(chr, range(32, 127))]
    pieces = [(END, 0.0), (UNKNOWN, -100.0), *((c, -10.0) for c in characters)]
    pieces += [(word, -1.0) for word in words()]
    end = {"id": 0, "content": END, "single_word": False, "lstrip": False, "rstrip": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{**end, "normalized": False, "special": True}],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "Unigram", "unk_id": 1, "vocab": pieces, "byte_fallback": False},
    }


def best_by_numbers() -> float:
    """How often the best guess from the numbers is right: exact, over all that can be drawn."""
    chance: dict[tuple[int, ...], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for skeleton, share in every_skeleton():
        chance[skeleton.numbers][skeleton.answer] += share
    return sum(max(answers.values()) for answers in chance.values())


def commonest_answer() -> tuple[int, float]:
    """The answer that is right most often, and how often: exact."""
    chance: dict[int, float] = defaultdict(float)
    for skeleton, share in every_skeleton():
        chance[skeleton.answer] += share
    return max(chance.items(), key=lambda pair: pair[1])


def every_skeleton() -> Iterator[tuple[sums.Skeleton, float]]:
    """Every skeleton with its probability, before the split."""
    for kinds in sums.PATTERNS:
        found = sums._all_skeletons(kinds)
        yield from ((skeleton, 1 / (len(sums.PATTERNS) * len(found))) for skeleton in found)
