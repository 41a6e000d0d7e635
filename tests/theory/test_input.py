"""Wrong input of every kind: one message that names the mistake, exit 1, no traceback."""

from __future__ import annotations

import json
import sys

import pytest

OK = [[0.35, 0.15], [0.15, 0.35]]
GRID = [0, 0.5, 1]


def tables(**change):
    """Valid tables for two bits; a change replaces the entry with that index."""
    out = [
        {"i": 0, "A": [], "table": [[0.5], [0.5]]},
        {"i": 0, "A": [1], "table": [[0.6, 0.3], [0.4, 0.7]]},
        {"i": 1, "A": [], "table": [[0.5, 0.5]]},
        {"i": 1, "A": [0], "table": [[0.6, 0.4], [0.3, 0.7]]},
    ]
    for index, entry in change.items():
        out[int(index[1:])] = entry
    return out


BAD = {
    "not JSON": ("{", "not JSON"),
    "empty file": ("", "not JSON"),
    "a list": ([1, 2], "JSON object"),
    "null": ("null", "JSON object"),
    "no P": ({"grid": GRID}, "'P' is missing"),
    "no grid": ({"P": OK}, "'grid' is missing"),
    "lower case p": ({"p": OK, "grid": GRID}, "rename 'p'"),
    "scalar P": ({"P": 1.0, "grid": GRID}, "not an array"),
    "object P": ({"P": {"a": 1}, "grid": GRID}, "not an array"),
    "null P": ({"P": None, "grid": GRID}, "not an array"),
    "empty P": ({"P": [], "grid": GRID}, "no outputs"),
    "empty rows": ({"P": [[], []], "grid": GRID}, "no outputs"),
    "ragged": ({"P": [[0.5, 0.2], [0.3]], "grid": GRID}, "rectangular"),
    "ragged depth": ({"P": [[0.5, 0.2], 0.3], "grid": GRID}, "rectangular"),
    "words": ({"P": [["a", "b"], ["c", "d"]], "grid": GRID}, "rectangular"),
    "numbers as words": ({"P": ["0.5", "0.5"], "grid": GRID}, "rectangular"),
    "booleans": ({"P": [True, False], "grid": GRID}, "rectangular"),
    "null entry": ({"P": [[0.5, None], [0.2, 0.3]], "grid": GRID}, "rectangular"),
    "huge integer": ({"P": [10**400, 0], "grid": GRID}, "rectangular"),
    "negative": ({"P": [[1.2, -0.2], [0.0, 0.0]], "grid": GRID}, "negative"),
    "sum": ({"P": [[0.5, 0.2], [0.2, 0.2]], "grid": GRID}, "sum to 1"),
    "all zero": ({"P": [[0, 0], [0, 0]], "grid": GRID}, "sum to 1"),
    "NaN": ('{"P": [[NaN, 0.5], [0.25, 0.25]], "grid": [0, 1]}', "not finite"),
    "infinity": ('{"P": [[Infinity, 0.5], [0.25, 0.25]], "grid": [0, 1]}', "not finite"),
    "grid start": ({"P": OK, "grid": [0.1, 0.5, 1]}, "from 0 to 1"),
    "grid end": ({"P": OK, "grid": [0, 0.5, 0.9]}, "from 0 to 1"),
    "grid down": ({"P": OK, "grid": [0, 0.7, 0.5, 1]}, "does not increase"),
    "grid repeat": ({"P": OK, "grid": [0, 0.5, 0.5, 1]}, "does not increase"),
    "grid short": ({"P": OK, "grid": [0]}, "list of numbers"),
    "grid words": ({"P": OK, "grid": ["a", "b"]}, "list of numbers"),
    "grid number": ({"P": OK, "grid": 3}, "list of numbers"),
    "grid nested": ({"P": OK, "grid": [[0, 1]]}, "list of numbers"),
    "grid null": ({"P": OK, "grid": None}, "list of numbers"),
    "grid NaN": ('{"P": [0.5, 0.5], "grid": [0, NaN, 1]}', "list of numbers"),
    "lambda zero": ({"P": OK, "grid": GRID, "lam": 0}, "positive number"),
    "lambda negative": ({"P": OK, "grid": GRID, "lam": -1}, "positive number"),
    "lambda list": ({"P": OK, "grid": GRID, "lam": [1, 0]}, "positive number"),
    "lambda word": ({"P": OK, "grid": GRID, "lam": "2"}, "positive number"),
    "lambda bool": ({"P": OK, "grid": GRID, "lam": True}, "positive number"),
    "lambda null": ({"P": OK, "grid": GRID, "lam": None}, "positive number"),
    "lambda infinite": ('{"P": [0.5, 0.5], "grid": [0, 1], "lam": Infinity}', "positive number"),
    "lambda nested": ({"P": OK, "grid": GRID, "lam": [[1], [1]]}, "positive number"),
    "three lambdas": ({"P": OK, "grid": GRID, "lam": [1, 1, 1]}, "one inverse temperature per"),
    "no lambdas": ({"P": OK, "grid": GRID, "lam": []}, "one inverse temperature per"),
    "lambda misspelt": ({"P": OK, "grid": GRID, "lambda": 2}, "did you mean 'lam'"),
    "denoiser word": ({"P": OK, "grid": GRID, "denoiser": "exact"}, "denoiser is not known"),
    "denoiser empty": ({"P": OK, "grid": GRID, "denoiser": []}, "denoiser is not known"),
    "denoiser null": ({"P": OK, "grid": GRID, "denoiser": None}, "denoiser is not known"),
    "tables missing": ({"P": OK, "grid": GRID, "denoiser": tables()[:3]}, "1 of 4 tables"),
    "tables twice": (
        {"P": OK, "grid": GRID, "denoiser": [*tables(), tables()[0]]},
        "same i and A",
    ),
    "table sum": (
        {
            "P": OK,
            "grid": GRID,
            "denoiser": tables(_1={"i": 0, "A": [1], "table": [[0.6, 0.3], [0.4, 0.6]]}),
        },
        "not normalised over axis 0",
    ),
    "table wrong axis": (
        {
            "P": OK,
            "grid": GRID,
            "denoiser": tables(_1={"i": 0, "A": [1], "table": [[0.6, 0.4], [0.3, 0.7]]}),
        },
        "not normalised over axis 0",
    ),
    "table negative": (
        {"P": OK, "grid": GRID, "denoiser": tables(_0={"i": 0, "A": [], "table": [[1.5], [-0.5]]})},
        "not normalised",
    ),
    "table shape": (
        {"P": OK, "grid": GRID, "denoiser": tables(_0={"i": 0, "A": [], "table": [[0.5, 0.5]]})},
        "wrong axes",
    ),
    "table flat": (
        {"P": OK, "grid": GRID, "denoiser": tables(_0={"i": 0, "A": [], "table": [0.5, 0.5]})},
        "wrong axes",
    ),
    "table ragged": (
        {"P": OK, "grid": GRID, "denoiser": tables(_0={"i": 0, "A": [], "table": [[1], [0, 1]]})},
        "rectangular",
    ),
    "table key": ({"P": OK, "grid": GRID, "denoiser": tables(_0={"i": 0, "A": []})}, "keys i, A"),
    "table i": (
        {"P": OK, "grid": GRID, "denoiser": tables(_0={"i": 2, "A": [], "table": [[1]]})},
        "make no sense",
    ),
    "table i in A": (
        {"P": OK, "grid": GRID, "denoiser": tables(_0={"i": 0, "A": [0], "table": [[1]]})},
        "make no sense",
    ),
    "table A number": (
        {"P": OK, "grid": GRID, "denoiser": tables(_0={"i": 0, "A": 1, "table": [[1]]})},
        "make no sense",
    ),
    "rounds": ({"P": OK, "grid": GRID, "denoiser": [tables()]}, "one list of tables per round"),
    "round word": ({"P": OK, "grid": GRID, "denoiser": [tables(), "x"]}, "not a list of tables"),
}


