"""Sums: small word problems whose answers are written out step by step.

A problem is a number of things that somebody has, then three events. Each adds, takes away or
multiplies, or (one of them, in half of the problems) does not matter: it happens to somebody else,
or to something else. So two or three steps count, each needs the result of the one before, and the
numbers alone do not say which: they are drawn from the same small range whatever happens to them.
`scripts/sums_words.py` has the exact accuracy of the best guess that sees the numbers and no words.

The response goes on from each result on the next line ("7+5=12", then "*2=24"), and the last result
is the answer. No number is written twice: where a result has a copy, a model that fills in masked
tokens mostly sees the copy, and learns to copy long before it learns to count.

The split goes by what is worked out, not by the words and not by an event that does not matter:
one pair of steps in a row out of ten, by its hash, is kept for the test. A test problem begins with
such a pair; a training problem has none anywhere. What has one later only is in neither split.
So no test problem's worked steps occur in training, nor do the first two of them; single steps do.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.rng import Stream
from strop.tasks.sandbox import Box
from strop.tasks.task import Filter, Item, Task, Verdict

Kind = Literal["add", "take", "times", "aside"]
Split = Literal["train", "test"]
Step = tuple[int, str, int, int]
"""Before, sign, amount, after."""
T = TypeVar("T")

LARGEST = 99
"""No step goes beyond it, none below 1."""
FIRSTS = range(2, 21)
AMOUNTS = range(2, 6)
EVENTS = 3
TEST_SHARE = 10
"""One pair of steps in so many is for the test."""
MOST, MOST_TESTS = 10_000_000, 2_000
"""Problems that can be asked for: of the test less than half of the skeletons."""
BLOCK, DRAWS = 1_000, 2 + 4 + EVENTS
"""Problems whose random numbers are drawn at once, and numbers per problem."""
RESPONSE = 24
"""Tokens that any worked answer fits in, with an end of text."""

KINDS: tuple[Kind, ...] = ("add", "take", "times", "aside")
SIGNS: dict[Kind, str] = {"add": "+", "take": "-", "times": "*"}
PATTERNS: tuple[tuple[Kind, ...], ...] = tuple(
    kinds for kinds in itertools.product(KINDS, repeat=EVENTS) if kinds.count("aside") <= 1
)
"""What may happen in a problem, each as likely as any other."""

WOMEN = ("Anna", "Clara", "Eva", "Ida", "Mia", "Rosa")
MEN = ("Ben", "David", "Finn", "Hugo", "Leo", "Tom")
THINGS = ("apples", "beads", "books", "cards", "coins", "eggs", "nuts", "pens", "shells", "stamps")
SAYINGS: dict[Kind, tuple[str, ...]] = {
    "add": ("{She} finds {n} more.", "{She} buys {n} more.", "{Other} gives {name} {n} more."),
    "take": ("{She} loses {n}.", "{She} sells {n}.", "{name} gives {Other} {n}."),
    "times": ("Then {she} has {n} times as many.", "A trade leaves {name} with {n} times as many."),
    "aside": (
        "{Other} finds {n} more.",
        "{Other} loses {n}.",
        "{She} walks {n} miles.",
        "Then {Other} has {n} times as many.",
    ),
}
"""How an event is told. `Other` is somebody else, and what is only theirs does not count."""
OPENING = "{name} has {n} {things}."
QUESTION = "How many {things} does {name} have now?"
WOMAN = {"She": "She", "she": "she"}
MAN = {"She": "He", "she": "he"}
END = "<|endoftext|>"
_RESULT = re.compile(r"=(\d+)")


@dataclass(frozen=True)
class Skeleton:
    """A problem without its words."""

    first: int
    events: tuple[tuple[Kind, int], ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """All that a reader of numbers sees, in order."""
        return (self.first, *(n for _, n in self.events))

    @property
    def steps(self) -> tuple[Step, ...] | None:
        """Each step that counts; None if one is out of range."""
        value, steps = self.first, list[Step]()
        for kind, n in self.events:
            if kind == "aside":
                continue
            after = {"add": value + n, "take": value - n, "times": value * n}[kind]
            if not 1 <= after <= LARGEST:
                return None
            steps.append((value, SIGNS[kind], n, after))
            value = after
        return tuple(steps)

    @property
    def answer(self) -> int:
        """The last step's result."""
        steps = self.steps
        assert steps
        return steps[-1][-1]


@dataclass(frozen=True)
class SumsProblem:
    """A problem in words, with its worked answer."""

    prompt: str
    response: str
    skeleton: Skeleton

    @property
    def answer(self) -> int:
        """The last result."""
        return self.skeleton.answer


def split_of(skeleton: Skeleton) -> Split | None:
    """Which split a skeleton belongs to, by the hashes of its pairs of steps; None is neither."""
    held_out = [_is_kept(*pair) for pair in itertools.pairwise(skeleton.steps or ())]
    return "test" if held_out[0] else None if any(held_out) else "train"


