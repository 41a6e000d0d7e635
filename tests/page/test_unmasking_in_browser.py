"""Each family's form of the player in a headless Chromium, against what its run keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chromium import Watched, chromium

import strop
from strop import SamplerSpec
from strop.checkpoints.config import SHAPES
from strop.checkpoints.layout import write_random
from strop.page import gather, render
from strop.records import FAMILIES
from strop.registry import resolve
from strop.store import Run

pytestmark = pytest.mark.browser

SMALL = replace(
    SHAPES["tiny"], vocab_size=60, mask_id=59, length=64, hidden_dim=16, n_blocks=1, n_heads=2
)
FORMS: dict[str, tuple[str, SamplerSpec, int]] = {
    "masked": ("embedded:tales-tiny", SamplerSpec(steps=6), 24),
    "revising": (
        "embedded:tales-tiny",
        SamplerSpec(name="remdm-rescale", steps=12, settings={"eta": 0.6}),
        24,
    ),
    "scored": ("sedd", SamplerSpec(name="sedd-analytic", steps=12), 20),
    "uniform": ("duo", SamplerSpec(name="duo-ancestral", steps=12), 20),
    "blocks": ("embedded:even-block", SamplerSpec(name="bd3lm", steps=2), 24),
    "editing": (
        "embedded:tales-tiny",
        SamplerSpec(
            name="llada2-edit",
            temperature=1.0,
            settings={"block_length": 8, "editing_threshold": 0.05, "threshold": 0.2},
        ),
        24,
    ),
    "canvases": ("diffusion-gemma", SamplerSpec(name="diffusion-gemma", steps=5), 20),
    "causal": ("embedded:tales-ar", SamplerSpec(name="autoregressive"), 20),
}
"""By the form: what is drawn from, how, and how long."""
UNIFORM = ("uniform", "canvases")
"""Forms in which tokens stand there that are not the last ones."""
REVISING = ("revising", "uniform", "editing", "canvases")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of each form; random networks where none is shipped."""
    place = tmp_path_factory.mktemp("forms")
    for family in ("sedd", "duo", "diffusion-gemma"):
        write_random(place / family, resolve(FAMILIES[family].layout or "")(SMALL), seed=0)
    found = {}
    for form, (source, spec, length) in FORMS.items():
        known = source if ":" in source else str(place / source)
        out = place / "runs" / form
        strop.draw.sample(known, spec, n=10, seed=2, length=length, out=out, device="cpu")
        found[form] = Run.open(out)
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as context:
        yield context


def opened(browser: Any, run: Run, place: Path, **more: Any) -> Watched:
    page = place / "page.html"
    page.write_text(render(gather([run.path])).html, "utf-8")
    watched = Watched(browser, page, **more)
    watched.page.wait_for_function("() => document.querySelectorAll('.unmask .token').length")
    return watched


def slide(watched: Watched, to: int) -> None:
    watched.page.locator("#play-at").evaluate(
        "(at, to) => { at.value = to; at.dispatchEvent(new Event('input', {bubbles: true})) }", to
    )


STATE = """() => [...document.querySelectorAll('.unmask.a .token')].map((one) => [
  one.textContent, one.classList.contains('hidden'), one.classList.contains('passing'),
  one.classList.contains('unknown'), one.style.getPropertyValue('--late'), one.title,
])"""


def values_of(one: Any) -> list[list[tuple[int, int, float]]]:
    """Per token, what stood there since which round, as the run keeps it."""
    values: list[list[tuple[int, int, float]]] = [[] for _ in one.ids]
    for entry in one.earlier:
        found = int(entry["round"]), int(entry["token"]), float(entry["chance"])
        values[entry["place"]].append(found)
    for place, last in enumerate(zip(one.changed, one.ids, one.chance, strict=True)):
        values[place].append((int(last[0]), int(last[1]), float(last[2])))
    return values


