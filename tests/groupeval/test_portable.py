from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_judgments import changed, group, line, random_verdicts

from strop.errors import UserError
from strop.groupeval.judgments import has_modes, parse_portable, portable_text, read_portable


def test_round_trip() -> None:
    verdicts = random_verdicts(3, cell="a \u2028 name\nwith breaks")
    assert parse_portable(portable_text(verdicts), "x") == verdicts


def broken(**changes: Any) -> str:
    return json.dumps(line(**changes))


def without(name: str) -> str:
    document = line()
    del document[name]
    return json.dumps(document)


GOOD = json.dumps(line())

BAD = {
    "empty": ("", "holds no judgment", "file"),
    "blank": ("\n \n", "holds no judgment", "file"),
    "not json": ("{", "not JSON", "line 1"),
    "half": (GOOD[:40], "not JSON", "line 1"),
    "NaN": (GOOD.replace("[2, 1", "[NaN, 1"), "valid integer", "line 1, outputs[0].scores[0]"),
    "Infinity": (GOOD.replace("[2, 1", "[Infinity, 1"), "valid integer", "outputs[0].scores[0]"),
    "key twice": (GOOD.replace('"group": 0', '"group": 0, "group": 1'), "not JSON", "line 1"),
    "deep": ("[" * 100_000, "not JSON", "line 1"),
    "list": ("[1]", "not a JSON object", "line 1"),
    "second line": (GOOD + "\n7", "not a JSON object", "line 2"),
    "no cell": (without("cell"), "Field required", "cell"),
    "no confidence": (without("confidence"), "Field required", "confidence"),
    "cell number": (broken(cell=3), "valid string", "cell"),
    "cell empty": (broken(cell=""), "at least 1", "cell"),
    "partition": (broken(partition=-1), "greater than or equal to 0", "partition"),
    "partition true": (broken(partition=True), "valid integer", "partition"),
    "group": (broken(group=1.0), "valid integer", "group"),
    "outputs": (broken(outputs={}), "valid list", "outputs"),
    "no output": (broken(outputs=[]), "at least 1 item", "outputs"),
    "one output": (broken(outputs=line()["outputs"][:1]), "cannot have modes", "outputs"),
    "confidence": (broken(confidence="sure"), "'high', 'medium' or 'low'", "confidence"),
    "confidence list": (broken(confidence=[]), "'high', 'medium' or 'low'", "confidence"),
    "output": (broken(outputs=[1, 2]), "valid dictionary", "outputs[0]"),
    "index": (changed(0, index="0"), "valid integer", "outputs[0].index"),
    "index twice": (changed(0, index=1), "twice in one partition", "outputs[1].index"),
    "valid": (changed(0, valid=1), "valid boolean", "outputs[0].valid"),
    "three scores": (changed(0, scores=[1, 1, 1]), "at least 4 items", "outputs[0].scores"),
    "score 3": (changed(0, scores=[1, 1, 1, 3]), "less than or equal to 2", "outputs[0].scores"),
    "score 1.0": (changed(0, scores=[1.0, 1, 1, 1]), "valid integer", "outputs[0].scores"),
    "score true": (changed(0, scores=[True, 1, 1, 1]), "valid integer", "outputs[0].scores"),
    "mode number": (changed(0, mode=1), "valid string", "outputs[0].mode"),
    "mode empty": (changed(0, mode=""), "at least 1", "outputs[0].mode"),
    "hybrid": (changed(0, hybrid=None), "valid boolean", "outputs[0].hybrid"),
    "invalid scores": (changed(1, scores=[0, 0, 0, 1]), "has scores", "outputs[1]"),
    "invalid mode": (changed(1, mode="a"), "has a mode", "outputs[1]"),
    "invalid hybrid": (changed(1, hybrid=True), "hybrid", "outputs[1]"),
    "group twice": (GOOD + "\n\n" + GOOD, "judged twice", "line 3"),
    "sizes": (
        GOOD + "\n" + portable_text([group("abc", cell="c", number=1, first=9)]),
        "different sizes",
        "line 2",
    ),
    "output in two groups": (
        GOOD + "\n" + broken(group=1),
        "twice in one partition",
        "line 2, outputs[0].index",
    ),
    "no mode": (
        portable_text([group("ab", cell="c", number=4, first=7)]) + changed(0, mode=None),
        "no mode",
        "line 2, outputs[0].mode",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_refusals_name_the_place(name: str) -> None:
    content, what, where = BAD[name]
    with pytest.raises(UserError) as caught:
        parse_portable(content, "file")
    assert what in caught.value.what
    assert where in (caught.value.where or "")


def test_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_portable(tmp_path / "absent.jsonl")
    with pytest.raises(UserError, match="directory"):
        read_portable(tmp_path)
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="UTF-8"):
        read_portable(tmp_path / "bytes.jsonl")
    (tmp_path / "marked.jsonl").write_bytes(b"\xef\xbb\xbf" + GOOD.encode() + b"\r\n")
    assert len(read_portable(tmp_path / "marked.jsonl")) == 1


def test_a_profile_without_modes_is_recognised() -> None:
    assert not has_modes(parse_portable(changed(0, mode=None), "x"))
    # All invalid: nothing speaks against modes, and GED is zero rather than absent.
    all_invalid = changed(0, valid=False, scores=[0, 0, 0, 0], mode=None)
    assert has_modes(parse_portable(all_invalid, "x"))


def test_unknown_fields_are_carried_by_nobody() -> None:
    assert parse_portable(broken(model="m", note={"a": 1}), "x") == parse_portable(GOOD, "x")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(st.sampled_from([*line(), "index", "valid", "scores", "mode", "hybrid"]), JSON)
def test_any_value_in_any_field_is_read_or_refused(field: str, value: Any) -> None:
    document = line()
    owner = document if field in document else document["outputs"][0]
    owner[field] = value
    try:
        verdicts = parse_portable(json.dumps(document), "x")
    except UserError as error:
        told = str(error)
    else:
        told = "where: x" if parse_portable(portable_text(verdicts), "y") == verdicts else ""
    assert "where: x" in told
