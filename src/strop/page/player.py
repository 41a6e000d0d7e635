"""How outputs came about, token by token: what the page's player plays, from what a run keeps.

Of every token a run keeps the round after which it last changed, and how likely it was then; of
the first outputs also what stood there before. What is not kept is not invented here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.assets import EMBEDDED, embedded_path
from strop.records.record import FAMILIES
from strop.store import Cell, Run
from strop.store.tables import BEFORE, CHANCE, CHANGED, KeptPrompts

if TYPE_CHECKING:
    from strop.language import Language

Tokens = Callable[[Sequence[int]], list[str]]
FILES = ("tokenizer.json", "vocab.json")
CLOSING = ".,;:!?"
GPT2 = (50257, 50258)
"""Vocabularies of GPT-2's tokenizer, without and with a mask."""
PLAYED = 8
"""Outputs of each generator whose rounds a page in one file holds."""
BLOCKS = ("block_length", "canvas_length", "block_size")
"""What samplers and checkpoints call the positions that are filled together."""


def player(cell: Cell, run: Run, index: int) -> dict[str, Any] | None:
    """One output; None where there is no such output, or nothing is known of its rounds."""
    return next(iter(players(cell, run, [index])), None)


def players(cell: Cell, run: Run, indices: Sequence[int]) -> list[dict[str, Any]]:
    """Those of some outputs whose rounds are known."""
    columns = [
        column for column in cell.columns() if column not in ("seconds", "nfe", "leftover_masks")
    ]
    if CHANGED not in columns or not indices:
        return []
    last, rows = max(indices), list[dict[str, Any]]()
    for table in cell.rows(columns, after=min(indices) - 1, rows=64):
        rows += [row for row in table.to_pylist() if row["index"] in indices]
        if table["index"][-1].as_py() >= last:
            break
    words, kept, language = tokens_of(cell, run), cell.prompts(), _language(cell, run)
    return [_player(row, cell, words, kept, language) for row in rows if any(row[CHANGED])]


def _player(
    row: dict[str, Any],
    cell: Cell,
    words: Tokens | None,
    kept: KeptPrompts | None,
    language: Language | None,
) -> dict[str, Any]:
    count = row.get("tokens", len(row["ids"]))
    ids, changed = row["ids"][:count], row[CHANGED][:count]
    generator = cell.spec.generator
    settings = {**generator.checkpoint.shape, **generator.sampler.settings}
    family = FAMILIES.get(generator.checkpoint.family)
    return {
        "index": row["index"],
        "tokens": [f" {token}" for token in ids] if words is None else words(ids),
        "changed": changed,
        "chance": row[CHANCE] and [_number(chance) for chance in row[CHANCE][:count]],
        "earlier": _earlier_tokens(row[BEFORE], ids, settings.get("mask_id"), words),
        "rounds": max(changed, default=0),
        "noise": "mask" if family is None else family.noise,
        "block": next((int(settings[name]) for name in BLOCKS if settings.get(name)), None),
        "given": _prompt_pieces(kept, row["index"]),
        "wrong": None if language is None else _mistakes(language, row["text"], len(ids)),
    }


def _number(chance: float) -> float | None:
    return None if math.isnan(chance) else float(f"{chance:.3g}")


def _earlier_tokens(
    changes: list[dict[str, Any]] | None, ids: list[int], mask: int | None, words: Tokens | None
) -> list[list[Any]] | None:
    """What stood before: round, place, text (None: masked again) and chance."""

    def text_of(token: int, position: int) -> str | None:
        if token == mask:
            return None
        if words is None:
            return f" {token}"
        return words([ids[0], token])[1] if position else words([token])[0]

    if changes is None:
        return None
    return [
        [
            change["round"],
            change["place"],
            text_of(change["token"], change["place"]),
            _number(change[CHANCE]),
        ]
        for change in changes
    ]


