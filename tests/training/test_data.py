"""Corpora: the split comes first, rows are cut as promised, manifests say what is there."""

import gzip
import hashlib
import json

import numpy as np
import pytest
import toy

from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.training.data import make_rows, prepare
from strop.training.documents import ShardWriter, paragraphs, prose, sentences, split
from strop.training.spec import DataSpec, HeldOut, SourceSpec


def spec(**changes):
    return DataSpec(**{**toy.config()["data"], **changes})


def source(**changes):
    return {"name": "toy", "path": "toy.txt", "licence": "none", **changes}


def everything(shards):
    """All files of the training split, and the tokenizer, as bytes."""
    files = [*shards.directory.glob("train-*"), shards.directory / "tokenizer.json"]
    return {file.name: file.read_bytes() for file in sorted(files)}


def test_held_out_documents_reach_neither_tokenizer_nor_filter(tmp_path):
    # The proof: with quite other held-out documents, every byte of the tokenizer, the training
    # rows and the filter's choice stays the same; the held-out rows do change.
    texts = toy.documents(50, seed=1)
    strange = toy.documents(50, seed=99)
    other = [
        strange[number] + "zyx " * 100 + "\n" if number % 5 == 0 else text
        for number, text in enumerate(texts)
    ]
    made = []
    for name, documents in (("one", texts), ("two", other)):
        toy.write_corpus(tmp_path / name / "toy.txt", documents)
        made.append(prepare(spec(keep=0.5), tmp_path / name / "shards", root=tmp_path / name))
    assert "train-rows.npy" in everything(made[0])
    assert everything(made[0]) == everything(made[1])
    limits = [shards.manifest["train"]["filter_limit"] for shards in made]
    assert limits[0] == limits[1]
    held = [(shards.directory / "held_out-00000.bin").read_bytes() for shards in made]
    assert held[0] != held[1]


def test_a_changed_training_document_is_noticed(tmp_path):
    # The control of the proof above: one training document more or less changes the tokenizer.
    texts = toy.documents(50, seed=1)
    changed = ["zyx " * 300 + "\n" if number == 1 else text for number, text in enumerate(texts)]
    made = []
    for name, documents in (("one", texts), ("two", changed)):
        toy.write_corpus(tmp_path / name / "toy.txt", documents)
        made.append(prepare(spec(), tmp_path / name / "shards", root=tmp_path / name))
    assert everything(made[0]).keys() == everything(made[1]).keys()
    assert everything(made[0])["tokenizer.json"] != everything(made[1])["tokenizer.json"]


@pytest.mark.parametrize(
    ("rule", "held"), [(HeldOut(every=3), [0, 3, 6]), (HeldOut(last=2), [6, 7])]
)
def test_split_goes_by_number(rule, held):
    texts = [f"document {i}" for i in range(8)]
    got = list(split(iter(texts), rule))
    assert sorted(text for _, text in got) == texts
    assert [text for is_held, text in got if is_held] == [texts[i] for i in held]


def test_manifest_says_what_is_there(corpus):
    shards = prepare(spec(), corpus / "shards", root=corpus)
    manifest = json.loads((corpus / "shards" / "manifest.json").read_text())
    (told,) = manifest["sources"]
    assert told["documents"] == 50
    assert told["held_out"] == 10
    assert told["sha256"] == hashlib.sha256((corpus / "toy.txt").read_bytes()).hexdigest()
    assert told["licence"] == "none, made up"
    assert manifest["split_rule"] == {"every": 5}
    fingerprint = TextCodec.from_directory(corpus / "shards").fingerprint
    assert manifest["tokenizer"]["sha256"] == fingerprint
    assert manifest["tokenizer"]["vocabulary"] == 300
    for split_name in ("train", "held_out"):
        for shard in manifest[split_name]["shards"]:
            content = (corpus / "shards" / shard["name"]).read_bytes()
            assert shard["sha256"] == hashlib.sha256(content).hexdigest()
            assert len(content) == shard["rows"] * 32 * 2  # uint16
    assert len(shards.train) == manifest["train"]["rows"]


def test_shards_are_made_once(corpus):
    before = prepare(spec(), corpus / "shards", root=corpus).manifest
    (corpus / "toy.txt").unlink()
    assert prepare(spec(), corpus / "shards", root=corpus).manifest == before


def test_unfinished_shards_are_made_anew(corpus):
    (corpus / "shards").mkdir()
    (corpus / "shards" / "train-00000.bin").write_bytes(b"half")
    (corpus / "shards" / ".tmp-left").write_bytes(b"over")
    assert len(prepare(spec(), corpus / "shards", root=corpus).train) > 10
    assert not (corpus / "shards" / ".tmp-left").exists()


