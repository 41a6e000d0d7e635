"""A problem as a JSON document: reading it with one clear message per mistake, and writing it.

    {"P": nested array, "grid": [0, ..., 1], "lam": number or list, "denoiser": "bayes"}

or, for the denoiser, `[{"i": 0, "A": [1], "table": ...}, ...]`, or one such list per round.

Three problems have names: the pair of the paper, and two counterexamples to what the small random
targets suggest.

- `entropy-deflation`: at L = 3 an exact model sampled in parallel can be too certain. Splitting
  a symbol that loses mass into many equally likely ones turns the loss of mass into a loss of
  entropy.
- `smoothing`: when coordinates exclude each other (one-hot targets), lambda* lies below 1.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from strop.errors import UserError, unknown_name
from strop.theory.sampler import LawProblem, checked_grid
from strop.theory.target import (
    SUM_TOLERANCE,
    Array,
    Conditionals,
    Target,
    check_size,
    contexts,
    elements,
    shortened,
)


def deflation_target(
    values: int = 50_256, agree: float = 0.97, zero: float = 0.05, eps: float = 1e-3
) -> Target:
    """Two bits agree with probability `agree`; X_3 is 0 if they disagree (up to `eps`).

    If they agree, X_3 is 0 with probability `zero` and otherwise uniform on `values` symbols.
    """
    common = np.full(values + 1, (1 - zero) / values)
    common[0] = zero
    apart = np.full(values + 1, eps / values)
    apart[0] = 1 - eps
    same = np.array([[agree / 2, 0.0], [0.0, agree / 2]])
    other = np.array([[0.0, (1 - agree) / 2], [(1 - agree) / 2, 0.0]])
    return Target(np.multiply.outer(same, common) + np.multiply.outer(other, apart))


EXAMPLES: dict[str, tuple[Callable[[], Target], float]] = {
    "pair": (lambda: Target.pair(0.7), 0.5),
    "entropy-deflation": (deflation_target, 0.63),
    "smoothing": (lambda: Target.one_hot(3, smoothing=1e-3), 0.2),
    "smoothing-6": (lambda: Target.one_hot(6, smoothing=1e-3), 0.2),
    "smoothing-6-equal": (lambda: Target.one_hot(6, smoothing=1e-3), 0.5),
}
"""Targets, and the mass of the first of two rounds."""


def example(name: str) -> LawProblem:
    """A problem by its name."""
    if name not in EXAMPLES:
        raise unknown_name("example", name, EXAMPLES)
    target, first = EXAMPLES[name]
    return LawProblem.bayes(target(), [0.0, first, 1.0])


KEYS = ("P", "grid", "lam", "denoiser")
EXAMPLE_PREFIX = "example:"

# Each round of the recursion visits 3**L pairs of sets; this keeps a command within minutes.
MAX_STEPS = 2**34

Tables = dict[tuple[int, int], Array]


def read_problem(source: str) -> tuple[LawProblem, list[str]]:
    """The problem in a file (or `example:NAME`), and the file's keys that mean nothing here."""
    if source.startswith(EXAMPLE_PREFIX):
        return example(source.removeprefix(EXAMPLE_PREFIX)), []
    document = read_document(source)
    try:
        return to_problem(document), extra_keys(document)
    except UserError as error:
        error.where = f"{source}: {error.where}" if error.where else source
        raise


def read_document(source: str) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        document = json.loads(Path(source).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            "There is no such file.", where=source, fix="strop theory account example:pair"
        ) from None
    except OSError as error:
        raise UserError("The file cannot be read.", where=source, got=error.strerror) from None
    except (ValueError, RecursionError) as error:
        raise UserError("The file is not JSON.", where=source, got=str(error)) from None
    if not isinstance(document, dict):
        raise UserError(
            "The file does not hold a JSON object.",
            where=source,
            got=type(document).__name__,
            expected='{"P": ..., "grid": [0, ..., 1]}',
        )
    return document


