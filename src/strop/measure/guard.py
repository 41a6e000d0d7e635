"""The guard: below it a low perplexity is no achievement, because outputs repeat themselves.

It looks at the entropy of single outputs, and at the diversity across outputs (`across.py`), which
must be at least a share of that of held-out texts. A cell is `above` or `below` when the whole 95%
interval of its mean entropy, or of its diversity, lies on that side, else `undecided` (the rule
`interval`). The paper passes a cell by its mean entropy alone (the rule `mean`). That is a claim
about the threshold as a number. Made of texts it is itself an estimate, and its own 95% interval is
printed beside it. The threshold of entropy is, in this order,

1. the tenth percentile of the entropy of single held-out texts that the user brought, in the
   checkpoint's own tokens and cut to the generator's length; it is kept in the run directory, so
   that whoever reads the run later uses the same;
2. the paper's 5 nats, for 1,024 tokens of GPT-2's vocabulary;
3. the same percentile of the texts that ship, for the embedded vocabulary and for GPT-2's;
4. nothing: on any other vocabulary these numbers are wrong; and after prompts, which may well ask
   for an answer of one word.

Diversity is held against the same texts; where the threshold is a convention there are none. Under
the rule `interval` a cell must be above both; under `mean` diversity is reported and does not
decide.

Both are measured on the tokens that perplexity is read on. The span policy `first-document` leaves
out what follows the first end of text. Counted as entropy it would lift an output over the guard at
no cost in perplexity. So where a perplexity of that policy stands beside it, an output that is cut
has the entropy of its first document, the end that closes it included. Entropy grows with length,
so that of l tokens is raised by what the guard's own held-out texts gain from l tokens to the
guard's length: each output is held against the guard of its own length. Outputs that are not cut
keep the entropy of all their tokens. Diversity is read on first documents, too, without the end
that closes them: that is in every output that is cut.

Held-out text comes from JSON lines or a text file, as a checkpoint reads it (`read_rows`). A line
is an object with `text`, with `ids`, or with both, or a bare list of ids. Ids count only if they
are the checkpoint's own: beside a text they must decode to it, else the text is tokenised with its
tokenizer. Every row gives its first `length` tokens, shorter rows are left out and counted. The
rows that ship have both (`read_texts`).

A `.txt` file holds documents with a line `<|endoftext|>` between them, as training reads them; each
gives as many rows of `length` tokens as it has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from strop import assets
from strop.disk import decoded, json_lines, reading
from strop.errors import UserError
from strop.measure.across import COMPARED, DECIDES, MARGIN, TEXTS, HeldOutPairs
from strop.measure.entropy import entropy, prefix_entropy
from strop.measure.metric import PoolRows, Rows
from strop.measure.spans import END_OF_TEXT
from strop.spec.generator import GeneratorSpec
from strop.spec.value import SpanPolicy
from strop.stats.interval import LEVEL, Interval
from strop.store import Run

if TYPE_CHECKING:
    from strop.measure.evaluator import Evaluator


# ---------------------------------------------------------------------------------------- heldout

PLAIN = ".txt"
SEPARATOR = b"<|endoftext|>"
"""The line between two documents of a text file."""


class Vocabulary(Protocol):
    """What of a checkpoint decides how it reads a text; every model has it."""

    @property
    def vocab_size(self) -> int: ...  # noqa: D102
    @property
    def mask_id(self) -> int | None: ...  # noqa: D102
    @property
    def codec(self) -> Any: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class HeldOutTexts:
    """The texts that ship, which no model here was trained on."""

    texts: list[str]
    ids: NDArray[np.int64]
    """Their tokens [n, L] in the embedded models' vocabulary."""
    vocab_size: int | None
    """Of that vocabulary, the mask left out."""
    source: str


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Sequences as a checkpoint reads them."""

    ids: NDArray[np.int64]
    """[n, length], no mask among them."""
    short: int
    """Rows that were left out because they have fewer tokens."""
    retokenised: int
    """Rows whose ids belong to another tokenizer, so that their text was read."""

    @property
    def sha256(self) -> str:
        """Of the ids: what a measurement on them depends on."""
        return hashlib.sha256(np.ascontiguousarray(self.ids).tobytes()).hexdigest()


def read_texts() -> HeldOutTexts | None:
    """The rows that ship, if they do."""
    path = assets.HELD_OUT
    if not path.is_file():
        return None
    rows = [record for _, record in _records(path)]
    ids = np.array([row["ids"] for row in rows], np.int64)
    texts = [str(row["text"]) for row in rows]
    return HeldOutTexts(texts, ids, assets.embedded_vocabulary(), f"texts of {path.name}")


def read_rows(
    path: Path, denoiser: Vocabulary, *, length: int, most: int, least: int = 1
) -> HeldOutRows:
    """The first `most` rows that are long enough; fewer than `least` are an error."""
    rows: list[list[int]] = []
    short = retokenised = 0
    for where, record in _records(path):
        ids, anew = _tokens(record, denoiser, where)
        if len(ids) < length:
            short += 1
            continue
        _check_ids(ids, denoiser, where)
        pieces = len(ids) // length if path.suffix.lower() == PLAIN else 1
        rows += [ids[k * length : (k + 1) * length] for k in range(pieces)]
        retokenised += anew
        if len(rows) >= most:
            break
    rows = rows[:most]
    if len(rows) < least:
        raise UserError(
            "Too few held-out rows are long enough.",
            where=path,
            got=f"{len(rows)} of {length} tokens, {short} shorter",
            expected=f"{least} or more",
            fix="use longer texts, or a smaller `length`",
        )
    return HeldOutRows(
        np.asarray(rows, dtype=np.int64).reshape(len(rows), length), short, retokenised
    )


def plain_texts(path: Path) -> list[str]:
    """The texts of a file for whoever has a tokenizer; rows of ids alone are left out."""
    rows = [row for _, row in _records(path) if isinstance(row, dict)]
    return [row["text"] for row in rows if isinstance(row.get("text"), str)]


def check_file(path: Path) -> None:
    """Refuse a file that is not there, before any work is done for it."""
    with reading(path):
        exists = path.is_file()
    if not exists:
        raise UserError(
            "The held-out file is not there.",
            where=path,
            expected='JSON lines with "text" or "ids", or a .txt file',
            fix="give one with `held_out`",
        )


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    check_file(path)
    with reading(path):
        content = path.read_bytes()
    if not content.strip():
        raise UserError("The held-out file is empty.", where=path)
    if path.suffix.lower() == PLAIN:
        yield from _documents(path, content)
        return
    yield from json_lines(BytesIO(content), path, '{"text": "Once upon a time ..."}')


def _documents(path: Path, content: bytes) -> Iterator[tuple[str, Any]]:
    """Of a text file."""
    lines = content.splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines) if line.strip() == SEPARATOR]
    for first, end in zip([0, *(line + 1 for line in ends)], [*ends, len(lines)], strict=True):
        where = f"{path}, line {first + 1}"
        text = decoded(b"".join(lines[first:end]), where).strip()
        if text:
            yield where, {"text": text}


def _tokens(record: Any, denoiser: Vocabulary, where: str) -> tuple[list[int], bool]:
    """The row's ids, and whether its text had to be read though it has ids."""
    ids, text = record if isinstance(record, list) else None, None
    if isinstance(record, dict):
        ids, text = record.get("ids"), record.get("text")
    stored: list[int] | None = None
    if isinstance(ids, list) and all(type(token) is int for token in ids):
        stored = ids
    if (ids is not None and stored is None) or (text is not None and not isinstance(text, str)):
        raise _unreadable(where, "ids that are no whole numbers, or a text that is none")
    codec = denoiser.codec
    if stored is not None:
        fits = all(0 <= token < denoiser.vocab_size for token in stored)
        if text is None or codec is None:
            return stored, False
        if fits and codec.decode(stored, mask_id=denoiser.mask_id) == text:
            return stored, False
    if codec is None:
        raise UserError(
            "The held-out rows are text and the checkpoint has no tokenizer.",
            where=where,
            fix="put its tokenizer.json beside the weights, or give rows with `ids`",
        )
    if text is None:
        raise _unreadable(where, "neither `text` nor `ids`")
    return codec.encode(text), stored is not None


