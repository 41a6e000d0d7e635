from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from small_runs import HOSTILE, INVALID, answer, grades, judged, planned, pools

from strop.errors import UserError
from strop.groupeval.human import human_page, import_answers
from strop.groupeval.series import Series, open_plan

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return planned(tmp_path / "run", pools(), controls=1)


def embedded(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


def test_page_is_the_blinded_plan(run: Path) -> None:
    page = human_page(run)
    plan, _ = open_plan(run)
    data = embedded(page)
    assert [sheet["id"] for sheet in data["sheets"]] == [sheet.id for sheet in plan.sheets]
    assert [tuple(s["labels"]) for s in data["sheets"]] == [s.labels for s in plan.sheets]
    series = Series(run, {"id": "none", "judge": {}})
    assert [s["texts"] for s in data["sheets"]] == [series.sheet_texts(s)[0] for s in plan.sheets]
    for word in [*plan.cells, *plan.blinding, "control", "duplicate", "shuffled"]:
        assert word not in page
    assert len(embedded(human_page(run, first=3))["sheets"]) == 3


def test_hostile_text_stays_text(run: Path) -> None:
    page = human_page(run)
    assert HOSTILE not in page
    assert page.count("<script") == page.count("</script>") == 2
    assert "http://" not in page.replace("http-equiv", "")
    assert "https://" not in page


def answers(run: Path, name: str = "anna", first: int | None = None) -> dict[str, Any]:
    """What the page would save if every text got the same answer."""
    plan, profile = open_plan(run)
    series = Series(run, {"id": "none", "judge": {}})
    replies = {
        sheet.id: answer(series, sheet, lambda text, _: grades(1, 2, 1, 2) if text else INVALID)
        for sheet in plan.sheets[:first]
    }
    return {
        "kind": "strop-human-judgments",
        "format": 1,
        "plan": plan.hash,
        "profile": profile.hash,
        "name": name,
        "replies": replies,
    }


def saved(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "answers.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_import_makes_a_series_that_grows(run: Path, tmp_path: Path) -> None:
    done = import_answers(run, saved(tmp_path, answers(run, first=4)))
    assert (done.added, done.known) == (4, 0)
    assert done.series.judge == {"kind": "human", "name": "anna"}
    done = import_answers(run, saved(tmp_path, answers(run)))
    assert (done.added, done.known) == (len(done.series.plan.sheets) - 4, 4)
    done = import_answers(run, saved(tmp_path, answers(run)))
    assert done.added == 0
    assert len(Series.open(run, "anna").judgments()) == done.series.asked == 8
    assert not done.series.failures()


def test_changed_answers_are_another_series(run: Path, tmp_path: Path) -> None:
    import_answers(run, saved(tmp_path, answers(run)))
    other = answers(run)
    other["replies"]["00003"]["outputs"][0] |= {"readability": 0, "valid": True, "mode": "B"}
    with pytest.raises(UserError, match="differ") as caught:
        import_answers(run, saved(tmp_path, other))
    assert "00003" in str(caught.value.got)
    assert import_answers(run, saved(tmp_path, other), name="anna-2").added == 10
    assert import_answers(run, saved(tmp_path, answers(run))).added == 0


def test_two_unnamed_people_do_not_become_one(run: Path, tmp_path: Path) -> None:
    for name in ("", "  ", None):
        with pytest.raises(UserError, match="whose judgments") as caught:
            import_answers(run, saved(tmp_path, {**answers(run), "name": name}))
        assert caught.value.fix == "--name NAME"
    assert not (run / "series").exists()
    done = import_answers(run, saved(tmp_path, answers(run, name="")), name="bo")
    assert done.series.name == "bo"


def broken(run: Path, what: str) -> Any:
    document = answers(run)
    one = document["replies"]["00000"]["outputs"]
    if what == "score":
        one[0]["coherence"] = 3
    elif what == "invalid with scores":
        one[0]["valid"] = False
    elif what == "no mode":
        one[0] |= {**grades(1, 1, 1, 1), "mode": None}
    elif what == "id twice":
        one[0] = {**one[1]}
    elif what == "too few":
        one.pop()
    elif what == "other group":
        document["replies"]["99999"] = document["replies"].pop("00000")
    else:
        document |= {
            "kind": {"kind": "other"},
            "format": {"format": 2},
            "plan": {"plan": "0" * 64},
            "profile": {"profile": None},
            "no replies": {"replies": {}},
            "replies list": {"replies": []},
            "name": {"name": "a\x1b[2J"},
            "name list": {"name": ["a"]},
        }[what]
    return document


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("score", "schema_mismatch"),
        ("invalid with scores", "rule_violation"),
        ("no mode", "rule_violation"),
        ("id twice", "rule_violation"),
        ("too few", "schema_mismatch"),
        ("other group", "no such group"),
        ("kind", "no file of human judgments"),
        ("format", "another format"),
        ("plan", "another plan"),
        ("profile", "another profile"),
        ("no replies", "no finished group"),
        ("replies list", "no finished group"),
        ("name", "name cannot be used"),
        ("name list", "name cannot be used"),
    ],
)
def test_import_refuses_and_leaves_nothing(run: Path, tmp_path: Path, what: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        import_answers(run, saved(tmp_path, broken(run, what)))
    assert told in str(caught.value)
    assert not (run / "series").exists()


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, "3"])
def test_import_refuses_other_files(run: Path, tmp_path: Path, content: str) -> None:
    with pytest.raises(UserError):
        import_answers(run, saved(tmp_path, content))
    with pytest.raises(UserError, match="no such file"):
        import_answers(run, tmp_path / "absent.json")


