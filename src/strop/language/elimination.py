"""Sums and least values over all combinations of latents, one latent at a time.

Tables hold logarithms (or costs), one axis per latent in the grammar's order and the texts of a
batch last. A latent is removed from the product of all tables that mention it, its *bucket*; what
is left is a message, one more table. The next latent is always the one with the smallest bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError

Table = NDArray[np.float64]
MOST = 10_000_000
"""The most entries of a bucket's table."""


@dataclass(frozen=True)
class Bucket:
    """The removal of one latent."""

    latent: int
    scope: tuple[int, ...]
    tables: tuple[int, ...]
    """The tables that it multiplies: those given, then the messages of earlier buckets."""
    shapes: tuple[tuple[int, ...], ...]
    """Theirs, with an axis for every latent of the scope."""

    @property
    def axis(self) -> int:
        """The axis of its latent."""
        return self.scope.index(self.latent)

    @property
    def message_scope(self) -> tuple[int, ...]:
        """The latents of its message: all but its own."""
        return tuple(latent for latent in self.scope if latent != self.latent)


class Elimination:
    """The order in which latents of some sizes go, for tables over some scopes."""

    def __init__(self, sizes: Sequence[int], scopes: Sequence[Sequence[int]]) -> None:
        self.given = len(scopes)
        self.buckets: list[Bucket] = []
        self.home: dict[int, int] = {}
        """The bucket that takes in each table or message."""
        live = {k: set(scope) for k, scope in enumerate(scopes)}
        left = set(range(len(sizes)))

        def together(latent: int) -> set[int]:
            return {latent}.union(*(scope for scope in live.values() if latent in scope))

        while left:
            entries = {k: prod(sizes[j] for j in together(k)) for k in left}
            latent = min(left, key=lambda k: (entries[k], k))
            if entries[latent] > MOST:
                raise UserError(
                    "The latents depend on each other too closely to sum over them.",
                    got=f"a table of {entries[latent]:,} entries",
                    expected=f"at most {MOST:,}",
                    fix="use scopes that share fewer latents",
                )
            scope = tuple(sorted(together(latent)))
            tables = tuple(k for k, tables_scope in live.items() if latent in tables_scope)
            shapes = tuple(tuple(sizes[j] if j in live[k] else 1 for j in scope) for k in tables)
            self.home |= dict.fromkeys(tables, len(self.buckets))
            for k in tables:
                del live[k]
            live[self.given + len(self.buckets)] = {*scope} - {latent}
            self.buckets.append(Bucket(latent, scope, tables, shapes))
            left.remove(latent)

    @property
    def largest(self) -> int:
        """Entries of the largest bucket's table."""
        return max(self._entries)

    @property
    def entries(self) -> int:
        """The number of entries of all buckets' tables."""
        return sum(self._entries)

    @property
    def _entries(self) -> list[int]:
        return [prod(np.broadcast_shapes(*bucket.shapes)) for bucket in self.buckets]

    def _joint(self, bucket: Bucket, tables: Sequence[Table]) -> Table:
        """The product (in logarithms the sum) of a bucket's tables."""
        joint = np.zeros(())
        for k, shape in zip(bucket.tables, bucket.shapes, strict=True):
            joint = joint + tables[k].reshape(*shape, tables[k].shape[-1])
        return joint

    def _loose(self, tables: Sequence[Table]) -> Table:
        """The product of tables that mention no latent."""
        return sum((tables[k] for k in range(self.given) if k not in self.home), np.zeros(1))

    def total(self, tables: Sequence[Table]) -> tuple[Table, list[Table]]:
        """The log of the sum over everything [texts], and per bucket P(its latent | the kept)."""
        held, conditionals, log_total = list(tables), [], self._loose(tables)
        for bucket in self.buckets:
            message, conditional = log_sum(self._joint(bucket, held), bucket.axis)
            conditionals.append(conditional)
            held.append(message)
            if not bucket.message_scope:
                log_total = log_total + message
        return log_total, conditionals

    def beliefs(self, conditionals: Sequence[Table]) -> list[Table]:
        """The posterior over the scope of every bucket: the way back."""
        beliefs: list[Table] = list(conditionals)
        for k in reversed(range(len(self.buckets))):
            bucket = self.buckets[k]
            if bucket.message_scope:  # the root's conditional is its posterior
                above = self.marginal(beliefs, self.home[self.given + k], bucket.message_scope)
                beliefs[k] = conditionals[k] * np.expand_dims(above, bucket.axis)
        return beliefs

    def marginal(self, beliefs: Sequence[Table], bucket: int, latents: Sequence[int]) -> Table:
        """Of a bucket's belief, over latents that are in its scope, in the grammar's order."""
        scope = self.buckets[bucket].scope
        return beliefs[bucket].sum(
            tuple(k for k, latent in enumerate(scope) if latent not in latents)
        )

    def holding(self, latents: Sequence[int]) -> int | None:
        """A bucket whose scope has all these latents."""
        fits = (k for k, candidate in enumerate(self.buckets) if {*latents} <= {*candidate.scope})
        return next(fits, None)

    def least(self, costs: Sequence[Table]) -> tuple[Table, dict[int, NDArray[np.intp]]]:
        """The least sum of costs [texts], and a value of every latent that reaches it."""
        held, choices, total = list(costs), [], self._loose(costs)
        for bucket in self.buckets:
            joint = self._joint(bucket, held)
            choices.append(joint.argmin(bucket.axis))
            held.append(joint.min(bucket.axis))
            if not bucket.message_scope:
                total = total + held[-1]
        best: dict[int, NDArray[np.intp]] = {}
        for bucket, choice in zip(reversed(self.buckets), reversed(choices), strict=True):
            full = np.broadcast_to(choice, (*choice.shape[:-1], len(total)))
            best[bucket.latent] = full[
                (*(best[j] for j in bucket.message_scope), np.arange(len(total)))
            ]
        return total, best


def log_sum(table: Table, axis: int) -> tuple[Table, Table]:
    """log of the sum of exp along an axis, and the shares of the sum; zeros stay zeros."""
    high = table.max(axis, keepdims=True)
    high[np.isneginf(high)] = 0.0
    shares = np.subtract(table, high)
    np.exp(shares, out=shares)
    sums = shares.sum(axis, keepdims=True)
    possible = np.where(sums > 0, sums, 1.0)
    logs = np.where(sums > 0, high + np.log(possible), -np.inf)
    shares /= possible
    return logs.squeeze(axis), shares
