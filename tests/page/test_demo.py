"""strop demo, and the picture that moves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from strop.cli.main import run
from strop.language import Language, explain
from strop.page.demo import ADVANCE, EDGE, LINE, UnmaskedText, unmasking
from strop.store import Run

SVG = "{http://www.w3.org/2000/svg}"
TEXT = UnmaskedText("A & B", "1 < 2", ("Once", ",", "<b>"), (2, 1, 3), frozenset({2}))


def words_of(picture: str, panel: int = 0) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(picture)
    return root.findall(f"{SVG}g")[panel].findall(f"{SVG}text")[2:]


def test_every_word_appears_after_its_round_and_wrong_ones_are_marked() -> None:
    found = words_of(unmasking([TEXT]))
    assert [one.text for one in found] == ["Once", ",", "<b>"]
    assert [one.get("class") for one in found] == ["w2", "w1", "w3 wrong"]


def test_a_word_stands_after_a_space_and_a_comma_without_one() -> None:
    places = [float(one.get("x") or 0) for one in words_of(unmasking([TEXT]))]
    columns = [round((x - EDGE) / ADVANCE, 2) for x in places]
    assert columns == pytest.approx([0, 4, 6], abs=0.02)


def test_a_line_is_broken_before_the_word_that_has_no_room() -> None:
    found = words_of(unmasking([UnmaskedText("", "", ["x" * 30] * 3, [1, 1, 1])]))
    heights = [float(one.get("y") or 0) for one in found]
    assert [h - heights[0] for h in heights] == [0, LINE, 2 * LINE]
    assert {one.get("x") for one in found} == {f"{EDGE:.1f}"}


def test_rounds_come_in_their_order_and_masks_go_when_words_come() -> None:
    picture = unmasking([TEXT])
    shown = {
        name: (before, float(at), after)
        for name, before, at, after in re.findall(
            r"@keyframes (\w+) { 0% { opacity: (\d) } ([\d.]+)%, 100% { opacity: (\d) } }", picture
        )
    }
    assert shown.keys() == {"w1", "w2", "w3", "m1", "m2", "m3"}
    assert [shown[f"w{k}"][1] for k in (1, 2, 3)] == pytest.approx(
        [100 * k * 0.45 / (3 * 0.45 + 4) for k in (1, 2, 3)], abs=0.01
    )
    for number in (1, 2, 3):
        assert shown[f"w{number}"][::2] == ("0", "1")
        assert shown[f"m{number}"] == ("1", shown[f"w{number}"][1], "0")
    assert "<script" not in picture


@pytest.mark.slow
def test_the_demo_ends_with_an_answer_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    assert run(["demo", "--smoke", "-o", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert Path(said["page"]).stat().st_size > 100_000
    assert said["audit"]["answer"]
    picture = Path(said["picture"]).read_text()
    language = Language.load("even")
    for panel, cell in enumerate(Run.open(out / "language").cells()):
        first = cell.table().slice(0, 1).to_pylist()[0]
        found = words_of(picture, panel)
        assert [one.text for one in found] == [language.vocabulary[k] for k in first["ids"]]
        wrong = [k for k, one in enumerate(found) if "wrong" in (one.get("class") or "")]
        assert wrong == [one.position - 1 for one in explain(first["text"]).wrong]
    assert run(["demo", "--smoke", "-o", str(out)]) == 0  # answered from what is there
    assert "mistakes a text" in capsys.readouterr().out