def test_a_conditional_plan_has_tasks_and_no_modes(tmp_path: Path) -> None:
    cells = {"one": ["yes", "no"], "two": ["maybe", "2"]}
    data = embedded(human_page(planned(tmp_path / "pairs", cells, profile="task-v1")))
    assert data["modes"] is False
    assert {sheet["task"] for sheet in data["sheets"]} == {"task 0", "task 1"}
    assert all(len(sheet["texts"]) == 2 for sheet in data["sheets"])


@pytest.mark.browser
def test_grading_in_a_browser(run: Path, tmp_path: Path) -> None:
    """Grade two groups with keys and clicks, reload in between, download, import."""
    sync = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}: get it with `apt-get install chromium`")
    page_file = tmp_path / "page.html"
    page_file.write_text(human_page(run, first=2))
    with sync.sync_playwright() as play:
        browser = play.chromium.launch_persistent_context(
            str(tmp_path / "browser"),
            executable_path=str(CHROMIUM),
            headless=True,
            accept_downloads=True,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ],
        )
        try:
            page = browser.new_page()
            said: list[str] = []
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("console", lambda message: said.append(message.text))
            page.on("request", lambda request: said.append(request.url))
            page.goto(page_file.as_uri())
            plan, _ = open_plan(run)
            _grade_by_keys(page, modes="ABCDEFGH")
            page.fill("#name", "Béa")
            page.reload()
            assert page.locator("#done").inner_text() == "1 done"
            assert page.input_value("#name") == "Béa"
            page.click("#open")
            assert page.locator("#where").inner_text() == "Group 2 of 2"
            _grade_by_clicks(page)
            assert page.locator("#done").inner_text() == "2 done"
            with page.expect_download() as download:
                page.click("#download")
            answers_file = tmp_path / "download.json"
            download.value.save_as(answers_file)
            assert page.evaluate("window.broken") is None
            # Nothing but the page itself was asked for, and nothing went wrong in it.
            assert set(said) <= {page_file.as_uri()} | {u for u in said if u.startswith("blob:")}
            _fits_a_phone(page)
        finally:
            browser.close()
    done = import_answers(run, answers_file)
    assert (done.added, done.series.name) == (2, "Béa")
    first, second = (s for s in plan.sheets[:2])
    read = {(s.id): said for s, said in done.series.states(first.kind) if said}[first.id][0]
    assert [one.mode for one in read.outputs] == list("ABCDEFGH")
    assert {one.scores for one in read.outputs} == {(0, 1, 2, 1)}
    assert [one.hybrid for one in read.outputs] == [True] + [False] * 7
    assert read.confidence == "medium"
    read = {(s.id): said for s, said in done.series.states(second.kind) if said}[second.id][0]
    assert [one.valid for one in read.outputs] == [False] + [True] * 7
    assert {one.mode for one in read.outputs[1:]} == {"C"}
    assert read.confidence == "low"


def _grade_by_keys(page: Any, modes: str) -> None:
    page.locator("#texts fieldset input").first.focus()
    for position, mode in enumerate(modes):
        for pressed in ["y", "0", "1", "2", "1"]:
            page.keyboard.press(pressed)
        if position == 0:
            page.keyboard.press("m")  # mixed, from any question of the card
        page.keyboard.press(mode.lower())
    page.keyboard.press("m")  # the group as a whole: medium


def _grade_by_clicks(page: Any) -> None:
    cards = page.locator("#texts .card")
    cards.nth(0).get_by_label("No: invalid").check()
    for position in range(1, cards.count()):
        card = cards.nth(position)
        card.get_by_label("Is it usable text?: Yes").check()
        for name in ("Readability", "Coherence", "Substance", "Nondegeneration"):
            card.get_by_label(f"{name}: 2").check()
        card.get_by_label("Mode: C").check()
    page.get_by_label("Low").check()


def _fits_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_human_and_rule_agree(run: Path, tmp_path: Path) -> None:
    from strop.groupeval.agree import agree
    from strop.groupeval.verdicts import load

    judged(run, lambda text, _: grades(1, 2, 1, 2) if text else INVALID)
    import_answers(run, saved(tmp_path, answers(run, first=6)))
    told = agree([load(f"{run}@rule"), load(f"{run}@anna")])
    kept = [s for s in open_plan(run)[0].sheets[:6] if s.kind == "plan"]
    assert told["n_groups"] == len(kept)
    assert told["n_groups_asked"] == 8
    assert told["alpha"]["quality"] is None  # all grades are equal: agreement means nothing
