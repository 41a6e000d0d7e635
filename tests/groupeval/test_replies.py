"""Only what is right in every part is a verdict."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pools import planned, reply, verdict

from strop.errors import UserError
from strop.groupeval.profile import Profile
from strop.groupeval.series import Series, list_series, open_plan
from strop.groupeval.verdict import GroupVerdict, NoVerdict, _surely_fits, read_reply
from strop.served.cost import usage
from strop.spec import JudgeSpec

PROFILE = Profile.load("webtext-v1")
LABELS = tuple(f"k{i}bb" for i in range(2, 10))
ZERO = {"valid": False, "readability": 0, "coherence": 0, "substance": 0, "nondegeneration": 0}
INVALID: dict[str, Any] = {**ZERO, "mode": None, "hybrid": False}


def test_a_right_reply_is_read() -> None:
    for good in (verdict(LABELS), verdict(LABELS, **INVALID), verdict(LABELS[::-1])):
        assert read_reply(json.dumps(good), LABELS, PROFILE) == good


WRONG = {
    "empty": ["", "   \n", None],
    "not_json": [
        "{",
        "Sure! {}",
        "```json\n{}\n```",
        json.dumps(verdict(LABELS)) + "}",
        json.dumps(verdict(LABELS))[:-2],
        '{"confidence": NaN}',
        '{"outputs": [], "outputs": []}',
        "[" * 100_000,
    ],
    "schema_mismatch": [
        "null",
        "[]",
        json.dumps({"outputs": verdict(LABELS)["outputs"]}),
        json.dumps({**verdict(LABELS), "winner": "k2bb"}),
        json.dumps({**verdict(LABELS), "confidence": "sure"}),
        json.dumps(verdict(LABELS[:7])),
        json.dumps(verdict((*LABELS, "k9zz"))),
        json.dumps(verdict(LABELS, readability=3)),
        json.dumps(verdict(LABELS, readability=True)),
        json.dumps(verdict(LABELS, readability="2")),
        json.dumps(verdict(LABELS, readability=1.5)),
        json.dumps(verdict(LABELS, valid="yes")),
        json.dumps(verdict(LABELS, mode="I")),
        json.dumps(verdict(LABELS, mode=["A", "B"])),
        json.dumps(verdict(LABELS, note="good")),
    ],
    "rule_violation": [
        json.dumps(verdict((*LABELS[:7], "k2bb"))),
        json.dumps(verdict((*LABELS[:7], "K9BB"))),
        json.dumps(verdict(LABELS, mode=None)),
        json.dumps(verdict(LABELS, **{**INVALID, "coherence": 1})),
        json.dumps(verdict(LABELS, **{**INVALID, "mode": "A"})),
        json.dumps(verdict(LABELS, **{**INVALID, "hybrid": True})),
    ],
}


@pytest.mark.parametrize(("reason", "text"), [(k, t) for k, texts in WRONG.items() for t in texts])
def test_anything_else_has_its_reason(reason: str, text: str | None) -> None:
    with pytest.raises(NoVerdict) as caught:
        read_reply(text, LABELS, PROFILE)
    assert caught.value.reason == reason
    assert caught.value.detail


GRADE = st.sampled_from([0, 1, 2])
OUTPUT = st.fixed_dictionaries(
    {
        "id": st.sampled_from([*LABELS, "k0zz"]),
        "valid": st.booleans(),
        "readability": GRADE,
        "coherence": GRADE,
        "substance": GRADE,
        "nondegeneration": GRADE,
        "mode": st.sampled_from([*"ABCDEFGH", None]),
        "hybrid": st.booleans(),
    }
)
DIMENSIONS = PROFILE.dimensions


@given(
    st.permutations(LABELS),
    st.lists(OUTPUT, min_size=8, max_size=8),
    st.booleans(),
    st.sampled_from(["high", "medium", "low"]),
)
def test_the_rules_are_exactly_these(
    order: list[str], outputs: list[dict[str, Any]], renamed: bool, confidence: str
) -> None:
    if renamed:
        outputs = [{**one, "id": name} for one, name in zip(outputs, order, strict=True)]
    right = sorted(one["id"] for one in outputs) == sorted(LABELS) and all(
        one["mode"] is not None
        if one["valid"]
        else one["mode"] is None and not one["hybrid"] and not any(one[d] for d in DIMENSIONS)
        for one in outputs
    )
    text = json.dumps({"outputs": outputs, "confidence": confidence})
    if right:
        read_reply(text, LABELS, PROFILE)
        return
    with pytest.raises(NoVerdict) as caught:
        read_reply(text, LABELS, PROFILE)
    assert caught.value.reason == "rule_violation"


@given(st.text() | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps))
def test_no_text_gets_through_or_raises_anything_else(text: str) -> None:
    with pytest.raises(NoVerdict):
        read_reply(text, LABELS, PROFILE)


def test_the_blinding_is_undone_in_display_order(tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 16, "b": 16})
    series = Series.create(run, JudgeSpec(kind="test", model="x"))
    for sheet in series.plan.sheets:
        series.append({"sheet": sheet.id, "outcome": "verdict", "reply": reply(sheet, **INVALID)})
    assert len(series.verdicts()) == series.asked == 8
    groups = {(g.cell, g.partition, g.group): g for g in series.plan.groups}
    for one in series.verdicts():
        group = groups[one.cell, one.partition, one.group]
        assert tuple(grade.index for grade in one.outputs) == group.indices
        assert one.outputs[0].scores == (0, 0, 0, 0)
        assert one.outputs[0].mode is None
        assert one.outputs[1].scores == (1, 2, 1, 2)
        assert one.confidence == "medium"


def test_task_verdicts_come_apart_by_generator(tmp_path: Path) -> None:
    from strop.groupeval.plan import Source, make_plan
    from strop.groupeval.series import write_plan

    profile = Profile.load("task-v1")
    prompts = ("one?", "two?", "three?")
    sources = [Source(name, ("1", "2", "3"), prompts, name) for name in ("left", "right")]
    plan, texts = make_plan(sources, profile)
    write_plan(tmp_path / "run", plan, profile, texts)
    series = Series.create(tmp_path / "run", JudgeSpec(kind="test"))
    grade = {"valid": True, "readability": 2, "reasoning": 1, "nondegeneration": 2}
    for sheet in plan.sheets:
        outputs = [
            {"id": label, **grade, "success": 2 if plan.blinding[pool] == "left" else 0}
            for label, pool in zip(sheet.labels, sheet.pools, strict=True)
        ]
        text = json.dumps({"outputs": outputs, "confidence": "high"})
        series.append({"sheet": sheet.id, "outcome": "verdict", "reply": text})
    found = series.verdicts()
    assert len(found) == series.asked == 6
    for one in found:
        assert [g.index for g in one.outputs] == [one.group]
        assert one.outputs[0].scores[2] == (2 if one.cell == "left" else 0)
    assert series.sheet_texts(plan.sheets[0])[1] in prompts


# The journal and the directory


@pytest.fixture
def series(tmp_path: Path) -> Series:
    made = Series.create(planned(tmp_path / "run", {"a": 16}), JudgeSpec(kind="test", model="x"))
    for sheet in made.plan.sheets[:2]:
        made.append({"sheet": sheet.id, "outcome": "verdict", "reply": reply(sheet)})
    return made


def test_a_torn_line_is_passed_over_and_mended(series: Series) -> None:
    whole = series.journal.path.read_bytes()
    series.journal.path.write_bytes(whole + whole[:100])
    again = Series.open(series.run)
    assert len(again.verdicts()) == 2
    with again.writing():
        sheet = again.plan.sheets[2]
        again.append({"sheet": sheet.id, "outcome": "verdict", "reply": reply(sheet)})
    assert len(Series.open(series.run).verdicts()) == 3
    assert series.journal.path.read_bytes().startswith(whole)


def test_a_changed_reply_is_noticed(series: Series) -> None:
    text = series.journal.path.read_text().replace(
        '\\"readability\\": 1', '\\"readability\\": 2', 1
    )
    series.journal.path.write_text(text)
    with pytest.raises(UserError, match="journal is damaged"):
        Series.open(series.run).verdicts()


def test_a_later_failure_does_not_undo_a_verdict(series: Series) -> None:
    sheet = series.plan.sheets[0]
    series.append({"sheet": sheet.id, "outcome": "timeout", "detail": "late"})
    assert len(series.verdicts()) == 2
    assert series.failures() == []


def test_the_first_verdict_counts(series: Series) -> None:
    sheet = series.plan.sheets[0]
    series.append({"sheet": sheet.id, "outcome": "verdict", "reply": reply(sheet, **INVALID)})
    assert all(one.outputs[0].valid for one in series.verdicts())


def test_judges_are_series_of_their_own(series: Series) -> None:
    other = Series.create(series.run, JudgeSpec(kind="test", model="y"))
    assert other.id != series.id
    assert {one.id for one in list_series(series.run)} == {series.id, other.id}
    assert Series.open(series.run, "y").id == other.id
    assert Series.open(series.run, series.id[:6]).id == series.id
    assert Series.create(series.run, JudgeSpec(kind="test", model="x")).verdicts() != []
    with pytest.raises(UserError, match="Several judges") as caught:
        Series.open(series.run)
    assert series.id in str(caught.value.expected)
    with pytest.raises(UserError, match="No series matches 'z'"):
        Series.open(series.run, "z")


def test_changed_texts_are_noticed(series: Series) -> None:
    other = planned(series.run.parent / "other", {"a": 24})
    (series.run / "texts.parquet").write_bytes((other / "texts.parquet").read_bytes())
    with pytest.raises(UserError, match="frozen texts"):
        Series.open(series.run).texts("a")


def test_a_changed_plan_is_noticed(series: Series) -> None:
    path = series.run / "plan.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(UserError, match="another plan, profile or judge"):
        Series.open(series.run)


def test_verdicts_hold_no_surprise(series: Series) -> None:
    (first, _) = series.verdicts()
    assert isinstance(first, GroupVerdict)
    assert first.portable()["outputs"][0]["scores"] == [1, 2, 1, 2]


KILLED = ["plan.json", "texts.parquet", "blinding.json", "profile/MANIFEST", "profile/user.md"]


@pytest.mark.parametrize("name", KILLED)
def test_a_plan_that_was_killed_while_it_was_written_is_continued(
    tmp_path: Path, name: str
) -> None:
    """Everything from one file on is missing, and that file is a temporary one as a kill leaves."""
    run = planned(tmp_path / "run", {"a": 16})
    for later in ("plan.json", name):
        (run / later).unlink(missing_ok=True)
    (run / name).with_name(".tmp-0123").write_bytes(b"half")
    planned(run, {"a": 16})
    assert len(open_plan(run)[0].groups) == 4
    assert not list(run.rglob(".tmp-*"))


WRONG = {
    "reply": 3,
    "sheet": ["00000"],
    "repeat": "0",
    "outcome": None,
    "detail": {"a": 1},
    "calls": "4",
    "attempt": -1,
    "tokens": {"prompt": "many", "completion": 1},
    "sheets": "00000",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_line_of_wrong_types_is_told_with_its_number(series: Series, name: str) -> None:
    lines = series.journal.path.read_bytes().splitlines()
    first = json.loads(lines[0])
    with open(series.journal.path, "a") as file:
        file.write(json.dumps({**first, name: WRONG[name]}) + "\n")
    again = Series.open(series.run)
    with pytest.raises(UserError, match="journal is damaged") as caught:
        again.verdicts()
    assert f"line {len(lines) + 1}" in str(caught.value.where)
    with pytest.raises(UserError, match="journal is damaged"):
        usage(again.journal.entries())


def test_no_flipped_byte_in_the_texts_gets_through(series: Series) -> None:
    path = series.run / "texts.parquet"
    whole, right = path.read_bytes(), series.texts("a")
    rng = random.Random(0)
    for _ in range(300):
        place = rng.randrange(len(whole))
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ 1 << rng.randrange(8)]) + whole[place + 1 :]
        )
        with suppress(UserError):
            assert Series.open(series.run).texts("a") == right  # a byte that nobody reads


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan["sheets"][0]["pools"].__setitem__(0, "pool-999"),
        lambda plan: plan["sheets"][0]["indices"].__setitem__(0, 10**6),
        lambda plan: plan["sheets"][0]["indices"].__setitem__(0, "1"),
        lambda plan: plan["sheets"][0]["labels"].pop(),
        lambda plan: plan["sheets"].__setitem__(0, 3),
        lambda plan: plan["sheets"][0].__setitem__("kind", "other"),
        lambda plan: plan["sizes"].__setitem__("pool-999", 8),
        lambda plan: plan.__setitem__("sizes", 3),
        lambda plan: plan.pop("seed"),
    ],
)
def test_a_plan_without_sense_is_told(series: Series, change: Any) -> None:
    path = series.run / "plan.json"
    document = json.loads(path.read_text())
    change(document["plan"])
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="damaged") as caught:
        open_plan(series.run)
    assert caught.value.where == str(path)


def test_what_is_wrong_with_a_long_reply_is_not_cut_off() -> None:
    document = verdict(LABELS)
    document["outputs"].pop()
    with pytest.raises(NoVerdict) as caught:
        read_reply(json.dumps(document), LABELS, PROFILE)
    assert caught.value.detail.endswith("... is too short")
    assert len(caught.value.detail) < 120


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.floats(0, 2) | st.sampled_from("AH"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)
KEYWORDS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["object", "array", "integer", "boolean", ["string", "null"]]),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(0, 2),
        "required": st.lists(st.sampled_from("abc"), unique=True),
        "additionalProperties": st.booleans(),
        "minimum": st.integers(0, 2),
    },
)
SCHEMAS = st.recursive(
    KEYWORDS,
    lambda inner: st.tuples(KEYWORDS, inner, st.dictionaries(st.sampled_from("abc"), inner)).map(
        lambda parts: {**parts[0], "items": parts[1], "properties": parts[2]}
    ),
    max_leaves=4,
)


@given(VALUES, SCHEMAS)
def test_what_surely_fits_fits(value: Any, schema: dict[str, Any]) -> None:
    """The short way never lets through what the validator would not."""
    if _surely_fits(value, schema):
        assert Draft202012Validator(schema).is_valid(value)


def test_a_right_reply_surely_fits() -> None:
    assert _surely_fits(verdict(LABELS), PROFILE.schema)
    assert not _surely_fits(verdict(LABELS, readability=1.0), PROFILE.schema)  # but is read
    assert read_reply(json.dumps(verdict(LABELS, readability=1.0)), LABELS, PROFILE)


def test_every_reply_is_validated_once(series: Series, monkeypatch: pytest.MonkeyPatch) -> None:
    again, read = Series.open(series.run), []
    monkeypatch.setattr(
        "strop.groupeval.series.read_reply",
        lambda *what: read.append(what) or read_reply(*what),
    )
    for _ in range(3):
        again.verdicts(), again.failures(), again.verdicts("control"), again.answered()
    assert len(read) == len(again.verdicts())
