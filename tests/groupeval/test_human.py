from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_runs import HOSTILE, INVALID, answer, grades, judged, planned, pools

from strop.errors import UserError
from strop.groupeval.human import human_csv, human_page, import_answers
from strop.groupeval.profile import FILES, PROFILES, Profile, sha256
from strop.groupeval.series import Series, open_plan
from strop.groupeval.verdict import GroupVerdict
from strop.spec import JudgeSpec


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
    series = Series(run, "none", JudgeSpec(kind="none"))
    shown = [[text for (text,) in s["texts"]] for s in data["sheets"]]  # one document each
    assert shown == [series.sheet_texts(s)[0] for s in plan.sheets]
    for word in [*plan.cells, *plan.blinding, "control", "duplicate", "shuffled"]:
        assert word not in page
    assert len(embedded(human_page(run, first=3))["sheets"]) == 3


@pytest.mark.parametrize("name", ["webtext-v1", "task-v1"])
def test_people_are_told_what_models_are_told(tmp_path: Path, name: str) -> None:
    """What a boundary means and that cuts are no fault, in words; no Markdown, no JSON."""
    page = human_page(planned(tmp_path / "run", pools(), profile=name)).partition('id="data"')[0]
    profile = Profile.load(name)
    assert "[DOCUMENT BOUNDARY]" in page
    told = " ".join(profile.files["system.md"].decode().split())
    for both in {
        "webtext-v1": ["no fault", "the middle of a sentence", "no error", "as a whole"],
        "task-v1": ["still belongs to the response", "no tests", "working through the response"],
    }[name]:
        assert both in told
        assert both in " ".join(page.split())
    for words in profile.files["rubric.md"].decode().splitlines():
        plain = words.lstrip("#- ").replace(" (`null`)", "").replace("`", "")
        assert plain in re.sub(r"</?b>", "", page).replace("&#39;", "'") or plain == "Rubric"
    for mark in ("`", "null", "## "):
        assert mark not in page.partition("</style>")[2]


