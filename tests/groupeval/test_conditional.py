from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_runs import judged, planned

from strop.errors import UserError
from strop.groupeval.bootstrap import score
from strop.groupeval.judgments import load_judgments
from strop.groupeval.labelled import Labelled, conditional, label, read_labels
from strop.rng import derive_seed
from strop.stats.resample import intervals, mean


def drawn(signal: float, prompts: int = 120, seed: int = 0) -> Labelled:
    """Success by chance; quality follows it as far as `signal` says."""
    rng = np.random.default_rng(seed)
    passed = rng.random((prompts, 2)) < 0.5
    quality = np.clip(np.round(rng.normal(4 + signal * passed, 1.5) / 1.25), 0, 8) * 1.25
    return Labelled(("one", "two"), quality, passed)


def by_pairs(data: Labelled) -> float:
    passes, failures = data.quality[data.passed], data.quality[~data.passed]
    gaps = np.sign(passes[:, None] - failures[None])
    return float((gaps + 1).mean() / 2)


def test_auroc_is_the_chance_to_rank_a_pass_higher() -> None:
    for signal in (0.0, 1.0, 3.0):
        data = drawn(signal)
        told = conditional(data, replicates=200)
        assert told["auroc"].value == pytest.approx(by_pairs(data), abs=1e-12)
        gaps = [
            (q[1] - q[0]) if p[1] else (q[0] - q[1])
            for q, p in zip(data.quality, data.passed, strict=True)
            if p[0] != p[1]
        ]
        assert told["discordant"].value == pytest.approx(np.mean(gaps))
        assert told["n_discordant"] == len(gaps)
        first, second = (one.value for one in told["cgeq"])
        assert told["cgeq_difference"].value == pytest.approx(second - first)


def test_by_hand() -> None:
    """Four prompts: both pass, only the first, only the second, neither."""
    quality = np.array([[5.0, 5.0], [7.5, 2.5], [5.0, 5.0], [2.5, 5.0]])
    passed = np.array([[True, True], [True, False], [False, True], [False, False]])
    told = conditional(Labelled(("a", "b"), quality, passed), replicates=500)
    assert told["n_pairs"] == {"both": 1, "only_first": 1, "only_second": 1, "neither": 1}
    assert told["n_preferred"] == {"right": 1, "tied": 1, "wrong": 0}
    assert told["preferred"].value == 0.75
    assert told["discordant"].value == 2.5
    assert [one.value for one in told["cgeq"]] == [5.0, 4.375]
    assert told["cgeq_difference"].value == -0.625
    # Passed 5, 5, 7.5, 5 against failed 2.5, 5, 2.5, 5: 10 of 16 won, 6 tied.
    assert told["auroc"].value == 13 / 16
    # a: 5 and 7.5 against 5 and 2.5 (three won, one tied); b: 5, 5 against 2.5, 5.
    assert [one.value for one in told["auroc_by_generator"]] == [3.5 / 4, 3 / 4]
    for side in (0, 1):
        one = told["cgeq"][side]
        assert quality[:, side].min() <= one.low <= one.value <= one.high
    for key in ("preferred", "auroc"):
        assert told[key].low <= told[key].value <= told[key].high <= 1


def test_intervals_of_one_generator_are_those_of_its_mean() -> None:
    """Percentiles of 4,000 draws against the normal interval: the ends within a tenth of its
    width, which is four times what the draws and the skewness of 120 bounded values leave open."""
    data = drawn(1.0)
    told = conditional(data, replicates=4000)
    for side in (0, 1):
        mine = data.quality[:, side]
        error = mine.std() / np.sqrt(len(mine))
        wanted = [mine.mean() - 1.96 * error, mine.mean() + 1.96 * error]
        assert told["cgeq"][side].ends == pytest.approx(wanted, abs=0.392 * error)
        alone = Labelled(("x", "x"), mine[:, None].repeat(2, 1), data.passed[:, [side, side]])
        assert told["auroc_by_generator"][side].value == pytest.approx(by_pairs(alone))


def test_the_first_is_the_one_that_is_named_first(tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"one": ["right"], "two": ["wrong"]}, profile="task-v1")
    judged(run, rule)
    labels = {("one", 0): True, ("two", 0): False}
    for order in (("one", "two"), ("two", "one")):
        data = label(load_judgments(str(run)), labels, order)
        assert data.names == order
        assert data.passed.tolist() == [[name == "one" for name in order]]


