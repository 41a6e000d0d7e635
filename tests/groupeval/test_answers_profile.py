"""answers-v1: several answers to each prompt, scored prompt by prompt, then over prompts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_judgments import group
from pools import jsonl
from scipy.stats import t as student
from scripted_server import Action, answers_verdict, labels_of, serving

from ged_formula import ged_of_counts
from strop.cli.main import run as command
from strop.errors import UserError
from strop.groupeval import Judgments, load_judgments, open_plan, reliability, run, score
from strop.groupeval.bootstrap import compare
from strop.groupeval.by_prompt import (
    WIDE,
    difference_over_prompts,
    over_prompts,
    share_over_prompts,
    too_skewed,
)
from strop.groupeval.human import human_page
from strop.groupeval.inputs import fitted, read_inputs
from strop.groupeval.plan import Source, make_plan
from strop.groupeval.profile import Profile, messages
from strop.groupeval.scores import PlannedGroups, decision
from strop.groupeval.series import Series
from strop.groupeval.verdict import GroupVerdict
from strop.page.tables import judged_series
from strop.pool import Output
from strop.prompts import Canvas, Canvases
from strop.spec import CellSpec, CheckpointSpec, GeneratorSpec, SamplerSpec
from strop.stats.interval import Interval
from strop.stats.resample import skewed, wilson
from strop.store import Run
from strop.verbs.groupeval_score import _numbers

PROFILE = Profile.load("answers-v1")
PROMPTS = ("Name a colour.", "Tell a story.", "What is 3 + 4?")


def answers(name: str, counts: tuple[int, ...] = (3, 2, 4)) -> Source:
    """So many answers to each prompt, one prompt after another in turn."""
    rows = [(p, k) for k in range(max(counts)) for p, n in enumerate(counts) if k < n]
    texts = tuple(f"{name} {p} {k}" for p, k in rows)
    return Source(name, texts, tuple(PROMPTS[p] for p, _ in rows), name)


def test_a_group_is_the_answers_to_one_prompt() -> None:
    b = answers("b")
    backwards = replace(b, texts=b.texts[::-1], prompts=(b.prompts or ())[::-1])
    sources, told = fitted([answers("a"), backwards], PROFILE)
    assert told == []
    plan, texts = make_plan(sources, PROFILE, seed=1)
    assert len(plan.sheets) == 6
    for sheet in plan.sheets:
        (code,) = set(sheet.pools)
        rows = [texts.at(code, "plan", index) for index in sheet.indices]
        assert {prompt for _, prompt in rows} == {PROMPTS[sheet.group]}  # one number everywhere
        whose, number = rows[0][0].split()[:2]
        assert (whose, int(number)) == (plan.blinding[code], sheet.group)
        assert len(rows) == (3, 2, 4)[sheet.group]
    assert plan.group_size == PROFILE.group_size == 16
    with pytest.raises(UserError, match="has no control groups"):
        make_plan(sources, PROFILE, controls=1)


def test_what_cannot_be_grouped_is_left_out_and_said() -> None:
    many = Source("a", tuple(map(str, range(20))), ("p",) * 18 + ("q", "r"), "a")
    (used,), told = fitted([many], PROFILE)
    assert used.texts == tuple(map(str, range(16)))
    assert told == [
        "a: 16 of 20 answers are used; 2 prompts have one answer alone; "
        "2 answers are beyond 16 to a prompt"
    ]
    with pytest.raises(UserError, match="No prompt has two answers"):
        fitted([Source("a", ("x", "y"), ("p", "q"), "a")], PROFILE)
    with pytest.raises(UserError, match="without their prompts"):
        fitted([Source("a", ("x", "y"), None, "a")], PROFILE)
    uneven = [answers("a"), answers("b", (3, 2, 3))]
    with pytest.raises(UserError, match="equally often") as caught:
        fitted(uneven, PROFILE)
    assert "4 answers of a and 3 of b to 'What is 3 + 4?'; 1 prompts" in str(caught.value.got)
    assert fitted(uneven, PROFILE, mixed_sizes=True)[0] == uneven


def test_the_judge_reads_the_prompt_once() -> None:
    asked = messages(PROFILE, ["k2aa", "k3bb"], ["Blue.", "Red."], PROMPTS[0])[1]["content"]
    assert asked.count(PROMPTS[0]) == 1
    assert asked.index(PROMPTS[0]) < asked.index("Blue.") < asked.index("Red.")
    assert "one prompt and 2 answers" in asked
    schema = PROFILE.schema["properties"]["outputs"]
    assert (schema["minItems"], schema["maxItems"]) == (2, 16)
    modes = schema["items"]["properties"]["mode"]["enum"]
    assert modes == [*"ABCDEFGHIJKLMNOP", None]


def on(prompt: int, pattern: str, cell: str = "a", first: int = 0) -> GroupVerdict:
    made = group(pattern, cell=cell, number=prompt, first=first or 100 * prompt)
    return replace(made, prompt=f"prompt {prompt}")


def judged(*verdicts: GroupVerdict, groups: int | None = None) -> Judgments:
    cells = {one.cell for one in verdicts}
    planned = {cell: PlannedGroups(99, groups or len(verdicts), 1) for cell in cells}
    return Judgments("x", list(verdicts), [], planned, True, True)


def t_limits(values: list[float]) -> list[float]:
    n, middle = len(values), float(np.mean(values))
    half = float(student.ppf(0.975, n - 1)) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return [middle - half, middle + half]


# A valid answer has quality 7.5 (2 + 1 + 1 + 2 of 8), an x none.
PATTERNS = ("AB", "AAAx", "ABC", "xAAAB")
QUALITY = [7.5, 7.5 * 3 / 4, 7.5, 7.5 * 4 / 5]
DIVERSITY = [10, 0, 10, ged_of_counts([3, 1], 5)]
ENTROPY = [math.log(2), 0, math.log(3), -0.75 * math.log(0.75) - 0.25 * math.log(0.25)]


def test_prompts_count_once_and_limits_are_students_over_them() -> None:
    verdicts = [on(i, pattern) for i, pattern in enumerate(PATTERNS)]
    cell = score(judged(*verdicts))["cells"]["a"]
    assert cell["geq"].value == pytest.approx(np.mean(QUALITY))
    assert list(cell["geq"].ends) == pytest.approx(t_limits(QUALITY))
    assert (cell["geq"].n, cell["n_prompts"], cell["n_outputs"]) == (4, 4, 14)
    # By answers instead of prompts it would be another number.
    assert cell["geq"].value != pytest.approx(7.5 * 12 / 14)
    assert cell["ged"] == cell["ged_interval"].value == pytest.approx(np.mean(DIVERSITY))
    low, high = t_limits([float(one) for one in DIVERSITY])
    assert list(cell["ged_interval"].ends) == pytest.approx([max(low, 0), min(high, 10)])
    assert cell["mode_entropy"].value == pytest.approx(np.mean(ENTROPY))
    low, high = t_limits(ENTROPY)
    assert list(cell["mode_entropy"].ends) == pytest.approx([max(low, 0), min(high, math.log(5))])
    assert cell["valid_share"].value == pytest.approx((1 + 0.75 + 1 + 0.8) / 4)
    assert cell["geq_bounds"] == [cell["geq"].value] * 2
    assert cell["answers_per_prompt"] == [2, 5]
    assert cell["ceiling_rate"] == 0.5  # two groups, of two sizes, cannot be better


def test_where_all_answers_are_valid_the_share_is_worth_its_prompts() -> None:
    verdicts = [on(i, "ABC") for i in range(24)]
    share = score(judged(*verdicts))["cells"]["a"]["valid_share"]
    expected = wilson(1.0, 24)
    assert (share.value, share.low, share.n) == (1.0, pytest.approx(expected.low), 24)
    assert share.low < 0.9


def test_missing_prompts_move_the_bounds_by_one_each() -> None:
    verdicts = [on(i, pattern) for i, pattern in enumerate(PATTERNS)]
    cell = score(judged(*verdicts, groups=5))["cells"]["a"]
    known = sum(QUALITY)
    assert cell["geq_bounds"] == pytest.approx([known / 5, (known + 10) / 5])


def test_where_prompts_are_too_skewed_limits_are_those_of_any_scores_with_these_bounds() -> None:
    few, many = [10.0] * 20 + [9.0] * 4, [10.0] * 20 + [9.0] * 10
    # Of a share p the skewness is |1 - 2p| / sqrt(p (1 - p)).
    assert skewed(np.array(few)) == pytest.approx((2 / 3) / math.sqrt(5 / 36) / math.sqrt(24))
    assert too_skewed(few)
    assert not too_skewed(many)
    assert not too_skewed([3.0])  # one prompt has no interval in any case
    assert too_skewed([0.1 + 0.2] * 10 + [0.3] * 10)  # rounding is no difference
    assert list(over_prompts(many, (0, 10)).ends) == pytest.approx(t_limits(many))
    worst = wilson(236 / 240, 24)
    found = over_prompts(few, (0, 10))
    # The farther one of Wilson's and Student's at each end.
    assert list(found.ends) == pytest.approx([10 * worst.ends[0], t_limits(few)[1]])
    assert 10 * worst.ends[1] < t_limits(few)[1]
    assert (found.value, found.n) == (pytest.approx(236 / 24), 24)
    # A share is worth its prompts there; its own spread would make 24 answers of 7 be worth more.
    shares = [1.0] * 23 + [6 / 7]
    low = share_over_prompts(shares, 7).low
    assert low == pytest.approx(wilson(float(np.mean(shares)), 24).low)
    assert wilson(float(np.mean(shares)), 24).low < 0.87  # type: ignore[operator]
    verdicts = [on(i, "ABC" if i else "AAB") for i in range(12)]
    cell = score(judged(*verdicts))["cells"]["a"]
    assert all(cell[name].bounded for name in ("geq", "ged_interval", "mode_entropy"))
    assert cell["ged_interval_mind"] == cell["geq_interval_mind"] == WIDE
    plain = score(judged(*(on(i, pattern) for i, pattern in enumerate(PATTERNS))))["cells"]["a"]
    assert plain["ged_interval_mind"] is None


def test_skewed_differences_have_the_limits_of_gains_and_losses() -> None:
    """Twelve prompts of which one is better by 4, and none is worse."""
    found = difference_over_prompts([4.0] + [0.0] * 11, 10)
    gain, loss = wilson(4 / 120, 12), wilson(0, 12)
    assert found.value == pytest.approx(1 / 3)
    reach = math.hypot(10 * (gain.value - gain.ends[0]), 10 * loss.ends[1])
    assert found.low == pytest.approx(1 / 3 - reach)
    assert found.high == pytest.approx(1 / 3 + 10 * (gain.ends[1] - gain.value))
    back = difference_over_prompts([-4.0] + [0.0] * 11, 10)
    assert [-end for end in back.ends[::-1]] == pytest.approx(list(found.ends))
    alike = difference_over_prompts([0.0] * 30, 10)
    assert alike.ends == pytest.approx((-10 * wilson(0, 30).ends[1], 10 * wilson(0, 30).ends[1]))
    spread = [1.0, 2.0, -1.0, 3.0, 0.0, 2.0]
    assert list(difference_over_prompts(spread, 10).ends) == pytest.approx(t_limits(spread))


def decided(a: list[str], b: list[str]) -> str:
    """The sentence about answers to as many prompts as there are patterns."""
    sides = [
        judged(*(on(i, pattern, name) for i, pattern in enumerate(patterns)))
        for name, patterns in (("a", a), ("b", b))
    ]
    compared = compare(*sides)
    return decision(compared["pairs"][0], compared)


def test_a_comparison_ends_in_one_sentence() -> None:
    some = ["ABC", "AAB", "ABx", "AAA", "ABC", "xxA"] * 3
    worse = [pattern[: 1 + i % 2] + "xx"[i % 2 :] for i, pattern in enumerate(some)]
    told = decided(some, worse)
    assert told.startswith("b is worse than a (GEQ -")
    assert "; b is less diverse than a (GED -" in told
    assert told.count(", 95%)") == 2
    back = decided(worse, some)
    assert back.startswith("b is better than a (GEQ +")
    assert "b is more diverse than a (GED +" in back
    shuffled = some[1:] + some[:1]
    told = decided(some, shuffled)
    assert told.startswith("b and a are not told apart in quality (GEQ +0.00 [-")
    assert "b and a are not told apart in content (GED +0.00 [-" in told
    same = decided(["AB"] * 9, ["Ax"] * 9)
    assert same.startswith(
        "b and a are not told apart in quality (GEQ -3.75 [-6.80, +0.02], 95%); "
    )
    assert same.endswith("b is less diverse than a (GED -10.00 [-10.00, -5.77], 95%).")
    one = decided(["AB"], ["Ax"])
    assert one == (
        "It is not known whether b differs from a in quality: GEQ -3.75, no interval; it is not "
        "known whether b differs from a in content: GED -10.00, no interval."
    )


def test_both_differences_are_printed_with_signs_and_ends() -> None:
    left, right = ([on(i, p, name) for i, p in enumerate(("ABC", "AAB", "ABx"))] for name in "ab")
    row = compare(judged(*left), judged(*right))["pairs"][0]
    row["ged_difference_interval"] = Interval(-1.25, -5.5, 2.0)
    printed = {line[0]: line[-1] for line in _numbers(row)}
    assert printed["GED"] == "-1.25 [-5.50, +2.00]"
    assert printed["GEQ"].startswith("+0.00 [-")


def test_a_comparison_is_paired_by_prompt() -> None:
    left = [on(i, pattern) for i, pattern in enumerate((*PATTERNS, "AB", "AB"))]
    # The same prompts under other numbers, one with another number of answers, one unknown.
    other = ("AA", "AAAA", "AxC", "AAAAA", "ABC")
    right = [replace(on(9 - i, p, "b"), prompt=f"prompt {i}") for i, p in enumerate(other)]
    row = compare(judged(*left), judged(*right))["pairs"][0]
    differences = [0, 7.5 / 4, -7.5 / 3, 7.5 / 5]
    assert (row["n_prompts"], row["n_prompts_left_out"]) == (4, 2)
    assert row["geq_a"] == pytest.approx(np.mean(QUALITY))
    assert row["geq_difference"].value == pytest.approx(np.mean(differences))
    expected = difference_over_prompts(differences, 10)
    assert row["geq_difference"].ends == pytest.approx(expected.ends)
    diversity = [0, 0, ged_of_counts([1, 1], 3), 0]
    apart = [b - a for a, b in zip(DIVERSITY, diversity, strict=True)]
    assert row["ged_difference"] == pytest.approx(np.mean(apart))
    low, high = t_limits(apart)
    assert row["ged_difference_interval"].ends == pytest.approx((max(low, -10), high))
    assert row["geq_interval_excludes_zero"] is False
    with pytest.raises(UserError, match="no prompt in common"):
        compare(judged(*left), judged(replace(right[0], prompt="another")))
    with pytest.raises(UserError, match="profiles differ"):
        compare(judged(*left), judged(replace(right[0], prompt=None)))


def test_from_python_to_scores_through_a_server(tmp_path: Path) -> None:
    texts = {"a": ["1", "2", "3", "", "5"], "b": ["1", "", "", "", "5"]}
    prompts = ["p", "q", "p", "q", "q"]
    with serving(lambda body, _: Action(answers_verdict(body))) as served:
        result = run(texts, prompts=prompts, base_url=served.url, model="m", out=tmp_path / "ge")
    assert sorted(len(labels_of(one)) for one in served.requests) == [2, 2, 3, 3]
    cells = result.value["cells"]
    assert cells["a"]["geq"].value == pytest.approx((10 + 20 / 3) / 2)  # p is whole, q lacks one
    assert cells["b"]["geq"].value == pytest.approx((5 + 10 / 3) / 2)
    assert result.table.title == "Judged by m"
    headings = [one.heading for one in result.table.columns]
    assert headings[:6] == ["generator", "judged", "GEQ", "GED", "valid", "mode entropy"]
    (shown,) = judged_series([str(tmp_path / "ge")], [])
    factors = ["valid_share", "mode_entropy", "different_pairs"]
    protocol = ["effective_modes", "dominant_share", "singleton_rate", "ceiling_rate"]
    names = ["name", "geq", "ged_interval", *factors, *protocol, "judged"]
    assert [one.name for one in shown.table.columns] == names
    for row in shown.table.rows:
        assert {name: row[name] for name in names[1:-1]} == {
            name: cells[row["name"]][name] for name in names[1:-1]
        }
    copy = tmp_path / "judgments.jsonl"
    assert command(["groupeval", "score", str(tmp_path / "ge"), "--portable", str(copy)]) == 0
    carried = score(load_judgments(str(copy)))["cells"]
    assert {k: v["geq"] for k, v in carried.items()} == {k: v["geq"] for k, v in cells.items()}
    assert carried["a"]["n_groups_asked"] == 2
    assert reliability(Series.open(tmp_path / "ge"))["positions"]["n_groups"] == 2
    assert "Read the 2 to 3 texts" in human_page(tmp_path / "ge")
    with pytest.raises(UserError, match="not as many prompts as texts"):
        run(texts, prompts=prompts[:4], offline=True, out=tmp_path / "new")


def test_the_offline_judge_takes_short_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"question": PROMPTS[0], "response": text} for text in ("Blue.", "Red", "", "12")]
    path = jsonl(tmp_path / "a.jsonl", rows * 2)
    words = ["--field", "response", "--prompt-field", "question", "--profile", "answers-v1"]
    place = str(tmp_path / "ge")
    assert command(["groupeval", "plan", str(path), *words, "-o", place]) == 0
    assert "1 groups to judge under answers-v1" in capsys.readouterr().out
    line = ["groupeval", "judge", place, "--offline", "--features", "ngrams"]
    assert command(line) == 0
    (verdict,) = Series.open(place).verdicts()
    plan, _ = open_plan(place)
    assert verdict.prompt == PROMPTS[0]
    assert {one.index: one.valid for one in verdict.outputs} == {
        i: rows[i % 4]["response"] != "" for i in range(8)
    }
    assert len({one.mode for one in verdict.outputs if one.valid}) == 3  # copies share a mode
    assert plan.cells == {"a": 8}
    copies = ["--profile", "webtext-v1", *words[:4], "-o", str(tmp_path / "web")]
    assert command(["groupeval", "plan", str(path), *copies]) == 0
    assert "--profile answers-v1 judges them prompt by prompt" in capsys.readouterr().err
    # Under webtext-v1 the judge sees no prompt: each text has its own.
    command(["groupeval", "judge", str(tmp_path / "web"), "--offline", "--features", "ngrams"])
    series = Series.open(tmp_path / "web")
    assert {series.sheet_texts(sheet)[1] for sheet in series.plan.sheets} == {None}


def test_exact_copies_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of eight texts two are one and three are another; under other prompts only one pair is."""
    texts = ["x y", "x y", "z", "z", "z", "p", "q", "r"]
    prompts = ["1", "1", "1", "2", "3", "2", "3", "1"]
    rows = [{"text": t, "prompt": p} for t, p in zip(texts, prompts, strict=True)]
    path = str(jsonl(tmp_path / "a.jsonl", rows))
    counted = []
    for profile in ("webtext-v1", "answers-v1"):
        line = ["groupeval", "plan", path, "--profile", profile, "-o", str(tmp_path / profile)]
        assert command([*line, "--json"]) == 0
        counted.append(json.loads(capsys.readouterr().out))
    web, answered = counted
    assert (web["copies"], answered["copies"]) == ({"a": 5}, {"a": 2})
    told = "a: of 8 texts 5 are exact and 0 near copies of others"
    assert any(note.startswith(told) for note in web["notes"])
    assert not any("copies" in note for note in answered["notes"])
    assert command(line) == 0
    assert "2 (25.0%)" in capsys.readouterr().out


