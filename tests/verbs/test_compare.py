"""strop compare: sides, layers, looks, and what is not equal, on the embedded models."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from called import Called
from safetensors.torch import load_file, save_file

import warm_processes
from strop.assets import MODELS
from strop.cli.main import run
from strop.comparing.outputs import named
from strop.errors import UserError
from strop.page.collect import gather
from strop.page.page import render
from strop.spec import SamplerSpec
from strop.store import Run
from strop.verbs import compare
from tiny_models import environment, wait_for

SIZES = ("--steps", 2, "--temperature", "0.4,0.9,1.4", "--vendi", "off")
SIZES += ("--evaluator", "embedded:tales-ar")
SHORT = (*SIZES, "--length", 16, "--budget", 16, "-n", 8)
ENOUGH = (*SIZES, "--length", 32, "--budget", 16, "-n", 32)
"""With fewer outputs nothing is claimed about copies."""
TALES = "embedded:tales-tiny"
MIRROR = {"only sharper": "only smoother", "better": "worse", "worse": "better"}


def document(path: Path) -> dict[str, Any]:
    return json.loads((path / "result.json").read_text())


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smallest embedded model with other weights: a second side that costs as little."""
    path = tmp_path_factory.mktemp("checkpoint") / "other"
    shutil.copytree(MODELS / "tales-tiny", path)
    weights = load_file(path / "model.safetensors")
    torch.manual_seed(0)
    shaken = {name: one * (1 + 0.1 * torch.randn(one.shape)) for name, one in weights.items()}
    save_file(
        {name: one.to(weights[name].dtype) for name, one in shaken.items()},
        path / "model.safetensors",
    )
    return path