@pytest.mark.parametrize("verb", ["account", "derivative"])
@pytest.mark.parametrize("name", list(BAD))
def test_one_clear_message(verb, name, strop, tmp_path):
    content, message = BAD[name]
    path = tmp_path / "bad.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    code, out, err = strop("theory", verb, path)
    assert code == 1
    assert out == ""
    assert message in err
    assert str(path) in err
    assert "Traceback" not in err


def test_json_carries_the_error_too(theory):
    code, found = theory("account", {"P": [0.5, 0.4], "grid": [0, 1]})
    assert code == 1
    assert found["error"]["what"].endswith("does not sum to 1.")


def test_missing_file_and_directory(strop, tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        code, _, err = strop("theory", "account", path)
        assert code == 1
        assert str(path) in err


def test_binary_file(strop, tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(b"\xff\xfe\x00\x01")
    assert strop("theory", "account", path)[0] == 1


def test_too_large_says_how_large_and_what_fits(strop, tmp_path):
    import numpy as np

    path = tmp_path / "big.json"
    path.write_text(json.dumps({"P": np.full((2,) * 12, 2.0**-12).tolist(), "grid": [0, 1]}))
    code, _, err = strop("theory", "account", path)
    assert code == 1
    assert "too large to enumerate" in err
    assert "12 coordinates and 4,096 outputs" in err
    assert "binary targets fit up to L = 10" in err


def test_what_is_said_to_fit_does_fit():
    from strop.errors import UserError
    from strop.theory.target import check_size

    check_size((2,) * 10)
    check_size((4,) * 6)
    with pytest.raises(UserError, match="too large"):
        check_size((2,) * 11)


def test_too_many_rounds(strop, tmp_path):
    import numpy as np

    path = tmp_path / "big.json"
    law = np.full((2,) * 8, 2.0**-8).tolist()
    path.write_text(json.dumps({"P": law, "grid": np.linspace(0, 1, 50_001).tolist()}))
    code, _, err = strop("theory", "account", path)
    assert code == 1
    assert "50,000 rounds" in err


def test_unknown_keys_are_mentioned(strop, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"P": OK, "grid": GRID, "comment": "two bits"}))
    code, _, err = strop("theory", "account", path)
    assert code == 0
    assert "comment" in err


