"""The problems of `sums`: right, dependent, apart by split, and not to be guessed from numbers."""

import hashlib
import itertools
import json
import subprocess
import sys
from collections import Counter, defaultdict

import pytest

import sums_words
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.tasks import sums


@pytest.fixture(scope="module")
def train():
    return sums.problems("train", 20_000)


@pytest.fixture(scope="module")
def test():
    return sums.problems("test", sums.MOST_TESTS)


def test_the_steps_are_right_and_depend_on_each_other(test):
    for problem in test:
        first = str(problem.skeleton.first)
        assert problem.response.startswith(first)
        steps = problem.response.removeprefix(first).split("\n")
        assert 2 <= len(steps) <= 3
        value = first
        for step in steps:  # each goes on from the result of the one before
            left, right = step.split("=")
            assert left[0] in "+-*"
            assert str(eval(value + left)) == right
            value = right
        assert sums.answer_of(problem.response) == problem.answer == int(value)


PINNED = {
    ("train", 0): "1b9005db54aebfdddef8a1fb56b956219aa096db7cec0695eede13beda76bd9e",
    ("train", 1): "3ca191a86708eb946cdaefc678879f5fd6fc515b6aac3b73879da528113d1d14",
    ("test", 0): "9d6414f236c7eba8cb7e5d3e25e4cc20d150d26c35f8e19eee33f96551055240",
    ("test", 1): "42f7eb0c167670dce8a5242b5c521bc6255cf4abc00e52427d59412f7f667d86",
}
"""SHA-256 of the first 2,000 problems of a split and seed: results of tasks depend on them."""


@pytest.mark.parametrize(("split", "seed"), PINNED)
def test_the_problems_are_the_ones_that_they_were(split, seed):
    found = sums.problems(split, 2_000, seed=seed)
    told = json.dumps([[one.prompt, one.response, by_skeleton(one.skeleton)] for one in found])
    assert hashlib.sha256(told.encode()).hexdigest() == PINNED[split, seed]


def test_every_skeleton_that_keeps_within_range_is_there_and_no_other():
    """Counted anew, in plain words: 1 to 99 at every step, one event aside at most."""
    expected, numbers = set(), list(itertools.product(range(2, 21), *[range(2, 6)] * 3))
    for pattern in itertools.product(("add", "take", "times", "aside"), repeat=3):
        if pattern.count("aside") > 1:
            continue
        for first, *amounts in numbers:
            value, values = first, []
            for kind, n in zip(pattern, amounts, strict=True):
                value += {"add": n, "take": -n, "times": (n - 1) * value, "aside": 0}[kind]
                values.append(value)
            if all(1 <= one <= 99 for one in values):
                expected.add((first, *zip(pattern, amounts, strict=True)))
    skeletons = [one for one, _ in sums_words.every_skeleton()]
    found = [(one.first, *one.events) for one in skeletons]
    assert len(found) == len(expected)
    assert set(found) == expected
    assert {len(one) for one in sums._skeletons("train")} == {3}
    answers = {one.answer for one in skeletons}
    assert (min(answers), max(answers)) == (1, 99)


@pytest.mark.parametrize(
    ("first", "events", "steps"),
    [
        (
            3,
            [("take", 2), ("times", 5), ("add", 4)],
            ((3, "-", 2, 1), (1, "*", 5, 5), (5, "+", 4, 9)),
        ),
        (2, [("take", 2), ("add", 5), ("add", 4)], None),  # nothing is left
        (2, [("take", 3), ("add", 5), ("add", 4)], None),
        (20, [("times", 5), ("take", 5), ("add", 4)], None),  # a hundred, though less in the end
        (19, [("times", 5), ("add", 4), ("aside", 5)], ((19, "*", 5, 95), (95, "+", 4, 99))),
        (19, [("times", 5), ("add", 5), ("aside", 5)], None),
    ],
)
def test_the_steps_of_a_skeleton(first, events, steps):
    assert sums.Skeleton(first, tuple(events)).steps == steps


def test_the_words_say_what_counts():
    problem = next(
        one
        for one in sums.problems("test", 2_000)
        if [kind for kind, _ in one.skeleton.events] == ["times", "aside", "take"]
    )
    (_, times), (_, aside), (_, less) = problem.skeleton.events
    for n in (times, aside, less):
        assert str(n) in problem.prompt
    assert problem.answer == problem.skeleton.first * times - less


def skeletons(split):
    return [one for group in sums._skeletons(split).values() for one in group]


def leaked(problems):
    """Those whose first two steps follow each other somewhere in what may be in training."""
    trained = {pair for one in skeletons("train") for pair in itertools.pairwise(one.steps)}
    return [one for one in problems if one.steps[:2] in trained]


