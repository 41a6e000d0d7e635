"""Text to token ids and back, without loss; and the tokens that end a text or a turn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.checkpoints.files import has_tokenizer, opening, read_json_object, sha256_of_all
from strop.errors import UserError
from strop.prompts.chat import special_tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from strop.checkpoints.checkpoint import Checkpoint
    from strop.denoisers.base import Model


_END_OF_TEXT = "<|endoftext|>"
_PUBLIC_VOCABULARY = 50258  # GPT-2's 50,257 tokens and one mask


class TextCodec:
    """A tokenizer that shows what is there.

    Decoding never cleans up spaces, keeps special tokens, prints a leftover mask as `[MASK]` and
    an id that the tokenizer does not know as `[UNK:id]`. Only bytes that are not UTF-8, which a
    model may well produce, become U+FFFD.
    """

    def __init__(self, tokenizer: Tokenizer, fingerprint: str, source: Path | None = None) -> None:
        """Wrap a tokenizer whose files hash to `fingerprint`; `source` is one of them."""
        self._tokenizer, self._source = tokenizer, source
        self._known = frozenset(tokenizer.get_vocab(with_added_tokens=True).values())
        self.fingerprint = fingerprint
        """SHA-256 of the tokenizer's files: of one file its own, of two that of their listing."""

    @classmethod
    def from_directory(cls, path: str | Path) -> TextCodec:
        """Read `tokenizer.json`, or `vocab.json` with `merges.txt` as GPT-2's byte-level pairs."""
        directory = Path(path)
        single_file = directory / "tokenizer.json"
        gpt2_files = [directory / "vocab.json", directory / "merges.txt"]
        if single_file.is_file():
            files = [single_file]
        elif all(p.is_file() for p in gpt2_files):
            files = gpt2_files
        else:
            raise UserError(
                "The directory holds no tokenizer.",
                where=directory,
                expected="tokenizer.json, or vocab.json with merges.txt",
            )
        fingerprint = sha256_of_all(files)  # also finds unreadable files, with a message
        try:
            tokenizer = (
                _load_whole(single_file) if files == [single_file] else _load_pair(*gpt2_files)
            )
        except Exception as error:  # the library raises bare exceptions for damaged files
            raise UserError(
                "The tokenizer cannot be read.",
                where=files[0],
                got=str(error)[:200],
                fix="download the tokenizer's files again",
            ) from error
        return cls(tokenizer, fingerprint, files[0])

    @classmethod
    def gpt2(cls) -> TextCodec:
        """The GPT-2 tokenizer that ships with the package."""
        return cls.from_directory(Path(str(resources.files("strop"))) / "assets" / "gpt2")

    @classmethod
    def for_checkpoint(cls, checkpoint: Checkpoint, vocab_size: int) -> TextCodec | None:
        """The tokenizer beside the weights, else GPT-2's for the public vocabulary, else None."""
        return cls.beside(checkpoint.tokenizer_dir, vocab_size, _PUBLIC_VOCABULARY)

    @classmethod
    def beside(cls, directory: Path | None, vocab_size: int, gpt2: int) -> TextCodec | None:
        """The tokenizer in `directory`, else GPT-2's for a vocabulary of size `gpt2`, else None."""
        if directory is None or not has_tokenizer(directory):
            return cls.gpt2() if vocab_size == gpt2 else None
        return cls.from_directory(directory).fitting(vocab_size, directory)

    def fitting(self, vocab_size: int, directory: Path) -> TextCodec:
        """This codec, if a model of `vocab_size` classes can have tokens of all its ids."""
        if self.vocab_size > vocab_size:
            raise UserError(
                "The tokenizer beside the weights is larger than the model's vocabulary.",
                where=directory,
                got=f"a tokenizer of {self.vocab_size} tokens",
                expected=f"at most {vocab_size}, the model's vocabulary",
                fix="put the tokenizer that the model was trained with beside the weights, "
                "or remove it to sample ids without text",
            )
        return self

    @property
    def vocab_size(self) -> int:
        """One more than the largest id: what a model's vocabulary must cover."""
        return max(self._known, default=-1) + 1

    @property
    def directory(self) -> Path | None:
        """Where the tokenizer's files lie."""
        return None if self._source is None else self._source.parent

    @property
    def opening(self) -> tuple[int, ...]:
        """What the tokenizer's own post-processor puts before a text (GPT-2: nothing)."""
        plain = self.encode("a")
        with _explaining_panics(self._source):
            called = self._tokenizer.encode("a", add_special_tokens=True).ids
        for start in range(len(called) - len(plain) + 1):
            if called[start : start + len(plain)] == plain:
                return tuple(called[:start])
        return ()

    @property
    def bos_id(self) -> int | None:
        """The beginning-of-text token that its configuration names, if it does."""
        named = None if self.directory is None else special_tokens(self.directory).get("bos_token")
        return None if named is None else self._tokenizer.token_to_id(named)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without any token that is not in it."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UserError(
                "The text is not valid Unicode.",
                got=f"a lone surrogate at character {error.start}",
                fix="decode the file with the right encoding",
            ) from error
        with _explaining_panics(self._source):
            return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, on all cores."""
        with _explaining_panics(self._source):
            encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def id_of(self, token: str) -> int | None:
        """The id of one token by its name, such as a special token's; None if there is none."""
        return self._tokenizer.token_to_id(token)

    def to_json(self) -> str:
        """The whole tokenizer as the content of a `tokenizer.json`."""
        return self._tokenizer.to_str(pretty=True)

    def decode(self, ids: Iterable[int], mask_id: int | None = None) -> str:
        """The text of `ids`, special tokens included, spaces as they are."""

        def plain(token: int) -> bool:
            return token != mask_id and token in self._known

        pieces = []
        # Whole runs are decoded at once: one character's bytes may span several tokens.
        for is_known, run in groupby((int(i) for i in ids), key=plain):
            if is_known:
                with _explaining_panics(self._source):
                    pieces.append(self._tokenizer.decode(list(run), skip_special_tokens=False))
            else:
                pieces += ["[MASK]" if i == mask_id else f"[UNK:{i}]" for i in run]
        return "".join(pieces)


