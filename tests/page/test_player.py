"""What the player is given, against outputs as they are stored, and how it plays them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import Watched, chromium

import strop
from strop.language import explain
from strop.page import gather, render
from strop.page.player import PLAYED, _letters, _of_file, player, players
from strop.store import Cell, Run


@pytest.fixture(scope="module")
def language_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two cells of one seed that differ in their temperature alone, and one that differs more."""
    out = tmp_path_factory.mktemp("run") / "language"
    for steps in (16, 8):
        heat = (1.0, 0.8) if steps == 16 else (1.0,)
        strop.sample(
            "embedded:leaky", steps=steps, temperature=heat, n=PLAYED + 2, out=out / str(steps)
        )
    return Run.open(out / "16")


def rows(cell: Cell) -> list[dict[str, Any]]:
    return cell.table().to_pylist()


def test_a_known_language_is_played_word_by_word_with_what_is_wrong(language_run: Run) -> None:
    cell = language_run.cells()[0]
    found = players(cell, language_run, range(PLAYED))
    assert [one["index"] for one in found] == list(range(PLAYED))
    for one, row in zip(found, rows(cell), strict=False):
        assert "".join(one["tokens"]) == row["text"]
        assert one["changed"] == row["changed"]
        assert one["rounds"] == 16
        assert (one["noise"], one["block"], one["given"]) == ("mask", None, [])
        wrong = explain(row["text"]).wrong
        assert wrong
        assert set(one["wrong"]) == {w.position - 1 for w in wrong}
        assert one["wrong"][wrong[0].position - 1].startswith(wrong[0].should)


def test_one_output_by_its_number(language_run: Run) -> None:
    cell = language_run.cells()[1]
    one = player(cell, language_run, PLAYED + 1)
    assert one is not None
    assert one["changed"] == rows(cell)[PLAYED + 1]["changed"]
    assert player(cell, language_run, 99) is None


@pytest.mark.parametrize(
    ("source", "noise", "block"),
    [("tales-tiny", "mask", None), ("tales-ar", None, None), ("even-block", "mask", 4)],
)
def test_families_have_their_form(
    tmp_path: Path, source: str, noise: str | None, block: int | None
) -> None:
    steps = None if source == "tales-ar" else 2
    strop.sample(f"embedded:{source}", steps=steps, n=2, length=24, out=tmp_path / "run")
    run = Run.open(tmp_path / "run")
    (cell,) = run.cells()
    for one, row in zip(players(cell, run, [0, 1]), rows(cell), strict=True):
        assert "".join(one["tokens"]) == row["text"]
        assert (one["noise"], one["block"], one["wrong"]) == (noise, block, None)


def test_a_vocabulary_that_is_not_at_hand_leaves_the_numbers(tmp_path: Path) -> None:
    strop.sample("embedded:tales-tiny", steps=2, n=1, length=8, out=tmp_path / "run")
    mark = tmp_path / "run" / "strop.json"
    mark.write_text(mark.read_text().replace("embedded:tales-tiny", "/gone"))
    run = Run.open(tmp_path / "run")
    (one,) = players(run.cells()[0], run, [0])
    assert one["tokens"] == [f" {k}" for k in rows(run.cells()[0])[0]["ids"]]


def test_every_byte_has_one_letter() -> None:
    letters = _letters()
    assert sorted(letters.values()) == list(range(256))
    assert (letters["Ġ"], letters["Ċ"], letters["a"], letters["ł"]) == (32, 10, 97, 160)


def test_kinds_of_vocabularies(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"

    def told(model: Any, ids: list[int], **more: Any) -> list[str] | None:
        file.write_text(json.dumps({"model": model, **more}))
        words = _of_file(file, hash(str((model, more))))
        return None if words is None else words(ids)

    assert told({"vocab": [["▁a", 0.0], ["b", -1.0]]}, [0, 1]) == [" a", "b"]
    bytes_ = {"vocab": {"Ġcaf": 0, "Ã©": 1, "Ã": 2}}
    end = {"added_tokens": [{"id": 3, "content": "<|end of it|>"}]}
    assert told(bytes_, [0, 1, 2, 3, 7], **end) == [
        " caf",
        "é",
        "\ufffd",
        "<|end of it|>",
        "[MASK]",
    ]
    assert told({"type": "WordLevel", "vocab": {"a": 0, ".": 1}}, [0, 0, 1]) == ["a", " a", "."]
    assert told({"vocab": 3}, [0]) is None


# ---------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def opened(
    language_run: Run, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Watched, Run]]:
    page = tmp_path_factory.mktemp("page") / "report.html"
    found = gather([language_run.path, language_run.path.parent / "8"])
    page.write_text(render(found).html, "utf-8")
    with chromium() as context:
        watched = Watched(context, page)
        watched.page.wait_for_function("() => document.querySelectorAll('.unmask .token').length")
        yield watched, language_run
        assert watched.wrong == []
        assert watched.asked == []