def test_intervals_tell_signal_from_none() -> None:
    """A gap of 3 points in quality (AUROC near .9) is seen; none (negative control) is not."""
    seen = conditional(drawn(3.0), replicates=2000)
    assert seen["auroc"].above(0.8)
    assert seen["discordant"].above(1)
    none = conditional(drawn(0.0), replicates=2000)
    assert not none["auroc"].excludes(0.5)
    assert not none["discordant"].excludes(0)


def test_interval_is_that_of_whole_prompts() -> None:
    """Two responses that repeat each other are one observation: the interval must know it.

    With every prompt's two responses equal, the bootstrap over prompts gives the standard error of
    half as many responses; a bootstrap over responses would be 1.41 times too narrow.
    """
    rng = np.random.default_rng(1)
    passed = np.repeat(rng.random((100, 1)) < 0.5, 2, axis=1)
    quality = np.repeat(np.round(rng.normal(4 + passed[:, :1], 1.5) / 1.25) * 1.25, 2, axis=1)
    whole = conditional(Labelled(("a", "b"), quality, passed), replicates=4000)
    spread = 2 * whole["auroc"].half
    single = Labelled(("a", "b"), quality[:, :1].repeat(2, axis=1), passed)
    draws = []
    for _ in range(1500):
        rows = rng.integers(0, 100, 100)
        draws.append(by_pairs(Labelled(("a", "b"), single.quality[rows, :1], passed[rows, :1])))
    assert spread == pytest.approx(np.diff(np.quantile(draws, [0.025, 0.975]))[0], rel=0.12)


def test_undefined_statistics_are_none() -> None:
    data = Labelled(("a", "b"), np.full((4, 2), 5.0), np.ones((4, 2), bool))
    told = conditional(data, replicates=20)
    assert told["auroc"] is None
    assert [one.value for one in told["cgeq"]] == [5.0, 5.0]
    assert told["discordant"] is None
    assert told["n_discordant"] == 0


def rule(text: str, _: int) -> dict[str, object]:
    right = "right" in text
    names = ("readability", "reasoning", "success", "nondegeneration")
    return {"valid": True, **dict(zip(names, (2, int(right), 2 * right, 2), strict=True))}


def test_from_a_judged_run_and_labels(tmp_path: Path) -> None:
    cells = {"one": ["right", "wrong", "right", "wrong"], "two": ["right", "right", "no", "no"]}
    run = planned(tmp_path / "run", cells, profile="task-v1")
    judged(run, rule)
    judgments = load_judgments(str(run))
    told = score(judgments, replicates=10)["cells"]
    assert all(cell["ged"] is None and cell["ged_bounds"] is None for cell in told.values())
    assert told["one"]["geq"].value == pytest.approx((8.75 * 2 + 5 * 2) / 4)
    path = tmp_path / "labels.jsonl"
    lines = [
        {"cell": name, "index": i, "success": "right" in text}
        for name, texts in cells.items()
        for i, text in enumerate(texts)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    result = conditional(label(judgments, read_labels(path)), replicates=50)
    assert result["auroc"].value == 1
    assert result["discordant"].value == pytest.approx(3.75)
    assert result["n_discordant"] == 2
    path.write_text("\n".join(map(json.dumps, lines[:-1])))
    with pytest.raises(UserError, match="no label"):
        label(judgments, read_labels(path))


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"cell": "a"}', '{"cell": "a", "index": "0", "success": true}',
     '{"cell": "a", "index": 0, "success": 1}',
     '{"cell": "a", "index": 0, "success": true}\n{"cell": "a", "index": 0, "success": false}'],
)  # fmt: skip
def test_labels_that_cannot_be_read(content: str, tmp_path: Path) -> None:
    (tmp_path / "labels").write_text(content)
    with pytest.raises(UserError):
        read_labels(tmp_path / "labels")
    with pytest.raises(UserError):
        read_labels(tmp_path / "absent")


