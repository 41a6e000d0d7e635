"""A corpus made ready: split, cleaned, tokenised once, filtered, written as shards.

The order is the point. `documents.read_source` decides what is held out; the tokenizer is trained
on, and the filter fitted to, what it marks as training; held-out documents only ever pass through.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.checkpoints.files import sha256_of
from strop.denoisers.tokenizer import TextCodec
from strop.disk import disk, locked, write
from strop.errors import UserError
from strop.training.batches import make_pairs, make_rows
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
    write_index,
    write_manifest,
)
from strop.training.spec import DataSpec, SourceSpec
from strop.version import __version__

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
            "The shards were made for another corpus or in another way.",
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
        sources.append(_told(source, root, census))
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
    """Its id; a tokenizer without one cannot join documents."""
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


def _told(source: SourceSpec, root: Path, census: Census) -> dict[str, Any]:
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
    whole = np.array([source.name in spec.keep_all_of for source in spec.sources])
    rows = {split: ShardRows(directory, entries[split], split, spec.length) for split in SPLITS}
    surprise = _unigram(rows["train"], vocabulary)
    train = _scores(rows["train"], surprise)
    limit = float(np.quantile(train, spec.keep))
    for split in SPLITS:
        scores = train if split == "train" else _scores(rows[split], surprise)
        source = rows[split].source
        kept = np.flatnonzero((scores <= limit) | whole[source])
        if split == "train":
            kept = np.repeat(kept, repeats[source[kept]])
        if not len(kept):
            raise UserError(
                f"The filter leaves no row of the split {split!r}.",
                where="data.keep",
                got=spec.keep,
            )
        write_index(directory / f"{split}-rows.npy", kept)
        entries[split] |= {"rows_that_count": len(kept), "filter_limit": limit}


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
