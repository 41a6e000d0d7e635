"""What passes between a program and its checker: exact for plain data, refused otherwise."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict, namedtuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.tasks.inside.plain import NotPlain, pack, unpack

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
KEYS = st.none() | st.booleans() | st.integers() | st.text() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    ATOMS | st.sets(st.integers(), max_size=1) | st.frozensets(st.text(), max_size=1),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner),
    max_leaves=20,
)


def _through(value: Any) -> Any:
    return unpack(json.loads(json.dumps(pack(value))))


@given(VALUES)
def test_values_arrive_as_they_left(value: Any) -> None:
    got = _through(value)
    assert got == value
    assert repr(got) == repr(value)  # types and signs of zero too


def test_numbers_without_bounds() -> None:
    assert _through(-(7**20_000)) == -(7**20_000)
    assert math.isnan(_through(math.nan))
    assert _through([math.inf, -0.0]) == [math.inf, 0.0]


def test_subclasses_count_as_what_they_extend() -> None:
    Point = namedtuple("Point", "x y")
    values = (Counter("aab"), OrderedDict(a=1), defaultdict(int, a=1), Point(1, 2))
    for value, base in zip(values, (dict, dict, dict, tuple), strict=True):
        got = _through(value)
        assert type(got) is base
        assert got == value


def test_iterators_arrive_as_iterators() -> None:
    for value in (range(3), iter([0, 1, 2]), map(int, "012"), {0: 1, 1: 1, 2: 1}.keys()):
        got = _through(value)
        assert got != [0, 1, 2]  # as it is with the original
        assert list(got) == [0, 1, 2]


@pytest.mark.parametrize("value", [object(), len, int, NotPlain("x"), [object()], {1: object()}])
def test_other_objects_do_not_leave(value: Any) -> None:
    with pytest.raises(NotPlain):
        pack(value)


@pytest.mark.parametrize(
    "message",
    [
        1,
        1.5,
        [],
        {},
        {"value": 1},
        ["object", "x"],
        ["int"],
        ["int", "zz"],
        ["int", ["int", "1"]],
        ["float", "x"],
        ["float", None],
        ["dict", ["a"]],
        ["dict", [["list"], None]],
        ["set", ["list"]],
        ["bytes", "0"],
        [["int", "1"]],
        ["list", 1],
        ["__import__", "os"],
    ],
)
def test_crooked_messages_are_refused(message: Any) -> None:
    with pytest.raises(NotPlain):
        unpack(message)


def test_depth_has_a_bound_both_ways() -> None:
    value: Any = []
    for _ in range(200):
        value = [value]
    with pytest.raises(NotPlain):
        pack(value)
    message: Any = ["list"]
    for _ in range(200):
        message = ["list", message]
    with pytest.raises(NotPlain):
        unpack(message)
