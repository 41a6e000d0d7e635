"""An interval: its questions, its forms, and that no form loses anything."""

from __future__ import annotations

import csv
import io
import json
import math
import subprocess
import sys

import pytest

from strop.spec import Cooling
from strop.stats.interval import Interval, value_of
from strop.table import Column, Pivot, Table, plain, revived

WHOLE = Interval(2.0, 1.5, 2.75, 0.9, 12, "jackknife")
USUAL = Interval(0.25, -0.5, 1.0)
BARE = Interval(3.0, n=1)


def test_what_it_excludes() -> None:
    assert [WHOLE.excludes(x) for x in (1.4, 1.5, 2.0, 2.75, 2.8)] == [
        True,
        False,
        False,
        False,
        True,
    ]
    assert WHOLE.above(1.4)
    assert not WHOLE.above(1.5)
    assert WHOLE.below(2.8)
    assert not WHOLE.below(2.75)
    assert WHOLE.within(1.4, 2.8)
    assert not WHOLE.within(1.5, 2.8)  # an end that is reached is not inside
    assert not WHOLE.within(1.4, 2.75)
    assert WHOLE.half == 0.625


def test_without_ends_it_excludes_nothing() -> None:
    assert BARE.ends == (-math.inf, math.inf)
    assert not BARE.bounded
    assert BARE.half == math.inf
    assert not BARE.excludes(1e300)
    assert not BARE.within(-1e300, 1e300)


def test_a_rising_function_maps_value_and_ends() -> None:
    found = WHOLE.mapped(lambda x: 100 * x)
    assert found == Interval(200.0, 150.0, 275.0, 0.9, 12, "jackknife")
    assert BARE.mapped(lambda x: 2 * x) == Interval(6.0, n=1)
    logs = WHOLE.mapped(math.log)
    assert (logs.exp().value, *logs.exp().ends) == pytest.approx((2.0, 1.5, 2.75))
    assert math.isfinite(Interval(1e4, 1.0, 1e5).exp().ends[1])  # too large to be shown, no error


def test_in_words() -> None:
    assert f"{WHOLE:.1f}" == "2.0 [1.5, 2.8]"
    assert f"{USUAL:+.2f}" == "+0.25 [-0.50, +1.00]"
    assert f"{BARE:.1f}" == "3.0"
    assert WHOLE.span(".2f") == "[1.50, 2.75]"
    assert BARE.span(".2f") == ""
    assert [value_of(one) for one in (WHOLE, 4.0, None)] == [2.0, 4.0, None]


@pytest.mark.parametrize("one", [WHOLE, USUAL, BARE])
def test_through_json(one: Interval) -> None:
    assert Interval.read(json.loads(json.dumps(one.document()))) == one


def test_what_is_as_usual_is_left_out() -> None:
    assert USUAL.document() == {"value": 0.25, "low": -0.5, "high": 1.0}
    assert BARE.document() == {"value": 3.0, "low": None, "high": None, "n": 1}
    assert list(WHOLE.document()) == ["value", "low", "high", "level", "n", "how"]


def test_only_the_keys_of_an_interval_make_one() -> None:
    others = [
        {"low": 1.0, "high": 2.0},  # a range
        {"value": 1.0, "low": 1.0, "high": 2.0, "holds": True},
        {"value": 3, "n": 2},
    ]
    assert revived(others) == others
    deep = {"a": [{"b": WHOLE}, 2], "c": (USUAL, None), "d": "value"}
    assert revived(json.loads(json.dumps(plain(deep)))) == {
        "a": [{"b": WHOLE}, 2],
        "c": [USUAL, None],
        "d": "value",
    }


def test_what_is_no_interval_is_not_read_as_one() -> None:
    for wrong in ({"value": "2"}, {"low": "1"}, {"high": [3]}):
        with pytest.raises(TypeError, match="an interval of"):
            Interval.read({"value": 2.0, "low": 1.0, "high": 3.0} | wrong)


ROWS = [
    {"m": 4, "x": WHOLE, "alone": BARE, "pair": [1.0, 2.0], "note": "=1"},
    {"m": 8, "x": None, "alone": 7.0, "pair": None, "note": "b"},
    {"m": 16, "x": Interval(-0.5, -1.25, 0.125), "alone": None, "pair": None, "note": ""},
]
COLUMNS = (
    Column("m", "M"),
    Column("x", digits=3, signed=True),
    Column("alone", digits=2),
    Column("quiet", digits=2, bare=True),
)


def test_a_table_through_json() -> None:
    table = Table("T", COLUMNS, ROWS, Pivot(("m",), ("note",), "x"))
    again = Table.read(json.loads(json.dumps(table.document())))
    assert again == table
    assert again.rows[0]["x"] == WHOLE
    assert again.text() == table.text()


def test_a_table_prints_value_and_ends() -> None:
    rows = [{**row, "quiet": row["x"]} for row in ROWS]
    _, lines = Table("T", COLUMNS, rows).text()
    assert lines == [
        ["4", "+2.00 [+1.50, +2.75]", "3.0", "2.0"],
        ["8", "–", "7.0", "–"],
        ["16", "−0.500 [−1.25, +0.125]", "–", "−0.50"],
    ]
    percent = Column("x", percent=True, digits=3)
    assert percent.entry({"x": Interval(0.125, 0.0625, 0.25)}).line == "12.5% [6.2%, 25.0%]"


def test_a_table_through_csv() -> None:
    text = Table("T", COLUMNS, ROWS).csv().decode()
    assert text.splitlines()[0] == "m,x,x_low,x_high,alone,alone_low,alone_high,pair,note"
    read = list(csv.DictReader(io.StringIO(text)))
    for line, row in zip(read, ROWS, strict=True):
        one = row["x"]
        told = [line["x"], line["x_low"], line["x_high"]]
        if one is None:
            assert told == ["", "", ""]
        else:
            assert [float(number) for number in told] == [one.value, one.low, one.high]
    assert (read[0]["alone"], read[0]["alone_low"], read[1]["alone"]) == ("3.0", "", "7.0")
    assert read[0]["note"] == "'=1"


def test_intervals_and_tables_load_no_numpy() -> None:
    code = "import sys, strop.table; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_what_is_not_said_is_as_usual() -> None:
    assert (USUAL.level, USUAL.n, USUAL.how) == (0.95, None, "")
    for half in (Interval(1.0, 0.5), Interval(1.0, None, 2.0)):
        assert not half.bounded
        assert half.span(".1f") == ""
    assert Interval(1e4).exp().value == math.exp(700)


def test_a_schedule_is_kept_in_documents_as_its_text() -> None:
    schedule = Cooling.of("linear/0.8/0.4")
    document = plain({"rows": [{"temperature": schedule}]})
    assert document == {"rows": [{"temperature": "linear/0.8/0.4"}]}
    assert revived(document) == {"rows": [{"temperature": schedule}]}
