from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_judgments import group, random_verdicts, write
from small_runs import INVALID, grades, judged, planned, pools

from strop import export
from strop.cli.main import run as command
from strop.errors import UserError
from strop.groupeval.series import open_plan
from strop.page.tables import judged_series
from strop.verbs.groupeval_verbs import copied_texts

KEYS = {
    "geq",
    "ged",
    "n_outputs",
    "n_groups",
    "invalid_rate",
    "dimension_means",
    "effective_modes",
    "dominant_share",
    "singleton_rate",
    "ceiling_rate",
}


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = command(["groupeval", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def answer(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    code, out, err = call(capsys, *words, "--json")
    assert code == 0, err
    return json.loads(out)


def test_score_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    patterns = ("AAAAAAAA", "AAAAAAAB", "AAAABBBB", "ABCDEFGH", "ABCDxxxx")
    path = write(tmp_path / "j.jsonl", [group(pattern, cell=pattern) for pattern in patterns])
    cells = answer(capsys, "score", path)["cells"]
    assert {name: cell["ged"] for name, cell in cells.items()} == pytest.approx(
        dict(zip(patterns, (0, 1.811881, 10 / 3, 10, 10 / 3), strict=True)), abs=5e-7
    )
    for cell in cells.values():
        assert set(cell) >= KEYS
        assert (cell["n_outputs"], cell["n_groups"]) == (8, 1)
    assert cells["ABCDxxxx"]["geq"]["value"] == 3.75
    assert cells["ABCDxxxx"]["dimension_means"] == [1, 0.5, 0.5, 1]
    low, high = (cells["ABCDxxxx"]["geq"][end] for end in ("low", "high"))
    assert (low, high) == (None, None)  # one group does not tell mood from quality
    assert cells["ABCDxxxx"]["geq"]["n"] == 8
    assert answer(capsys, "score", path)["cells"] == cells  # the seed is fixed
    code, out, err = call(capsys, "score", path)
    assert "too narrow" not in out  # there is no interval
    assert code == 0
    assert out.count("1 of 1") == 5
    assert "next: strop groupeval compare" in err


def test_score_of_an_incomplete_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = planned(tmp_path / "run", pools())
    judged(run, lambda text, _: grades(1, 1, 1, 1) if text else INVALID, skip=3)
    cells = answer(capsys, "score", run)["cells"]
    assert sum(cell["n_groups"] for cell in cells.values()) == 5
    assert sum(cell["n_groups_asked"] for cell in cells.values()) == 8
    skipped = open_plan(run)[0].groups_of(open_plan(run)[0].sheets[0])[0].cell
    low, high = cells[skipped]["geq_bounds"]
    assert low < 5 < high
    copy = tmp_path / "copy.jsonl"
    code, out, _ = call(capsys, "score", run, "--series", "rule", "--portable", copy)
    assert code == 0
    again = answer(capsys, "score", copy)["cells"]
    for name, cell in again.items():  # the same judgments, the same scores
        assert (cell["geq"], cell["ged"]) == (cells[name]["geq"], cells[name]["ged"])
    (kept,) = run.glob("series/*/result.json")
    assert json.loads(kept.read_text())["cells"] == cells
    assert " of 4" in out
    assert "GED [" in out


def test_compare_agree_and_reliability(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = planned(tmp_path / "run", pools())
    judged(run, lambda text, _: grades(1, 1, 1, 1 + ("ship" in text)), name="one")
    judged(run, lambda _, i: grades(1, 1, 1, i % 2, mode="ABCDEFGH"[i]), name="two")
    code, out, err = call(capsys, "score", run)
    assert code == 0
    assert "Judged by one" in out
    assert "Judged by two" in out
    assert "GEQ: quality, 0 to 10" in out  # a legend, once
    assert out.count("largest: share of the commonest kind") == 1
    both = answer(capsys, "score", run)["judges"]
    alone = [answer(capsys, "score", f"{run}@{name}") for name in ("one", "two")]
    by_judge = {told["judge"]["name"]: told["cells"] for told in both}
    assert by_judge == {told["judge"]["name"]: told["cells"] for told in alone}
    assert len(list(run.glob("series/*/result.json"))) == 2
    code, _, err = call(capsys, "score", run, "--portable", tmp_path / "p.jsonl")
    assert code == 1
    assert "Several judges" in err
    code, _, err = call(capsys, "compare", f"{run}@one:short-writer", f"{run}@one:long-writer")
    assert f"next: strop report {run} -o {run}.html" in err
    told = answer(capsys, "compare", f"{run}@one:short-writer", f"{run}@one:long-writer")
    assert told["pairs"][0]["geq_difference"]["value"] == pytest.approx(1.25)
    code, out, err = call(capsys, "compare", f"{run}@one", f"{run}@two")
    assert code == 1
    assert "judges differ" in err
    told = answer(capsys, "agree", f"{run}@one", f"{run}@two")
    assert set(told["alpha"]) == {
        "readability", "coherence", "substance", "nondegeneration", "quality", "valid"
    }  # fmt: skip
    code, out, _ = call(capsys, "agree", f"{run}@one", f"{run}@two")
    assert code == 0
    assert "8 of 8 groups" in out
    assert answer(capsys, "reliability", f"{run}@two")["n_groups"] == 8
    code, out, _ = call(capsys, "reliability", run, "--series", "one")
    assert code == 0
    assert "8 of 8" in out


def test_a_directory_of_judgments_is_exported_with_its_differences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = planned(tmp_path / "run", pools())
    judged(run, lambda text, _: grades(1, 1, 1, 1 + ("ship" in text)), name="one")
    with pytest.raises(UserError, match="has been scored"):
        export(run)
    told = answer(capsys, "score", run)
    files = export(run, format="json", out=tmp_path / "json").value
    assert [one.name for one in files] == ["scores.json", "differences.json"]
    scores, between = (json.loads(one.read_text())["rows"] for one in files)
    cells = list(told["cells"])
    assert [row["generator"] for row in scores] == cells
    assert [row["geq"] for row in scores] == [told["cells"][name]["geq"] for name in cells]
    pair = answer(capsys, "compare", f"{run}:{cells[0]}", f"{run}:{cells[1]}")
    assert [row["pair"] for row in between] == [f"{name} minus {cells[0]}" for name in cells[1:]]
    assert between[0]["geq_difference"] == pair["pairs"][0]["geq_difference"]
    assert between[0]["ged_difference"] == pair["pairs"][0]["ged_difference"]
    assert between[0]["decision"] == pair["answer"][0]
    (series,) = judged_series([str(run)], [])
    assert [row["decision"] for row in series.differences.rows] == [between[0]["decision"]]
    assert command(["report", str(run), "-o", str(tmp_path / "page.html")]) == 0
    assert f"{cells[1]} minus {cells[0]}" in (tmp_path / "page.html").read_text()
    capsys.readouterr()
    # A second judge: each has its own files. What was judged since is not scored yet.
    judged(run, lambda _, i: grades(1, 1, 1, i % 2, mode="ABCDEFGH"[i]), name="two")
    assert [one.name.split("-")[0] for one in export(run).value] == ["scores", "differences"]
    answer(capsys, "score", run)
    assert len(export(run, format="tex").value) == 4


def test_copies_in_the_whole_pool_are_counted_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """16 texts: a pair of exact copies, a pair of near ones, and 12 that share no four words."""
    dice = np.random.default_rng(0)
    texts = [" ".join(f"w{dice.integers(10**6)}" for _ in range(20)) for _ in range(14)]
    near = texts[1].split()
    near[8:] = [f"v{k}" for k in range(12)]  # five of its 17 runs of four words are the other's
    assert copied_texts([texts[1], " ".join(near)]) == (0, 0)
    near = texts[1].split()
    near[12:] = [f"v{k}" for k in range(8)]  # nine of them
    some = [*texts, texts[0], " ".join(near)]
    assert copied_texts(some) == (2, 2)
    assert copied_texts(["one two", "one two", "one", "two"]) == (2, 0)  # too short for four words
    assert copied_texts(["a b c d e", "a b c d e"], ["first?", "second?"]) == (0, 0)
    path = tmp_path / "pool.jsonl"
    path.write_text("".join(json.dumps({"text": one}) + "\n" for one in some))
    code, out, err = call(capsys, "plan", path, "-o", tmp_path / "run")
    assert code == 0
    assert "2 (12.5%)" in out
    words = "pool: of 16 texts 2 are exact and 2 near copies of others"
    assert words in err
    run = tmp_path / "run"
    judged(run, lambda _, i: grades(1, 1, 1, i % 2, mode="ABCDEFGH"[i]), name="one")
    code, out, err = call(capsys, "score", run)
    assert f"warning: {words}" in err
    assert "copied: texts with an exact or near copy" in out
    cell = answer(capsys, "score", run)["cells"]["pool"]
    assert (cell["n_exact_copies"], cell["n_near_copies"], cell["copied_share"]) == (2, 2, 0.25)
    (series,) = judged_series([str(run)], [])
    assert series.table.rows[0]["copied_share"] == 0.25
    assert "copied" in [one.heading for one in series.table.columns]
    assert series.table.rows[0]["different_pairs"] == 1.0


def test_compare_says_which_factor_moved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = write(tmp_path / "a.jsonl", [group("ABCDxxxx"), group("ABCDxxxx", number=1, first=8)])
    second = write(tmp_path / "b.jsonl", [group("AAAABBBB"), group("AAAABBBB", number=1, first=8)])
    [row] = answer(capsys, "compare", first, second)["pairs"]
    assert row["ged_difference"] == pytest.approx(0)
    assert (row["valid_share_a"], row["valid_share_b"]) == (0.5, 1.0)
    assert (row["different_pairs_a"], row["different_pairs_b"]) == (1.0, pytest.approx(32 / 56))
    assert row["mode_entropy_b"] == pytest.approx(math.log(2))
    code, out, _ = call(capsys, "compare", first, second)
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert ["valid", "50.0%", "100.0%", "+50.0%"] in lines
    assert ["pairs", "apart", "100.0%", "57.1%", "-42.9%"] in lines
    assert ["GED", "3.33", "3.33", "+0.00"] in lines
    assert ["groups", "judged", "2", "of", "2", "2", "of", "2"] in lines


def test_the_offline_judge_is_no_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = planned(tmp_path / "run", pools())
    assert call(capsys, "judge", run, "--offline", "--features", "ngrams")[0] == 0
    code, out, _ = call(capsys, "score", run)
    assert code == 0
    assert "Judged by offline-v2/ngrams" in out
    assert "no evidence of quality" in " ".join(out.split())


def test_the_human_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = planned(tmp_path / "run", pools())
    told = answer(capsys, "export-human", run, "--first", "2")
    assert Path(told["page"]).stat().st_size == told["bytes"]
    (tmp_path / "wrong.json").write_text("{}")
    code, _, err = call(capsys, "import-human", run, tmp_path / "wrong.json")
    assert code == 1
    assert "not a file of human judgments" in err


@pytest.mark.parametrize(
    "words",
    [
        ["score", "absent.jsonl"],
        ["score", "."],
        ["score", "j.jsonl", "--replicates", "0"],
        ["score", "j.jsonl:nobody"],
        ["score", "j.jsonl", "--labels", "absent"],
        ["compare", "j.jsonl", "j.jsonl"],
        ["compare", "j.jsonl"],
        ["agree", "j.jsonl"],
        ["reliability", "j.jsonl"],
        ["export-human", "."],
        ["export-human", ".", "--first", "0"],
        ["import-human", ".", "j.jsonl"],
    ],
)
def test_wrong_use_is_told_in_words(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "j.jsonl", random_verdicts(1))
    code, out, err = call(capsys, *words)
    assert code == 1
    assert out == ""
    assert err.startswith("strop: ")
    code, out, _ = call(capsys, *words, "--json")
    assert code == 1
    assert json.loads(out)["error"]["what"]