def hidden(watched: Watched, side: str) -> int:
    return watched.page.locator(f".unmask.{side} .token.hidden").count()


def slide(watched: Watched, to: int) -> None:
    watched.page.locator("#play-at").evaluate(
        "(at, to) => { at.value = to; at.dispatchEvent(new Event('input', {bubbles: true})) }", to
    )


@pytest.mark.browser
def test_tokens_come_in_their_rounds_on_both_sides(opened: tuple[Watched, Run]) -> None:
    watched, run = opened
    first = [rows(cell)[0] for cell in run.cells()]
    for at in (0, 5, 16):
        slide(watched, at)
        for side, row in zip("ab", first, strict=True):
            assert hidden(watched, side) == sum(changed > at for changed in row["changed"])
            shown = watched.page.locator(f".unmask.{side} .token").all_text_contents()
            assert "".join(shown) == row["text"]
    one, other = (row["ids"] for row in first)
    differ = sum(a != b for a, b in zip(one, other, strict=True))
    assert differ
    status = watched.page.locator("#play-status").inner_text()
    assert f"{differ} of {len(one)} tokens differ" in status
    assert "every difference is the temperature's" in status
    assert watched.page.locator(".unmask.a .token.differs").count() == differ
    assert watched.page.locator(".unmask.a .token.wrong").count() == len(
        explain(first[0]["text"]).wrong
    )


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tokens_can_be_read_in_any_colour(opened: tuple[Watched, Run], scheme: str) -> None:
    watched, _ = opened
    watched.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    # Their colours are mixed in a space that only a canvas brings back to red, green and blue.
    assert watched.page.evaluate(CONTRAST) >= 4.5
    watched.page.emulate_media(color_scheme="light")


CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const luminance = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
      .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  return Math.min(...[...document.querySelectorAll('.unmask .token:not(.hidden)')].map((one) => {
    const style = getComputedStyle(one);
    const [ink, paper] = [luminance(style.color), luminance(style.backgroundColor)];
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  }));
}"""


@pytest.mark.browser
def test_playing_steps_and_other_pairs(opened: tuple[Watched, Run]) -> None:
    watched, run = opened
    page = watched.page
    page.select_option("#play-speed", "120")
    page.click("#play")
    page.wait_for_function("() => document.getElementById('play').textContent === 'Pause'")
    page.wait_for_function("() => document.getElementById('play').textContent === 'Play'")
    assert hidden(watched, "a") == hidden(watched, "b") == 0
    page.focus("#play-at")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#play-round").inner_text() == "Round 15 of 16"
    last = rows(run.cells()[0])[0]["changed"]
    assert hidden(watched, "a") == last.count(16)
    # Against eight rounds in step: half of them stand for half of sixteen.
    labels = page.locator("#play-b option").all_inner_texts()
    page.select_option("#play-b", index=next(i for i, x in enumerate(labels) if "M 8" in x))
    page.wait_for_function(
        "() => document.getElementById('play-status').textContent.includes('more than')"
    )
    slide(watched, 8)
    assert "Round 4 of 8" in page.locator(".unmask.b .count").inner_text()
    page.click("#play-colder")
    page.wait_for_function(
        "() => document.getElementById('play-status').textContent.includes('same random')"
    )
    page.fill("#play-output", str(PLAYED))
    page.wait_for_function(
        "() => document.querySelector('.unmask.a').textContent.includes('holds no rounds')"
    )
    page.fill("#play-output", "0")
    page.wait_for_function("() => document.querySelectorAll('.unmask.a .token').length")
