"""`strop report` as a user types it: what it reads, what it says, what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from synthetic import STUDY, YAML, audit_result, study_result

import strop
from strop.cli.main import run
from strop.measure.guard import MARKS
from strop.measure.metric import METRICS, Aggregate, Metric
from strop.page import gather
from strop.page.tables import output_columns
from strop.spec import EvaluatorSpec, MetricSpec
from strop.stats.interval import Interval
from strop.stats.resample import mean
from strop.store import Folder, Run, StudyFolder
from strop.table import Column
from strop.verbs.study import STUDIES, Result

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


@pytest.fixture(scope="module")
def first(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "first"
    grid = ["--steps", "2,4", "--temperature", "1.0,0.9", "-n", "6"]
    assert run(["sample", str(checkpoint), *grid, "-o", str(path)]) == 0
    return path


@pytest.fixture
def made(first: Path, tmp_path: Path) -> Path:
    """A run of four cells of six outputs, to do with as one likes."""
    return shutil.copytree(first, tmp_path / "runs" / "first")


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


def names_only(html: str) -> str:
    """The page without what is packed inside it."""
    return html.partition('<script type="application/octet-stream"')[0]


def test_unscored_run_shows_outputs_and_entropy(call: Called, made: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    code, out, err = call("report", made, "-o", page)
    assert code == 0, err
    assert "entropy in nats" in out
    assert f"next: strop score {made}" in err
    html = page.read_text(encoding="utf-8")
    assert "strop score runs/first" in html
    assert "Entropy in nats" in html
    assert (tmp_path / "figures" / "report" / "entropy-1.png").is_file()
    assert not (tmp_path / "figures" / "report" / "perplexity-1.png").exists()


def test_numbers_are_those_of_the_outputs(made: Path) -> None:
    given = score(made)
    found = gather([made])
    assert list(found.perplexities.values()) == ["gpt2, first-document"]
    (group,) = found.groups
    columns = output_columns(found)
    assert [c.measured.id for c in group.cells] == [cell.id for cell in Run.open(made).cells()]
    for cell, stored in zip(group.cells, Run.open(made).cells(), strict=True):
        pool, (nll, tokens) = stored.pool(), given[stored.id]
        level = cell.measured.perplexity()
        assert level.value == pytest.approx(np.exp(nll.sum() / tokens.sum()))
        assert level.low < level.value < level.high
        shares = [np.array(list(Counter(row).values())) / len(row) for row in pool.ids.tolist()]
        entropies = [float(-(f * np.log(f)).sum()) for f in shares]
        assert cell.measured.entropy is not None
        assert cell.measured.entropy.value == pytest.approx(np.mean(entropies))
        assert cell.measured.calls == pytest.approx(pool.nfe.mean())
        assert pool.texts is not None
        assert cell.texts == dict(enumerate(pool.texts))
        pool_index = np.arange(len(pool.texts))
        by_name = {column.column.name: column.values(cell, pool_index) for column in columns}
        assert list(by_name["perplexity"]) == pytest.approx(np.exp(nll / tokens))
        assert list(by_name["entropy"]) == pytest.approx(entropies)
        assert list(by_name["calls"]) == pool.nfe.tolist()


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


@pytest.mark.usefixtures("undrawn")
def test_json(call: Called, made: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    code, out, _ = call("report", made, "-o", page, "--json", "--outputs", 2)
    assert code == 0
    document = json.loads(out)
    assert document["cells"] == 4
    assert document["outputs_per_cell"] == 2
    assert document["bytes"] == page.stat().st_size
    assert all(Path(file).is_file() for file in document["figures"])


def test_the_guard_is_the_one_that_the_run_keeps(made: Path) -> None:
    cells = gather([made]).cells
    assert {cell.measured.verdict for cell in cells} == {None}  # no texts in this vocabulary
    middle = cells[0].measured.entropy
    assert middle is not None
    found = {}
    for name, threshold in (
        ("below", middle.high + 1),
        ("undecided", middle.value),
        ("above", 0.0),
    ):
        Run.open(made).keep_guard({"length": 8, "threshold": threshold, "source": "my texts"})
        cell = gather([made]).cells[0]
        assert cell.measured.verdict == name
        assert cell.name == f"{cell.plain_name} {MARKS.get(name, '')}".rstrip()
        found[name] = cell
    assert found["above"].measured.guard.source == "my texts"


def test_run_without_texts(call: Called, bare_checkpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "bare"
    assert call("sample", bare_checkpoint, "--steps", "2", "-n", 3, "-o", path)[0] == 0
    (cell,) = gather([path]).cells
    assert cell.as_ids
    ids = Run.open(path).cells()[0].pool().ids
    assert list(cell.texts.values()) == [" ".join(map(str, row)) for row in ids]


def test_two_runs_of_one_checkpoint_keep_their_seeds(
    call: Called, made: Path, checkpoint: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    assert call("sample", checkpoint, "--steps", "2", "-n", 3, "--seed", 5, "-o", other)[0] == 0
    groups = gather([made, other, made]).groups
    assert [(group.seed, len(group.cells)) for group in groups] == [(0, 4), (5, 1)]


def test_a_cell_of_two_runs_is_shown_once(
    call: Called, made: Path, checkpoint: Path, tmp_path: Path
) -> None:
    other = tmp_path / "longer"
    assert call("sample", checkpoint, "--steps", "2", "-n", 9, "-o", other)[0] == 0
    (group,) = gather([made, other]).groups
    assert sorted(cell.measured.outputs for cell in group.cells) == [6, 6, 6, 9]


@pytest.mark.usefixtures("undrawn")
def test_generators_that_differ_in_a_setting_are_all_shown(
    call: Called, checkpoint: Path, tmp_path: Path
) -> None:
    spec = {"samplers": [{"name": "remdm-cap", "steps": 4, "eta": eta} for eta in (0.01, 0.02)]}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    path, page = tmp_path / "run", tmp_path / "page.html"
    made = call("sample", checkpoint, "--spec", tmp_path / "spec.yaml", "-n", 3, "-o", path)
    assert made[0] == 0, made[2]
    code, out, err = call("report", path, "-o", page)
    assert code == 0, err
    for eta in ("0.01", "0.02"):
        assert f"remdm-cap (1, float64, eta {eta})" in out
        assert f'<th scope="col">remdm-cap (1, float64, eta {eta})</th>' in page.read_text("utf-8")


def test_local_paths_stay_at_home(
    call: Called, made: Path, checkpoint: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    assert call("report", made, "-o", page)[0] == 0
    html = page.read_text("utf-8")
    assert str(tmp_path) not in html
    assert str(checkpoint) not in html
    assert f"<h1>{'/'.join(checkpoint.parts[-2:])}</h1>" in html


# ---------------------------------------------------------------------------- records


@pytest.fixture
def word_count() -> Iterator[Metric]:
    """A metric of somebody else's, registered."""
    record = Metric(
        "words",
        (Aggregate(Column("words", "words per output"), lambda c, _: mean(c["words"])),),
        measure=lambda texts, _: {"words": np.array([len(text.split()) for text in texts])},
        output=Column("words", "words in it", help="How many."),
        needs_text=True,
        version="1",
    )
    strop.register(record)
    yield record
    METRICS.forget("words")


