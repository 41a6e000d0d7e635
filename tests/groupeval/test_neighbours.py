"""NoveltyBench's files there and back, and somebody's own protocol as a profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strop.cli.main import run
from strop.groupeval.by_prompt import distinct_k, utility_k
from strop.groupeval.profile import PROFILES, Profile
from strop.groupeval.verdict import Grade, GroupVerdict


def test_distinct_and_utility_by_hand() -> None:
    outputs = (
        Grade(2, True, (1, 1, 1, 1), "A"),  # shown first, but it is the third answer
        Grade(0, True, (2, 2, 2, 2), "A"),
        Grade(1, False, (0, 0, 0, 0), None),
        Grade(3, True, (1, 1, 1, 1), "B"),
    )
    one = GroupVerdict("c", 0, 0, outputs, "high", "p")
    assert distinct_k(one) == 2
    # Qualities in order: 10, 0 (invalid), 0 (a repeat), 5, weighted 1, .8, .64, .512.
    assert utility_k(one) == pytest.approx((10 + 5 * 0.512) / 2.952)
    assert utility_k(one, patience=0.5) == pytest.approx((10 + 5 / 8) / 1.875)


def test_novelty_bench_there_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"id": "curated-0", "prompt": "p", "generations": ["the red house", "the red house", "9"]},
        {"id": "curated-1", "prompt": "q", "generations": ["a bird sang", "stones are heavy", "x"]},
    ]
    file = tmp_path / "generations.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    place = str(tmp_path / "run")
    assert run(["groupeval", "plan", f"m={file}", "--profile", "answers-v1", "-o", place]) == 0
    assert run(["groupeval", "judge", place, "--offline", "--features", "ngrams"]) == 0
    capsys.readouterr()
    line = ["groupeval", "score", place, "--novelty", str(tmp_path / "nb"), "--json"]
    assert run(line) == 0
    cell = json.loads(capsys.readouterr().out)["cells"]["m"]
    assert cell["distinct_k"]["value"] == pytest.approx(2.5)
    back = {
        name: [
            json.loads(one)
            for one in (tmp_path / f"nb/m/{name}.jsonl").read_text().split("\n")[:-1]
        ]
        for name in ("generations", "partitions", "scores")
    }
    by_prompt = {one["prompt"]: one for one in back["scores"]}
    assert {one["prompt"]: one["generations"] for one in back["generations"]} == {
        one["prompt"]: one["generations"] for one in rows
    }
    assert by_prompt["p"]["partition"] == [0, 0, 1]
    assert by_prompt["p"]["generation_scores"][1] == 0
    assert len(by_prompt["p"]["partition_scores"]) == by_prompt["p"]["distinct"] == 2
    assert by_prompt["q"]["partition"] == [0, 1, 2]
    assert "utility" not in back["partitions"][0]
    web = str(tmp_path / "web")
    texts = tmp_path / "t.jsonl"
    texts.write_text('{"text": "one two three four five six"}\n' * 8)
    assert run(["groupeval", "plan", str(texts), "-o", web]) == 0
    assert run(["groupeval", "judge", web, "--offline", "--features", "ngrams"]) == 0
    capsys.readouterr()
    assert run(["groupeval", "score", web, "--novelty", str(tmp_path / "x")]) == 1
    assert "answers to prompts" in capsys.readouterr().err


def test_a_protocol_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = PROFILES / "webtext-v1"
    line = ["groupeval", "import-profile", "--name", "authors-v1"]
    for name in ("system", "rubric", "user"):
        line += [f"--{name}", str(source / f"{name}.md")]
    out = tmp_path / "authors"
    schema = ["--schema", str(source / "schema.json")]
    bad = tmp_path / "bad.json"
    bad.write_text('{"properties": {}}')
    assert run([*line, "--schema", str(bad), "-o", str(out)]) == 1
    assert "does not ask for what scores" in capsys.readouterr().err
    assert not out.exists()
    assert run([*line, *schema, "-o", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    profile = Profile.load(out)
    assert document["sha256"] == profile.hash != Profile.load("webtext-v1").hash
    assert (profile.name, profile.group_size, profile.modes) == ("authors-v1", 8, True)
    assert profile.system == Profile.load("webtext-v1").system
    assert run([*line, *schema, "-o", str(out)]) == 1
    assert "not empty" in capsys.readouterr().err
    line[3] = "webtext-v1"
    assert run([*line, *schema, "-o", str(tmp_path / "other")]) == 1
    assert "ships has this name" in capsys.readouterr().err
    (out / "rubric.md").write_text("changed")
    assert (
        run(["groupeval", "plan", str(bad), "--profile", str(out), "-o", str(tmp_path / "r")]) == 1
    )
    assert "was changed" in capsys.readouterr().err
