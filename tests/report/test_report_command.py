"""`strop report` as a user types it: what it reads, what it says, what it refuses."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from strop.cli.main import run
from strop.report.data import DAGGER, Estimate
from strop.report.gather import _by_judged_name, gather
from strop.spec import EvaluatorSpec, MetricSpec
from strop.store import Run

Called = Callable[..., tuple[int, str, str]]

METRIC = MetricSpec(
    name="perplexity",
    evaluator=EvaluatorSpec(name="gpt2", sha256="a" * 64, tokenizer="b" * 64, context=1024),
    span="first-document",
    settings={"retokenise": True, "clean_up": False},
)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Called:
    def called(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(list(map(str, arguments)))
        return code, *capsys.readouterr()

    return called


@pytest.fixture
def made(call: Called, checkpoint: Path, tmp_path: Path) -> Path:
    """A run of four cells of six outputs."""
    path = tmp_path / "runs" / "first"
    grid = ["--steps", "2,4", "--temperature", "1.0,0.9", "-n", 6]
    assert call("sample", checkpoint, *grid, "-o", path)[0] == 0
    return path


def score(path: Path, rows: int = 6) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Put perplexity scores beside the outputs; per cell, nats and tokens."""
    rng, given = np.random.default_rng(3), {}
    for cell in Run.open(path).cells():
        nll, tokens = rng.uniform(5, 30, rows), rng.integers(2, 8, rows)
        size = np.full(rows, 20)
        columns = {"nll": nll, "tokens": tokens, "bytes": size, "kept_bytes": size}
        cell.add_scores(METRIC, {"index": np.arange(rows), **columns, "source_bytes": size})
        given[cell.id] = nll, tokens
    return given


def refused(result: tuple[int, str, str], *told: str) -> None:
    code, out, err = result
    assert code == 1, err
    assert err.count("strop: ") == 1, err
    assert "Traceback" not in err
    assert out == ""
    for words in told:
        assert words in err


