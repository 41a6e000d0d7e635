"""A corpus made ready: split, cleaned, tokenised once, filtered, written as shards.

The order is the point. `documents.read_source` decides what is held out; the tokenizer is trained
on, and the filter fitted to, what it marks as training; held-out documents only ever pass through.

The batch of step k is a pure function of (seed, k), over the global batch (`Batches`). Nothing is
carried from step to step, so a run can stop anywhere; and every process computes the whole batch's
row numbers and noise and takes its part, so their number changes nothing.

Rows are prompts with responses, or text. In the first case a row is the prompt's tokens, then the
response's with end-of-texts after it up to a fixed number, which count like any other token, as
LLaDA counts them: a model learns from them where to end. What is left of the row's length is
filling, and nothing looks at it.

Text becomes rows in three ways. `wrapped` is the public code's way: the documents of a group of
1,000 are joined, each with end-of-text after it, cut into pieces of length - 2, the remainder
dropped, and every piece put between two end-of-texts. `packed` joins everything end to end and
cuts. `sentences` starts every row where a sentence starts: the next row begins at the last start
that the previous one reached, so that an unfinished sentence is read again, whole.

`HeldOutLoss` is the negative ELBO per token of held-out rows, with what it bounds and its interval.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.checkpoints.files import sha256_of
from strop.denoisers.tokenizer import TextCodec
from strop.disk import disk, locked, write
from strop.errors import UserError
from strop.rng import derive_seed
from strop.stats.interval import Interval
from strop.stats.resample import bootstrap, mean
from strop.training.documents import (
    CLEANERS,
    MANIFEST,
    SPLITS,
    TOKENIZER,
    Census,
    ShardRows,
    Shards,
    ShardWriter,
    check_source,
    clear,
    read_source,
    sentences,
    write_index,
    write_manifest,
)
from strop.training.model import NOISES, Noise, block_noise, placed
from strop.training.spec import DataSpec, SourceSpec
from strop.version import __version__

# ---------------------------------------------------------------------------------------- batches

Ids = NDArray[np.int64]

GROUP = 1_000
"""Documents that the public code joins at a time."""


def make_rows(
    documents: Iterable[str], how: str, codec: TextCodec, end_of_text: int, length: int
) -> Iterator[Ids]:
    """Blocks of rows [n, length]."""
    carry = np.zeros(0, np.int64)
    documents = iter(documents)
    while group := list(islice(documents, GROUP)):
        if how == "sentences":
            for text in group:
                yield _from_sentences(sentences(text), codec, end_of_text, length)
            continue
        ids = [[*encoded, end_of_text] for encoded in codec.encode_all(group)]
        stream = np.concatenate([np.asarray(encoded, np.int64) for encoded in ids])
        if how == "wrapped":
            yield _wrapped(stream, end_of_text, length)
        else:
            stream = np.concatenate([carry, stream])
            n_used = len(stream) // length * length
            yield stream[:n_used].reshape(-1, length)
            carry = stream[n_used:]


def _wrapped(stream: Ids, end_of_text: int, length: int) -> Ids:
    inner = length - 2
    pieces = stream[: len(stream) // inner * inner].reshape(-1, inner)
    edge = np.full((len(pieces), 1), end_of_text)
    return np.concatenate([edge, pieces, edge], axis=1)


def _from_sentences(pieces: list[str], codec: TextCodec, end_of_text: int, length: int) -> Ids:
    encoded = [np.asarray(piece, np.int64) for piece in codec.encode_all(pieces)]
    starts = np.cumsum([0] + [len(piece) for piece in encoded])
    stream = np.concatenate([*encoded, np.array([end_of_text])])
    rows, begin = [], 0
    while begin + length <= len(stream):
        rows.append(stream[begin : begin + length])
        reached = int(starts[np.searchsorted(starts, begin + length, side="right") - 1])
        # A sentence longer than a row is cut: nothing in it is a start.
        begin = reached if reached > begin else begin + length
    return np.stack(rows) if rows else np.zeros((0, length), np.int64)


def make_pairs(
    documents: Iterable[str], codec: TextCodec, end_of_text: int, length: int, response: int
) -> Iterator[tuple[Ids, Ids]]:
    """Blocks of rows [n, length] with the lengths of their prompts [n].

    A document is a JSON object with the texts `prompt` and `response`. The two are tokenised apart,
    as they are when a model is given a prompt.
    """
    documents = iter(documents)
    while group := list(islice(documents, GROUP)):
        pairs = [_pair(text) for text in group]
        prompts = codec.encode_all([prompt for prompt, _ in pairs])
        answers = codec.encode_all([answer for _, answer in pairs])
        rows = np.full((len(group), length), end_of_text, np.int64)
        for row, prompt, answer, text in zip(rows, prompts, answers, group, strict=True):
            if len(prompt) + response > length or not 0 < len(answer) <= response:
                raise _unfit(text, len(prompt), len(answer), length, response)
            row[: len(prompt) + len(answer)] = [*prompt, *answer]
        yield rows, np.array([len(prompt) for prompt in prompts], np.int64)


def row_noise(
    rows: ShardRows,
    numbers: Callable[[], Ids],
    count: int,
    form: str,
    generator: torch.Generator,
    block: int | None = None,
) -> Noise | None:
    """Which tokens of `count` rows are hidden; `numbers` says which rows, if their prompts matter.

    A causal model hides none. After a prompt, what it is to predict stands in their place: the
    whole response.
    """
    if block is not None:
        return block_noise(form, count, rows.length, block, generator)
    if rows.response is None:
        return None if form == "causal" else NOISES[form](count, rows.length, generator)
    if form == "causal":
        noise = Noise(torch.ones(count, rows.response, dtype=torch.bool), torch.ones(count))
    else:
        noise = NOISES[form](count, rows.response, generator)
    return placed(noise, torch.from_numpy(rows.prompts(numbers())), rows.length)


def _pair(text: str) -> tuple[str, str]:
    try:
        row = json.loads(text)
    except json.JSONDecodeError:
        row = None
    match row:
        case {"prompt": str(prompt), "response": str(response)}:
            return prompt, response
    raise UserError(
        "A document is not a pair of a prompt and a response.",
        where="data.rows: pairs",
        got=text.strip()[:80],
        expected='one JSON object per line: {"prompt": "...", "response": "..."}',
        fix="write the sources that way, with a line break as `separator`, or choose other rows",
    )


def _unfit(text: str, prompt: int, answer: int, length: int, response: int) -> UserError:
    return UserError(
        "A pair does not fit its row.",
        where="data.length, data.response",
        got=f"a prompt of {prompt} and a response of {answer} tokens: {text.strip()[:60]}",
        expected=f"prompts of at most {length - response} tokens, responses of 1 to {response}",
        fix="raise `length` or `response`, or leave the pair out",
    )


class Batches:
    """Every row once per epoch, in an order drawn anew for each."""

    def __init__(
        self, rows: ShardRows, *, batch: int, seed: int, objective: str, block: int | None = None
    ) -> None:
        self.rows, self.batch, self.seed = rows, batch, seed
        self.objective, self.block = objective, block
        self._order: tuple[int, Ids] | None = None

    def numbers(self, step: int) -> Ids:
        """Which rows make the global batch of a step (counted from 0)."""
        index = np.arange(step * self.batch, (step + 1) * self.batch)
        epoch, within = np.divmod(index, len(self.rows))
        out = np.empty(self.batch, np.int64)
        for number in np.unique(epoch):
            out[epoch == number] = self._epoch(int(number))[within[epoch == number]]
        return out

    def ids(self, numbers: Ids) -> Tensor:
        """The tokens of some rows, [n, length]."""
        return torch.from_numpy(self.rows[numbers])

    def noise(self, step: int) -> Noise | None:
        """Which tokens of the global batch are hidden; see `row_noise`."""
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "noise", step))
        return row_noise(
            self.rows, lambda: self.numbers(step), self.batch, self.objective, generator, self.block
        )

    def _epoch(self, epoch: int) -> Ids:
        if self._order is None or self._order[0] != epoch:
            seed = derive_seed(self.seed, "epoch", epoch)
            self._order = (epoch, np.random.default_rng(seed).permutation(len(self.rows)))
        return self._order[1]


@dataclass(frozen=True)
class HeldOutLoss:
    """Nats per token with a 95% interval from resampled rows, and what follows from it.

    Rows of one document are resampled apart, so the interval says how much another draw of rows
    would change the number, not another set of books. A loss that is not finite has no ends.
    """

    form: str
    """`any-order` (unbiased for the bound), `public` (clipped), or `causal` (exact)."""
    rows: int
    nats_per_token: Interval
    perplexity: Interval
    """exp of it: an upper bound for the diffusion forms."""
    nats_per_character: float | None


@torch.no_grad()
def held_out_losses(
    losses: Callable[[Tensor, Noise | None], Tensor],
    rows: ShardRows,
    *,
    count: int,
    form: str,
    seed: int,
    batch: int,
    block: int | None = None,
    share: tuple[int, int] = (0, 1),
) -> NDArray[np.float64]:
    """Loss per token of `count` held-out rows, each under noise that depends on seed and form.

    The rows are spread evenly over the held-out split, the noise is stratified over all of them:
    measurements of one run differ by the weights alone. `share` is (this process, of how many);
    rows of the others come back as zeros.
    """
    count = min(count, len(rows))
    numbers = np.linspace(0, len(rows) - 1, count).round().astype(np.int64)
    generator = torch.Generator().manual_seed(derive_seed(seed, "held-out"))
    # Strata follow each other along the rows; shuffled, no part of the corpus is favoured.
    order = torch.randperm(count, generator=generator)
    # Row i of the noise is for the row whose place in the order is i.
    back = order.argsort().numpy()
    noise = row_noise(rows, lambda: numbers[back], count, form, generator, block)
    noise = None if noise is None else noise.part(order)
    out = np.zeros(count)
    for first in range(share[0] * batch, count, share[1] * batch):
        part = slice(first, min(first + batch, count))
        ids = torch.from_numpy(rows[numbers[part]])
        out[part] = losses(ids, None if noise is None else noise.part(part)).double().cpu().numpy()
    return out


def summary(
    losses: NDArray[np.float64], rows: ShardRows, form: str, codec: TextCodec | None = None
) -> HeldOutLoss:
    """Mean, interval, perplexity, and nats per character where a tokenizer is given."""
    n, value = len(losses), float(losses.mean())
    interval = bootstrap(mean(losses), seed=derive_seed(0, "bootstrap")) or Interval(value, n=n)
    per_character = None
    if codec is not None and rows.response is None:
        numbers = np.linspace(0, len(rows) - 1, n).round().astype(np.int64)
        characters = sum(len(codec.decode(row)) for row in rows[numbers])
        per_character = value * n * rows.length / characters
    return HeldOutLoss(form, n, interval, interval.exp(), per_character)


# ------------------------------------------------------------------------------------------- data

END_OF_TEXT = "<|endoftext|>"

Say = Callable[[str], None]


def prepare(
    spec: DataSpec, directory: Path, *, root: Path = Path(), say: Say = lambda _: None
) -> Shards:
    """The shards of a spec in `directory`: those that are there, or new ones.

    A spec without sources takes whatever corpus was prepared there, if its length fits.
    """
    if not spec.sources:
        return _fitting(Shards(directory), spec)
    with disk(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        if not (directory / MANIFEST).is_file():
            clear(directory)
            _make(spec, directory, root, say)
    return _fitting(_same(Shards(directory), spec), spec)


def _same(shards: Shards, spec: DataSpec) -> Shards:
    was, now = shards.manifest["spec"], spec.model_dump(mode="json")
    if was != now:
        keys = [key for key in {**was, **now} if was.get(key) != now.get(key)]
        raise UserError(
            "The shards were made from another corpus or with other settings.",
            where=shards.directory,
            got="; ".join(f"{key}: {was.get(key)!r} there, {now.get(key)!r} now" for key in keys),
            fix="choose another directory for the shards, or delete this one",
        )
    return shards


def _fitting(shards: Shards, spec: DataSpec) -> Shards:
    if spec.length != shards.length:
        raise UserError(
            "The model's length goes beyond the shards' rows."
            if spec.length > shards.length
            else "The model's length is not that of the shards' rows.",
            where=f"data.length, {shards.directory}",
            got=spec.length,
            expected=shards.length,
            fix=f"set data.length to {shards.length}, or prepare the corpus again",
        )
    return shards


def _make(spec: DataSpec, directory: Path, root: Path, say: Say) -> None:
    began = time.monotonic()
    for source in spec.sources:
        check_source(source, root)
    codec = _tokenizer(spec, directory, root, say)
    end = end_of_text(codec, spec.tokenizer)
    writers = {
        split: ShardWriter(directory, split, spec.length, codec.vocab_size) for split in SPLITS
    }
    sources = []
    for number, source in enumerate(spec.sources):
        census = Census()
        say(f"tokenising {source.name}")
        _tokenise(spec, source, number, codec, end, root, census, writers)
        sources.append(_source_entry(source, root, census))
    for writer in writers.values():
        writer.close()
    if not sum(entry["documents"] for entry in sources):
        raise UserError(
            "The corpus is empty.",
            where=", ".join(source.path or str(source.dataset) for source in spec.sources),
            expected="at least one document",
        )
    for split, writer in writers.items():
        if not writer.rows:
            raise UserError(
                f"The corpus has no row of {spec.length} tokens for the split {split!r}.",
                where="data",
                got=f"{sum(e['documents'] for e in sources)} documents, "
                f"{sum(e['held_out'] for e in sources)} of them held out",
                expected="longer or more documents, a smaller data.length, or another held_out",
            )
    entries = {
        split: {
            "rows": writer.rows,
            "tokens": writer.rows * spec.length,
            "dtype": writer.dtype.name,
            "shards": writer.files,
            **({} if spec.response is None else {"response": spec.response}),
        }
        for split, writer in writers.items()
    }
    _filter(spec, directory, entries, codec.vocab_size)
    write_manifest(
        directory,
        {
            "strop": __version__,
            "spec": spec.model_dump(mode="json"),
            "length": spec.length,
            "split_rule": spec.held_out.model_dump(mode="json", exclude_none=True),
            "tokenizer": {
                "kind": spec.tokenizer,
                "sha256": sha256_of(directory / TOKENIZER),
                "vocabulary": codec.vocab_size,
                "end_of_text": end,
            },
            "sources": sources,
            **entries,
            "seconds": round(time.monotonic() - began, 1),
        },
    )


def _training(spec: DataSpec, source: SourceSpec, root: Path) -> Iterator[str]:
    """The cleaned training documents of a source."""
    clean = CLEANERS[spec.clean]
    for held, text in read_source(source, spec.held_out, root):
        if not held:
            yield clean(text)


def _tokenizer(spec: DataSpec, directory: Path, root: Path, say: Say) -> TextCodec:
    if spec.tokenizer == "bpe":
        say(f"training a tokenizer of {spec.bpe_size:,} tokens on the training documents")
        content = _train_bpe(spec, root)
    elif spec.tokenizer == "gpt2":
        content = TextCodec.gpt2().to_json()
    else:
        content = TextCodec.from_directory(root / Path(spec.tokenizer).expanduser()).to_json()
    write(directory / TOKENIZER, content.encode())
    return TextCodec.from_directory(directory)


def _train_bpe(spec: DataSpec, root: Path) -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=spec.bpe_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (
        text
        for source in spec.sources
        for document in _training(spec, source, root)
        for text in [document] * source.repeat
    )
    tokenizer.train_from_iterator(texts, trainer)
    size = tokenizer.get_vocab_size()
    if size < spec.bpe_size:
        raise UserError(
            "The training documents are too few for a tokenizer of that size.",
            where="data.bpe_size",
            got=f"{size} tokens found",
            expected=f"{spec.bpe_size}",
            fix=f"set data.bpe_size to {size} or less, or give more text",
        )
    return tokenizer.to_str(pretty=True)


def end_of_text(codec: TextCodec, name: str) -> int:
    """The id of the end-of-text token; a tokenizer without one cannot join documents."""
    ids = codec.encode(END_OF_TEXT)
    if len(ids) != 1:
        raise UserError(
            f"The tokenizer has no token {END_OF_TEXT}.",
            where=f"data.tokenizer: {name}",
            got=f"{len(ids)} tokens for it",
            fix="add it to the tokenizer, or train one with tokenizer: bpe",
        )
    return ids[0]


def _tokenise(
    spec: DataSpec,
    source: SourceSpec,
    number: int,
    codec: TextCodec,
    end: int,
    root: Path,
    census: Census,
    writers: dict[str, ShardWriter],
) -> None:
    """Route the documents of a source to their split's writer, in groups as they come."""
    clean = CLEANERS[spec.clean]
    held: list[str] = []

    def training() -> Iterator[str]:
        for is_held, text in read_source(source, spec.held_out, root, census):
            if is_held:
                held.append(clean(text))
            else:
                yield clean(text)

    # Held-out documents are few: they wait until the training ones are through.
    for split, documents in (("train", training()), ("held_out", held)):
        if spec.response is not None:
            for rows, prompts in make_pairs(documents, codec, end, spec.length, spec.response):
                writers[split].add(rows, number, prompts)
            continue
        for rows in make_rows(documents, spec.rows, codec, end, spec.length):
            writers[split].add(rows, number)