@contextmanager
def _explaining_panics(source: Path | None) -> Iterator[None]:
    """Tell that a tokenizer's regular expression has exploded.

    The library stops a search after ten million steps, by a panic; below that it is only slow.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # a class without a home, and no Exception
            raise
        raise UserError(
            "The tokenizer cannot read this text: its library has given up.",
            where=source,
            got=str(error).splitlines()[0][:200],
            expected="regular expressions that finish on any text",
            fix="use the tokenizer that the model was trained with",
        ) from None


def _load_whole(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer, decoders

    with opening(path):
        tokenizer = Tokenizer.from_file(str(path))
    # A file may ask for cut or padded texts and for tidied spaces: none of it is the text.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    decoder: Any = tokenizer.decoder
    if isinstance(decoder, decoders.WordPiece):
        decoder.cleanup = False
    return tokenizer


def _load_pair(vocab: Path, merges: Path) -> Tokenizer:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    # Adding a token that the vocabulary has keeps its id; one that it lacks would extend it.
    if tokenizer.token_to_id(_END_OF_TEXT) is not None:
        tokenizer.add_special_tokens([AddedToken(_END_OF_TEXT, special=True, normalized=False)])
    return tokenizer


ENDS_OF_TURN = ("<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<turn|>")
"""What chat templates close a turn with: LLaDA's and Llama's, Dream's and Qwen's, Gemma's."""
ENDS = ("<|endoftext|>", *ENDS_OF_TURN, "<|end_of_text|>", "<eos>", "</s>")
"""Tokens that end a text or a turn wherever a vocabulary has them."""
CONFIGS = ("config.json", "generation_config.json")
SPECIAL = re.compile(r"<.+>|\[.+\]")


def stop_ids(ends: Iterable[int | None], codec: TextCodec | None) -> tuple[int, ...]:
    """The ends of a text that a configuration names, then those of a turn, each once."""
    turn_ends = [] if codec is None else [codec.id_of(token) for token in ENDS_OF_TURN]
    return tuple(dict.fromkeys(end for end in (*ends, *turn_ends) if end is not None))


def end_ids(model: Model) -> tuple[int, ...]:
    """The tokens after which nothing belongs to a response, as files and vocabulary tell them."""
    codec = model.codec
    if codec is None:
        return ()
    candidates: list[Any] = [*getattr(model, "stop_ids", ())]
    names = ENDS
    if (directory := codec.directory) is not None:
        names = (*(v for k, v in special_tokens(directory).items() if k == "eos_token"), *ENDS)
        for path in (directory / name for name in CONFIGS):
            listed = read_json_object(path).get("eos_token_id") if path.is_file() else None
            candidates += listed if isinstance(listed, list) else [listed]
    candidates += [codec.id_of(name) for name in names]
    valid_ids = [
        token_id
        for token_id in candidates
        if type(token_id) is int and 0 <= token_id < model.vocab_size
    ]
    # A response may be cut where the token's text stands, so a word of the language will not do.
    return tuple(
        token_id
        for token_id in dict.fromkeys(valid_ids)
        if SPECIAL.fullmatch(codec.decode([token_id]))
    )


def up_to_end(ids: Sequence[int], ends: Iterable[int]) -> list[int]:
    """A response before the first token that ends it; models here write on after it."""
    stops = frozenset(ends)
    end = next((position for position, token in enumerate(ids) if token in stops), len(ids))
    return [int(token) for token in ids[:end]]
