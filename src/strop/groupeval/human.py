"""A person as a judge: the plan as one web page, and the page's answers as a series.

The page holds what any other judge is given: the sheets in the plan's order, texts under opaque
labels, the rules and the rubric. It is one file that loads nothing, keeps its progress in the
browser and saves a JSON file. Each answer in it has the form that the profile's schema asks of
every judge, so one validation serves all.

Groups of texts that people rated come with the package or from a user's file with one JSON object a
line. `texts` and one of `score`, `label`, `modes`, `grades` are needed; every other field that
holds a number is a column that can be compared with people too:

    {"texts": ["...", "..."], "context": "...", "task": "story", "score": 3.2, "label": "high",
     "modes": ["a", "b"], "grades": [7.5, 5]}

The groups that ship are conTest and decTest of Tevet and Berant (assets/human-groups/README.md).
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Len
from pydantic import BaseModel, BeforeValidator, Field, model_validator

from strop.assets import ROOT
from strop.disk import reading
from strop.errors import UserError
from strop.groupeval.plan import Plan, Sheet, Texts
from strop.groupeval.profile import EXACT, RUBRIC, SYSTEM, Profile, documents, formed, read_lines
from strop.groupeval.series import TEXTS, Series, open_plan
from strop.groupeval.verdict import GroupVerdict, NoVerdict, read_reply
from strop.spec.value import JudgeSpec
from strop.table import inert

if TYPE_CHECKING:
    from markupsafe import Markup


# ----------------------------------------------------------------------------------------- people

SHIPPED = ROOT / "human-groups" / "groups.parquet"
SIZES = (2, 16)
"""Texts of a group under answers-v1."""
TOLD = ("score", "label", "modes", "grades")
EXPECTED = (
    'one JSON object a line, {"texts": ["...", "..."], "score": 3.2}: 2 to 16 texts and one of '
    "score, label, modes, grades; context and task if there are any"
)
ALL = "all"
"""The task of groups that name none."""


@dataclass(frozen=True)
class RatedGroup:
    """Some texts, and what people said of them."""

    texts: tuple[str, ...]
    context: str | None = None
    """What the texts answer or go on from."""
    task: str = ALL
    score: float | None = None
    """How diverse people found the group, on any scale."""
    label: bool | None = None
    """Whether it was made to be diverse."""
    modes: tuple[str | None, ...] | None = None
    """People's sorting; None for a text that they left out."""
    grades: tuple[float, ...] | None = None
    """People's quality of each text, 0 to 10 as GEQ."""
    columns: Mapping[str, float] = field(default_factory=dict)
    """Other numbers of the row, by name."""
    collection: str = "mean"
    """Over the tasks of which collection its task is averaged."""

    def unit(self, place: int) -> str:
        """What is resampled as one: groups of one context belong together."""
        return f"group {place}" if self.context is None else self.context


def shipped_groups(limit: int | None = None) -> list[RatedGroup]:
    """conTest and decTest; `limit` takes so many groups, equally many of every task."""
    from strop.store.folder import parquet_file

    by_task: dict[str, list[RatedGroup]] = {}
    for row in parquet_file(SHIPPED).read(use_threads=False).to_pylist():
        collection = row.pop("set")
        task = f"{collection} {row.pop('task')}"
        fields = {name: row.pop(name) for name in ("texts", "context", "score", "label", "id")}
        label = None if fields["label"] is None else fields["label"] == "high"
        by_task.setdefault(task, []).append(
            RatedGroup(
                tuple(fields["texts"]),
                fields["context"],
                task,
                fields["score"],
                label,
                columns={name: value for name, value in row.items() if value is not None},
                collection=collection,
            )
        )
    return _limited([group for groups in by_task.values() for group in groups], limit)


def _limited(groups: list[RatedGroup], limit: int | None) -> list[RatedGroup]:
    """The first groups of every task, as equally many as the limit allows."""
    if limit is None:
        return groups
    by_task = tasks_of(groups)
    order = sorted((k, t, i) for t, rows in enumerate(by_task.values()) for k, i in enumerate(rows))
    return [groups[i] for i in sorted(i for *_, i in order[:limit])]