def to_problem(document: dict[str, Any]) -> LawProblem:
    """Check a document and build its problem."""
    for key in ("P", "grid"):
        if key not in document:
            same = [other for other in document if other.lower() == key.lower()]
            near = same or difflib.get_close_matches(key, document, n=1, cutoff=0.5)
            raise UserError(
                f"The key {key!r} is missing.",
                got="the keys " + ", ".join(map(repr, document)),
                expected='{"P": ..., "grid": [0, ..., 1]}',
                fix=f"rename {near[0]!r} to {key!r}" if near else None,
            )
    target = Target(_numbers(document["P"], "P"))
    grid = checked_grid(document["grid"])
    lam = _inverse_temperatures(document.get("lam", 1.0), grid.size - 1)
    denoiser = _denoiser(document.get("denoiser", "bayes"), target, grid.size - 1)
    check_size(target.shape, max(lam.size, denoiser.rounds))
    _check_steps(target, grid.size - 1)
    return LawProblem(target, grid, denoiser, lam)


def extra_keys(document: dict[str, Any]) -> list[str]:
    """Keys that mean nothing here; one that resembles a known key is taken for a mistake."""
    extra = [key for key in document if key not in KEYS]
    for key in extra:
        alias = "lam" if key.lower() in ("lambda", "temperature", "tau") else None
        near = alias or next(iter(difflib.get_close_matches(key, KEYS, n=1, cutoff=0.6)), None)
        if near and near not in document:
            raise UserError(
                f"There is no key {key!r}.",
                expected="one of " + ", ".join(KEYS),
                fix=f"did you mean {near!r}?"
                + (" (lam is an inverse temperature)" if near == "lam" else ""),
            )
    return extra


def problem_document(problem: LawProblem) -> dict[str, Any]:
    """The document that `to_problem` reads back as the same problem, to the last bit."""
    length, q = problem.target.L, problem.denoiser
    bayes = Conditionals.bayes(problem.target)
    if q.rounds == 1 and np.array_equal(q.log_q, bayes.log_q):
        tables: Any = "bayes"
    else:
        tables = [
            [
                {"i": i, "A": elements(mask), "table": q.table(i, mask, r).tolist()}
                for i, mask in contexts(length)
            ]
            for r in range(q.rounds)
        ]
        tables = tables[0] if q.rounds == 1 else tables
    lam = problem.lam.tolist()
    return {
        "P": problem.target.P.tolist(),
        "grid": problem.grid.tolist(),
        "lam": lam[0] if len(lam) == 1 else lam,
        "denoiser": tables,
    }


def _numbers(values: Any, where: str) -> Array:
    """A rectangular array of numbers."""
    if not isinstance(values, list):
        expected = "a nested list of numbers, one level per coordinate"
        raise _refusal(f"{where} is not an array.", where, values, expected)
    try:
        array = np.array(values)
    except (ValueError, OverflowError):
        array = np.array(None)
    if array.dtype.kind not in "fiu":
        expected = "nested lists of equal lengths that hold numbers only"
        raise _refusal(f"{where} is not a rectangular array of numbers.", where, values, expected)
    return array.astype(float)


def _refusal(what: str, where: str, value: Any, expected: str | None = None) -> UserError:
    return UserError(what, where=where, got=shortened(repr(value)), expected=expected)


def _inverse_temperatures(value: Any, rounds: int) -> Array:
    single = not isinstance(value, list)
    entries = [value] if single else value
    numbers = [v for v in entries if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) != len(entries) or not all(np.isfinite(v) and v > 0 for v in numbers):
        expected = "a number above 0, or a list of them, one per round"
        raise _refusal("An inverse temperature must be a positive number.", "lam", value, expected)
    if not single and len(numbers) != rounds:
        raise UserError(
            "There must be one inverse temperature per round.",
            where="lam",
            got=f"{len(numbers)} values",
            expected=f"{rounds}, one per interval of the grid (or a single number)",
        )
    return np.array(numbers, dtype=float)