def test_the_document_by_hand() -> None:
    """Two prompts: only the second generator passed the first, both the other."""
    quality = np.array([[2.5, 5.0], [7.5, 6.25]])
    passed = np.array([[False, True], [True, True]])
    data = Labelled(("a", "b"), quality, passed)
    told = conditional(data, replicates=60, seed=3)
    assert (told["generators"], told["n_prompts"]) == (["a", "b"], 2)
    assert told["success"] == [0.5, 1.0]
    assert told["difference"] == "second minus first"
    assert told["n_pairs"] == {"both": 1, "only_first": 0, "only_second": 1, "neither": 0}
    assert (told["n_discordant"], told["n_preferred"]) == (
        1,
        {"right": 1, "tied": 0, "wrong": 0},
    )
    assert told["auroc_by_generator"][1] is None
    seed = derive_seed(3, "groupeval-conditions")
    alone = intervals({"x": mean(quality[:, 1])}, replicates=60, seed=seed)["x"]
    assert told["cgeq"][1] == alone
    turned = conditional(Labelled(("b", "a"), quality[:, ::-1], passed[:, ::-1]), replicates=60)
    assert turned["n_pairs"] == {"both": 1, "only_first": 1, "only_second": 0, "neither": 0}
    assert turned["discordant"].value == told["discordant"].value == 2.5
    assert turned["cgeq"] == [
        intervals(
            {"x": mean(quality[:, k])}, replicates=60, seed=derive_seed(0, "groupeval-conditions")
        )["x"]
        for k in (1, 0)
    ]
    worse = conditional(Labelled(("a", "b"), quality[:, ::-1], passed), replicates=20)
    assert worse["n_preferred"] == {"right": 0, "tied": 0, "wrong": 1}
    assert (worse["preferred"].value, worse["discordant"].value) == (0.0, -2.5)


def test_labels_as_they_are_written(tmp_path: Path) -> None:
    lines = [
        '{"cell": "é", "index": 0, "success": true, "more": 1}',
        "",
        "  ",
        '{"cell": "é", "index": 1, "success": false}',
        '{"cell": "é", "index": 0, "success": true}',
    ]
    path = tmp_path / "labels"
    path.write_text("\n".join(lines), encoding="utf-8-sig")
    assert read_labels(path) == {("é", 0): True, ("é", 1): False}
    for wrong, what in (
        ("x" * 121, "not JSON"),
        (lines[3].replace("1,", "0,"), "two labels"),
    ):
        path.write_text("\n".join([*lines, wrong]), encoding="utf-8")
        with pytest.raises(UserError, match=what) as caught:
            read_labels(path)
        assert caught.value.where == f"{path}, line 6"
        assert wrong[:60] in str(caught.value.got)
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(UserError, match="not UTF-8"):
        read_labels(path)
    for wrong in ('{"cell": 1, "index": 0, "success": true}', '{"index": 0, "success": true}'):
        path.write_text(wrong)
        with pytest.raises(UserError, match="A label cannot be read"):
            read_labels(path)


def test_labels_are_put_to_the_prompts_that_both_answered() -> None:
    def cell(name: str, outputs: tuple[int, ...]) -> Any:
        row = {index: k for k, index in enumerate(outputs)}
        quality = np.array([10.0 * index + (name == "b") for index in outputs])
        return SimpleNamespace(name=name, outputs=outputs, row=row, per_output=quality)

    cells = {"a": cell("a", (3, 1, 2)), "b": cell("b", (2, 3, 4))}
    judged: Any = SimpleNamespace(cells=cells, by_prompt=False, source="here")
    labels = {("a", 3): True, ("a", 2): False, ("b", 3): False, ("b", 2): True}
    found = label(judged, labels)
    assert found.names == ("a", "b")
    assert found.quality.tolist() == [[30, 31], [20, 21]]
    assert found.passed.tolist() == [[True, False], [False, True]]
    turned = label(judged, labels, ("b", "a"))
    assert (turned.names, turned.quality.tolist()) == (("b", "a"), [[21, 20], [31, 30]])
    with pytest.raises(UserError, match="no label") as caught:
        label(judged, {key: value for key, value in labels.items() if key != ("b", 2)})
    assert caught.value.got == "cell 'b', index 2"
    for other, got in (
        ({"cells": {"a": cells["a"]}}, "1 cells"),
        ({"cells": {**cells, "c": cells["a"]}}, "3 cells"),
        ({"by_prompt": True}, "2 cells, several answers a prompt"),
    ):
        with pytest.raises(UserError, match="two generators") as caught:
            label(SimpleNamespace(**{**vars(judged), **other}), labels)  # type: ignore[arg-type]
        assert caught.value.got == got