def _quality(grade: Any) -> Any:
    """GEQ's scale for four grades of 0, 1 or 2."""
    four = (
        isinstance(grade, list) and len(grade) == 4 and all(point in (0, 1, 2) for point in grade)
    )
    return 10 * sum(grade) / 8 if four else grade


# A number names a context or a task as well.
Name = Annotated[
    str | None, BeforeValidator(lambda value: str(value) if type(value) in (int, float) else value)
]
Label = Annotated[
    Literal["low", "high"] | None,
    BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value),
]
Quality = Annotated[float, Field(ge=0, le=10), BeforeValidator(_quality)]
Mode = Annotated[
    str | None, BeforeValidator(lambda value: str(value) if type(value) is int else value)
]


class _Rated(BaseModel):
    """A line of a user's file."""

    model_config = EXACT
    texts: Annotated[list[str], Len(*SIZES)]
    context: Name = None
    task: Name = None
    score: float | None = None
    label: Label = None
    modes: list[Mode] | None = None
    grades: list[Quality] | None = None

    @model_validator(mode="after")
    def _whole(self) -> _Rated:
        if all(getattr(self, name) is None for name in TOLD):
            raise ValueError("nobody rated it: there is no score, label, modes or grades")
        for name in ("modes", "grades"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.texts):
                raise ValueError(f"`{name}` needs one entry for each text")
        return self


def read_groups(path: str | Path, limit: int | None = None) -> list[RatedGroup]:
    """A user's groups; one message says what is wrong with the file."""
    groups = [_group(row, where) for row, where in read_lines(path, EXPECTED)]
    if not groups:
        raise UserError(
            "The file holds no rated group.", where=path, got="an empty file", expected=EXPECTED
        )
    return _limited(groups, limit)


def _group(row: dict[str, Any], where: str) -> RatedGroup:
    rated = formed(_Rated, row, where, "A rated group cannot be used", EXPECTED)
    numbers = {k: v for k, v in row.items() if k not in TOLD and type(v) in (int, float)}
    return RatedGroup(
        tuple(rated.texts),
        rated.context,
        rated.task or ALL,
        rated.score,
        None if rated.label is None else rated.label == "high",
        None if rated.modes is None else tuple(rated.modes),
        None if rated.grades is None else tuple(rated.grades),
        {name: float(value) for name, value in numbers.items() if math.isfinite(value)},
    )


def tasks_of(groups: Sequence[RatedGroup]) -> dict[str, list[int]]:
    """The places of each task's groups, in the order in which tasks first come."""
    by_task: dict[str, list[int]] = {}
    for position, group in enumerate(groups):
        by_task.setdefault(group.task, []).append(position)
    return by_task


# ------------------------------------------------------------------------------------------ human

KIND = "strop-human-judgments"
AGAIN = "strop groupeval import-human RUN FILE --name {}"
FORMAT = 1
PLAN = 16
"""Characters of a plan's hash in a table of grades."""
PAGE = ROOT / "human"
MARKS = (("### ", "h3"), ("## ", "h3"), ("# ", "h3"), ("- ", "li"))


def human_csv(run: str | os.PathLike[str], *, first: int | None = None) -> str:
    """The same as a table to fill in: a line per text, with empty columns for what is asked."""
    plan, profile = open_plan(run)
    texts = Texts.read(Path(run) / TEXTS, plan.texts_sha256)
    buffer = io.StringIO()
    questions = _asked_of(profile)
    names = ["plan", "group", "id", "task", "text", *questions]
    rows = csv.DictWriter(buffer, names, lineterminator="\n")
    rows.writeheader()
    for sheet in (_sheet(planned, texts, profile) for planned in plan.sheets[:first]):
        for label, documents_of in zip(sheet["labels"], sheet["texts"], strict=True):
            text = f"\n{profile.boundary}\n".join(documents_of)
            where = {"plan": plan.hash[:PLAN], "group": sheet["id"], "id": label}
            rows.writerow({**where, "task": inert(sheet["task"] or ""), "text": inert(text)})
    return buffer.getvalue()