def test_no_worked_step_of_the_test_follows_another_as_in_training(train, test):
    # Of everything that the generator can draw, and of what it does draw, as it is written.
    assert leaked(skeletons("test")) == []
    assert {one.skeleton for one in test} <= set(skeletons("test"))
    assert {one.skeleton for one in train} <= set(skeletons("train"))
    written = {one.response for one in train}
    answers = {one.response for one in test}
    assert not written & answers
    assert not {one.rsplit("\n", 1)[0] for one in written} & answers


def by_skeleton(skeleton):
    return " ".join([str(skeleton.first), *(f"{kind}:{n}" for kind, n in skeleton.events)])


def by_what_counts(skeleton):
    counts = (f"{kind}:{n}" for kind, n in skeleton.events if kind != "aside")
    return " ".join([str(skeleton.first), *counts])


@pytest.fixture
def split_by(monkeypatch):
    """Split by the hash of a name that a skeleton is given."""

    def split(name):
        def split_of(skeleton):
            digest = hashlib.sha256(f"strop sums {name(skeleton)}".encode()).digest()
            return "test" if int.from_bytes(digest[:8], "big") % 10 == 0 else "train"

        monkeypatch.setattr(sums, "split_of", split_of)
        sums._skeletons.cache_clear()

    yield split
    sums._skeletons.cache_clear()


@pytest.mark.parametrize("name", [by_skeleton, by_what_counts])
def test_other_splits_leak(split_by, name):
    # Negative control: with an event that does not matter in the hash, all that have one leak their
    # whole answer; without it, two steps still are the beginning or the end of three in training.
    split_by(name)
    test = [one.skeleton for one in sums.problems("test", 256)]
    short = [one for one in test if len(one.steps) == 2]
    assert len(short) > 100
    assert set(short) <= set(leaked(test))
    whole = {one.steps for one in skeletons("train")}
    assert sum(one.steps in whole for one in test) == (len(short) if name is by_skeleton else 0)


def test_train_and_test_are_apart_and_of_their_sizes(test):
    assert len({one.skeleton for one in test}) == len(test)
    kept, used = set(skeletons("test")), set(skeletons("train"))
    everything = {one for one, _ in sums_words.every_skeleton()}
    assert not kept & used
    assert {sums.split_of(one) for one in everything - kept - used} == {None}
    assert 0.08 < len(kept) / len(everything) < 0.12
    assert 0.84 < len(used) / len(everything) < 0.9
    assert all(len(group) >= 10 for group in sums._skeletons("test").values())


def test_a_seed_is_a_set(test):
    assert sums.problems("test", 10) == test[:10]
    assert sums.problems("test", 10, seed=1) != test[:10]
    with pytest.raises(UserError, match="fewer problems"):
        sums.problems("test", sums.MOST_TESTS + 1)


def test_numbers_alone_say_little(train, test):
    # Exact: the best function of the numbers in their order, over everything that can be drawn.
    assert sums_words.best_by_numbers() < 0.09
    assert sums_words.commonest_answer()[1] < 0.04
    # The same as a table learnt from training problems; for unseen numbers, the commonest answer.
    table = defaultdict(Counter)
    for problem in train:
        table[problem.skeleton.numbers][problem.answer] += 1
    commonest = Counter(one.answer for one in train).most_common(1)[0][0]
    right = sum(
        (table[one.skeleton.numbers] or Counter([commonest])).most_common(1)[0][0] == one.answer
        for one in test
    )
    assert right / len(test) < 0.1
    assert sum(one.answer == commonest for one in test) / len(test) < 0.1


def test_with_one_pattern_the_numbers_would_say_all(monkeypatch):
    # Negative control of the measure.
    monkeypatch.setattr(sums, "PATTERNS", (("add", "times", "take"),))
    assert sums_words.best_by_numbers() == pytest.approx(1)


def test_the_tokenizer_loses_nothing(tmp_path, test):
    (tmp_path / "tokenizer.json").write_text(json.dumps(sums_words.tokenizer()))
    codec = TextCodec.from_directory(tmp_path)
    assert codec.vocab_size < 200
    longest = 0
    for problem in test:
        prompt, response = codec.encode(problem.prompt), codec.encode(problem.response)
        assert codec.decode(prompt) == problem.prompt
        assert codec.decode(response) == problem.response
        assert len(response) < sums.RESPONSE
        longest = max(longest, len(prompt))
    assert longest + sums.RESPONSE <= 96
    assert len(codec.encode("1729")) == 4
    other = "Nothing of this is a {word} of a problem: ~42%"
    assert codec.decode(codec.encode(other)) == other


@pytest.mark.parametrize(
    ("text", "answer"), [("1+2=3\n*2=6", 6), ("1+2=\n*2=12", 12), ("3", None), ("1+2=", None)]
)
def test_the_answer_is_the_last_result(text, answer):
    assert sums.answer_of(text) == answer


def test_the_room_runs_without_torch():
    code = "import sys, strop.tasks.sums as s; s.problems('test', 3); print('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
