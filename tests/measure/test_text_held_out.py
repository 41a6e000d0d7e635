"""Held-out text from a .txt file: its documents, cut into rows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from strop.errors import UserError
from strop.measure.guard import plain_texts, read_rows

LETTERS = SimpleNamespace(
    vocab_size=128,
    mask_id=None,
    codec=SimpleNamespace(encode=lambda text: [ord(one) for one in text]),
)


def rows_of(path: Path, **more: int) -> list[str]:
    found = read_rows(path, LETTERS, **{"length": 3, "most": 99, **more})  # type: ignore[arg-type]
    return ["".join(map(chr, row)) for row in found.ids]


def test_documents_are_cut_into_rows(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("abcdefgh\n<|endoftext|>\nij\n<|endoftext|>\n\n<|endoftext|>\nklm\nnop\n")
    assert plain_texts(path) == ["abcdefgh", "ij", "klm\nnop"]
    assert rows_of(path) == ["abc", "def", "klm", "\nno"]
    assert rows_of(path, most=3) == ["abc", "def", "klm"]
    assert read_rows(path, LETTERS, length=3, most=99).short == 1  # type: ignore[arg-type]


def test_json_lines_give_one_row_each(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "abcdefgh"}\n{"text": "ijk"}\n')
    assert rows_of(path) == ["abc", "ijk"]


def test_text_of_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_bytes(b"abc\n<|endoftext|>\n\xff\xfe")
    with pytest.raises(UserError, match="not UTF-8") as caught:
        plain_texts(path)
    assert str(caught.value.where).endswith("line 3")