def _check_ids(ids: list[int], denoiser: Vocabulary, where: str) -> None:
    wrong = [i for i in ids if not 0 <= i < denoiser.vocab_size or i == denoiser.mask_id]
    if wrong:
        raise UserError(
            "A held-out row has an id that is not a clean token of the checkpoint.",
            where=where,
            got=wrong[0],
            expected=f"0 to {denoiser.vocab_size - 1} without the mask {denoiser.mask_id}",
            fix="tokenise the rows with the checkpoint's own tokenizer, or give their text",
        )


def _unreadable(where: str, got: str) -> UserError:
    expected = '{"text": "..."} or {"ids": [...]}'
    return UserError("A held-out row cannot be read.", where=where, got=got, expected=expected)


# ------------------------------------------------------------------------------------------ guard

Verdict = Literal["above", "below", "undecided"]
Rule = Literal["interval", "mean"]
MARKS = {"below": "†", "undecided": "‡"}
"""What stands behind a number of a cell that is not above the guard, wherever it is shown."""

PAPER_LENGTH, PAPER_THRESHOLD = 1024, 5.0
PAPER = "the paper's H >= 5 at 1,024 GPT-2 tokens, a convention"
GPT2_TOKENS = 50257
SHARE = 0.1
FEWEST = 20
"""Held-out texts below which a tenth percentile says too little."""
MOST = 2048
"""Held-out texts that are read."""


