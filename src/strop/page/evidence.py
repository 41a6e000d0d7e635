"""What judges said of groups of texts, and what answers tasks got: as the page's scripts read it.

A page in one file holds some of it: of groups those on which judges agree least, of answers the
first problems of every setting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.errors import UserError
from strop.page.data import encodable

if TYPE_CHECKING:
    from strop.groupeval import Judgments
    from strop.groupeval.plan import Group
    from strop.groupeval.series import Series
    from strop.groupeval.verdict import GroupVerdict

GROUPS, ANSWERS, LONGEST = 48, 64, 4000
"""Of a directory of judgments, of a task's setting, and characters of a text."""


def judged_groups(source: str, name: Callable[[str], str]) -> dict[str, Any] | None:
    """The groups of a GroupEval directory with every judge's verdict, disagreements first.

    `name` says how the page calls a generator. None where nobody has judged, and of a file, which
    has no texts.
    """
    from strop.groupeval import list_series, load_judgments

    series = list_series(source) if Path(source).is_dir() else []
    if not series:
        return None
    plan = series[0].plan
    judges = [_Judge(one, load_judgments(f"{source}@{one.id}")) for one in series]
    rows = [_group(group, series[0], judges, name) for group in plan.groups]
    rows = sorted((row for row in rows if any(row["said"])), key=lambda row: -row["apart"])
    return {
        "judges": [one.judge.title for one in series],
        "dimensions": list(series[0].profile.dimensions),
        "groups": rows[:GROUPS],
        "total": len(rows),
    }


class _Judge:
    """One judge's verdicts and failures by group, with the replies as they came."""

    def __init__(self, series: Series, judgments: Judgments) -> None:
        self.verdicts = {(v.cell, v.partition, v.group): v for v in judgments.verdicts}
        self.failures = {(v.cell, v.partition, v.group): v for v in judgments.failures}
        self.replies: dict[str, str] = {}
        for entry in series.journal.entries():
            if entry.get("repeat") == 0 and entry.get("reply"):
                for sheet in entry.get("sheets") or [entry.get("sheet")]:
                    self.replies[str(sheet)] = str(entry["reply"])

    def said(self, group: Group) -> dict[str, Any] | None:
        """Of one group, in the order in which it was read; None where it was not asked."""
        key = group.cell, group.partition, group.group
        reply = encodable(self.replies.get(group.sheet, ""))[:LONGEST]
        if key in self.verdicts:
            found = self.verdicts[key]
            mine = {one.index: one for one in found.outputs}
            grades = [
                [one.valid, list(one.scores), one.mode, one.hybrid]
                for one in (mine[i] for i in group.indices)
            ]
            return {"grades": grades, "confidence": found.confidence, "reply": reply}
        if key in self.failures:
            failed = self.failures[key]
            return {"failed": failed.reason, "detail": failed.detail, "reply": reply}
        return None


def _group(
    group: Group, series: Series, judges: Sequence[_Judge], name: Callable[[str], str]
) -> dict[str, Any]:
    texts = series.texts(group.cell)
    key = group.cell, group.partition, group.group
    found = [one.verdicts[key] for one in judges if key in one.verdicts]
    return {
        "cell": name(group.cell),
        "partition": group.partition,
        "group": group.group,
        "texts": [[i, encodable(texts[i])[:LONGEST]] for i in group.indices],
        "said": [one.said(group) for one in judges],
        "apart": max((apart(a, b) for a, b in combinations(found, 2)), default=0.0),
    }


def apart(a: GroupVerdict, b: GroupVerdict) -> float:
    """How far two verdicts on one group lie apart: grades, and which texts share a mode; 0 to 2."""
    left, right = ({one.index: one for one in verdict.outputs} for verdict in (a, b))
    both = sorted(left.keys() & right.keys())
    if not both:
        return 0.0
    sums = [abs(sum(left[i].scores) - sum(right[i].scores)) for i in both]
    pairs = [
        (left[i].mode == left[j].mode) != (right[i].mode == right[j].mode)
        for i, j in combinations(both, 2)
    ]
    most = 2 * len(left[both[0]].scores)
    return sum(sums) / (most * len(sums)) + (sum(pairs) / len(pairs) if pairs else 0.0)


def task_answers(path: Path) -> dict[str, Any] | None:
    """The first problems of a task run under every setting, with answers and verdicts."""
    from strop.tasks import results

    try:
        found = results(path)
    except UserError:  # of another version, or without its task's record
        return None
    settings = []
    for one in found.settings:
        answers = islice(one.answered(one.seeds[0]), ANSWERS)
        rows = [
            {
                "id": answer.item.id,
                "response": encodable(answer.response)[:LONGEST],
                "answers": {k: v and encodable(v)[:LONGEST] for k, v in answer.answers.items()},
                "outcomes": dict(answer.outcomes),
                "said": {
                    k: {kind: encodable(text)[:LONGEST] for kind, text in said.items()}
                    for k, said in answer.said.items()
                },
            }
            for answer in answers
        ]
        label = f"{one.label}, M {one.sampler.steps:,}, temperature {one.temperature:g}"
        settings.append(
            {"label": f"{label}, {one.sampler.name}", "rows": rows, "n": len(one.index)}
        )
    wanted = {row["id"] for one in settings for row in one["rows"]}
    problems = {
        item.id: {
            "question": encodable(item.question)[:LONGEST],
            "expected": encodable(item.case.get("answer") or item.reference)[:LONGEST],
        }
        for item in found.items
        if item.id in wanted
    }
    return {
        "task": found.task.name,
        "filters": list(found.filters),
        "settings": settings,
        "problems": problems,
    }