def _asked_of(profile: Profile) -> list[str]:
    return ["valid", *profile.dimensions, *(["mode"] if profile.modes else []), "confidence"]


def _read_csv(path: Path, plan: Plan, profile: Profile) -> dict[str, Any]:
    """The groups of a filled table that have an answer; the words of the page in cells."""
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"), newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError("The table of grades cannot be read.", where=path, got=error) from None
    wanted = {"plan", "group", "id", *_asked_of(profile)}
    missing = sorted(wanted - set(rows[0] if rows else ()))
    if missing:
        raise UserError(
            "The table lacks columns.",
            where=path,
            got="no " + ", ".join(missing),
            expected="the table of `strop groupeval export-human RUN -o FILE.csv`, filled in",
        )
    if {row["plan"] for row in rows} != {plan.hash[:PLAN]}:
        raise UserError(
            "The grades are of another plan.",
            where=path,
            got=", ".join(sorted({str(row["plan"])[:PLAN] for row in rows})),
            expected=plan.hash[:PLAN],
            fix="name the run whose table was filled in",
        )
    groups: dict[str, list[dict[str, str]]] = {}
    for number, row in enumerate(rows, 2):
        filled = {k: (v or "").strip() for k, v in row.items() if isinstance(v, str | None)}
        groups.setdefault(filled["group"], []).append({**filled, "line": str(number)})
    replies = {
        group: {
            "outputs": [_grades_of_row(row, profile, path) for row in rows_of_group],
            "confidence": next(
                (r["confidence"] for r in rows_of_group if r["confidence"]), "medium"
            ),
        }
        for group, rows_of_group in groups.items()
        if any(row["valid"] for row in rows_of_group)
    }
    return {"replies": replies}


def _grades_of_row(row: dict[str, str], profile: Profile, path: Path) -> dict[str, Any]:
    valid = {"yes": True, "no": False}.get(row["valid"].lower())
    if valid is None:
        raise UserError(
            "A text has no answer.",
            where=f"{path}, line {row['line']}, column valid",
            got=row["valid"] or "nothing",
            expected="yes or no, for every text of a group that was begun",
        )
    grades = {}
    for name in profile.dimensions if valid else ():
        if row[name] not in ("0", "1", "2"):
            raise UserError(
                "A grade is missing or no grade.",
                where=f"{path}, line {row['line']}, column {name}",
                got=row[name] or "nothing",
                expected="0, 1 or 2",
            )
        grades[name] = int(row[name])
    answer: dict[str, Any] = {"id": row["id"], "valid": valid}
    answer |= grades or dict.fromkeys(profile.dimensions, 0)
    if profile.modes:
        answer |= {"mode": row["mode"].upper() or None if valid else None, "hybrid": False}
    return answer


def human_page(run: str | os.PathLike[str], *, first: int | None = None) -> str:
    """The page for one plan; `first` keeps that many sheets, a random sample of the plan."""
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    plan, profile = open_plan(run)
    texts = Texts.read(Path(run) / TEXTS, plan.texts_sha256)
    sheets = [_sheet(sheet, texts, profile) for sheet in plan.sheets[:first]]
    sizes = sorted({len(sheet.labels) for sheet in plan.sheets})
    # The names for modes, as many as the largest group may need.
    letters = [chr(ord("A") + i) for i in range(sizes[-1])] if profile.modes else []
    # The page fills in what is not asked: the rubric without its title and without JSON.
    rubric = re.sub(r"^# .*\n", "", profile.files[RUBRIC].decode()).replace(" (`null`)", "")
    script = (PAGE / "page.js").read_text(encoding="utf-8")
    style = (PAGE / "page.css").read_text(encoding="utf-8")
    # Outputs are hostile text: everything is escaped but the two files that are ours, and the
    # policy lets the browser run that script and nothing else.
    environment = Environment(loader=FileSystemLoader(PAGE), autoescape=True)
    return environment.get_template("page.html").render(
        data={
            "kind": KIND,
            "format": FORMAT,
            "plan": plan.hash,
            "profile": profile.hash,
            "dimensions": list(profile.dimensions),
            "modes": profile.modes,
            "letters": letters,
            "boundary": profile.boundary,
            "scales": _scales(profile),
            "sheets": sheets,
        },
        script=Markup(script),
        style=Markup(style),
        policy=_policy(script, style),
        rules=_html(_rules(profile)),
        boundary=profile.boundary,
        rubric=_html(rubric),
        size=sizes[0] if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}",
        count=len(sheets),
        modes=profile.modes,
        letters=letters,
    )


