"""The audit, for every family, from flags to files; the guard is part of the result."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from called import Called

from strop.cli.main import run
from strop.measure import Interval
from strop.measure.guard import Guard, guard_of
from strop.rng import derive_seed
from strop.spec import OperatingPoint, SamplerSpec
from strop.store import Run
from strop.verbs import points

TINY = "embedded:tales-tiny"
SHORT = ("--steps", "2", "-n", "8", "--fresh-n", "8", "--length", "16")
SHORT += ("--evaluator", "embedded:tales-ar")
FEW = ("--steps", "2", "-n", "2", "--length", "16")


def held_out(path: Path, entropy: float) -> Path:
    """Forty rows of 128 tokens whose entropy is the highest below a level: the guard is that."""
    repeats = next(k for k in range(1, 128) if _entropy(k) < entropy)
    ids = [0] * repeats + list(range(1, 129 - repeats))
    path.write_text("".join(json.dumps({"ids": ids}) + "\n" for _ in range(40)))
    return path


def words_of(path: Path, texts: Path) -> list[str]:
    sizes = ["--steps", "2,8", "-n", "12,8", "--fresh-n", "8"]
    return ["audit", TINY, *sizes, "--held-out", str(texts), "-o", str(path)]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Under a low guard, so that sharper settings can be chosen from a few outputs."""
    path = tmp_path_factory.mktemp("audit") / "run"
    texts = held_out(path.parent / "low.jsonl", 3.8)
    assert run([*words_of(path, texts), "--json"]) == 0
    return path


def read(path: Path) -> dict[str, Any]:
    return json.loads((path / "result.json").read_text())


def gains_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    return result["tables"]["gains"]["rows"]


def test_the_table_is_what_direct_scoring_gives(audited: Path) -> None:
    result = read(audited)
    cells = {cell["cell"]: cell for cell in result["cells"]}
    assert len(cells) == 12  # two budgets, three temperatures, two precisions
    for cell in Run.open(audited).cells():
        [table] = [t for t in cell.scores().values() if t.metric.name == "perplexity"]
        total = table.columns["nll"].sum() / table.columns["tokens"].sum()
        shown = cells[cell.id]["perplexity"][0]
        assert shown["value"] == pytest.approx(np.exp(total), rel=1e-12)
        assert shown["low"] < shown["value"] < shown["high"]
        assert cells[cell.id]["outputs"] == {2: 12, 8: 8}[cells[cell.id]["steps"]]
    assert result["guard"]["threshold"] == pytest.approx(3.8, abs=0.1)
    assert result["standard"] == "(1, float64)"
    assert result["public_precision"] == "float32"
    assert len(result["tables"]["ratios"]["rows"]) == 10
    keys = ("steps", "temperature", "precision")
    at = {tuple(c[key] for key in keys): c["perplexity"][0] for c in cells.values()}
    for row in result["tables"]["ratios"]["rows"]:
        other = at[tuple(row[key] for key in keys)]
        expected = at[row["steps"], 1.0, "float64"]["value"] / other["value"]
        assert row["ratio"]["value"] == pytest.approx(expected, rel=1e-12)
        assert row["ratio"]["low"] < expected < row["ratio"]["high"]


def test_the_gain_comes_from_outputs_that_were_not_chosen_from(audited: Path) -> None:
    result = read(audited)
    [fresh] = [p for p in (audited / "fresh").iterdir() if p.is_dir()]
    assert Run.open(fresh).asked["seed"] == derive_seed(Run.open(audited).asked["seed"], "fresh")
    cells = {
        (c.spec.generator.sampler.steps, str(OperatingPoint.of(c.spec.generator.sampler))): c
        for c in Run.open(fresh).cells()
    }
    gain = next(g for g in gains_of(result) if g["gain"] is not None)
    level = {}
    for name in (result["standard"], gain["point"]):
        cell = cells[gain["steps"], name]
        [table] = [t for t in cell.scores().values() if t.metric.name == "perplexity"]
        level[name] = table.columns["nll"].sum() / table.columns["tokens"].sum()
    expected = np.exp(level[result["standard"]] - level[gain["point"]])
    assert gain["gain"]["value"] == pytest.approx(expected, rel=1e-12)


