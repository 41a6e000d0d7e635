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
from strop.groupeval.verdict import Grade, GroupVerdict
from strop.page.data import encodable, rater

if TYPE_CHECKING:
    from strop.groupeval import Judgments
    from strop.groupeval.plan import Group
    from strop.groupeval.series import Series

GROUPS, ANSWERS, LONGEST = 48, 64, 4000
"""Of a directory of judgments, of a task's setting, and characters of a text."""
SERVED = 4096
"""Of either, on a page that is served and need not be passed on."""


def judged_groups(
    source: str,
    name: Callable[[str], str],
    rated: Sequence[Judgments] = (),
    most: int = GROUPS,
) -> dict[str, Any] | None:
    """The groups of a GroupEval directory with every judge's verdict, disagreements first.

    `name` says how the page calls a generator; `rated` are a person's ratings of single outputs,
    which stand beside the judges. None where nobody has judged, and of a file, which has no texts.
    """
    from strop.groupeval import list_series, load_judgments

    series = list_series(source) if Path(source).is_dir() else []
    if not series:
        return None
    plan = series[0].plan
    judges: list[_Judge | _Person] = [
        _Judge(judge_series, load_judgments(f"{source}@{judge_series.id}"))
        for judge_series in series
    ]
    people = (_Person(judgments) for judgments in rated)
    judges += [person for person in people if any(map(person.verdict, plan.groups))]
    rows = [_group(group, series[0], judges, name) for group in plan.groups]
    rows = [row for row in rows if any(row["said"])]
    rows.sort(key=lambda row: -max(row["apart"].values(), default=0.0))
    return {
        "judges": [judge.name for judge in judges],
        "dimensions": list(series[0].profile.dimensions),
        "groups": rows[:most],
        "total": len(rows),
    }


class _Judge:
    """One judge's verdicts and failures by group, with the replies as they came."""

    def __init__(self, series: Series, judgments: Judgments) -> None:
        self.name = series.judge.title
        self.verdicts = {(v.cell, v.partition, v.group): v for v in judgments.verdicts}
        self.failures = {(v.cell, v.partition, v.group): v for v in judgments.failures}
        self.replies: dict[str, str] = {}
        for entry in series.journal.entries():
            if entry.get("repeat") == 0 and entry.get("reply"):
                for sheet in entry.get("sheets") or [entry.get("sheet")]:
                    self.replies[str(sheet)] = str(entry["reply"])

    def verdict(self, group: Group) -> GroupVerdict | None:
        return self.verdicts.get((group.cell, group.partition, group.group))

    def answer_on(self, group: Group) -> dict[str, Any] | None:
        """Of one group, in the order in which it was read; None where it was not asked."""
        key = group.cell, group.partition, group.group
        reply = encodable(self.replies.get(group.sheet, ""))[:LONGEST]
        if key in self.verdicts:
            verdict = self.verdicts[key]
            grade_of = {grade.index: grade for grade in verdict.outputs}
            grades = [
                [grade.valid, list(grade.scores), grade.mode, grade.hybrid]
                for grade in (grade_of[i] for i in group.indices)
            ]
            return {"grades": grades, "confidence": verdict.confidence, "reply": reply}
        if key in self.failures:
            failed = self.failures[key]
            return {"failed": failed.reason, "detail": failed.detail, "reply": reply}
        return None


class _Person:
    """What a person said of single outputs, whatever their group."""

    def __init__(self, judgments: Judgments) -> None:
        self.name = rater(judgments.source)
        self._grades = {
            (verdict.cell, grade.index): grade
            for verdict in judgments.verdicts
            for grade in verdict.outputs
        }

    def _of(self, group: Group) -> list[Grade | None]:
        return [self._grades.get((group.cell, i)) for i in group.indices]

    def verdict(self, group: Group) -> GroupVerdict | None:
        """As if the rated ones of its outputs had been the group."""
        grades = tuple(grade for grade in self._of(group) if grade is not None)
        group_key = group.cell, group.partition, group.group
        return GroupVerdict(*group_key, grades, "high") if grades else None

    def answer_on(self, group: Group) -> dict[str, Any] | None:
        """Without a grade where an output was not rated; None where none of them was."""
        if self.verdict(group) is None:
            return None
        by_output = self._of(group)
        grades = [grade and [grade.valid, list(grade.scores), None, False] for grade in by_output]
        return {"grades": grades, "reply": ""}


def _group(
    group: Group, series: Series, judges: Sequence[_Judge | _Person], name: Callable[[str], str]
) -> dict[str, Any]:
    texts = series.texts(group.cell)
    verdicts = {
        i: verdict
        for i, judge in enumerate(judges)
        if (verdict := judge.verdict(group)) is not None
    }
    return {
        "cell": name(group.cell),
        "partition": group.partition,
        "group": group.group,
        "texts": [[i, encodable(texts[i])[:LONGEST]] for i in group.indices],
        "said": [judge.answer_on(group) for judge in judges],
        "apart": {
            f"{i} {j}": apart(verdicts[i], verdicts[j]) for i, j in combinations(verdicts, 2)
        },
    }


def apart(a: GroupVerdict, b: GroupVerdict) -> float:
    """How far two verdicts on one group lie apart: grades, and which texts share a mode; 0 to 2.

    A verdict that has a grade without a mode is compared by its grades alone.
    """
    left, right = ({grade.index: grade for grade in verdict.outputs} for verdict in (a, b))
    both = sorted(left.keys() & right.keys())
    if not both:
        return 0.0
    sums = [abs(sum(left[i].scores) - sum(right[i].scores)) for i in both]
    modes = all(
        grade.mode is not None for side in (left, right) for grade in side.values() if grade.valid
    )
    pairs = [
        (left[i].mode == left[j].mode) != (right[i].mode == right[j].mode)
        for i, j in combinations(both if modes else (), 2)
    ]
    most = 2 * len(left[both[0]].scores)
    return sum(sums) / (most * len(sums)) + (sum(pairs) / len(pairs) if pairs else 0.0)


def task_answers(path: Path, most: int = ANSWERS) -> dict[str, Any] | None:
    """The first responses of a task run under every setting, with answers and verdicts."""
    from strop.tasks import results

    try:
        task_results = results(path)
    except UserError:  # of another version, or without its task's record
        return None
    settings = []
    for setting in task_results.settings:
        answers = ((seed, answer) for seed in setting.seeds for answer in setting.answered(seed))
        rows = [
            {
                "id": answer.item.id,
                "seed": seed if len(setting.seeds) > 1 else None,
                "response": encodable(answer.response)[:LONGEST],
                "answers": {k: v and encodable(v)[:LONGEST] for k, v in answer.answers.items()},
                "outcomes": dict(answer.outcomes),
                "said": {
                    k: {kind: encodable(text)[:LONGEST] for kind, text in texts_by_kind.items()}
                    for k, texts_by_kind in answer.said.items()
                },
            }
            for seed, answer in islice(answers, most)
        ]
        label = f"{setting.label}, M {setting.sampler.steps:,}, temperature {setting.temperature:g}"
        graded = sum(len(grades.index) for grades in setting.grades)
        settings.append({"label": f"{label}, {setting.sampler.name}", "rows": rows, "n": graded})
    wanted = {row["id"] for setting in settings for row in setting["rows"]}
    problems = {
        item.id: {
            "question": encodable(item.question)[:LONGEST],
            "expected": encodable(item.case.get("answer") or item.reference)[:LONGEST],
        }
        for item in task_results.items
        if item.id in wanted
    }
    return {
        "task": task_results.task.name,
        "filters": list(task_results.filters),
        "settings": settings,
        "problems": problems,
    }