def _sheet(sheet: Sheet, texts: Texts, profile: Profile) -> dict[str, Any]:
    rows = [
        texts.at(code, sheet.kind, index)
        for code, index in zip(sheet.pools, sheet.indices, strict=True)
    ]
    return {
        "id": sheet.id,
        "labels": list(sheet.labels),
        # In documents, so that a boundary that a text itself spells is not taken for ours.
        "texts": [documents(text, profile) for text, _ in rows],
        "task": None if profile.kind == "unconditional" else rows[0][1],
    }


def _rules(profile: Profile) -> str:
    """What a model is told before the rubric, in words for people where the profile ships.

    They stand outside the frozen profile, which no wording for people may change. A profile of
    the user's own shows what its models read.
    """
    path = PAGE / "rules" / f"{profile.name}.md"
    return path.read_text(encoding="utf-8") if path.is_file() else profile.files[SYSTEM].decode()


def _html(markdown: str) -> Markup:
    """The little Markdown that rubrics use: headings, lists, paragraphs, words in backticks."""
    from markupsafe import Markup, escape

    blocks: list[Markup] = []
    for block in re.split(r"\n\s*\n|\n(?=- )|(?<=\n)(?=#)", markdown.strip()):
        text = " ".join(block.split())
        if not text:
            continue
        tag, text = next(
            ((tag, text[len(mark) :]) for mark, tag in MARKS if text.startswith(mark)), ("p", text)
        )
        parts = re.split(r"`([^`]*)`", text)
        words = [Markup("<b>{}</b>").format(p) if i % 2 else escape(p) for i, p in enumerate(parts)]
        blocks.append(Markup("<{0}>{1}</{0}>").format(Markup(tag), Markup("").join(words)))
    items = re.compile(r"(?:<li>.*</li>\n?)+")
    return Markup(items.sub(lambda match: f"<ul>{match[0]}</ul>", Markup("\n").join(blocks)))


def _scales(profile: Profile) -> dict[str, Any]:
    """What the grades of each dimension mean, where the rubric says so in the usual form."""
    rubric, scales = profile.files[RUBRIC].decode(), {}
    for name in profile.dimensions:
        form = rf"^`{name}`: (.*)\n- 0: (.*)\n- 1: (.*)\n- 2: (.*)$"
        if match := re.search(form, rubric, re.MULTILINE):
            scales[name] = {"about": match[1], "grades": [match[2], match[3], match[4]]}
    return scales