@pytest.mark.usefixtures("undrawn")
def test_a_registered_metric_is_shown_unasked(
    call: Called, made: Path, tmp_path: Path, word_count: Metric
) -> None:
    page = tmp_path / "report.html"
    assert call("report", made, "-o", page)[0] == 0
    html = page.read_text("utf-8")
    assert "words per output" in names_only(html)
    index = json.loads(html.partition('id="browser-index">')[2].partition("</script>")[0])
    assert "words in it" in [column["label"] for column in index["columns"]]
    report = gather([made])
    column = next(one for one in output_columns(report) if one.metric == word_count.spec)
    for cell in report.cells:
        told = column.values(cell, np.array(list(cell.texts)))
        assert told.tolist() == [len(text.split()) for text in cell.texts.values()]


@pytest.fixture
def known_study() -> Iterator[None]:
    """A study of somebody else's, registered."""
    strop.register(STUDY)
    yield
    STUDIES.forget(STUDY.name)


def put_study(folder: Path, name: str, result: Result) -> None:
    folder.mkdir()
    place = StudyFolder(folder, "study", name)
    with place.writing({}):
        place.finish(result.document(), b"")


def as_audit(run: Path, result: dict[str, object]) -> None:
    """Make a run what `strop audit` would have made of it."""
    mark = run / "strop.json"
    mark.write_text(mark.read_text().replace('"kind": "run"', '"kind": "audit"'))
    (run / "result.json").write_text(json.dumps({"format": 1, "study": "audit", **result}))