@dataclass(frozen=True)
class Guard:
    """The mean entropy that a cell should reach."""

    length: int
    threshold: float | None
    """None where there is nothing to compare with."""
    source: str
    """Where the threshold comes from, in words."""
    ends: tuple[float, float] | None = None
    """The 95% interval of the threshold, which is an estimate from texts; None of a convention."""
    rise: tuple[float, ...] = ()
    """How much higher the threshold is than that of the first 1, 2, ... `length` tokens of the same
    texts; empty of a convention."""
    rule: Rule = "interval"
    """What must lie above the threshold: the whole interval of the mean entropy, or the mean."""
    texts: tuple[tuple[int, ...], ...] = field(default=(), repr=False, hash=False)
    """Held-out texts that diversity across outputs is compared with; none of a convention."""

    @cached_property
    def pairs(self) -> HeldOutPairs | None:
        """The texts as diversity reads them."""
        if len(self.texts) < FEWEST:
            return None
        pairs = HeldOutPairs(np.array(self.texts, np.int64))
        return pairs if pairs.usable else None

    def verdict(self, interval: Interval | None) -> Verdict | None:
        """On which side a mean entropy lies; None without a guard or without entropy."""
        if self.threshold is None or interval is None:
            return None
        if self.rule == "mean":
            return "above" if interval.value >= self.threshold else "below"
        return side_of(interval, self.threshold)

    def diverse(self, interval: Interval | None) -> Verdict | None:
        """On which side diversity across outputs lies; None without texts, or of few outputs."""
        if self.pairs is None or interval is None or (interval.n or 0) < DECIDES:
            return None
        return side_of(interval, MARGIN)

    def both(self, entropy: Interval | None, diversity: Interval | None) -> Verdict | None:
        """What decides: entropy and diversity, or under the rule `mean` entropy alone."""
        sides = [self.verdict(entropy)]
        sides += [self.diverse(diversity)] if self.rule == "interval" else []
        worst_first: tuple[Verdict, ...] = ("below", "undecided", "above")
        return next((verdict for verdict in worst_first if verdict in sides), None)

    def raised(
        self, entropy: NDArray[np.float64], tokens: NDArray[np.integer]
    ) -> NDArray[np.float64]:
        """Entropies of texts of so many tokens, to be held against the threshold all the same."""
        return entropy + np.asarray(self.rise)[tokens - 1]

    def document(
        self, entropy: Interval | None, diversity: Interval | None = None
    ) -> dict[str, Any]:
        """For JSON, with the verdicts on one cell: on its entropy, and on its diversity."""
        return {
            "threshold": self.threshold,
            "source": self.source,
            **({} if self.ends is None else {"ends": list(self.ends)}),
            **({} if self.rule == "interval" else {"rule": self.rule}),
            "verdict": self.verdict(entropy),
            **({} if self.pairs is None else {"least_diversity": MARGIN}),
            **({} if self.pairs is None else {"diversity_verdict": self.diverse(diversity)}),
        }

    @property
    def bound(self) -> str:
        """The threshold and how well it is known."""
        ends = "" if self.ends is None else " [{:.3f}, {:.3f}]".format(*self.ends)
        return f"H >= {self.threshold:.3f}{ends}"

    def __str__(self) -> str:
        """One line for people."""
        if self.threshold is None:
            return f"no entropy guard: {self.source}"
        if self.rule == "mean":
            mark = f"{MARKS['below']} mean entropy below the guard"
            return f"{mark} {self.bound} ({self.source}); cells pass by their mean, as in the paper"
        also = "" if self.pairs is None else f", or the diversity guard of {MARGIN:.0%} of held-out"
        what = "mean entropy" if self.pairs is None else "mean entropy or of the diversity"
        return (
            f"{MARKS['below']} below the entropy guard {self.bound} ({self.source}){also}, "
            f"{MARKS['undecided']} undecided: the 95% interval of the {what} reaches it"
        )


