"""GroupEval: quality and diversity of any set of texts, judged in groups. Runs without torch.

The names load on first use. `run` goes from texts to numbers in one call. In steps: `read_inputs`,
`make_plan` and `write_plan` freeze who is judged with whom; `judge_run` asks a judge of this
process; `load_judgments` and `score` say what came out, `compare`, `agree` and `reliability` what
it is worth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.registry import loader

if TYPE_CHECKING:
    from strop.groupeval.bootstrap import compare, score
    from strop.groupeval.human import human_page, import_answers
    from strop.groupeval.inputs import read_inputs
    from strop.groupeval.judges import JUDGES, Judge, judge_client, judge_run, judge_spec
    from strop.groupeval.judgments import Judgments, load_judgments, open_series
    from strop.groupeval.labelled import conditional, label, read_labels
    from strop.groupeval.plan import Plan, Sheet, Source, make_plan
    from strop.groupeval.profile import Profile, profile_names
    from strop.groupeval.series import Series, list_series, open_plan, write_plan
    from strop.groupeval.trust import agree, reliability
    from strop.groupeval.verdict import Failure, Grade, GroupVerdict, Judgment, NoVerdict
    from strop.spec.value import JudgeSpec
    from strop.verbs.groupeval_run import run

__all__ = [
    "JUDGES",
    "Failure",
    "Grade",
    "GroupVerdict",
    "Judge",
    "JudgeSpec",
    "Judgment",
    "Judgments",
    "NoVerdict",
    "Plan",
    "Profile",
    "Series",
    "Sheet",
    "Source",
    "agree",
    "compare",
    "conditional",
    "human_page",
    "import_answers",
    "judge_client",
    "judge_run",
    "judge_spec",
    "label",
    "list_series",
    "load_judgments",
    "make_plan",
    "open_plan",
    "open_series",
    "profile_names",
    "read_inputs",
    "read_labels",
    "reliability",
    "run",
    "score",
    "write_plan",
]

__getattr__ = loader(__name__)
