"""The problems of `sums`: right, dependent, apart by split, and not to be guessed from numbers."""

import json
import subprocess
import sys
from collections import Counter, defaultdict

import pytest

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


def test_train_and_test_share_no_problem(train, test):
    assert not {one.skeleton for one in train} & {one.skeleton for one in test}
    assert len({one.skeleton for one in test}) == len(test)
    assert {sums.split_of(one.skeleton) for one in test} == {"test"}
    everything = [*sums._skeletons("train").values(), *sums._skeletons("test").values()]
    both = [one for group in everything for one in group]
    assert len(set(both)) == len(both)
    assert all(len(group) >= 10 for group in sums._skeletons("test").values())


def test_a_seed_is_a_set(test):
    assert sums.problems("test", 10) == test[:10]
    assert sums.problems("test", 10, seed=1) != test[:10]
    with pytest.raises(UserError, match="not so many"):
        sums.problems("test", sums.MOST_TESTS + 1)


def test_numbers_alone_say_little(train, test):
    # Exact: the best function of the numbers in their order, over everything that can be drawn.
    assert sums.best_by_numbers() < 0.09
    assert sums.commonest_answer()[1] < 0.04
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
    assert sums.best_by_numbers() == pytest.approx(1)


def test_the_tokenizer_loses_nothing(tmp_path, test):
    (tmp_path / "tokenizer.json").write_text(json.dumps(sums.tokenizer()))
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