def side_of(interval: Interval, threshold: float) -> Verdict:
    """On which side of a threshold a whole interval lies."""
    if interval.ends[0] >= threshold:
        return "above"
    return "below" if interval.below(threshold) else "undecided"


def guard(
    length: int, held_out: NDArray[np.integer] | None = None, *, source: str = "held-out texts"
) -> Guard:
    """From token ids of single texts [n, L]; without enough of them there is none."""
    if held_out is None or len(held_out) < FEWEST or held_out.shape[1] < length:
        why = f"no {FEWEST} held-out texts of {length} tokens in the generator's vocabulary"
        return Guard(length, None, why)
    values = entropy(held_out[:, :length])
    origin = f"tenth percentile of {len(values)} {source} of {length} tokens"
    lower = np.quantile(prefix_entropy(held_out[:, :length]), SHARE, axis=0)
    rise = tuple((lower[-1] - lower).tolist())
    threshold = float(np.quantile(values, SHARE))
    texts = tuple(map(tuple, held_out[:TEXTS, :length].tolist()))
    return Guard(length, threshold, origin, quantile_ends(values, SHARE), rise, texts=texts)


def quantile_ends(
    values: NDArray[np.float64], share: float, level: float = LEVEL
) -> tuple[float, float]:
    """The interval of a quantile, whatever the law: how many values lie below it is binomial.

    Of too few values no one is surely below it; the end is then zero, which no entropy is below.
    """
    from scipy.stats import binom

    ordered, n = np.sort(values), len(values)
    tail = (1 - level) / 2
    low = int(binom.ppf(tail, n, share)) - 1
    high = int(binom.ppf(1 - tail, n, share))
    return 0.0 if low < 0 else float(ordered[low]), float(ordered[min(high, n - 1)])


def evaluator_guard(evaluator: Evaluator, tokens: int, held_out: Path | None = None) -> Guard:
    """Of so many tokens of an evaluator: what entropy is held against where these are counted."""
    size = len(evaluator.tokenizer)
    shipped = read_texts()
    if held_out is not None:
        texts, source = plain_texts(held_out), f"texts of {held_out.name}"
    elif size in (GPT2_TOKENS, GPT2_TOKENS + 1) and tokens >= PAPER_LENGTH - 1:
        return Guard(tokens, PAPER_THRESHOLD, PAPER)
    elif shipped is not None and size in (shipped.vocab_size, GPT2_TOKENS, GPT2_TOKENS + 1):
        texts, source = shipped.texts, shipped.source
    else:
        return guard(tokens)
    rows = [row[:tokens] for row in evaluator.encode(texts[:MOST]) if len(row) >= tokens]
    return guard(tokens, np.array(rows, np.int64).reshape(len(rows), tokens), source=source)