def test_a_profile_of_ones_own_shows_what_its_models_read(tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(PROFILES / "webtext-v1", own)
    settings = (own / "profile.yaml").read_text().replace("webtext-v1", "mine")
    (own / "profile.yaml").write_text(settings)
    (own / "system.md").write_text("- Mind the <b>gap</b>, says `me`.\n")
    lines = [f"{sha256((own / n).read_bytes())}  {n}\n" for n in FILES]
    (own / "MANIFEST").write_text("".join(lines))
    page = human_page(planned(tmp_path / "run", pools(), profile=str(own)))
    assert "<li>Mind the &lt;b&gt;gap&lt;/b&gt;, says <b>me</b>.</li>" in page


def test_a_boundary_that_a_text_spells_is_not_ours(tmp_path: Path) -> None:
    texts = ["one<|endoftext|>two [DOCUMENT BOUNDARY] three"] * 8
    data = embedded(human_page(planned(tmp_path / "run", {"a": texts})))
    assert data["sheets"][0]["texts"][0] == ["one", "two [DOCUMENT BOUNDARY] three"]


def test_the_meaning_of_the_grades_is_the_rubrics(run: Path) -> None:
    scales = embedded(human_page(run))["scales"]
    assert set(scales) == {"readability", "coherence", "substance", "nondegeneration"}
    assert scales["readability"]["grades"][2] == "reads easily; slips are rare."


def test_hostile_text_stays_text(run: Path) -> None:
    page = human_page(run)
    assert HOSTILE not in page
    assert page.count("<script") == page.count("</script>") == 2
    assert "http://" not in page.replace("http-equiv", "")
    assert "https://" not in page


def answers(run: Path, name: str = "anna", first: int | None = None) -> dict[str, Any]:
    """What the page would save if every text got the same answer."""
    plan, profile = open_plan(run)
    series = Series(run, "none", JudgeSpec(kind="none"))
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
    assert done.series.judge == JudgeSpec(kind="human", name="anna")
    done = import_answers(run, saved(tmp_path, answers(run)))
    assert (done.added, done.known) == (len(done.series.plan.sheets) - 4, 4)
    done = import_answers(run, saved(tmp_path, answers(run)))
    assert done.added == 0
    assert len(Series.open(run, "anna").verdicts()) == done.series.asked == 8
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
        assert "--name NAME" in str(caught.value.fix)
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
        ("kind", "not a file of human judgments"),
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


def test_human_and_rule_agree(run: Path, tmp_path: Path) -> None:
    from strop.groupeval.judgments import load_judgments
    from strop.groupeval.trust import agree

    judged(run, lambda text, _: grades(1, 2, 1, 2) if text else INVALID)
    import_answers(run, saved(tmp_path, answers(run, first=6)))
    told = agree([load_judgments(f"{run}@rule"), load_judgments(f"{run}@anna")])
    kept = [s for s in open_plan(run)[0].sheets[:6] if s.kind == "plan"]
    assert told["n_groups"] == len(kept)
    assert told["n_groups_asked"] == 8
    assert told["alpha"]["quality"] is None  # all grades are equal: agreement means nothing


def filled(run: Path, path: Path, **changes: str) -> Path:
    """The table of the first two groups, every text graded alike but the first of each group."""
    rows = list(csv.DictReader(io.StringIO(human_csv(run, first=2))))
    for place, row in enumerate(rows):
        row |= dict.fromkeys(Profile.load("webtext-v1").dimensions, "2")
        row |= {"valid": "Yes", "mode": "a" if place % 8 else "b", "confidence": "high"}
        if place % 8 == 7:
            row |= {"valid": "no", "mode": "", "readability": ""}
        row |= changes if place == 3 else {}
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return path


def test_a_table_that_was_filled_in_is_what_the_page_would_have_saved(
    run: Path, tmp_path: Path
) -> None:
    plan, _ = open_plan(run)
    table = list(csv.DictReader(io.StringIO(human_csv(run))))
    assert [(r["group"], r["id"]) for r in table] == [
        (sheet.id, label) for sheet in plan.sheets for label in sheet.labels
    ]
    assert not any(row["text"].startswith(("=", "+", "-", "@")) for row in table)
    assert not any(name in human_csv(run) for name in plan.cells)
    done = import_answers(run, filled(run, tmp_path / "g.csv"), name="anna")
    assert (done.added, done.known) == (2, 0)
    said = [v for s in ("plan", "control") for _, some in done.series.states(s) for v in some]
    verdicts = [one for one in said if isinstance(one, GroupVerdict)]
    assert len(verdicts) == 2
    for one in verdicts:
        assert [grade.mode for grade in one.outputs] == ["B", *"AAAAAA", None]
        assert [sum(grade.scores) for grade in one.outputs] == [*[8] * 7, 0]
    again = import_answers(run, tmp_path / "g.csv", name="anna")
    assert (again.added, again.known) == (0, 2)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"valid": "maybe"}, "line 5, column valid"),
        ({"valid": ""}, "line 5, column valid"),
        ({"readability": "3"}, "line 5, column readability"),
        ({"mode": "?"}, "breaks the rules"),
        ({"plan": "0" * 16}, "of another plan"),
        ({"id": "none"}, "breaks the rules"),
        ({"group": "none"}, "breaks the rules"),
    ],
)
def test_a_table_that_cannot_be_right_is_refused_at_its_place(
    run: Path, tmp_path: Path, changes: dict[str, str], told: str
) -> None:
    with pytest.raises(UserError) as error:
        import_answers(run, filled(run, tmp_path / "g.csv", **changes), name="anna")
    assert told in str(error.value)


def test_a_table_that_nobody_filled_in_makes_no_series(run: Path, tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text(human_csv(run), encoding="utf-8")
    with pytest.raises(UserError, match="Nobody has graded"):
        import_answers(run, tmp_path / "g.csv", name="anna")
    assert not list((run / "series").glob("*"))


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"a,b\n1,2\n", "lacks columns"), (b"", "lacks columns"), (b"\xff\xfe", "cannot be read")],
)
def test_a_file_that_is_no_table_is_told(
    run: Path, tmp_path: Path, content: bytes, told: str
) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        import_answers(run, tmp_path / "g.csv", name="anna")
    (tmp_path / "g.csv").write_bytes(content)
    with pytest.raises(UserError, match=told):
        import_answers(run, tmp_path / "g.csv", name="anna")