@pytest.mark.usefixtures("known_study")
def test_a_registered_study_is_shown_unasked(call: Called, made: Path, tmp_path: Path) -> None:
    put_study(made / "any-name", "stopwatch", study_result())
    put_study(made / "plug-in", "of-a-plug-in", study_result())
    page = tmp_path / "report.html"
    code, _, err = call("report", made, "-o", page)
    assert code == 0, err
    html = page.read_text("utf-8")
    assert html.count("Seconds per sequence</caption>") == 2
    assert "How long does it take?" in html
    assert "<caption>Beside the cells</caption>" in html
    assert html.count("is not installed here") == 1
    assert "The study of-a-plug-in" in html
    assert (tmp_path / "figures" / "report" / "stopwatch-1.svg").is_file()


@pytest.mark.usefixtures("known_study")
def test_the_runs_of_a_study_are_runs(call: Called, checkpoint: Path, tmp_path: Path) -> None:
    put_study(tmp_path / "study", "stopwatch", study_result())
    inner = tmp_path / "study" / "more"
    assert call("sample", checkpoint, "--steps", "2", "-n", 2, "-o", inner)[0] == 0
    found = gather([tmp_path / "study"])
    assert len(found.cells) == 1
    assert [part.record for part in found.studies] == [STUDY]


@pytest.mark.usefixtures("known_study", "undrawn")
def test_a_study_alone_is_a_report(call: Called, tmp_path: Path) -> None:
    put_study(tmp_path / "study", "stopwatch", study_result())
    code, _, err = call("report", tmp_path / "study", "-o", tmp_path / "page.html")
    assert code == 0, err
    assert "<h1>How long does it take?</h1>" in (tmp_path / "page.html").read_text("utf-8")


@pytest.mark.parametrize("content", ["{", "[1]", '{"format": 1, "study": "audit", "columns": 1}'])
def test_a_result_that_cannot_be_read_is_one_error(
    call: Called, made: Path, tmp_path: Path, content: str
) -> None:
    page = tmp_path / "report.html"
    put_study(made / "cost", "cost", study_result())
    (made / "cost" / "result.json").write_text(content)
    refused(call("report", made, "-o", page), "damaged", "cost/result.json", "run the same command")
    (made / "cost" / "result.json").unlink()
    as_audit(made, {})
    (made / "result.json").write_text(content)
    refused(call("report", made, "-o", page), "damaged", "first/result.json")
    assert not page.exists()


@pytest.mark.usefixtures("undrawn")
def test_an_audited_run_starts_with_the_answer(call: Called, made: Path, tmp_path: Path) -> None:
    as_audit(made, audit_result().document())
    for rule in ("frozen", "per-budget", "unheard-of"):
        (made / f"sampler-{rule}.yaml").write_text(YAML)
    page = tmp_path / "report.html"
    code, _, err = call("report", made, "-o", page)
    assert code == 0, err
    html = page.read_text("utf-8")
    assert html.index("Use (0.9, float32) at M = 4") < html.index("Every setting")
    assert html.count("temperature: 0.9") == 3  # each rule, and the one that is recommended
    assert "unheard-of" not in html