def default_guard(generator: GeneratorSpec, run: Run | None = None) -> Guard:
    """What holds where nobody brought held-out texts."""
    length, tokens = generator.length, clean_tokens(generator)
    if generator.prompts is not None:
        return Guard(length, None, "the outputs answer prompts, and the texts we know answer none")
    if generator.checkpoint.family == "language":
        from strop.language.reading import known_language

        grammar = None if run is None else run.grammar
        language = known_language(generator.checkpoint.sha256, grammar)
        return guard(
            length, None if language is None else language.draw(MOST), source="exact texts"
        )
    gpt2 = tokens in (GPT2_TOKENS, GPT2_TOKENS + 1)
    if gpt2 and length == PAPER_LENGTH:
        return Guard(length, PAPER_THRESHOLD, PAPER)
    shipped = read_texts()
    if shipped is not None and tokens == shipped.vocab_size:
        return guard(length, shipped.ids, source=shipped.source)
    if shipped is not None and gpt2:
        if find_spec("tokenizers") is None:
            return Guard(length, None, "GPT-2's tokenizer is not installed here (tokenizers)")
        return guard(length, _as_gpt2(shipped.texts, length), source=shipped.source)
    return guard(length)


def held_out_guard(path: Path, length: int, vocabulary: Vocabulary) -> Guard:
    """From the user's own texts, tokenised by the checkpoint; it overrides every other."""
    if vocabulary.vocab_size < 1:
        return Guard(length, None, "the checkpoint does not say how large its vocabulary is")
    rows = read_rows(path, vocabulary, length=length, most=MOST, least=0)
    if len(rows.ids) < FEWEST:
        short = f"{len(rows.ids)} of {len(rows.ids) + rows.short} texts of {path.name}"
        return Guard(length, None, f"{short} have {length} tokens, where {FEWEST} are needed")
    return guard(length, rows.ids, source=f"texts of {path.name}")


def clean_tokens(generator: GeneratorSpec) -> int:
    """The size of a generator's vocabulary; a mask, where it has one, follows the last token."""
    shape = generator.checkpoint.shape
    size = int(shape.get("vocab_size", 0))
    return size - 1 if int(shape.get("mask_id", size)) < size else size


def guard_of(
    generator: GeneratorSpec,
    run: Run | None = None,
    *,
    held_out: Path | None = None,
    vocabulary: Vocabulary | None = None,
) -> Guard:
    """The guard of a generator's outputs: of given texts, of its run, or the default.

    What is made of given texts is kept in the run. `vocabulary` reads them; without one, the
    tokenizer that the run's checkpoint has beside its weights.
    """
    if held_out is not None:
        if vocabulary is None:
            source = "" if run is None else str(run.asked.get("checkpoint") or "")
            vocabulary = _Reader.of(source, generator)
        measured_guard = held_out_guard(held_out, generator.length, vocabulary)
        if run is not None:
            run.keep_guard(asdict(measured_guard))
        return measured_guard
    stored = None if run is None else run.guard()
    if run is None or stored is None or stored.get("length") != generator.length:
        return default_guard(generator, run)
    try:
        threshold = stored["threshold"]
        value = None if threshold is None else float(threshold)
        ends = stored.get("ends")
        interval = None if ends is None else (float(ends[0]), float(ends[1]))
        rise = tuple(map(float, stored.get("rise", ())))
        if len(rise) not in (0, generator.length):
            raise ValueError(f"`rise` of {len(rise)} lengths")
        rule: Rule = "mean" if stored.get("rule") == "mean" else "interval"
        texts = tuple(tuple(map(int, row)) for row in stored.get("texts", ()))
        if any(len(row) != generator.length for row in texts):
            raise ValueError("`texts` of other lengths")
        return Guard(generator.length, value, str(stored["source"]), interval, rise, rule, texts)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            "The run's guard cannot be read.",
            where=run.path,
            got=f"wrong or missing: {error}",
            fix="give the held-out texts again",
        ) from None


@dataclass(frozen=True)
class _Reader:
    """How a checkpoint reads text, without its weights."""

    vocab_size: int
    mask_id: int | None
    codec: Any

    @classmethod
    def of(cls, source: str, generator: GeneratorSpec) -> _Reader:
        """The tokenizer beside the weights, if they are on this machine, else GPT-2's or none."""
        from strop.denoisers.tokenizer import TextCodec

        shape = generator.checkpoint.shape
        size = int(shape.get("vocab_size", 0))
        mask = shape.get("mask_id")
        embedded = source.startswith(assets.EMBEDDED)
        path = assets.embedded_path(source) if embedded else Path(source)
        folder = path if path.is_dir() else path.parent
        names = ("tokenizer.json", "vocab.json")
        tokenised = source and any((folder / name).is_file() for name in names)
        gpt2 = size if clean_tokens(generator) in (GPT2_TOKENS, GPT2_TOKENS + 1) else -1
        codec = TextCodec.beside(folder if tokenised else None, size, gpt2)
        return cls(size, None if mask is None else int(mask), codec)