def test_a_run_of_strop_brings_its_prompts(tmp_path: Path) -> None:
    canvases = Canvases(tuple(Canvas(f"p{i}", (i, None, None)) for i in range(2)))
    checkpoint = CheckpointSpec(family="llada", sha256="0" * 64, shape={})
    generator = GeneratorSpec(
        checkpoint=checkpoint,
        sampler=SamplerSpec(name="llada", steps=2),
        length=2,
        prompts=canvases.spec,
    )
    spec = CellSpec(generator=generator, seed=0)
    made = Run.prepare(tmp_path / "run", {"n": 4}, [spec])
    made.keep_prompts(canvases, [["Name a colour.", 2], ["Say [[", 3, "]]", 2]])
    cell = made.cell(spec.id)
    with cell.writing():
        cell.add(
            Output(i, np.zeros(2, int), 1, 0.1, 0, np.zeros(2, int), f"{i}", prompt=f"p{i % 2}")
            for i in range(4)
        )
        cell.merge()
    (source,) = read_inputs([str(tmp_path / "run")], prompted=True)
    assert source.prompts == ("Name a colour.", "Say [[[[3]]]]") * 2
    assert fitted([source], PROFILE) == ([source], [])
    assert read_inputs([str(tmp_path / "run")])[0].prompts is None  # older plans stay the same