@pytest.fixture(scope="module")
def whole(other: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints, searched and compared."""
    path = tmp_path_factory.mktemp("compare") / "whole"
    assert run(["compare", TALES, str(other), *map(str, SHORT), "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def sharper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One checkpoint, A published at a lower temperature."""
    path = tmp_path_factory.mktemp("compare") / "run"
    assert (
        run(["compare", TALES, TALES, "--a", "temperature=0.6", *map(str, ENOUGH), "-o", str(path)])
        == 0
    )
    return path


def test_the_same_checkpoint_at_a_lower_temperature_is_only_sharper(sharper: Path) -> None:
    found = document(sharper)
    assert found["verdict"]["kind"] == "only sharper"
    [answer] = found["answer"]
    assert answer.startswith("A is only sharper than B")
    layers = {row["layer"]: row for row in found["rows"]}
    assert layers["as published"]["ratio"]["high"] < 1
    assert layers["as published"]["sharper"]["high"] < 0
    assert layers["at equal sharpness"]["ratio"]["value"] == 1  # the same cells, and it says so
    assert any("equal by construction" in one for one in found["notes"])
    assert {"compare.svg", "compare.png", "table.csv"} <= {one.name for one in sharper.iterdir()}


def test_its_page_shows_the_verdict_the_frontiers_and_what_was_spent(sharper: Path) -> None:
    page = render(gather([sharper]))
    assert document(sharper)["answer"][0] in page.html
    assert "What was spent" in page.html
    # Its runs are shown too, after the comparison's own figure.
    assert {one.name for one in page.drawings} > {"compare-1"}
    assert min(page.html.index(f'"{one.name}"') for one in page.drawings) == page.html.index(
        '"compare-1"'
    )


def test_sides_are_called_as_one_says_and_the_figure_is_a_pdf(
    sharper: Path, tmp_path: Path, call: Called
) -> None:
    named = shutil.copytree(sharper, tmp_path / "named")
    sides = ("compare", TALES, TALES, "--a", "temperature=0.6", *ENOUGH)
    code, found, _ = call(*sides, "--a-name", "cold", "--b-name", "warm", "-o", named)
    assert code == 0
    assert found["answer"][0].startswith("cold is only sharper than warm")
    code, made, _ = call("export", named, "--format", "tex")
    assert code == 0
    files = {Path(one).name: Path(one) for one in made["files"]}
    assert files["compare.pdf"].read_bytes().startswith(b"%PDF")
    assert "cold" in files["table.tex"].read_text()
    # Nowhere is a side called by its letter.
    assert {row["side"] for row in found["tables"]["spent"]["rows"]} == {"cold", "warm"}
    assert [note for note in found["notes"] if re.search(r"\b[AB] |of [AB]\b", note)] == []
    assert any("cold 0.0% left out" in note for note in found["notes"])
    page = render(gather([named])).html
    assert "Is cold better than warm, or only sharper?" in page
    assert "Is A better" not in page
    assert call(*sides, "--a-name", "B", "-o", named)[0] == 1  # as the other is called


def test_everything_lies_in_cells_of_one_run_and_is_drawn_once(sharper: Path) -> None:
    [place] = [one for one in (sharper / "runs").iterdir() if one.is_dir()]
    cells = Run.open(place).cells()
    shown = [one for one in cells if len(one.indices()) == 32]
    searched = [one for one in cells if one not in shown]
    assert len({one.spec.seed for one in searched}) == 1
    # Two as published, three temperatures of the frontier; the tuned one may be a sixth.
    assert 5 <= len(shown) <= 6
    assert len({one.spec.seed for one in shown}) == len(shown)
    assert not {one.spec.seed for one in shown} & {one.spec.seed for one in searched}
    spent = document(sharper)["tables"]["spent"]["rows"]
    assert [one["searched"] for one in spent] == [16, 16]


def test_the_same_command_answers_from_what_is_there(sharper: Path, call: Called) -> None:
    before = {p: p.stat().st_mtime_ns for p in (sharper / "runs").rglob("*.parquet")}
    code, found, _ = call("compare", TALES, TALES, "--a", "temperature=0.6", *ENOUGH, "-o", sharper)
    assert code == 0
    assert found["level"]["look"] == 1
    assert {p: p.stat().st_mtime_ns for p in (sharper / "runs").rglob("*.parquet")} == before


def test_swapped_sides_mirror_every_number(sharper: Path, tmp_path: Path, call: Called) -> None:
    there = document(sharper)
    words = ("compare", TALES, TALES, "--b", "temperature=0.6", *ENOUGH, "-o", tmp_path / "back")
    _, back, _ = call(*words)
    assert back["verdict"]["kind"] == MIRROR[there["verdict"]["kind"]]
    for one, two in zip(there["rows"], back["rows"], strict=True):
        one, two = one["ratio"], two["ratio"]
        assert one["value"] == pytest.approx(1 / two["value"], rel=1e-12)
        assert one["low"] == pytest.approx(1 / two["high"], rel=1e-12)


def test_two_checkpoints_are_loaded_once_each(
    tmp_path: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import strop.denoisers
    import strop.verbs

    loaded: list[str] = []
    load_model = strop.denoisers.load_model

    def counted(source: str, **settings: Any) -> Any:
        loaded.append(source)
        return load_model(source, **settings)

    monkeypatch.setattr(strop.denoisers, "load_model", counted)
    strop.verbs.run(  # without a length, which is the shorter one's
        "compare",
        sources=(TALES, str(other)),
        out=tmp_path / "run",
        evaluator="embedded:tales-ar",
        n=8,
        steps=[1],
        temperature=[0.8, 1.0, 1.2],
        budget=0,
        vendi="off",
    )
    assert sorted(loaded) == sorted([TALES, str(other)])


def test_more_outputs_are_another_look(tmp_path: Path, other: Path, call: Called) -> None:
    words = ("compare", TALES, other, *SHORT, "--budget", 0, "-o", tmp_path / "looks")
    levels = []
    for n in (8, 16, 8):
        _, found, _ = call(*words, "-n", n)
        levels.append(found["level"])
    assert [one["look"] for one in levels] == [1, 2, 1]
    assert levels[1]["same"] > levels[0]["same"] == pytest.approx(0.96)
    assert [row["layer"] for row in found["rows"]][:1] == ["as published"]
    assert "tuned" not in {row["layer"] for row in found["rows"]}


@pytest.mark.slow
def test_a_temperature_is_added_where_straight_lines_are_off(
    tmp_path: Path, other: Path, call: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the frontiers are: as often as the rules want one, and four times at most."""
    import strop.verbs.compare as verb

    compare = verb.compare
    monkeypatch.setattr(
        verb, "compare", lambda a, b, **how: replace(compare(a, b, **how), thin=((0, 1),))
    )
    words = (*SHORT, "--budget", 0)
    code, found, _ = call("compare", TALES, other, *words, "-o", tmp_path / "bent")
    assert code == 0
    rows = found["tables"]["frontier"]["rows"]
    swept = {row["temperature"] for row in rows if row["side"] == "A" and "frontier" in row["part"]}
    added = {0.65, 0.525, 0.4625, 0.4313}
    assert swept == {0.4, 0.9, 1.4} | added
    assert sum("added to the sweep" in one for one in found["notes"]) == 4
    assert found["level"]["look"] == 1


@pytest.mark.slow
def test_several_budgets_share_what_may_be_wrong(tmp_path: Path, other: Path, call: Called) -> None:
    words = (*SHORT, "--steps", "1,2", "--budget", 0)
    code, found, _ = call("compare", TALES, other, *words, "-o", tmp_path / "budgets")
    assert code == 0
    assert set(found["verdicts"]) == {"1", "2"}
    assert found["level"]["same"] == pytest.approx(0.98)
    assert found["answer"][0].startswith("Over all budgets")


def test_a_pool_and_texts_cannot_be_tuned_and_are_read_in_one_tokenizer(
    tmp_path: Path, call: Called
) -> None:
    pool = tmp_path / "pool"
    line = ["sample", TALES, "--steps", "2", "-n", "8", "--length", "32", "-o", str(pool)]
    assert run(line) == 0
    texts = tmp_path / "texts.jsonl"
    rows = [
        {"text": f"Once upon a time there were {i} bears and a very old house."} for i in range(8)
    ]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = (*SHORT, "--length", 32, "-n", 16)
    _, found, _ = call("compare", pool, texts, *words, "-o", tmp_path / "both")
    assert found["verdict"]["kind"] == "cannot tell"  # two points have no common range
    assert found["verdict"]["outputs"] is None
    assert sum("cannot be tuned" in one for one in found["sides"]) == 2
    assert any("in the tokens of embedded:tales-ar" in one for one in found["notes"])
    _, found, _ = call("compare", TALES, f"{pool}@", *words, "-o", tmp_path / "one")
    assert [one["searched"] for one in found["tables"]["spent"]["rows"]] == [16, 0]
    assert any("only the other side is tuned" in one for one in found["notes"])
    assert {row["outputs"] for row in found["tables"]["frontier"]["rows"]} == {8, 16}


@pytest.mark.slow
def test_equal_calls_give_the_cheaper_side_more_updates(tmp_path: Path, call: Called) -> None:
    # A causal order commits one token per call; ancestral updates that reveal nothing are free.
    words = (*SHORT, "--length", 32, "--steps", 16, "--budget", 0, "--equal", "calls")
    side = ("--a", "name=remdm-cap", "--a", "eta=0.5")
    code, found, _ = call("compare", TALES, TALES, *side, *words, "-o", tmp_path / "calls")
    assert code == 0
    a, b = found["tables"]["spent"]["rows"]
    rows = found["tables"]["frontier"]["rows"]
    calls = {
        s: [r["calls"] for r in rows if r["side"] == s and "published" in r["part"]] for s in "AB"
    }
    assert b["updates"] > a["updates"] == 16
    assert calls["B"][0] == pytest.approx(calls["A"][0], rel=0.25)
    assert any("updates of A" in one for one in found["notes"])
    kept = json.loads((tmp_path / "calls" / "runs" / "equal.json").read_text())
    assert list(kept.values()) == [[a["updates"], b["updates"]]]


@pytest.mark.slow
def test_a_judge_reads_both_sides_at_one_entropy(tmp_path: Path, other: Path, call: Called) -> None:
    words = (*SHORT, "--length", 32, "-n", 16, "--budget", 0, "--judge", "offline")
    code, found, _ = call("compare", TALES, other, *words, "-o", tmp_path / "judged")
    assert code == 0
    a, b = found["tables"]["judged"]["rows"]
    assert (a["side"], b["side"]) == ("A", "B")
    assert a["entropy"] == pytest.approx(b["entropy"], abs=0.3)
    assert 1 <= a["ged"] <= 10
    measures = [row["measure"] for row in found["tables"]["diversity"]["rows"]]
    assert any(one.startswith("GED") for one in measures)
    # What was spent is what lies in the cells, those that only the judge read among them.
    spent = sum(row["searched"] + row["shown"] for row in found["tables"]["spent"]["rows"])
    assert spent == _drawn(tmp_path / "judged")


def _drawn(path: Path) -> int:
    """Outputs in all cells of a comparison."""
    runs = [one for one in (path / "runs").iterdir() if one.is_dir()]
    return sum(len(cell.indices()) for one in runs for cell in Run.open(one).cells())


def test_what_was_spent_is_what_lies_in_the_cells(whole: Path) -> None:
    rows = document(whole)["tables"]["spent"]["rows"]
    assert sum(row["searched"] + row["shown"] for row in rows) == _drawn(whole)
    assert all(row["searched"] for row in rows)


@pytest.mark.parametrize(
    ("words", "where", "told"),
    [
        (["--a", "temprature=0.9"], "--a", "temprature"),
        (["--a", "temperature=hot"], "--a", "temperature is not valid"),
        (["--b", "name=nobody"], "--b", "nobody"),
        (["--b", "eta=0.1"], "--b", "eta"),
        (["--a", "temperature=1", "--a", "temperature=0.9"], "--a", "twice"),
        (["--a-space", "temperature=1.1:0.7"], "--a-space", "no such range"),
        (["--b", "steps=4"], "--b", "budget"),
    ],
)
def test_a_wrong_setting_is_told_with_its_side_before_anything_is_drawn(
    tmp_path: Path, call: Called, words: list[str], where: str, told: str
) -> None:
    code, found, _ = call("compare", TALES, TALES, *SHORT, *words, "-o", tmp_path / "x")
    assert code == 1
    assert found["error"]["where"] == where
    assert told in found["error"]["what"]
    assert not list((tmp_path / "x").rglob("outputs.parquet"))


def test_settings_that_one_sampler_of_a_space_lacks_are_skipped_and_told(
    tmp_path: Path, call: Called
) -> None:
    side = ("--a", "name=remdm-cap", "--a", "eta=0.02", "--a-space", "name=ancestral,remdm-cap")
    code, found, _ = call("compare", TALES, TALES, *side, *SHORT, "-o", tmp_path / "x")
    assert code == 0
    assert any("eta is skipped for ancestral" in one for one in found["notes"])
    [a, _] = found["tables"]["spent"]["rows"]
    assert a["settings"] == 2


def test_a_pool_has_its_length_and_enough_outputs(tmp_path: Path, call: Called) -> None:
    pool, texts = tmp_path / "pool", tmp_path / "texts.jsonl"
    assert call("sample", TALES, "--steps", 2, "-n", 8, "--length", 16, "-o", pool)[0] == 0
    words = (*SIZES, "-n", 8, "--budget", 0)
    code, found, _ = call("compare", pool, TALES, *words, "-o", tmp_path / "short")
    assert code == 0
    [run_of] = [one for one in (tmp_path / "short" / "runs").iterdir() if one.is_dir()]
    assert {cell.spec.generator.length for cell in Run.open(run_of).cells()} == {16}
    assert found["tokens"] <= 16
    long = (*words, "--length", 64)
    code, found, _ = call("compare", pool, TALES, *long, "-o", tmp_path / "long")
    assert code == 0
    assert found["tokens"] <= 16  # of the longer outputs no more than the pool has
    assert any(f"the first {found['tokens']} tokens" in one for one in found["notes"])
    texts.write_text('{"text": "Once upon a time there was a cat."}\n' * 2)
    code, found, _ = call("compare", texts, TALES, *words, "-o", tmp_path / "few")
    assert code == 1
    assert "too few outputs" in found["error"]["what"]
    code, found, _ = call("compare", pool, pool, *words, "-o", tmp_path / "both")
    assert code == 0
    assert "neither has a frontier" in found["answer"][0]
    assert not any("only the other side is tuned" in one for one in found["notes"])


def test_what_is_kept_may_be_damaged_and_that_is_told(tmp_path: Path) -> None:
    from strop.comparing.outputs import kept_lists

    for content in ("{", "[]", '{"a": "b"}', '{"a": 1}'):
        (tmp_path / "looks.json").write_text(content)
        with pytest.raises(UserError, match="damaged"):
            kept_lists(tmp_path / "looks.json")


@pytest.mark.slow
def test_sides_that_are_given_are_what_a_smoke_run_compares(
    tmp_path: Path, other: Path, call: Called
) -> None:
    words = ("--smoke", *SHORT, "--budget", 0)
    code, found, _ = call("compare", TALES, other, *words, "-o", tmp_path / "run")
    assert code == 0
    assert found["sides"] == [f"{one} with its family's own sampler" for one in (TALES, other)]
    assert found["verdict"]["kind"] == "cannot tell"
    assert "smoke" in found["answer"][0]
    assert "would decide" not in found["answer"][0]
    code, found, _ = call("compare", *words, "-o", tmp_path / "own")
    assert code == 0
    assert found["sides"][0] == "embedded:tales with temperature=0.85"


def test_killed_and_called_again_it_ends_as_if_it_had_not_been(
    tmp_path: Path, other: Path, whole: Path
) -> None:
    line = ["compare", TALES, str(other), *map(str, SHORT), "-o"]
    killed = tmp_path / "killed"
    command = [sys.executable, "-m", "strop", *line, str(killed)]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = warm_processes.Popen(command, env=environment(), **quiet)
    assert wait_for(process, lambda: len(list(killed.rglob("outputs.parquet"))) >= 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "result.json").exists()
    assert run([*line, str(killed)]) == 0
    one, two = document(whole), document(killed)
    for key in ("answer", "verdict", "rows", "equal"):
        assert one[key] == two[key]


# ---------------------------------------------------------------- sides as they are named


def test_a_side_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "side.yaml"
    file.write_text(
        "checkpoint: embedded:tales\nsampler: {name: remdm-cap, eta: 0.02}\n"
        "space: [temperature=0.7:1.1, 'eta=0.005:0.1:log']\n"
    )
    found = named(str(file), ["temperature=0.9"], [], "a")
    assert found.source == "embedded:tales"
    assert found.sampler == {"name": "remdm-cap", "eta": 0.02, "temperature": 0.9}
    assert found.space == ("temperature=0.7:1.1", "eta=0.005:0.1:log")
    assert SamplerSpec(**found.sampler).settings["eta"] == 0.02


@pytest.mark.parametrize(
    ("content", "settings"),
    [
        ("sampler: {temperature: 1}", []),
        ("checkpoint: x\npool: y", []),
        ("checkpoint: x\nother: 1", []),
        ("checkpoint: x\nspace: temperature", []),
        ("pool: x\nsampler: {temperature: 1}", []),
        ("[1, 2", []),
        ("checkpoint: x", ["temperature=0.8,0.9"]),
        ("texts: x.jsonl", ["temperature=0.8"]),
    ],
)
def test_what_is_no_side_is_refused(tmp_path: Path, content: str, settings: list[str]) -> None:
    file = tmp_path / "side.yaml"
    file.write_text(content)
    with pytest.raises(UserError):
        named(str(file), settings, [], "a")


@pytest.mark.parametrize(
    "words",
    [
        [],
        [TALES],
        [TALES, TALES, "--margin", "0"],
        [TALES, TALES, "--temperature", "0.8,1"],
        [TALES, TALES, "--judge", "offline", "-n", "12"],
        [TALES, TALES, "--judge", "nobody"],
        [TALES, TALES, "--temperature", "-1,1"],
        [TALES, TALES, "--a", "steps=4"],
        [TALES, TALES, "--b-space", "steps=2:8"],
        [TALES, TALES, "--a-space", "temperature=1.1:0.7"],
        [TALES, "nothing.jsonl"],
        [TALES, TALES, "--equal", "joules"],
        ["nothing.yaml", TALES],
    ],
)
def test_what_cannot_be_asked(tmp_path: Path, words: list[str]) -> None:
    assert run(["compare", *words, "-o", str(tmp_path / "x")]) == 1
    assert not (tmp_path / "x").exists()


def test_a_run_of_several_cells_asks_which(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pool = tmp_path / "pool"
    line = ["sample", TALES, "--steps", "1,2", "-n", "2", "--length", "8", "-o", str(pool)]
    assert run(line) == 0
    assert run(["compare", str(pool), TALES, *map(str, SHORT), "-o", str(tmp_path / "x")]) == 1
    assert "several cells" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("a", "b", "where"),
    [
        ("a\nb", "B", "a_name"),
        ("\x1b[31mA", "B", "a_name"),
        ("\ud800", "B", "a_name"),
        ("A", " ", "b_name"),
        ("A", "b ", "b_name"),
        ("x" * 61, "B", "a_name"),
        ("x" * 60, "x" * 60, "b_name"),
    ],
)
def test_names_that_no_table_can_show_or_nobody_tell_apart_are_refused(
    a: str, b: str, where: str
) -> None:
    with pytest.raises(UserError) as caught:
        compare._check_names(a, b)
    assert caught.value.where == f"`{where}`"
    compare._check_names("x" * 60, "文 B")