def test_every_gain_carries_its_entropy_and_the_verdict_of_the_guard(audited: Path) -> None:
    result = read(audited)
    gains, threshold = gains_of(result), result["guard"]["threshold"]
    assert gains
    for gain in gains:
        low, high = gain["entropy"]["low"], gain["entropy"]["high"]
        assert low <= gain["entropy"]["value"] <= high
        sides = {"above": low >= threshold, "below": high < threshold}
        assert gain["verdict"] == next((k for k, v in sides.items() if v), "undecided")
        assert gain["recommended"] == (gain["verdict"] == "above")


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(4.3, 4.5, "above"), (4.2, 4.3, "above"), (4.0, 4.1, "below"), (4.1, 4.3, "undecided")],
)
def test_the_verdict_needs_the_whole_interval(low: float, high: float, verdict: str) -> None:
    guard = Guard(128, 4.2, "a test")
    assert guard.verdict(Interval((low + high) / 2, low, high, 0.95, 10)) == verdict
    assert Guard(128, None, "none").verdict(Interval(low, low, high, 0.95, 10)) is None


def test_doubtful_cells_are_not_chosen_and_doubtful_gains_are_no_recommendation(
    audited: Path, call: Called, tmp_path: Path
) -> None:
    """A guard so high that only tau = 1 is above it in the table, and nothing is when drawn anew.

    The threshold lies between the fresh mean and the upper end of its interval, so the fresh
    outputs of the choice are undecided.
    """
    rows = {c["point"]: c for c in read(audited)["cells"] if c["steps"] == 8}
    level = rows["(1, float64)"]["entropy"]["low"]
    texts = held_out(tmp_path / "held.jsonl", level)
    code, result, _ = call(*words_of(audited, texts))
    assert code == 0
    assert result["guard"]["threshold"] == pytest.approx(level, abs=0.05)
    assert "held.jsonl" in result["guard"]["source"]
    for rule, chosen in result["selections"].items():
        for pick in chosen["picks"]:
            verdicts = {(c["steps"], c["point"]): c["guard"]["verdict"] for c in result["cells"]}
            assert pick["passes"] == (verdicts[pick["steps"], pick["point"]] == "above"), rule
    doubtful = [g for g in gains_of(result) if g["verdict"] != "above"]
    for gain in doubtful:
        assert not gain["recommended"]
        assert "no recommendation" in gain["mind"]
        text = (audited / f"sampler-{gain['rule']}.yaml").read_text()
        assert f"Not a recommendation at M = {gain['steps']}:" in text
    # The report of the run uses the same guard, and so does a later score.
    assert Run.open(audited).guard() is not None
    code, scored, _ = call("score", audited, "--evaluator", "none", "--vendi", "off")
    assert {c["guard"]["threshold"] for c in scored["cells"]} == {result["guard"]["threshold"]}
    low = audited.parent / "low.jsonl"
    assert call(*words_of(audited, low))[0] == 0  # as it was


def _entropy(repeats: int) -> float:
    share = repeats / 128
    single = 128 - repeats
    return float(-share * np.log(share) + single / 128 * np.log(128))


def test_a_threshold_of_five_belongs_to_gpt2_tokens() -> None:
    from strop.measure.guard import default_guard
    from strop.spec import CheckpointSpec, GeneratorSpec

    def generator(size: int, length: int = 1024) -> GeneratorSpec:
        shape = {"vocab_size": size, "mask_id": size - 1}
        checkpoint = CheckpointSpec(family="mdlm", sha256="a" * 64, shape=shape)
        return GeneratorSpec(checkpoint=checkpoint, sampler=SamplerSpec(), length=length)

    assert default_guard(generator(50258)).threshold == 5.0
    assert default_guard(generator(28)).threshold is None  # 27 symbols have at most 3.30 nats
    assert default_guard(generator(50258, 64)).threshold not in (None, 5.0)


def test_the_choice_is_hashed_and_ready_to_use(audited: Path, call: Called, tmp_path: Path) -> None:
    selection = json.loads((audited / "selection.json").read_text())
    assert selection["selections"]["frozen"]["cells"] == 12
    for rule in ("frozen", "per-budget"):
        samplers = yaml.safe_load((audited / f"sampler-{rule}.yaml").read_text())["samplers"]
        assert [SamplerSpec(**one).steps for one in samplers] == [2, 8]
    file = audited / "sampler-frozen.yaml"
    code, document, _ = call("sample", "--spec", file, "-n", 2, "-o", tmp_path / "again")
    assert code == 0
    assert [c["sampler"]["steps"] for c in document["cells"]] == [2, 8]