def test_unknown_example(strop):
    code, _, err = strop("theory", "account", "example:smothing")
    assert code == 1
    assert "did you mean 'smoothing'" in err


@pytest.mark.parametrize(
    "flags",
    [
        ["--s", "0.5", "--c", "0.5"],
        ["--s", "1", "--c", "0.5"],
        ["--s", "0.7", "--c", "0"],
        ["--s", "0.7", "--c", "1"],
        ["--s", "0.7", "--c", "0.5", "--lam", "0"],
        ["--s", "0.7", "--c", "0.5", "--lam", "-2"],
        ["--s", "nan", "--c", "0.5"],
        ["--s", "0.7", "--c", "nan"],
        ["--s", "0.7", "--c", "0.5", "--lam", "inf"],
        ["--s", "x", "--c", "0.5"],
        ["--s", "0.7"],
    ],
)
def test_pair_out_of_range(flags, strop):
    code, _, err = strop("theory", "pair", *flags)
    assert code == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "args",
    [
        ["collisions", "--length", "0", "--rounds", "4"],
        ["collisions", "--length", "4", "--rounds", "0"],
        ["collisions", "--length", "x", "--rounds", "4"],
        ["study", "--grid-law", "sorted"],
        ["study", "--seed", "-1"],
        ["verify", "--case", "nowhere.json"],
        ["markov", "-n", "1", "-o", "nowhere"],
        ["markov", "--seed", "-1", "-o", "nowhere"],
        ["markov", "--length", "0", "-o", "nowhere"],
        ["figure"],
        ["nonsense"],
    ],
)
def test_wrong_flags(args, strop):
    assert strop("theory", *args)[0] == 1


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--steps", "0"], "--steps is out of range"),
        (["--steps", "4,x"], "--steps"),
        (["--steps", "99999999"], "--steps is out of range"),
        (["--seed", str(2**64)], "--seed is out of range"),
        (["-n", str(2**40)], "-n is out of range"),
    ],
)
def test_markov_flags_are_checked_before_torch_is_loaded(flags, told, strop, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "strop.verbs.markov", None)  # importing it would fail
    code, _, err = strop("theory", "markov", *flags, "-o", str(tmp_path / "out"))
    assert code == 1
    assert told in err
    assert not (tmp_path / "out").exists()