def _source_entry(source: SourceSpec, root: Path, census: Census) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": source.name,
        "licence": source.licence,
        "documents": census.documents,
        "held_out": census.held_out,
        "skipped": census.skipped,
        "characters": census.characters,
        "documents_sha256": census.sha256,
        "repeat": source.repeat,
    }
    if source.path is not None:
        file = root / Path(source.path).expanduser()
        entry["path"] = source.path
        if file.is_file():
            entry["sha256"] = sha256_of(file)
    else:
        entry |= {"dataset": source.dataset, "revision": source.revision, "split": source.split}
    return entry


def _filter(
    spec: DataSpec, directory: Path, entries: dict[str, dict[str, Any]], vocabulary: int
) -> None:
    """Write which rows count: the simplest share, sources upweighted. Fitted to training rows."""
    repeats = np.array([source.repeat for source in spec.sources])
    if spec.keep == 1 and (repeats == 1).all():
        return
    keeps_all = np.array([source.name in spec.keep_all_of for source in spec.sources])
    rows = {split: ShardRows(directory, entries[split], split, spec.length) for split in SPLITS}
    surprise = _unigram(rows["train"], vocabulary)
    train = _scores(rows["train"], surprise)
    limit = float(np.quantile(train, spec.keep))
    for split in SPLITS:
        scores = train if split == "train" else _scores(rows[split], surprise)
        source = rows[split].source
        kept_rows = np.flatnonzero((scores <= limit) | keeps_all[source])
        if split == "train":
            kept_rows = np.repeat(kept_rows, repeats[source[kept_rows]])
        if not len(kept_rows):
            raise UserError(
                f"The filter leaves no row of the split {split!r}.",
                where="data.keep",
                got=spec.keep,
            )
        write_index(directory / f"{split}-rows.npy", kept_rows)
        entries[split] |= {"rows_that_count": len(kept_rows), "filter_limit": limit}


def _unigram(rows: ShardRows, vocabulary: int) -> NDArray[np.float32]:
    """-log frequency of every token in all training rows."""
    counts = np.zeros(vocabulary)
    for block in rows.blocks():
        counts += np.bincount(block.ravel(), minlength=vocabulary)
    return -np.log((counts + 0.5) / (counts + 0.5).sum()).astype(np.float32)


def _scores(rows: ShardRows, surprise: NDArray[np.float32]) -> NDArray[np.float32]:
    """Mean unigram surprise of every row: low is simple."""
    parts = [surprise[block].mean(1) for block in rows.blocks(4096)]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)