def _denoiser(value: Any, target: Target, rounds: int) -> Conditionals:
    if value == "bayes":
        return Conditionals.bayes(target)
    if not isinstance(value, list) or not value:
        tables = '"bayes", a list of tables [{"i": 0, "A": [1], "table": ...}], '
        expected = tables + "or one such list per round"
        raise _refusal("The denoiser is not known.", "denoiser", value, expected)
    if isinstance(value[0], dict):
        # Only the empty context is ever used when there is a single round.
        return Conditionals.from_tables(
            target.shape, [_tables(value, target.shape, "denoiser", only_empty=rounds == 1)]
        )
    if len(value) != rounds:
        raise UserError(
            "A round-dependent denoiser needs one list of tables per round.",
            where="denoiser",
            got=f"{len(value)} lists",
            expected=f"{rounds}, one per interval of the grid",
        )
    check_size(target.shape, rounds)
    per_round = [
        _bayes_tables(target)
        if part == "bayes"
        else _tables(part, target.shape, f"denoiser[{k}]", only_empty=k == 0)
        for k, part in enumerate(value)
    ]
    return Conditionals.from_tables(target.shape, per_round)


def _bayes_tables(target: Target) -> Tables:
    bayes = Conditionals.bayes(target)
    return {(i, mask): bayes.table(i, mask) for i, mask in contexts(target.L)}


def _tables(entries: Any, shape: tuple[int, ...], where: str, only_empty: bool) -> Tables:
    """One round's tables; those that a reachable context needs must all be there."""
    if not isinstance(entries, list):
        raise _refusal("A round's denoiser is not a list of tables.", where, entries)
    out: Tables = {}
    for n, entry in enumerate(entries):
        i, mask, table = _entry(entry, shape, f"{where}[{n}]")
        if (i, mask) in out:
            raise UserError("Two tables have the same i and A.", where=f"{where}[{n}]")
        out[i, mask] = table
    needed = [(i, mask) for i, mask in contexts(len(shape)) if not (only_empty and mask)]
    missing = [key for key in needed if key not in out]
    if missing:
        i, mask = missing[0]
        raise UserError(
            f"{len(missing)} of {len(needed)} tables are missing.",
            where=where,
            got=f"no table for i = {i}, A = {elements(mask)}",
            expected="one table for every coordinate i and every set A of other coordinates",
        )
    return out


def _entry(entry: Any, shape: tuple[int, ...], where: str) -> tuple[int, int, Array]:
    if not isinstance(entry, dict) or not {"i", "A", "table"} <= set(entry):
        raise _refusal("A table needs the keys i, A and table.", where, entry)
    i, A, length = entry["i"], entry["A"], len(shape)
    members: list[Any] = A if isinstance(A, list) else [None]
    integers = all(isinstance(k, int) and not isinstance(k, bool) for k in (i, *members))
    if not integers or not all(0 <= k < length for k in (i, *members)) or i in members:
        raise UserError(
            "The table's coordinates make no sense.",
            where=where,
            got=f"i = {shortened(repr(i))}, A = {shortened(repr(A))}",
            expected=f"i and A within 0..{length - 1}, and i not in A",
        )
    table = _numbers(entry["table"], f"{where}.table")
    axes = tuple(v if k == i or k in members else 1 for k, v in enumerate(shape))
    if table.shape != axes:
        raise UserError(
            "The table has the wrong axes.",
            where=where,
            got=f"shape {table.shape}",
            expected=f"shape {axes}: L axes, length one on those outside i and A",
        )
    sums = table.sum(axis=i)
    if not np.isfinite(table).all() or (table < 0).any() or np.abs(sums - 1).max() > SUM_TOLERANCE:
        raise UserError(
            f"The table is not normalised over axis {i}.",
            where=where,
            got=f"sums from {sums.min():.9g} to {sums.max():.9g}, least entry {table.min():.6g}",
            expected="entries of at least 0 that sum to 1 over axis i",
        )
    return i, sum({1 << k for k in members}), table


def _check_steps(target: Target, rounds: int) -> None:
    steps = rounds * 3**target.L * target.size
    if steps > MAX_STEPS:
        raise UserError(
            "This problem is too large to enumerate.",
            got=f"{rounds:,} rounds x 3^{target.L} pairs of sets x {target.size:,} outputs "
            f"= {steps:,} steps",
            expected=f"at most {MAX_STEPS:,}",
            fix=f"use at most {max(1, MAX_STEPS // (3**target.L * target.size)):,} rounds",
        )