@pytest.mark.parametrize("form", FORMS)
def test_every_round_is_shown_as_it_was(
    browser: Any, runs: dict[str, Run], form: str, tmp_path: Path
) -> None:
    """Tokens, what will be revised, and the two colours, against the stored columns."""
    run = runs[form]
    (cell,) = run.cells()
    one = cell.pool()[0]
    mask = cell.spec.generator.checkpoint.shape.get("mask_id")
    watched = opened(browser, run, tmp_path)
    values, last = values_of(one), int(one.changed.max())
    if form in REVISING:
        assert any(len(past) > 1 for past in values), "nothing was revised: the case shows nothing"
    for colour in ("chance", "round"):
        watched.page.select_option("#play-colour", colour)
        for number in sorted({0, 1, last // 2, last - 1, last}):
            slide(watched, number)
            shown = watched.page.evaluate(STATE)
            assert len(shown) == len(values)
            for past, (_, hidden, passing, unknown, late, title) in zip(values, shown, strict=True):
                now = [value for value in past if value[0] <= number]
                seen = bool(now) and now[-1][1] != mask
                assert hidden == (not seen)
                assert passing == (seen and now[-1] is not past[-1])
                if not seen:
                    continue
                chance = now[-1][2]
                assert unknown == (colour == "chance" and chance != chance)
                if colour == "chance" and chance == chance:
                    assert (chance >= 0.95) <= (int(late[:-1]) <= 1)
                    assert (chance <= 0.001) <= (int(late[:-1]) == 100)
                    assert "probability" in title
                if colour == "round" and now[-1][0] > 0:
                    want = 100 * (now[-1][0] - 1) / max(1, last - 1)
                    assert abs(int(late[:-1]) - want) <= 1
            if number == 0 and form == "uniform":
                assert not any(hidden for _, hidden, *_ in shown), "noise stands there"
    texts = watched.page.locator(".unmask.a .token").all_text_contents()
    if cell.table()["text"][0].as_py() is not None:
        assert "".join(texts) == cell.table()["text"][0].as_py()
    assert watched.wrong == []
    assert watched.asked == []
    watched.page.close()


def test_forms_say_what_they_are(browser: Any, runs: dict[str, Run], tmp_path: Path) -> None:
    for form, how in (
        ("masked", "masked"),
        ("scored", "masked"),
        ("uniform", "noisy"),
        ("canvases", "noisy"),
        ("causal", "causal"),
        ("blocks", "masked"),
    ):
        watched = opened(browser, runs[form], tmp_path)
        assert how in (watched.page.locator(".unmask.a").get_attribute("class") or "").split()
        blocks = watched.page.locator(".unmask.a .block").count()
        length = FORMS[form][2]
        size = {"blocks": 4, "canvases": 16}.get(form)
        assert blocks == (0 if size is None else -(-length // size)), form
        if form == "causal":
            slide(watched, 3)
            assert watched.page.locator(".unmask.a .token:visible").count() in (3, 4)
        watched.page.close()


@pytest.mark.parametrize("form", REVISING)
def test_what_stood_before_can_be_read(
    browser: Any, runs: dict[str, Run], form: str, tmp_path: Path
) -> None:
    run = runs[form]
    one = run.cells()[0].pool()[0]
    mask = run.cells()[0].spec.generator.checkpoint.shape.get("mask_id")
    revised = [
        past for past in values_of(one) if any(r > 0 and token != mask for r, token, _ in past[:-1])
    ]
    watched = opened(browser, run, tmp_path)
    page = watched.page
    assert page.locator(".unmask.a .token.revised").count() == len(revised)
    assert page.locator(".unmask.a .revisions summary").inner_text().startswith(f"{len(revised)} ")
    page.locator(".unmask.a .revisions summary").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.unmask.a .revisions li')")
    first = page.locator(".unmask.a .revisions li").first.inner_text()
    assert first.count(", then ") == len(revised[0]) - 1
    assert f"in round {revised[0][-1][0]}" in first
    page.fill("#play-output", "9")  # beyond those whose values are kept, and beyond the page
    page.wait_for_function(
        "() => document.querySelector('.unmask.a').textContent.includes('holds no rounds')"
    )
    assert watched.wrong == []
    page.close()


def test_runs_without_chances_say_so(browser: Any, runs: dict[str, Run], tmp_path: Path) -> None:
    """An older run: the columns are taken out of a copy of its file."""
    import shutil

    import pyarrow.parquet as pq

    shutil.copytree(runs["masked"].path, tmp_path / "old")
    run = Run.open(tmp_path / "old")
    file = run.cells()[0].path / "outputs.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["chance", "earlier"]), file)
    watched = opened(browser, run, tmp_path)
    watched.page.select_option("#play-colour", "chance")
    assert "No probability is kept here" in watched.page.locator("#play-status").inner_text()
    assert "is not kept of this output" in watched.page.locator(".unmask.a").inner_text()
    shown = watched.page.evaluate(STATE)
    assert all(unknown for _, hidden, _, unknown, _, _ in shown if not hidden)
    watched.page.close()


@pytest.mark.parametrize("size", [{"width": 390, "height": 844}, {"width": 1400, "height": 900}])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_screen(
    browser: Any, runs: dict[str, Run], size: dict[str, int], scheme: str, tmp_path: Path
) -> None:
    for form in ("revising", "canvases"):
        watched = opened(browser, runs[form], tmp_path, size=size)
        watched.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        slide(watched, 3)
        wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert watched.page.evaluate(wide) <= 0
        assert watched.wrong == []
        watched.page.close()