def _prompt_pieces(kept: KeptPrompts | None, index: int) -> list[list[Any]]:
    """What stood there from the start: before which token, and its text."""
    pieces = None if kept is None else kept.pieces_of(index)
    prompts: list[list[Any]] = []
    position = 0
    for piece in pieces or ():
        if isinstance(piece, int):
            position += piece
        else:
            prompts.append([position, piece])
    return prompts


def _mistakes(language: Language, text: str | None, count: int) -> dict[int, str] | None:
    """By place from 0, what must be wrong on a known language, and what asks for something else."""
    from strop.errors import UserError
    from strop.language import explain

    try:
        if text is None or len(language.encode(text)) != count:
            return None
        mistakes = explain(text, language=language).wrong
    except UserError:  # words that the language does not have
        return None
    return {mistake.position - 1: f"{mistake.should} ({mistake.because})" for mistake in mistakes}


def _language(cell: Cell, run: Run) -> Language | None:
    from strop.language.reading import known_language

    checkpoint = cell.spec.generator.checkpoint
    if checkpoint.family != "language":
        return None
    return known_language(checkpoint.sha256, run.grammar)


# ---------------------------------------------------------------------------- tokens as text


def tokens_of(cell: Cell, run: Run) -> Tokens | None:
    """Each token as its own text, by the vocabulary beside the checkpoint; None without one.

    Read as JSON: a page needs no tokenizer to run, and nothing is downloaded.
    """
    language = _language(cell, run)
    if language is not None:
        return _words([*language.vocabulary, "[MASK]"])
    source = str(run.asked.get("checkpoint") or "")
    checkpoint = embedded_path(source) if source.startswith(EMBEDDED) else Path(source)
    places = [checkpoint, checkpoint.parent] if source else []
    files = [folder / FILES[0] for folder in places if (folder / FILES[0]).is_file()]
    if not files and cell.spec.generator.checkpoint.shape.get("vocab_size") in GPT2:
        from importlib import resources

        files = [Path(str(resources.files("strop"))) / "assets" / "gpt2" / FILES[1]]
    return _of_file(files[0], files[0].stat().st_mtime_ns) if files else None


@lru_cache(maxsize=4)
def _of_file(file: Path, _: int) -> Tokens | None:
    """The tokens of a vocabulary; None where the file is of another kind."""
    try:
        document = json.loads(file.read_text("utf-8"))
        model = document.get("model", {"vocab": document})
        vocab = model["vocab"]
        if isinstance(vocab, list):  # Unigram: pieces with their scores
            vocab = {piece[0]: k for k, piece in enumerate(vocab)}
        names = {int(k): word for word, k in vocab.items()}
        names |= {
            int(token["id"]): token["content"] for token in document.get("added_tokens") or ()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    listed = [names.get(k, f"[UNK:{k}]") for k in range(max(names, default=-1) + 1)]
    if any(word.startswith("▁") for word in listed):
        return lambda ids: [_at(listed, k).replace("▁", " ") for k in ids]
    if model.get("type") == "WordLevel":
        return _words(listed)
    letters = _letters()

    def plain(word: str) -> str:
        if all(c in letters for c in word):
            return bytes(letters[c] for c in word).decode("utf-8", "replace")
        return word

    return lambda ids: [plain(_at(listed, k)) for k in ids]


def _words(vocabulary: Sequence[str]) -> Tokens:
    """Whole words: a space before each but the first, and none before what closes."""

    def spelled(ids: Sequence[int]) -> list[str]:
        words = [_at(vocabulary, k) for k in ids]
        return [w if i == 0 or w in CLOSING else f" {w}" for i, w in enumerate(words)]

    return spelled


def _at(vocabulary: Sequence[str], k: int) -> str:
    return vocabulary[k] if 0 <= k < len(vocabulary) else "[MASK]"


@lru_cache(maxsize=1)
def _letters() -> dict[str, int]:
    """GPT-2's way to write any byte as a letter: those that print as themselves, others behind."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): b for i, b in enumerate(rest)}