def test_run_again_it_answers_from_what_is_there(audited: Path, call: Called) -> None:
    before = {p: p.stat().st_mtime_ns for p in audited.rglob("*.parquet")}
    code, document, _ = call(*words_of(audited, audited.parent / "low.jsonl"))
    assert code == 0
    assert {p: p.stat().st_mtime_ns for p in audited.rglob("*.parquet")} == before
    assert document["cells"] == read(audited)["cells"]


def test_small_pools_are_marked(audited: Path) -> None:
    assert any("too short" in note for note in read(audited)["notes"])


# ---------------------------------------------------------------- every family


@pytest.mark.parametrize(
    ("family", "standard", "points", "precision"),
    [
        ("sedd", "(1, float64)", 6, "float32"),
        ("duo", "(1, float64)", 3, "float64"),
        ("didi", "(1, float64)", 6, "float32"),
    ],
)
def test_every_family_is_audited_by_its_own_sampler(
    families: dict[str, str],
    call: Called,
    tmp_path: Path,
    family: str,
    standard: str,
    points: int,
    precision: str,
) -> None:
    code, result, _ = call("audit", families[family], *SHORT, "-o", tmp_path / "run")
    assert code == 0, result
    assert (result["family"], result["standard"]) == (family, standard)
    assert len({cell["point"] for cell in result["cells"]}) == points
    assert result["public_precision"] == precision
    left_out = [note for note in result["notes"] if "left out" in note]
    assert bool(left_out) == (family == "duo")
    names = {c.spec.generator.sampler.name for c in Run.open(tmp_path / "run").cells()}
    assert names == {
        {"sedd": "sedd-analytic", "duo": "duo-ancestral", "didi": "didi-guided"}[family]
    }
    for rule in result["selections"]:
        assert (tmp_path / "run" / f"sampler-{rule}.yaml").is_file()


def test_a_causal_model_has_one_budget(call: Called, tmp_path: Path) -> None:
    code, result, _ = call("audit", "embedded:tales-ar", *SHORT, "-o", tmp_path / "run")
    assert code == 0, result
    assert {cell["steps"] for cell in result["cells"]} == {16}  # its length
    assert {gain["steps"] for gain in gains_of(result)} <= {16}
    assert result["family"] == "ar"


@pytest.mark.slow
def test_any_axis_and_any_sampler(call: Called, tmp_path: Path) -> None:
    axes = ["--axis", "temperature=1,0.8", "--axis", "top_p=1,0.9", "--axis", "eta=0.01,0.02"]
    code, result, _ = call(
        "audit", TINY, "--sampler", "remdm-cap", *axes, *FEW, "--no-fresh", "-o", tmp_path / "run"
    )
    assert code == 0, result
    cells = Run.open(tmp_path / "run").cells()
    assert len(cells) == 2 * 2 * 2 * 2 + 1  # both precisions, and the standard sampler
    samplers = {c.spec.generator.sampler for c in cells}
    assert {s.settings.get("eta") for s in samplers} == {0.01, 0.02, None}
    assert len({cell["point"] for cell in result["cells"]}) == len(cells)
    [plain] = [s for s in samplers if s.name == "ancestral"]
    assert (plain.temperature, plain.precision, plain.top_p) == (1.0, "float64", 1.0)
    # The report keeps generators apart that differ in one setting alone.
    code, page, _ = call("report", tmp_path / "run", "-o", tmp_path / "page.html")
    assert (code, page["cells"]) == (0, len(cells))
    html = (tmp_path / "page.html").read_text()
    for cell in result["cells"]:
        assert cell["point"] in html


def test_several_samplers_in_one_audit(call: Called, tmp_path: Path) -> None:
    axes = ["--axis", "name=ancestral,remdm-cap", "--axis", "eta=0.02", "--axis", "temperature=1"]
    code, result, _ = call(
        *("audit", TINY, *axes, "--axis", "precision=float64", *FEW, "--no-fresh"),
        *("-o", tmp_path / "run"),
    )
    assert code == 0, result
    assert {c["point"] for c in result["cells"]} == {
        "(1, float64)",
        "remdm-cap (1, float64, eta 0.02)",
    }
    assert any("eta left out for ancestral" in note for note in result["notes"])