@cache
def _is_kept(first: Step, second: Step) -> bool:
    """Whether these two steps in a row are kept for the test."""
    chain = f"{first[0]} {first[1]}{first[2]} {second[1]}{second[2]}"
    digest = hashlib.sha256(f"strop sums {chain}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % TEST_SHARE == 0


def problems(split: Split, count: int, *, seed: int = 0) -> list[SumsProblem]:
    """So many problems, the same for the same seed; more of a seed begin with fewer of it.

    In the test no skeleton comes twice. In training they do, in other words: there are about
    forty-six thousand.
    """
    if not 0 <= count <= (MOST_TESTS if split == "test" else MOST):
        raise UserError(
            "There are fewer problems than that.",
            where="`count`",
            got=count,
            expected=f"at most {MOST_TESTS:,} for the test, {MOST:,} for training",
        )
    stream, drawn, seen = Stream(seed, f"sums {split}"), list[SumsProblem](), set[Skeleton]()
    for block in itertools.count():
        numbers = np.arange(BLOCK * block, BLOCK * (block + 1))[:, None]
        for draws in stream.uniform(numbers, 0, np.arange(DRAWS), 0):
            if len(drawn) == count:
                return drawn
            skeleton = _chosen(_skeletons(split)[_chosen(PATTERNS, draws[0])], draws[1])
            if split == "train" or skeleton not in seen:
                seen.add(skeleton)
                drawn.append(_problem(skeleton, draws[2:]))
    raise AssertionError


def answer_of(text: str) -> int | None:
    """The last result of a response, if there is one."""
    results = _RESULT.findall(text)
    return int(results[-1]) if results else None


@cache
def _skeletons(split: Split) -> dict[tuple[Kind, ...], tuple[Skeleton, ...]]:
    """All of a split, by what happens in them."""
    return {
        kinds: tuple(skeleton for skeleton in _all_skeletons(kinds) if split_of(skeleton) == split)
        for kinds in PATTERNS
    }


@cache
def _all_skeletons(kinds: tuple[Kind, ...]) -> tuple[Skeleton, ...]:
    """All in which this happens and no step is out of range."""
    numbers = itertools.product(FIRSTS, *([AMOUNTS] * EVENTS))
    skeletons = (Skeleton(n[0], tuple(zip(kinds, n[1:], strict=True))) for n in numbers)
    return tuple(skeleton for skeleton in skeletons if skeleton.steps is not None)


def _chosen(choices: Sequence[T], draw: float) -> T:
    """One of them, by a number in [0, 1)."""
    return choices[int(draw * len(choices))]


def _problem(skeleton: Skeleton, draws: NDArray[np.float64]) -> SumsProblem:
    """A skeleton in words that `draws` choose."""
    name, other, pronouns = _chosen(WOMEN, draws[0]), _chosen(MEN, draws[1]), WOMAN
    if draws[2] < 0.5:  # the other one is never meant by the pronoun
        name, other, pronouns = other, name, MAN
    words = {"name": name, "Other": other, "things": _chosen(THINGS, draws[3]), **pronouns}
    texts = [OPENING.format(n=skeleton.first, **words)]
    for (kind, n), draw in zip(skeleton.events, draws[4:], strict=True):
        texts.append(_chosen(SAYINGS[kind], draw).format(n=n, **words))
    prompt = " ".join([*texts, QUESTION.format(**words)]) + "\n"
    steps = [f"{sign}{n}={after}" for _, sign, n, after in skeleton.steps or ()]
    return SumsProblem(prompt, f"{skeleton.first}" + "\n".join(steps), skeleton)


COUNT = 256
"""As many as of GSM8K: a standard error of three points at 60%."""


def items() -> Sequence[Item]:
    """The first test problems; their steps, and the first two of them, are not in training."""
    return [
        Item(
            f"sums/{number}",
            problem.prompt,
            problem.response + END,
            case={"answer": str(problem.answer)},
        )
        for number, problem in enumerate(problems("test", COUNT))
    ]


def last(item: Item, response: str) -> str | None:  # noqa: ARG001 (every filter is given both)
    """The last result."""
    answer = answer_of(response)
    return None if answer is None else str(answer)


def check(item: Item, answer: str, box: Box | None) -> Verdict:  # noqa: ARG001
    """Compare as whole numbers."""
    expected = item.case["answer"]
    right = int(answer) == int(expected)
    return Verdict("passed") if right else Verdict("wrong", f"{answer} is not {expected}")


def wrong(item: Item, other: Item) -> Mapping[str, str]:
    """Another problem's solution, one without results, and the answer behind the end."""
    answer = item.case["answer"]
    swapped = other.reference.removesuffix(END)
    if other.case["answer"] == answer:
        swapped += "0"  # by chance the same number: then ten times as much
    return {"swapped": swapped, "emptied": "=", "forged": f"passed{END}={answer}"}


SUMS = Task(
    name="sums",
    summary="256 small word problems of two or three steps, which are written out",
    source="strop's own generator",
    items=items,
    filters=(Filter("last", last),),
    check=check,
    wrong=wrong,
    stop=(END,),
    length=RESPONSE,
    version="1",
)
