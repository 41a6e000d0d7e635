"""Texts are read from anywhere, and what is wrong with an input is said in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pools import jsonl, texts

from strop.errors import UserError
from strop.groupeval.inputs import fitted, read_inputs
from strop.groupeval.plan import Source
from strop.groupeval.profile import Profile
from strop.pool import Output
from strop.spec import CellSpec, CheckpointSpec, GeneratorSpec, SamplerSpec
from strop.store import Run


def rows(n: int) -> list[Any]:
    return [{"text": text, "other": 1} for text in texts(n)]


def test_every_kind_of_input_gives_the_same_texts(tmp_path: Path) -> None:
    jsonl(tmp_path / "a.jsonl", rows(12))
    pq.write_table(pa.table({"text": list(texts(12))}), tmp_path / "b.parquet")
    folder = tmp_path / "c"
    folder.mkdir()
    for i, text in enumerate(texts(12)):
        (folder / f"{i}.txt").write_text(text)
    found = read_inputs([str(tmp_path / name) for name in ("a.jsonl", "b.parquet", "c")])
    assert [one.name for one in found] == ["a", "b", "c"]
    assert {one.texts for one in found} == {texts(12)}


ROWS = [{"prompt": f"p {i // 2}", "response": f'{i}, "so"\nit\u2028goes\r\n é'} for i in range(6)]


def test_another_field_from_jsonl_csv_and_parquet(tmp_path: Path) -> None:
    """As pandas writes them: an index column, quoted fields with line breaks, large strings."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS)
    jsonl(tmp_path / "a.jsonl", ROWS)
    frame.to_csv(tmp_path / "b.csv")
    frame.set_index("prompt", append=True).to_parquet(tmp_path / "c.parquet")
    frame.astype({"prompt": "category"}).to_parquet(tmp_path / "d.parquet")
    paths = [str(tmp_path / name) for name in ("a.jsonl", "b.csv", "c.parquet", "d.parquet")]
    found = read_inputs(paths, field="response")
    assert {one.texts for one in found} == {tuple(row["response"] for row in ROWS)}
    assert {one.prompts for one in found} == {tuple(row["prompt"] for row in ROWS)}
    renamed = read_inputs(paths[:2], field="prompt", prompt_field="response")
    assert {one.texts for one in renamed} == {tuple(row["prompt"] for row in ROWS)}
    for path in paths:
        with pytest.raises(UserError, match=r"no (field|column) 'text'") as caught:
            read_inputs([path])
        assert caught.value.fix == "`field=response`"


def test_a_csv_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for content, told in (
        ("text,n\nx,1\ny\n", "other columns than the header"),
        ('text\n"x\n', "cannot be read"),
        ("text\n", "holds no texts"),
        ("", "holds no texts"),
    ):
        path.write_text(content)
        with pytest.raises(UserError, match=told):
            read_inputs([str(path)])
    long = "x" * 200_000
    path.write_text(f'\ufefftext\n{long}\n""\n')
    assert read_inputs([str(path)])[0].texts == (long, "")


def test_what_does_not_divide_is_used_as_far_as_it_goes() -> None:
    profile = Profile.load("webtext-v1")
    sources = [Source(name, texts(500), None, name) for name in "ab"]
    used, told = fitted(sources, profile)
    assert [one.texts for one in used] == [texts(496)] * 2
    assert told == [
        f"{name}: 496 of 500 outputs are used, in groups of 8; the last 4 are left out"
        for name in "ab"
    ]
    # 500 and 503 are both 496; 504 is not.
    assert fitted([sources[0], Source("c", texts(503), None, "c")], profile)[0][1].texts == texts(
        496
    )
    with pytest.raises(UserError, match="different numbers"):
        fitted([sources[0], Source("c", texts(504), None, "c")], profile)
    with pytest.raises(UserError, match="5 outputs are fewer than one group") as caught:
        fitted([Source("few", texts(5), None, "few")], profile)
    assert "3 more (n = 8)" in str(caught.value.fix)


def test_empty_texts_and_odd_characters_are_kept(tmp_path: Path) -> None:
    odd = ["", " ", "\x00", "a\u2028b\r\nc", "\U0001f600", "é"]
    path = jsonl(tmp_path / "a.jsonl", [{"text": text} for text in odd])
    assert read_inputs([str(path)])[0].texts == tuple(odd)