def test_other_settings_for_existing_shards_are_refused(corpus):
    prepare(spec(), corpus / "shards", root=corpus)
    with pytest.raises(UserError, match="another corpus") as caught:
        prepare(spec(bpe_size=310), corpus / "shards", root=corpus)
    assert "bpe_size: 300 there, 310 now" in caught.value.got


def test_upweighting_and_the_simplest_share(tmp_path):
    toy.write_corpus(tmp_path / "a.txt", toy.documents(30, seed=1))
    toy.write_corpus(tmp_path / "b.txt", toy.documents(30, seed=2))
    both = [source(name="a", path="a.txt", repeat=3), source(name="b", path="b.txt")]
    shards = prepare(
        spec(sources=both, keep=0.25, keep_all_of=["a"]), tmp_path / "s", root=tmp_path
    )
    places = shards.train.places(np.arange(len(shards.train)))
    times = np.bincount(places, minlength=len(shards.train.source))
    assert set(times[shards.train.source == 0]) == {3}
    assert set(times[shards.train.source == 1]) == {0, 1}
    kept = times[shards.train.source == 1].mean()
    assert 0.1 < kept < 0.4  # a quarter over both sources together
    # Simple means low unigram surprise: every kept row of b is below every dropped one.
    ids = np.concatenate(list(shards.train.blocks()))
    counts = np.bincount(ids.ravel(), minlength=300) + 0.5
    score = -np.log(counts / counts.sum())[ids].mean(1)
    b = shards.train.source == 1
    assert score[b & (times > 0)].max() <= score[b & (times == 0)].min() + 1e-5


def test_wrapped_rows_are_the_public_ones():
    codec = TextCodec.gpt2()
    end = 50256
    texts = [f"Hello world number {i}. " * (1 + i % 3) for i in range(2300)]
    length = 16
    expected = []
    for first in range(0, len(texts), 1000):  # remainders are dropped per group
        stream = [i for text in texts[first : first + 1000] for i in [*codec.encode(text), end]]
        begins = range(0, len(stream) - (length - 2) + 1, length - 2)
        expected += [[end, *stream[begin : begin + length - 2], end] for begin in begins]
    got = np.concatenate(list(make_rows(texts, "wrapped", codec, end, length)))
    assert got.tolist() == expected


