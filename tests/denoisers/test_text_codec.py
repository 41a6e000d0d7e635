"""Text to ids and back."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_checkpoints import made
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError

CODEC = TextCodec.gpt2()
ASSETS = Path(__file__).parents[2] / "src" / "strop" / "assets" / "gpt2"


@given(st.text(max_size=80))
def test_any_text_comes_back(text: str) -> None:
    assert CODEC.decode(CODEC.encode(text)) == text


@given(st.lists(st.integers(-2, 50300), max_size=20))
def test_any_ids_decode_and_none_is_dropped(ids: list[int]) -> None:
    text = CODEC.decode(ids, mask_id=50257)
    assert text.count("[MASK]") >= ids.count(50257)
    for i in ids:
        if i < 0 or i > 50257:
            assert f"[UNK:{i}]" in text


def test_known_ids() -> None:
    assert CODEC.vocab_size == 50257
    assert CODEC.encode("Hello world") == [15496, 995]
    assert CODEC.encode("a<|endoftext|>b") == [64, 50256, 65]
    assert CODEC.encode("") == []


def test_decoding_shows_what_is_there() -> None:
    assert CODEC.decode([50256, 15496, 50257, 995], mask_id=50257) == (
        "<|endoftext|>Hello[MASK] world"
    )
    assert CODEC.decode([15496, 50257]) == "Hello[UNK:50257]"
    assert CODEC.decode([15496], mask_id=15496) == "[MASK]"
    assert CODEC.decode([]) == ""


@pytest.mark.parametrize("text", ["do n't .", "Hello , world !", " a  b ", "\n\n\t x", "é 字 🙂"])
def test_spaces_stay(text: str) -> None:
    assert CODEC.decode(CODEC.encode(text)) == text


def test_half_a_character_is_shown() -> None:
    ids = CODEC.encode("🙂")
    assert len(ids) > 1
    assert "\ufffd" in CODEC.decode(ids[:1])


def test_a_lone_surrogate_is_explained() -> None:
    with pytest.raises(UserError, match="Unicode"):
        CODEC.encode("a\ud800")


def test_loading_is_quick() -> None:
    start = time.perf_counter()
    TextCodec.gpt2()
    assert time.perf_counter() - start < 2  # about 0.1 s; the bound leaves room for a busy machine


def test_fingerprint() -> None:
    lines = [
        f"{hashlib.sha256((ASSETS / n).read_bytes()).hexdigest()}  {n}\n"
        for n in ("merges.txt", "vocab.json")
    ]
    assert CODEC.fingerprint == hashlib.sha256("".join(lines).encode()).hexdigest()


def write_word_piece(directory: Path) -> Path:
    vocab = {"[UNK]": 0, "[CLS]": 1, "do": 2, "n": 3, "'": 4, "t": 5, ".": 6, "##x": 7}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))  # type: ignore[call-arg]
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    tokenizer.decoder = decoders.WordPiece(cleanup=True)  # type: ignore[assignment]
    tokenizer.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single="[CLS] $A", special_tokens=[("[CLS]", 1)]
    )
    tokenizer.add_special_tokens(["[CLS]"])
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9)
    directory.mkdir(exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def test_a_tokenizer_file_neither_cuts_nor_pads_nor_tidies(tmp_path: Path) -> None:
    codec = TextCodec.from_directory(write_word_piece(tmp_path))
    assert codec.encode("do n ' t .") == [2, 3, 4, 5, 6]
    assert codec.decode([1, 2, 3, 4, 5, 6]) == "[CLS] do n ' t ."
    assert codec.vocab_size == 8
    data = (tmp_path / "tokenizer.json").read_bytes()
    assert codec.fingerprint == hashlib.sha256(data).hexdigest()


def test_the_tokenizer_of_a_checkpoint(tmp_path: Path) -> None:
    beside = made()
    assert TextCodec.for_checkpoint(beside, 13) is None
    public = TextCodec.for_checkpoint(beside, 50258)
    assert public is not None
    assert public.vocab_size == 50257
    object.__setattr__(beside, "tokenizer_dir", write_word_piece(tmp_path))
    own = TextCodec.for_checkpoint(beside, 50258)
    assert own is not None
    assert own.vocab_size == 8
    with pytest.raises(UserError) as caught:
        TextCodec.for_checkpoint(beside, 7)
    assert "8 tokens" in str(caught.value)
    assert "at most 7" in str(caught.value)


def test_no_tokenizer_and_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no tokenizer"):
        TextCodec.from_directory(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        TextCodec.from_directory(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.json").write_text("[]")
    (tmp_path / "merges.txt").write_text("x")
    with pytest.raises(UserError, match="cannot be read"):
        TextCodec.from_directory(tmp_path)


def test_a_regular_expression_that_explodes_is_told(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "!": 1}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    codec = TextCodec.from_directory(tmp_path)
    assert codec.encode("aaa!") == [0, 0, 0, 1]
    for attempt in (codec.encode, lambda text: codec.encode_all([text, text])):
        began = time.monotonic()
        with pytest.raises(UserError, match="given up") as caught:
            attempt("a" * 60 + "!")
        assert time.monotonic() - began < 20
        assert caught.value.where == str(tmp_path / "tokenizer.json")