def test_the_first_of_each_and_names(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", rows(12))
    (found,) = read_inputs([f"mine={path}"], first=8)
    assert (found.name, len(found.texts)) == ("mine", 8)
    with pytest.raises(UserError, match="fewer than 13"):
        read_inputs([str(path)], first=13)
    with pytest.raises(UserError, match="the same name"):
        read_inputs([str(path), str(path)])


def spec(steps: int, temperature: float) -> CellSpec:
    checkpoint = CheckpointSpec(family="mdlm", sha256="0" * 64, shape={})
    sampler = SamplerSpec(steps=steps, temperature=temperature)
    generator = GeneratorSpec(checkpoint=checkpoint, sampler=sampler, length=2)
    return CellSpec(generator=generator, seed=0)


def made_run(path: Path, cells: list[CellSpec], text: str | None = "a text") -> Path:
    run = Run.prepare(path, {"n": 8}, cells)
    for cell in run.cells():
        with cell.writing():
            cell.add(
                Output(i, np.zeros(2, int), 1, 0.1, 0, np.zeros(2, int), text and f"{text} {i}")
                for i in range(8)
            )
            cell.merge()
    return path


def test_every_cell_of_a_run_is_a_generator(tmp_path: Path) -> None:
    run = made_run(tmp_path / "owt", [spec(16, 1.0), spec(16, 0.9), spec(64, 0.9)])
    found = read_inputs([str(run)])
    assert [one.name for one in found] == [
        "owt steps=16 temperature=1.0",
        "owt steps=16 temperature=0.9",
        "owt steps=64 temperature=0.9",
    ]
    assert found[0].texts == tuple(f"a text {i}" for i in range(8))
    assert fitted(found, Profile.load("webtext-v1")) == (found, [])


def test_a_run_without_texts_or_outputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="token ids without texts"):
        read_inputs([str(made_run(tmp_path / "bare", [spec(16, 1.0)], text=None))])
    Run.prepare(tmp_path / "begun", {"n": 8}, [spec(16, 1.0)])
    with pytest.raises(UserError, match="does not hold all of its outputs"):
        read_inputs([str(tmp_path / "begun")])


BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "holds no texts"),
    "blank": (b"\n \n", "holds no texts"),
    "no field": (b'{"body": "x"}\n', "no field 'text'"),
    "a list": (b'["x"]\n', "not a JSON object"),
    "not JSON": (b'{"text": "x"}\n{"text": \n', "not JSON"),
    "not UTF-8": (b'{"text": "caf\xe9"}\n', "not UTF-8"),
    "a number": (b'{"text": 3}\n', "not a text"),
    "null": (b'{"text": null}\n', "not a text"),
    "half a pair": (b'{"text": "\\ud83d"}\n', "surrogate"),
    "prompts here and there": (
        b'{"text": "x", "prompt": "p"}\n{"text": "y"}\n',
        "Some rows have a 'prompt'",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_lines_are_told_with_their_place(tmp_path: Path, kind: str) -> None:
    content, told = BAD[kind]
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=told) as caught:
        read_inputs([str(path)])
    assert str(path) in str(caught.value.where)


def test_other_bad_inputs_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such input"):
        read_inputs([str(tmp_path / "nowhere")])
    with pytest.raises(UserError, match="neither a run nor text files"):
        read_inputs([str(tmp_path)])
    (tmp_path / "a.tsv").write_text("text\nx\n")
    with pytest.raises(UserError, match="cannot be told from the name"):
        read_inputs([str(tmp_path / "a.tsv")])
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UserError, match="Parquet file cannot be read"):
        read_inputs([str(tmp_path / "a.parquet")])
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(UserError, match="no column 'text'"):
        read_inputs([str(tmp_path / "b.parquet")])
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(UserError, match="not UTF-8"):
        read_inputs([str(tmp_path)])


@pytest.mark.parametrize(
    ("name", "content", "words", "told"),
    [
        ("a.csv", b"text,text\n1,2\n", {}, "same name"),
        ("a.jsonl", b'{"text": "1", "text": "2"}\n', {}, "not JSON"),
        ("a.csv", b"text,prompt\n1,2\n", {"prompt_field": "question"}, "No row has a field"),
        (
            "a.csv",
            b"text,prompt\n1,2\n",
            {"field": "x", "prompt_field": "x"},
            "cannot be the same field",
        ),
        ("a.csv", b"text,prompt\n1,2\n", {"where": [{"steps": 4}]}, "No input is a run"),
    ],
)
def test_what_a_file_does_not_have_or_has_twice_is_told(
    tmp_path: Path, name: str, content: bytes, words: dict[str, Any], told: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=told):
        read_inputs([str(tmp_path / name)], **words)


def test_pairs_need_two_generators_and_the_same_prompts() -> None:
    profile = Profile.load("task-v1")
    left = Source("left", ("1", "2"), ("a", "b"), "left")
    for others, told in {
        (): "compares the responses of 2",
        (Source("right", ("1", "2"), None, "right"),): "without their prompts",
        (Source("right", ("1", "2"), ("b", "a"), "right"),): "same prompts in the same order",
        (Source("right", ("1",), ("a",), "right"),): "same prompts in the same order",
    }.items():
        with pytest.raises(UserError, match=told):
            fitted([left, *others], profile)
    both = [left, Source("right", ("3", "4"), ("a", "b"), "right")]
    assert fitted(both, profile) == (both, [])