# ---------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["-n", "1,2,3"], "one per number of"),
        (["-n", "0"], "at least 1"),
        (["-n", "x"], "at least 1"),
        (["--steps", "0"], "out of range"),
        (["--seed", "-1"], "--seed"),
        (["--length", "0"], "--length"),
        (["--axis", "temprature=1"], "temperature"),
        (["--axis", "temperature"], "name=value"),
        (["--axis", "steps=4"], "--axis"),
        (["--sampler", "ancestrall"], "ancestral"),
        (["--sampler", "sedd-analytic"], "family"),
        (["--sampler", "autoregressive"], "family"),
        (["--axis", "eta=0.1"], "eta"),
        (["--evaluator", "embedded:nobody"], "embedded model"),
        (["--evaluator", "embedded:tales"], "causal language model"),
        (["--span", "whole"], "--span"),
        (["--held-out", "nothing.jsonl", "-n", "2"], "held-out"),
    ],
)
def test_wrong_flags(
    call: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], told: str
) -> None:
    """Told in the words of the flags, and before anything is drawn."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("something was drawn")

    if "--held-out" not in flags:
        monkeypatch.setattr(points, "draw", never)
    code, document, _ = call("audit", "--steps", "2", *flags, "-o", tmp_path / "run")
    assert code == 1
    assert told in " ".join(str(value) for value in document["error"].values())
    assert "SamplerSpec" not in json.dumps(document)


def test_cells_pass_by_their_mean_if_one_says_so(tmp_path: Path, call: Called) -> None:
    """Under a guard inside the interval of a cell's mean entropy, which the run keeps."""
    drawn = tmp_path / "drawn"
    words = (*FEW, "--axis", "temperature=1", "--evaluator", "embedded:tales-ar", "--no-fresh")
    code, found, _ = call("audit", TINY, *words, "-o", drawn)
    assert code == 0
    entropy = found["cells"][0]["entropy"]
    between = (entropy["low"] + entropy["value"]) / 2
    verdicts = {}
    for rule in ("interval", "mean"):
        out = tmp_path / rule
        shutil.copytree(drawn, out)
        (out / "result.json").unlink()
        run_folder = next(out.rglob("cells")).parent
        Run(run_folder).keep_guard({"length": 16, "threshold": between, "source": "a test"})
        code, found, _ = call("audit", TINY, *words, "--guard-rule", rule, "-o", out)
        assert code == 0
        assert found["guard"] == {"threshold": between, "source": "a test", "rule": rule}
        verdicts[rule] = found["cells"][0]["guard"]["verdict"]
        kept = guard_of(Run(run_folder).cells()[0].spec.generator, Run(run_folder))
        assert (kept.threshold, kept.rule) == (between, rule)
    assert verdicts == {"interval": "undecided", "mean": "above"}


def test_a_schedule_of_temperatures_stands_beside_numbers(call: Called, tmp_path: Path) -> None:
    """In the audit's axis, the frontier's figure and a task's page: all of them sort numbers."""
    few = ["embedded:perfect", "--steps", "4", "-n", "4", "--evaluator", "embedded:even-ar"]
    axis = ["--axis", "temperature=0.9,late/1/0.6", "--fresh-n", "4"]
    code, result, _ = call("audit", *few, *axis, "-o", tmp_path / "audit")
    assert code == 0, result
    assert any("late/1/0.6" in cell["point"] for cell in result["cells"])
    taus = ["--temperature", "1,0.8,late/1/0.6"]
    code, result, _ = call("study", "frontier", *few, *taus, "-o", tmp_path / "front")
    assert code == 0, result
    assert {row["temperature"] for row in result["rows"]} == {1.0, 0.8, "late/1/0.6"}
    asked = ["--sampler", "ancestral", "--temperature", "1,linear/1/0.6", "--limit", "2"]
    code, result, _ = call("task", "run", "sums", "embedded:sums", *asked, "-o", tmp_path / "task")
    assert code == 0, result
    code, page, _ = call("report", tmp_path / "task", "-o", tmp_path / "task.html")
    assert code == 0, page
    assert "--temperature linear/1/0.6,1.0" in (tmp_path / "task.html").read_text()