def test_unscored_run_shows_outputs_and_entropy(call: Called, made: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    code, out, err = call("report", made, "-o", page)
    assert code == 0, err
    assert "entropy in nats" in out
    assert f"next: strop score {made}" in err
    html = page.read_text(encoding="utf-8")
    assert f"strop score {made}" in html
    assert "Entropy in nats" in html
    assert (tmp_path / "figures" / "report" / "entropy-1.png").is_file()
    assert not (tmp_path / "figures" / "report" / "perplexity-1.png").exists()


def test_numbers_are_those_of_the_outputs(made: Path) -> None:
    given = score(made)
    found = gather([made])
    assert found.evaluators == ("gpt2, first-document",)
    (model,) = found.models
    assert [cell.id for cell in model.cells] == [cell.id for cell in Run.open(made).cells()]
    for cell, stored in zip(model.cells, Run.open(made).cells(), strict=True):
        pool, (nll, tokens) = stored.pool(), given[cell.id]
        found_ppl = cell.perplexity["gpt2, first-document"]
        assert found_ppl.value == pytest.approx(np.exp(nll.sum() / tokens.sum()))
        assert found_ppl.low is not None
        assert found_ppl.high is not None
        assert found_ppl.low < found_ppl.value < found_ppl.high
        shares = [np.array(list(Counter(row).values())) / len(row) for row in pool.ids.tolist()]
        entropies = [float(-(f * np.log(f)).sum()) for f in shares]
        assert cell.entropy is not None
        assert cell.entropy.value == pytest.approx(np.mean(entropies))
        assert cell.calls == pytest.approx(pool.nfe.mean())
        for i, one in enumerate(cell.outputs):
            assert pool.texts is not None
            assert one.text == pool.texts[i]
            expected = [np.exp(nll[i] / tokens[i]), entropies[i]]
            assert one.values[:2] == pytest.approx(expected)
            assert len(one.values) == len(found.output_columns)
    assert "No entropy guard" in model.notes[0]


def test_scored_run(call: Called, made: Path, tmp_path: Path) -> None:
    score(made, rows=4)
    page = tmp_path / "new" / "folder" / "page.html"
    code, out, err = call("report", made, "-o", page, "--title", "A <b>title</b>")
    assert code == 0, err
    assert "perplexity under gpt2, first-document" in out
    html = page.read_text(encoding="utf-8")
    assert "A &lt;b&gt;title&lt;/b&gt;" in html
    assert "4 of 6" in html  # the missing scores are told
    assert "aaaaaaaa" in html  # the evaluator's weights are among the provenance
    assert (page.parent / "figures" / "page" / "frontier-1.svg").is_file()


def test_json(call: Called, made: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    code, out, _ = call("report", made, "-o", page, "--json", "--outputs", 2)
    assert code == 0
    document = json.loads(out)
    assert document["cells"] == 4
    assert document["outputs_per_cell"] == 2
    assert document["bytes"] == page.stat().st_size
    assert all(Path(file).is_file() for file in document["figures"])


def test_the_guard_daggers_cells(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from strop.metrics.entropy import Guard
    from strop.report import collect

    cells = gather([made]).models[0].cells
    values = sorted(cell.entropy.value for cell in cells if cell.entropy is not None)
    middle = (values[0] + values[-1]) / 2
    monkeypatch.setattr(
        collect, "own_guard", lambda generator, _: Guard(generator.length, middle, "a test")
    )
    for cell in gather([made]).models[0].cells:
        assert cell.entropy is not None
        assert cell.below_guard == (cell.entropy.value < middle)
        assert (DAGGER in cell.label) == cell.below_guard


def test_run_without_texts(call: Called, bare_checkpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "bare"
    assert call("sample", bare_checkpoint, "--steps", "2", "-n", 3, "-o", path)[0] == 0
    (cell,) = gather([path]).models[0].cells
    assert cell.as_ids
    ids = Run.open(path).cells()[0].pool().ids
    assert [one.text for one in cell.outputs] == [" ".join(map(str, row)) for row in ids]


def test_two_runs_of_one_checkpoint_keep_their_seeds(
    call: Called, made: Path, checkpoint: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    assert call("sample", checkpoint, "--steps", "2", "-n", 3, "--seed", 5, "-o", other)[0] == 0
    models = gather([made, other, made]).models
    assert [(model.seed, len(model.cells)) for model in models] == [(0, 4), (5, 1)]


def posterior_result(sha256: str) -> dict[str, object]:
    def losses(minus: float) -> list[dict[str, object]]:
        span = {"mean": minus, "low": minus - 0.01, "high": minus + 0.01}
        return [
            {"temperature": 0.9, "minus_one": span},
            {"temperature": 1.0, "minus_one": {"mean": 0.0, "low": 0.0, "high": 0.0}},
        ]

    entry = {"checkpoint": "tiny", "steps": 4, "optimum": 1.0}
    return {
        "format": 1,
        "study": "posterior",
        "asked": {"sharpened": 0.9},
        "checkpoints": [{"name": "tiny", "spec": {"sha256": sha256}}],
        "losses": [
            {**entry, "estimator": "masked", "temperatures": losses(0.05)},
            {**entry, "estimator": "target", "temperatures": losses(0.06)},
        ],
    }


def test_studies_inside_a_run_are_found(made: Path) -> None:
    given = score(made)
    cells = Run.open(made).cells()
    folder = made / "posterior"
    folder.mkdir()
    sha256 = cells[0].spec.generator.checkpoint.sha256
    (folder / "result.json").write_text(json.dumps(posterior_result(sha256)))
    (made / "cost").mkdir()
    row = {"implementation": "fast", "updates": 4, "calls": 3.5, "seconds": 0.1, "extra_gib": 1.0}
    more = {"temperature": 1.0, "precision": "float64", "failure": None}
    result = {"study": "cost", "asked": {"batch": 8}, "rows": [{**row, **more}]}
    (made / "cost" / "result.json").write_text(json.dumps(result))
    found = gather([made])
    (posterior,) = found.posterior
    assert posterior.difference == Estimate(0.05, 0.04, pytest.approx(0.06))  # type: ignore[arg-type]
    samplers = {c.id: c.spec.generator.sampler for c in cells}
    pooled = {
        samplers[id_].temperature: np.exp(nll.sum() / tokens.sum())
        for id_, (nll, tokens) in given.items()
        if samplers[id_].steps == 4
    }
    assert posterior.ratio is not None
    assert posterior.ratio.value == pytest.approx(pooled[1.0] / pooled[0.9])
    (cost,) = found.cost
    assert (cost.calls, cost.batch, cost.memory_mb) == (3.5, 8, pytest.approx(1073.741824))


def test_groupeval_judgments_are_scored(made: Path, tmp_path: Path) -> None:
    modes = "aaaabbbb"
    outputs = [
        {"index": i, "valid": True, "scores": [2, 1, 1, 2], "mode": mode, "hybrid": False}
        for i, mode in enumerate(modes)
    ]
    line = {"cell": "x", "partition": 0, "group": 0, "outputs": outputs, "confidence": "high"}
    path = tmp_path / "judged.jsonl"
    path.write_text(json.dumps(line) + "\n")
    (row,) = gather([made, path]).judged
    assert row.ged == pytest.approx(10 / 3)
    assert row.geq is not None
    assert (row.accepted, row.asked, row.name) == (1, 1, "x")
    assert gather([path]).models == ()


def test_judged_cells_are_recognised(made: Path) -> None:
    cells = gather([made]).models[0].cells
    known = _by_judged_name(cells)
    assert known[cells[2].id] is cells[2]
    assert known["first steps=4 temperature=1.0"] is cells[2]
    assert known["first steps=4 temperature=0.9"] is cells[3]
    assert "first steps=4" not in known  # two cells could be meant


def test_refusals(call: Called, made: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    refused(call("report", tmp_path / "nothing", "-o", page), "no such run", "strop ls")
    refused(call("report", tmp_path, "-o", page), "not a run")
    refused(call("report", made, "-o", tmp_path), "is a directory", "report.html")
    refused(call("report", made, "-o", ""), "empty")
    refused(call("report", made, "-o", page, "--outputs", -1), "--outputs")
    (tmp_path / "file").write_text("x")
    refused(call("report", made, "-o", tmp_path / "file" / "page.html"), "leads through one")
    refused(call("report", tmp_path / "file", "-o", page), "This is a file")
    refused(call("report"), "strop report --help")
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "train.json").write_text("{}")
    refused(call("report", tmp_path / "training", "-o", page), "training run", "strop sample")
    (made / "odd").mkdir()
    (made / "odd" / "result.json").write_text("{")
    refused(call("report", made, "-o", page), "cannot be read", "result.json")
    assert not page.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_may_not_be_written(call: Called, made: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    refused(call("report", made, "-o", locked / "page.html"), "does not allow writing")


def test_run_without_outputs(call: Called, made: Path, tmp_path: Path) -> None:
    for cell in Run.open(made).cells():
        (cell.path / "outputs.parquet").unlink()
    refused(call("report", made, "-o", tmp_path / "x.html"), "no outputs yet", str(made))


def test_a_run_under_way_shows_what_is_there(made: Path) -> None:
    cell = Run.open(made).cells()[1]
    (cell.path / "outputs.parquet").unlink()
    assert len(gather([made]).models[0].cells) == 3