GUARD_OF_GPT2 = """
from strop.measure.guard import default_guard
from strop.spec import CheckpointSpec, GeneratorSpec, SamplerSpec
shape = {"vocab_size": 50258, "mask_id": 50257}
checkpoint = CheckpointSpec(family="mdlm", sha256="c" * 64, shape=shape)
generator = GeneratorSpec(checkpoint=checkpoint, sampler=SamplerSpec(steps=4), length=100)
assert default_guard(generator).threshold is not None
sys.modules.pop("tokenizers")  # it reads the texts that ship in GPT-2's tokens
"""


@pytest.mark.slow
def test_torch_stays_out(made: Path, tmp_path: Path) -> None:
    """Of the page, and then of the guard of GPT-2's tokens."""
    looked = (
        "loaded = {'torch', 'transformers', 'tokenizers', 'safetensors'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    code = (
        "import sys\n"
        "from strop.cli.main import run\n"
        f"assert run(['report', {str(made)!r}, '-o', {str(tmp_path / 'x.html')!r}]) == 0\n"
        f"{looked}{GUARD_OF_GPT2}\n{looked}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------------------- judgments, refusals


def test_groupeval_judgments_are_scored(made: Path, tmp_path: Path) -> None:
    modes = "aaaabbbb"
    outputs = [
        {"index": i, "valid": True, "scores": [2, 1, 1, 2], "mode": mode, "hybrid": False}
        for i, mode in enumerate(modes)
    ]
    line = {"cell": "x", "partition": 0, "group": 0, "outputs": outputs, "confidence": "high"}
    path = tmp_path / "judged.jsonl"
    path.write_text(json.dumps(line) + "\n")
    (series,) = gather([made, path]).series
    (row,) = series.table.rows
    assert row["ged"] == pytest.approx(10 / 3)
    assert row["geq"] is not None
    assert (row["judged"], row["name"]) == ("1 of 1", "x")
    assert not series.offline
    assert gather([path]).groups == ()


@pytest.mark.usefixtures("undrawn")
def test_the_offline_judge_is_known_as_one(call: Called, checkpoint: Path, tmp_path: Path) -> None:
    path, page = tmp_path / "run", tmp_path / "page.html"
    grid = ["--steps", "2,4", "-n", 16]
    assert call("sample", checkpoint, *grid, "-o", path)[0] == 0
    judged = path / "groupeval"
    planned = call("groupeval", "plan", path, "-o", judged)
    assert planned[0] == 0, planned[2]
    done = call("groupeval", "judge", judged, "--offline", "--features", "ngrams")
    assert done[0] == 0, done[2]
    (series,) = gather([path]).series
    assert series.table.rows == []
    assert f"strop groupeval score {judged}@" in series.table.title
    assert call("groupeval", "score", judged, "--replicates", 50)[0] == 0
    [kept] = judged.glob("series/*/result.json")
    scores = json.loads(kept.read_text())
    next(iter(scores["cells"].values()))["ged"] = 7.125
    kept.write_text(json.dumps(scores))
    (series,) = gather([path]).series
    assert series.table.rows[0]["ged"] == 7.125, "what the result holds"
    assert isinstance(series.table.rows[0]["geq"], Interval)
    next(iter(scores["cells"].values()))["n_groups"] -= 1  # as if more was judged since
    kept.write_text(json.dumps(scores))
    assert gather([path]).series[0].table.rows == []
    assert call("groupeval", "score", judged, "--replicates", 50)[0] == 0
    (series,) = gather([path]).series
    assert series.offline
    assert [row["name"] for row in series.table.rows] == [
        "M 2 · (1, float64)",
        "M 4 · (1, float64)",
    ]
    assert call("report", path, "-o", page)[0] == 0
    assert "only counts repetitions and lengths" in page.read_text("utf-8")


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
    Folder(tmp_path / "training", "training", "train").write({})
    refused(call("report", tmp_path / "training", "-o", page), "training run", "it continues")
    begun = StudyFolder(tmp_path / "begun", "study", "cost")
    with begun.writing({}):
        refused(call("report", tmp_path / "begun", "-o", page), "has not come to a result")
    put_study(made / "odd", "cost", study_result())
    (made / "odd" / "result.json").write_text("{")
    refused(call("report", made, "-o", page), "damaged", "result.json")
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
    assert len(gather([made]).cells) == 3