def _as_gpt2(texts: list[str], length: int) -> NDArray[np.int64]:
    """Texts in GPT-2's tokens, those that are long enough, cut to the length."""
    from strop.denoisers.tokenizer import TextCodec

    rows = [row[:length] for row in TextCodec.gpt2().encode_all(texts)]
    long_enough = [row for row in rows if len(row) == length]
    return np.array(long_enough, np.int64).reshape(len(long_enough), length)


CUTS: SpanPolicy = "first-document"
"""The policy that leaves out part of an output."""


@dataclass(frozen=True)
class CutOutputs:
    """How many outputs of a pool the span policy cuts."""

    held: int = 0
    """Whose entropy is that of their first document."""
    whole: int = 0
    """Whose entropy is still that of all their tokens: no guard of their length is known."""


NONE_CUT = CutOutputs()


def document_entropy(
    values: NDArray[np.float64], cut: NDArray[np.bool_], rows: PoolRows, guard: Guard
) -> tuple[NDArray[np.float64], CutOutputs]:
    """Entropies of outputs [n] with those of the `cut` ones replaced, and how many these are."""
    end = end_token(rows.rows()) if guard.rise and cut.any() else None
    if end is None:
        return values, CutOutputs(whole=int(cut.sum()))
    replaced, first = values.copy(), 0
    for _, ids in rows.rows():
        rows_here = np.flatnonzero(cut[first : first + len(ids)])
        tokens = first_document(ids[rows_here], end)
        behind = np.arange(ids.shape[1]) >= tokens[:, None]
        replaced[first + rows_here] = guard.raised(
            entropy(np.where(behind, -1, ids[rows_here])), tokens
        )
        first += len(ids)
    return replaced, CutOutputs(held=int(cut.sum()))


def documents(cut: NDArray[np.bool_], rows: PoolRows) -> NDArray[np.int64] | None:
    """Ids of the outputs that diversity compares [n, L], of the `cut` ones their first document."""
    end = end_token(rows.rows())
    if end is None:
        return None
    ids = rows.first(COMPARED)
    cut = cut[:COMPARED]
    behind = np.arange(ids.shape[1]) >= first_document(ids, end)[:, None] - 1
    return np.where(behind & cut[:, None], -1, ids)


def first_document(ids: NDArray[np.int64], end: int) -> NDArray[np.int64]:
    """Tokens up to the first end that is not at the very start, that end included [n]."""
    ends = ids == end
    ends[:, :1] = False
    closed = ends.any(axis=1)
    return np.where(closed, ends.argmax(axis=1) + 1, (ids >= 0).sum(axis=1))


def end_token(rows: Iterable[Rows]) -> int | None:
    """The id that every output has as often as its text has ends of text; None if there is none.

    Of several such ids, which is possible where few outputs have an end, it is the one that stands
    where the ends stand in the texts, as shares of the tokens and of the characters. Of very many
    outputs the first ones tell it.
    """
    off: dict[int, float] | None = None
    others: set[int] = set()
    seen = 0
    for texts, ids in rows:
        for text, row in zip(texts, ids, strict=True):
            clean = row[row >= 0]
            tokens, first, counts = np.unique(clean, return_index=True, return_counts=True)
            pieces = (text or "").split(END_OF_TEXT)
            wanted = len(pieces) - 1
            if not wanted:
                others.update(tokens.tolist())
                continue
            share = len(pieces[0]) / max(sum(map(len, pieces)), 1)
            same = counts == wanted
            far = np.abs(first[same] / max(len(clean) - wanted, 1) - share)
            distances = dict(zip(tokens[same].tolist(), far.tolist(), strict=True))
            off = (
                distances
                if off is None
                else {k: off[k] + distances[k] for k in off.keys() & distances.keys()}
            )
        seen += len(ids)
        if seen >= COMPARED:
            break
    left = {token: far for token, far in (off or {}).items() if token not in others}
    return min(left, key=lambda token: (left[token], token)) if left else None