def _policy(script: str, style: str) -> str:
    digests = (hashlib.sha256(text.encode()).digest() for text in (script, style))
    hashes = [base64.b64encode(digest).decode() for digest in digests]
    return (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


@dataclass(frozen=True)
class Imported:
    """What an import did."""

    series: Series
    added: int
    """Sheets that are new in the series."""
    known: int
    """Sheets that were there already, with the same answers."""


def import_answers(
    run: str | os.PathLike[str], path: str | os.PathLike[str], *, name: str | None = None
) -> Imported:
    """Make the answers of a downloaded file a series, or add to the person's own.

    All answers are checked before the first is written. A person who changed an answer that is in
    the journal already is another series: nothing is overwritten.
    """
    plan, profile = open_plan(run)
    path = Path(path)
    document = (_read_csv if path.suffix == ".csv" else _read_page)(path, plan, profile)
    replies = {
        sheet: _checked_reply(sheet, reply, plan, profile, path)
        for sheet, reply in document["replies"].items()
    }
    if not replies:
        raise UserError(
            "Nobody has graded a group in this file.",
            where=path,
            expected="at least one group with all of its cells, or every answer of the page",
        )
    who = name or (document.get("name") or "").strip()
    if not who:
        raise UserError(
            "The file does not say whose judgments these are.",
            where=path,
            got="no name",
            expected="a name, so that two people do not become one judge",
            fix=AGAIN.format("NAME"),
        )
    series = Series.create(run, JudgeSpec(kind="human", name=who))
    stored = {
        sheet.id: list(judgments)
        for sheet, judgments in [*series.states("plan"), *series.states("control")]
        if judgments and isinstance(judgments[0], GroupVerdict)
    }
    entries = {sheet: {"outcome": "verdict", "reply": reply} for sheet, reply in replies.items()}
    changed = [
        sheet
        for sheet, judgments in stored.items()
        if sheet in entries and list(series.read(entries[sheet], plan.by_id[sheet])) != judgments
    ]
    if changed:
        raise UserError(
            "Some answers differ from those that were imported before.",
            where=path,
            got=f"groups {', '.join(changed[:5])} of {who!r}",
            expected="new groups only: what is in a journal stays",
            fix=AGAIN.format(f"{who}-2"),
        )
    new = [sheet for sheet in entries if sheet not in stored]
    with series.writing():
        for sheet in new:
            series.append({"sheet": sheet, **entries[sheet]})
    return Imported(series, len(new), len(replies) - len(new))


def _read_page(path: Path, plan: Plan, profile: Profile) -> dict[str, Any]:
    fix = "download the judgments from the page that `strop groupeval export-human RUN` wrote"
    try:
        with reading(path):
            document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError("There is no such file.", where=path, fix=fix) from None
    except (ValueError, RecursionError) as error:
        raise UserError("The file is not JSON.", where=path, got=error, fix=fix) from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise UserError("This is not a file of human judgments.", where=path, fix=fix)
    if document.get("format") != FORMAT:
        raise UserError(
            "The file has another format.",
            where=path,
            got=document.get("format"),
            expected=FORMAT,
            fix="export the page again with this version of strop",
        )
    for what, expected in (("plan", plan.hash), ("profile", profile.hash)):
        if document.get(what) != expected:
            raise UserError(
                f"The judgments are of another {what}.",
                where=path,
                got=str(document.get(what))[:16],
                expected=expected[:16],
                fix="name the run whose page was graded",
            )
    if not isinstance(document.get("replies"), dict) or not document["replies"]:
        raise UserError(
            "The file holds no finished group.",
            where=path,
            expected="at least one group with every question answered",
            fix="open the page, finish a group and download again",
        )
    who = document.get("name")
    if who is not None and (not isinstance(who, str) or len(who) > 80 or not who.isprintable()):
        raise UserError("The name cannot be used.", where=path, got=repr(who)[:100])
    return document


def _checked_reply(
    sheet: str, reply: Any, plan: Plan, profile: Profile, path: str | os.PathLike[str]
) -> str:
    """The answer as the raw reply that the journal keeps, if it follows the rules."""
    if sheet not in plan.by_id:
        raise UserError("There is no such group in the plan.", where=path, got=repr(sheet)[:60])
    text = json.dumps(reply, ensure_ascii=False)
    try:
        read_reply(text, plan.by_id[sheet].labels, profile)
    except NoVerdict as problem:
        raise UserError(
            "An answer breaks the rules of the profile.",
            where=f"{path}, group {sheet}",
            got=f"{problem.reason}: {problem.detail}",
            fix="correct it in the page and download again",
        ) from None
    return text