def test_packed_rows_lose_only_the_very_end():
    codec = TextCodec.gpt2()
    texts = [f"Hello world number {i}." for i in range(1500)]
    stream = [i for text in texts for i in [*codec.encode(text), 50256]]
    got = np.concatenate(list(make_rows(texts, "packed", codec, 50256, 16)))
    assert got.ravel().tolist() == stream[: len(stream) // 16 * 16]


def test_sentence_rows_begin_at_sentences_and_cover_the_text():
    codec = TextCodec.gpt2()
    text = toy.documents(1, seed=3)[0]
    rows = np.concatenate(list(make_rows([text], "sentences", codec, 50256, 24)))
    shown = [codec.decode(row) for row in rows]
    assert all(one.lstrip()[0].isupper() for one in shown)
    assert text.startswith(shown[0])
    place = 0
    for one in shown:  # every row begins within the one before it, or right after
        found = text.find(one.strip("\n"), max(0, place - 200))
        assert 0 <= found <= place + 1
        place = found + len(one)


def test_long_sentences_do_not_loop_for_ever():
    codec = TextCodec.gpt2()
    rows = np.concatenate(list(make_rows(["word " * 200], "sentences", codec, 50256, 16)))
    assert len(rows) == (200 + 1 + 1) // 16


def test_prose_unwraps_and_drops_what_is_no_sentence():
    text = (
        "CHAPTER I\n\nThe “old” king\nlived alone\u2014quite alone.\n\n"
        "Project Gutenberg says hello.\n\nNobody came. But one day\nsomebody did!\n"
    )
    assert prose(text) == (
        'The "old" king lived alone - quite alone.\nNobody came. But one day somebody did!\n'
    )
    assert paragraphs("a " * 100 + "\n" + "b " * 100) == [
        ("a " * 100).strip(),
        ("b " * 100).strip(),
    ]
    pieces = sentences('He went. "Stop!" she said. Mr. X stood.\nThen no more.\n')
    assert "".join(pieces) == 'He went. "Stop!" she said. Mr. X stood.\nThen no more.\n'
    assert pieces[0] == "He went."


def test_many_shards_read_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr("strop.training.documents.SHARD_TOKENS", 64)
    rows = np.arange(11 * 8).reshape(11, 8)
    writer = ShardWriter(tmp_path, "train", 8, 70_000)
    writer.add(rows[:3], 0)
    writer.add(rows[3:], 1)
    writer.close()
    assert len(writer.files) == 2
    from strop.training.documents import ShardRows

    entry = {"dtype": writer.dtype.name, "shards": writer.files}
    read = ShardRows(tmp_path, entry, "train", 8)
    assert writer.dtype == np.uint32
    order = np.array([10, 0, 7, 8, 3])
    assert np.array_equal(read[order], rows[order])
    (tmp_path / "train-00001.bin").write_bytes(b"short")
    with pytest.raises(UserError, match="damaged or missing"):
        ShardRows(tmp_path, entry, "train", 8)


def test_gzip_directories_and_one_document_per_file(tmp_path):
    folder = tmp_path / "books"
    folder.mkdir()
    for number, text in enumerate(toy.documents(12, seed=1)):
        with gzip.open(folder / f"{number:02d}.txt.gz", "wt") as file:
            file.write(text)
    data = spec(sources=[source(path="books", separator=None)], held_out={"last": 2})
    (told,) = prepare(data, tmp_path / "s", root=tmp_path).manifest["sources"]
    assert (told["documents"], told["held_out"]) == (12, 2)


def test_datasets_are_streamed_and_give_the_same_rows(corpus):
    with open(corpus / "rows.jsonl", "w") as file:
        for text in toy.documents(50, seed=1):
            file.write(json.dumps({"text": text, "id": 1}) + "\n")
    streamed = source(path=None, dataset="json", files=["rows.jsonl"])
    one = prepare(spec(), corpus / "a", root=corpus)
    two = prepare(spec(sources=[streamed]), corpus / "b", root=corpus)
    assert everything(one) == everything(two)
    hashes = [s.manifest["sources"][0]["documents_sha256"] for s in (one, two)]
    assert hashes[0] == hashes[1]
    with pytest.raises(UserError, match="no text where it was expected"):
        prepare(spec(sources=[{**streamed, "column": "body"}]), corpus / "c", root=corpus)
    with pytest.raises(UserError, match="dataset cannot be read"):
        prepare(spec(sources=[{**streamed, "files": ["none.jsonl"]}]), corpus / "d", root=corpus)


def test_documents_can_be_skipped(corpus):
    texts = ["[Poems] " + t if i % 10 == 3 else t for i, t in enumerate(toy.documents(50, seed=1))]
    toy.write_corpus(corpus / "toy.txt", texts)
    data = spec(sources=[source(skip=[r"\[Poems"])])
    (told,) = prepare(data, corpus / "s", root=corpus).manifest["sources"]
    assert (told["documents"], told["skipped"]) == (45, 5)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "corpus is empty"),
        (b"\n \n<|endoftext|>\n\n", "corpus is empty"),
        (b"\xff\xfe\x80abc", "not text"),
        (b"abc\x00def\n", "not text"),
        (b"only one short document\n", "too few for a tokenizer|no row of 32 tokens"),
    ],
)
def test_bad_text_is_refused_in_words(tmp_path, content, what):
    (tmp_path / "toy.txt").write_bytes(content)
    tokenizer = "gpt2" if b"only" not in content else "bpe"
    with pytest.raises(UserError, match=what) as caught:
        prepare(spec(tokenizer=tokenizer), tmp_path / "s", root=tmp_path)
    assert caught.value.where is not None
    assert not (tmp_path / "s" / "manifest.json").exists()


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        prepare(spec(), tmp_path / "s", root=tmp_path)
    (tmp_path / "toy.txt.gz").write_bytes(gzip.compress(b"hello " * 5000)[:40])
    with pytest.raises(UserError, match="damaged"):
        prepare(spec(sources=[source(path="toy.txt.gz")]), tmp_path / "s", root=tmp_path)


def test_length_beyond_the_shards(corpus):
    prepare(spec(), corpus / "s", root=corpus)
    with pytest.raises(UserError, match="beyond the shards") as caught:
        prepare(DataSpec(length=64), corpus / "s")
    assert (caught.value.got, caught.value.expected) == ("64", "32")


@pytest.mark.parametrize(
    "bad",
    [
        {"sources": [{"name": "x", "licence": "y"}]},
        {"held_out": {"every": 3, "last": 4}},
        {"held_out": {"every": 1}},
        {"keep": 0},
        {"keep": 1.5},
        {"rows": "heaped"},
        {"keep_all_of": ["nobody"]},
        {"length": 2},
        {"unknown": 1},
    ],
)
def test_bad_values_are_user_errors(bad):
    with pytest.raises(UserError):
        spec(**bad)


def test_source_needs_a_licence():
    with pytest.raises(UserError):
        SourceSpec(name="x", path="y")  # pyright: ignore[reportCallIssue]


def test_a_tokenizer_of_a_billion_tokens_is_refused(corpus):
    with pytest.raises(UserError) as caught:
        spec(bpe_size=1_000_000_000)
    assert caught.value.where == "DataSpec.bpe_size"
    assert caught.value.expected == "at least 257 and at most 1,000,000"
    with pytest.raises(UserError, match="too few"):  # the largest one does not abort
        prepare(spec(bpe_size=1_000_000), corpus / "shards", root=corpus)
