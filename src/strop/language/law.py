"""The law of a grammar's texts: probabilities, predictive laws, posteriors, violations, all exact.

A *part* is a wording of a sentence, or a wording together with one value of one latent. Given the
parts, tokens are independent, so a part's score is a sum over tokens. A *feature* is a position
with one of the laws that a token may have there; a sparse matrix of ones leads from the scores of
features to those of parts, and back from the posteriors of parts to weights of laws.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from strop.errors import UserError
from strop.language.elimination import Elimination, Table, log_sum
from strop.language.grammar import Grammar, Latent, Slot, read_grammar
from strop.rng import Stream, unit53
from strop.stats.interval import Interval

MASK = "[MASK]"
AT_ONCE = 2_000_000
"""Entries of all tables together that a batch may have."""
FIRST = 1e6
"""What a violation weighs against nats, so that no probability outweighs one."""
Ids = NDArray[np.int64]


class Language:
    """Texts of a fixed length whose law is known. The mask is one past the last word.

    Ids are [texts, tokens] or [tokens]; a text that is cut off counts as masked from there on.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.length, self.vocabulary = grammar.length, grammar.vocabulary
        self.mask_id = len(grammar.vocabulary)
        self.sizes = [len(latent.values) for latent in grammar.latents]
        self._ids = {word: k for k, word in enumerate(grammar.vocabulary)}
        self._parts = _Parts(grammar)
        pairs = [(latent.given, k) for k, latent in enumerate(grammar.latents)]
        latent_scopes = [tuple(sorted(j for j in pair if j is not None)) for pair in pairs]
        self._scopes = [*latent_scopes, *(segment.scope for segment in grammar.segments)]
        self.elimination = Elimination(self.sizes, self._scopes)
        with np.errstate(divide="ignore"):
            priors = [_in_order(k, latent)[..., None] for k, latent in enumerate(grammar.latents)]
            self._priors = [np.log(prior) for prior in priors]
            self._shares = [np.log(segment.share)[..., None] for segment in grammar.segments]

    @classmethod
    def load(cls, source: str | PathLike[str]) -> Language:
        """`even`, `skewed`, `tail`, or a file in the format `strop-language/1`."""
        return cls(read_grammar(source))

    def narrowed(self, times: float) -> Language:
        """The same with the less likely half of every latent's values `times` too rare."""
        latents = []
        for k, latent in enumerate(self.grammar.latents):
            law = self.posterior([], [latent.name])
            rare = np.argsort(-law, kind="stable")[(self.sizes[k] + 1) // 2 :]
            weights = latent.prior.copy()
            weights[..., rare] /= times
            prior = weights / weights.sum(-1, keepdims=True)
            latents.append(replace(latent, prior=prior))
        return Language(replace(self.grammar, latents=tuple(latents)))

    # Texts

    def encode(self, text: str) -> Ids:
        """A text's tokens; `[MASK]` is the mask."""
        token_ids: list[int] = []
        for chunk in text.replace(MASK, f" {MASK} ").split():
            ends: list[str] = []
            while chunk not in self._ids and chunk != MASK and chunk[-1:] in (",", "."):
                chunk, end = chunk[:-1], chunk[-1]
                ends.insert(0, end)
            for word in [*([chunk] if chunk else []), *ends]:
                if word != MASK and word not in self._ids:
                    raise UserError(
                        "The language has no such word.",
                        where=self.grammar.source,
                        got=repr(word),
                        expected=f"one of its {self.mask_id:,} words, or {MASK}",
                    )
                token_ids.append(self._ids.get(word, self.mask_id))
        if len(token_ids) > self.length:
            raise UserError(
                "The text is longer than the language's texts.",
                where=self.grammar.source,
                got=f"{len(token_ids)} tokens",
                expected=f"at most {self.length}",
            )
        return np.array(token_ids, np.int64)

    def decode(self, ids: ArrayLike) -> str:
        """Words with spaces between them, none before a comma or a full stop."""
        words = [*self.vocabulary, MASK]
        return joined([words[k] for k in self._checked(ids)[0][0][: np.size(ids)]])

    def draw(self, n: int, seed: int = 0) -> Ids:
        """`n` texts, exactly by the law; text k is the same whatever n is."""
        grammar, stream, rows = self.grammar, Stream(seed, "language"), np.arange(n)
        values: dict[int, NDArray[np.intp]] = {}

        def value(k: int) -> NDArray[np.intp]:
            if k not in values:
                prior, parent = grammar.latents[k].prior, grammar.latents[k].given
                law = prior[None] if parent is None else prior[value(parent)]
                law = np.broadcast_to(law, (n, law.shape[1]))
                values[k] = _pick(law, stream.uniform(rows, 0, k, 0))
            return values[k]

        laws = np.empty((n, self.length), np.int64)
        for s, segment in enumerate(grammar.segments):
            count = len(segment.variants)
            share = segment.share[(slice(None), *(value(k) for k in segment.scope))]
            share = np.broadcast_to(share.T.reshape(-1, count), (n, count))
            wording = _pick(share, stream.uniform(rows, 1, s, 0))
            for w, variant in enumerate(segment.variants):
                where = np.flatnonzero(wording == w)
                for i, slot in enumerate(variant, segment.start):
                    which = 0 if slot.latent is None else value(slot.latent)[where]
                    laws[where, i] = np.array(slot.laws)[which]
        high, low, third, fourth = stream.words(rows[:, None], 2, np.arange(self.length), 0)
        choice, typo = unit53(high, low), unit53(third, fourth) < grammar.noise
        ids = laws
        for c, law in enumerate(grammar.classes.values()):
            where = np.nonzero(laws == self.mask_id + c)
            sums = np.cumsum(law)
            ids[where] = np.searchsorted(sums, choice[where] * sums[-1], side="right")
        text, position = np.nonzero(typo)
        ids[typo] = (stream.uniform(text, 3, position, 0) * self.mask_id).astype(np.int64)
        return ids

    # Probabilities

    def log_p(self, ids: ArrayLike) -> NDArray[np.float64]:
        """log P(text), in nats; of partly masked ids, of what is visible."""
        rows, single = self._checked(ids)
        logs = [
            np.broadcast_to(self.elimination.total(self._factors(batch)[0])[0], (len(batch),))
            for batch in self._batches(rows)
        ]
        return _unpacked(np.concatenate(logs), single)

    def predictive(self, ids: ArrayLike) -> NDArray[np.float64]:
        """P(token = v | everything visible), [texts, tokens, words]; a visible token is certain."""
        rows, single = self._checked(ids)
        laws = self._mixed(self.weights(rows))
        text, position = np.nonzero(rows != self.mask_id)
        laws[text, position] = 0.0
        laws[text, position, rows[text, position]] = 1.0
        return _unpacked(laws, single)

    def posterior(
        self, ids: ArrayLike, latents: Sequence[str] | None = None
    ) -> NDArray[np.float64]:
        """P(latents | what is visible), one axis per latent; by default those of the mode."""
        names = [latent.name for latent in self.grammar.latents]
        chosen = self.grammar.mode if latents is None else latents
        for name in chosen:
            if name not in names:
                raise UserError(
                    f"There is no latent called {name!r}.",
                    where=self.grammar.source,
                    expected="one of " + ", ".join(names),
                )
        which = [names.index(name) for name in chosen]
        rows, single = self._checked(ids)
        plan, extra = self.elimination, []
        if plan.holding(which) is None:  # nothing ties them together: a table of ones does
            plan = Elimination(self.sizes, [*self._scopes, which])
            extra = [np.zeros([*(self.sizes[k] for k in sorted(which)), 1])]
        tables = []
        for batch in self._batches(rows):
            beliefs = plan.beliefs(plan.total([*self._factors(batch)[0], *extra])[1])
            table = plan.marginal(beliefs, plan.holding(which) or 0, which)
            tables.append(np.broadcast_to(table, (*table.shape[:-1], len(batch))))
        joint = np.concatenate(tables, axis=-1)
        axes = [sorted(which).index(k) for k in which]
        return _unpacked(joint.transpose(-1, *axes), single)

    def entropy(self, n: int = 20_000, seed: int = 0) -> Interval:
        """The entropy of a text in nats, from the surprise of `n` exact draws."""
        return normal(-self.log_p(self.draw(n, seed)))

    @cached_property
    def unigram(self) -> NDArray[np.float64]:
        """The law of a word at a random place of a text."""
        return self.predictive([]).mean(0)

    # What is wrong with a text

    def violations(self, ids: ArrayLike) -> NDArray[np.int64]:
        """The least number of tokens that must be typos, over all explanations of a text."""
        rows, single = self._checked(ids)
        counts = [self._least(batch, 0.0)[0] for batch in self._batches(rows)]
        return _unpacked(np.concatenate(counts).astype(np.int64), single)

    def explanation(self, ids: ArrayLike) -> tuple[dict[str, str], list[Slot], list[int]]:
        """Of one text, the likeliest explanation among those with the fewest typos.

        The values of the latents, what should stand at every position, and the latent's law there.
        """
        rows, _ = self._checked(ids)
        _, values, wordings = self._least(rows[:1], FIRST)
        slots: list[Slot] = []
        for segment, wording in zip(self.grammar.segments, wordings, strict=True):
            slots += segment.variants[int(wording[0])]
        laws = [s.laws[0 if s.latent is None else int(values[s.latent][0])] for s in slots]
        named = {
            latent.name: latent.values[int(values[k][0])]
            for k, latent in enumerate(self.grammar.latents)
        }
        return named, slots, laws

    def typos(self, ids: ArrayLike) -> dict[str, NDArray[np.float64]]:
        """Expected typos of a text by what should have stood there: a word, a class, a latent."""
        texts, single = self._checked(ids)
        noise, parts = self.grammar.noise / self.mask_id, self._parts
        rows: list[NDArray[np.float64]] = []
        for batch in self._batches(texts):
            shares = self._part_shares(batch)
            chance = np.where(
                batch.T[parts.position] == self.mask_id, 0.0, noise / np.exp(self._scores(batch))
            )
            kinds = []
            for latent in range(-1, len(self.sizes)):
                of_kind = parts.kind == latent
                expected = (parts.matrix[of_kind].T @ shares[of_kind]) * chance
                kinds += [expected[: parts.words].sum(0)] if latent < 0 else []
                kinds += [expected[parts.words if latent < 0 else 0 :].sum(0)]
            rows.append(np.stack(kinds))
        names = ["word", "class", *(latent.name for latent in self.grammar.latents)]
        columns = np.concatenate(rows, axis=1)
        return {name: _unpacked(columns[k], single) for k, name in enumerate(names)}

    def possible(self, law: int) -> NDArray[np.bool_]:
        """Which words a law has."""
        if law < self.mask_id:
            return np.arange(self.mask_id) == law
        return list(self.grammar.classes.values())[law - self.mask_id] > 0

    # How it is done

    def weights(self, ids: Ids, *, alone: bool = False) -> NDArray[np.float64]:
        """Weights of the features given what is visible, [features, texts].

        `alone`: given what is visible in the feature's own sentence.
        """
        parts = [self._part_shares(batch, alone=alone) for batch in self._batches(ids)]
        return self._parts.matrix.T @ np.concatenate(parts, axis=1)

    @property
    def features(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Position and law of every feature, those of words first."""
        return self._parts.position, self._parts.law

    def _checked(self, ids: ArrayLike) -> tuple[Ids, bool]:
        """Ids as [texts, length], and whether they were one text's."""
        array = np.asarray(ids)
        array = array.astype(np.int64) if array.size == 0 else array
        rows = np.atleast_2d(array)
        good = (
            rows.ndim == 2
            and np.issubdtype(rows.dtype, np.integer)
            and rows.shape[1] <= self.length
        )
        if not good or (rows.size and not 0 <= rows.min() <= rows.max() <= self.mask_id):
            raise UserError(
                "These are not ids of the language.",
                where=self.grammar.source,
                got=f"{rows.dtype} of shape {array.shape}",
                expected=f"whole numbers from 0 to {self.mask_id}, which is the mask, "
                f"and at most {self.length} of them",
            )
        padded = np.full((len(rows), self.length), self.mask_id, np.int64)
        padded[:, : rows.shape[1]] = rows
        return padded, array.ndim == 1

    def _batches(self, ids: Ids) -> Iterator[Ids]:
        step = max(1, AT_ONCE // max(self._parts.entries, self.elimination.entries))
        for start in range(0, max(len(ids), 1), step):
            yield ids[start : start + step]

    def _scores(self, ids: Ids) -> NDArray[np.float64]:
        """log P(token | law) of every feature, [features, texts]; 0 where it is masked."""
        noise, parts = self.grammar.noise, self._parts
        seen = ids.T[parts.position]
        seen_words, seen_classes = seen[: parts.words], seen[parts.words :]
        hit, miss = np.log(1 - noise + noise / self.mask_id), np.log(noise / self.mask_id)
        scores = np.empty(seen.shape)
        scores[: parts.words] = np.where(seen_words == parts.law[: parts.words, None], hit, miss)
        scores[: parts.words][seen_words == self.mask_id] = 0.0
        scores[parts.words :] = self._class_scores[
            parts.law[parts.words :, None] - self.mask_id, seen_classes
        ]
        return scores

    @cached_property
    def _class_scores(self) -> NDArray[np.float64]:
        """log P(token | class), [classes, words and the mask]."""
        table = np.zeros((len(self.grammar.classes), self.mask_id + 1))
        table[:, :-1] = np.log(
            (1 - self.grammar.noise) * self._class_laws + self.grammar.noise / self.mask_id
        )
        return table

    @cached_property
    def _class_laws(self) -> NDArray[np.float64]:
        laws = list(self.grammar.classes.values())
        return np.stack(laws) if laws else np.zeros((0, self.mask_id))

    def _factors(self, ids: Ids) -> tuple[list[Table], list[Table]]:
        """Log tables of priors and sentences, and P(wording | values) of every sentence."""
        scores = self._parts.matrix @ self._scores(ids)
        tables, wordings = list(self._priors), []
        for share, table in zip(self._shares, self._parts.tables(scores), strict=True):
            table += share
            logs, chances = log_sum(table, 0)
            tables.append(logs)
            wordings.append(chances)
        return tables, wordings

    def _part_shares(self, ids: Ids, *, alone: bool = False) -> NDArray[np.float64]:
        """The posterior of every part, [parts, texts]."""
        tables, wordings = self._factors(ids)
        plan, first = self.elimination, len(self._priors)
        beliefs = [] if alone else plan.beliefs(plan.total(tables)[1])
        blocks = []
        for s, segment in enumerate(self.grammar.segments):
            if alone:
                joint = tables[first + s] + self._scope_priors[s]
                flat = log_sum(joint.reshape(segment.share[0].size, len(ids)), 0)[1]
                belief = flat.reshape(joint.shape)
            elif segment.scope:
                belief = plan.marginal(beliefs, plan.home[first + s], segment.scope)
            else:
                belief = np.ones((1,))
            wordings[s] *= belief
            blocks += self._parts.shares(s, wordings[s])
        return np.concatenate(blocks)

    @cached_property
    def _scope_priors(self) -> list[Table]:
        names = [latent.name for latent in self.grammar.latents]
        scopes = [[names[k] for k in segment.scope] for segment in self.grammar.segments]
        with np.errstate(divide="ignore"):
            return [np.log(self.posterior([], scope))[..., None] for scope in scopes]

    def _mixed(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The laws that weights of features add up to, [texts, tokens, words]."""
        flat = (self._spread @ weights).T.reshape(weights.shape[1], self.length, self.mask_id)
        return (1 - self.grammar.noise) * flat + self.grammar.noise / self.mask_id

    @cached_property
    def _spread(self) -> sparse.csr_matrix:
        """From features to words at positions, [tokens * words, features]."""
        parts = self._parts
        rows, columns, values = [], [], []
        for f, (position, law) in enumerate(zip(parts.position, parts.law, strict=True)):
            words = np.flatnonzero(self.possible(law))
            is_word = law < self.mask_id
            chance = np.ones(1) if is_word else self._class_laws[law - self.mask_id][words]
            rows.append(position * self.mask_id + words)
            columns.append(np.full(len(words), f))
            values.append(chance)
        where = (np.concatenate(rows), np.concatenate(columns))
        shape = (self.length * self.mask_id, len(parts.law))
        return sparse.csr_matrix((np.concatenate(values), where), shape)

    def _least(
        self, ids: Ids, violation: float
    ) -> tuple[Table, dict[int, NDArray[np.intp]], list[NDArray[np.intp]]]:
        """The least cost of each text, with the latents and wordings that have it.

        A wrong token costs 1, or `violation` and all else its surprise.
        """
        parts = self._parts
        seen = ids.T[parts.position]
        wrong = np.empty(seen.shape)
        wrong[: parts.words] = seen[: parts.words] != parts.law[: parts.words, None]
        impossible = np.pad(self._class_laws == 0, ((0, 0), (0, 1)))
        wrong[parts.words :] = impossible[
            parts.law[parts.words :, None] - self.mask_id, seen[parts.words :]
        ]
        wrong[seen == self.mask_id] = 0.0
        scores = violation * wrong - self._scores(ids) if violation else wrong
        logs = [*self._priors, *self._shares]
        charge = [
            -log_prior if violation else np.where(np.isneginf(log_prior), np.inf, 0.0)
            for log_prior in logs
        ]
        tables = self._parts.tables(parts.matrix @ scores)
        for table, extra in zip(tables, charge[len(self._priors) :], strict=True):
            table += extra
        costs = [*charge[: len(self._priors)], *(table.min(0) for table in tables)]
        least, values = self.elimination.least(costs)
        wordings = [
            table[(slice(None), *(values[k] for k in segment.scope), np.arange(len(ids)))].argmin(0)
            for segment, table in zip(self.grammar.segments, tables, strict=True)
        ]
        return np.broadcast_to(least, (len(ids),)), values, wordings


class _Parts:
    """Where the parts of a grammar are, and how tokens add up to them."""

    def __init__(self, grammar: Grammar) -> None:
        size = len(grammar.vocabulary)
        sizes = [len(latent.values) for latent in grammar.latents]
        entries: list[tuple[int, int, int]] = []
        kinds: list[int] = []
        self.blocks: list[list[tuple[int, int, tuple[int, ...]]]] = []
        """Per segment and block: its parts, from and to, and the shape in a segment's table."""
        for segment in grammar.segments:
            block, count = [], len(segment.variants)
            start: dict[int | None, int] = {}
            for latent in (None, *segment.scope):
                start[latent] = len(kinds)
                kinds += [-1 if latent is None else latent] * (
                    count * (1 if latent is None else sizes[latent])
                )
                shape = (count, *(sizes[k] if k == latent else 1 for k in segment.scope))
                block.append((start[latent], len(kinds), shape))
            self.blocks.append(block)
            for w, variant in enumerate(segment.variants):
                for i, slot in enumerate(variant, segment.start):
                    first = start[slot.latent] + w * len(slot.laws)
                    entries += [(first + v, i, law) for v, law in enumerate(slot.laws)]
        features = sorted({(law >= size, position, law) for _, position, law in entries})
        where = {(position, law): f for f, (_, position, law) in enumerate(features)}
        self.kind = np.array(kinds)
        """The latent of each part; -1: none, the wording itself."""
        self.position, self.law = (
            np.array([feature[k] for feature in features], np.intp) for k in (1, 2)
        )
        self.words = sum(not feature[0] for feature in features)
        """Features before this one are words, the others classes."""
        cells = [part for part, _, _ in entries], [where[feature[1:]] for feature in entries]
        shape = (len(kinds), len(features))
        self.matrix = sparse.csr_matrix((np.ones(len(entries)), cells), shape)
        self.entries = sum(segment.share.size for segment in grammar.segments)

    def tables(self, scores: NDArray[np.float64]) -> list[Table]:
        """Scores of parts [parts, texts] as one table per segment, [wordings, values..., texts]."""
        tables = []
        for blocks in self.blocks:
            table = np.zeros(())
            for first, last, shape in blocks:
                table = table + scores[first:last].reshape(*shape, scores.shape[1])
            tables.append(table)
        return tables

    def shares(self, segment: int, joint: Table) -> list[NDArray[np.float64]]:
        """The way back: a segment's table summed to each of its parts."""
        shares = []
        for first, last, shape in self.blocks[segment]:
            others = tuple(k for k, n in enumerate(shape) if k and n == 1)
            shares.append(joint.sum(others).reshape(last - first, joint.shape[-1]))
        return shares


def joined(words: Sequence[str]) -> str:
    """The text of some words."""
    return re.sub(r" (?=[,.]( |$))", "", " ".join(words))


def normal(values: NDArray) -> Interval:
    """The mean of many values, with the interval of a normal law."""
    mean, half = float(values.mean()), float(1.96 * values.std(ddof=1) / np.sqrt(len(values)))
    return Interval(mean, mean - half, mean + half, n=len(values), how="normal")


def _in_order(k: int, latent: Latent) -> NDArray[np.float64]:
    """A prior with its axes in the grammar's order."""
    return latent.prior.T if latent.given is not None and latent.given > k else latent.prior


def _pick(laws: NDArray[np.float64], uniform: NDArray[np.float64]) -> NDArray[np.intp]:
    """One value per row of laws."""
    sums = np.cumsum(laws, axis=1)
    return (uniform[:, None] * sums[:, -1:] >= sums).sum(1)


def _unpacked(values: NDArray, single: bool) -> NDArray:
    return values[0] if single else values
