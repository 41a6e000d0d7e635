"""A GroupEval directory: its plan, and for every judge a series of replies, read by today's rules.

Nothing else knows its file names:

RUN/
  strop.json                   whose it is, and what was planned
  profile/                     the frozen profile, copied
  plan.json                    the design, without names
  blinding.json                which pool code is which generator
  texts.parquet                the frozen texts
  series/<series id>/          one judge
    judge.json                 who judges, with which settings
    calls.jsonl                the journal: every reply as it came; appended to, never changed
    result.json                scores, written whole
  probes/<id of a judge>/      how a server can be asked
    calls.jsonl                the journal of the requests that found it out

A verdict is never stored: it is read from the raw reply whenever it is asked for, so re-validating
and re-scoring cost nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from strop.disk import TEMPORARY, disk, locked, write
from strop.errors import UserError
from strop.groupeval.plan import GroupKind, Plan, Sheet, Texts
from strop.groupeval.profile import FILES, MANIFEST, SCHEMA, Profile, canonical, sha256
from strop.groupeval.verdict import (
    Failure,
    GroupVerdict,
    Judgment,
    NoVerdict,
    failures_of,
    read_reply,
    verdicts_of,
)
from strop.served.cost import SENT, SETTLED, Journal, hash_of
from strop.spec.value import JudgeSpec
from strop.store import FORMAT, Folder
from strop.store import folder as store
from strop.store.folder import RESULT, as_json, parsed, setting_changes
from strop.table import plain, revived
from strop.version import __version__

PROFILE, PLAN, BLINDING, TEXTS = "profile", "plan.json", "blinding.json", "texts.parquet"
SERIES, JUDGE, CALLS = "series", "judge.json", "calls.jsonl"
PROBES = "probes"
RESTORE = "restore the file, or plan anew with another `out`"

damaged = partial(store.damaged, fix=RESTORE)
"""The message for a file whose content is not what strop wrote."""
read_document = partial(store.read_json, kind=dict, fix=RESTORE)
"""What a file of the directory says, with an object under a key."""


def write_plan(run: str | os.PathLike[str], plan: Plan, profile: Profile, texts: Texts) -> bool:
    """Freeze a plan in a new directory; False if exactly this plan is there already."""
    path, folder = Path(run), Folder(run, "groupeval", "groupeval plan")
    if _planned(path, plan) and folder.mark() is not None:
        return False
    with folder.held():
        planned = _planned(path, plan)  # another process may have been first
        folder.write(_plan_settings(plan))
        if planned:
            return False
        with disk(path):
            (path / PROFILE).mkdir(exist_ok=True)
            for left in (path / PROFILE).glob(f"{TEMPORARY}*"):
                left.unlink()
        for name in FILES:
            write(path / PROFILE / name, profile.files[name])
        write(path / PROFILE / MANIFEST, profile.manifest.encode())
        write(path / TEXTS, texts.parquet())
        write(path / BLINDING, as_json({"format": FORMAT, "pools": plan.blinding}))
        # Last: a directory with a plan is whole.
        document = {"format": FORMAT, "strop": __version__, "plan": plan.document()}
        write(path / PLAN, as_json(document))
    return True


def _planned(path: Path, plan: Plan) -> bool:
    """Whether this plan is frozen here; refused if another one is."""
    if not (path / PLAN).exists():
        return False
    stored_plan, _ = open_plan(path)
    if stored_plan.hash == plan.hash and stored_plan.blinding == plan.blinding:
        return True
    changes = "; ".join(setting_changes(_plan_settings(stored_plan), _plan_settings(plan)))
    raise UserError(
        "This directory holds another plan.",
        where=path,
        got=changes or "the same settings, but other texts",
        fix="choose another `out`: plans are frozen, and judgments refer to them",
    )


def _plan_settings(plan: Plan) -> dict[str, Any]:
    return {
        "profile": plan.profile,
        "seed": plan.seed,
        "partition": plan.method,
        "generators": ", ".join(plan.cells),
        "sheets": len(plan.sheets),
    }


def open_plan(run: str | os.PathLike[str]) -> tuple[Plan, Profile]:
    """The frozen plan and profile of a directory, checked against each other."""
    path = Path(run)
    if not (path / PLAN).is_file():
        raise UserError(
            "This directory holds no GroupEval plan.",
            where=path,
            expected=f"a directory with {PLAN}",
            fix="strop groupeval plan INPUT... -o RUN",
        )
    blinding = read_document(path / BLINDING, "pools")["pools"]
    try:
        plan = Plan.from_documents(read_document(path / PLAN, "plan")["plan"], blinding)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise damaged(path / PLAN, error) from None
    profile = Profile.read(path / PROFILE)
    if profile.hash != plan.profile_sha256:
        raise UserError(
            "The profile is not the one that the plan was made with.",
            where=path / PROFILE,
            got=f"{profile.name}, hash {profile.hash[:16]}",
            expected=f"{plan.profile}, hash {plan.profile_sha256[:16]}",
            fix="restore the profile, or plan anew with `profile=DIRECTORY` and another `out`",
        )
    return plan, profile


@contextmanager
def probing(run: str | os.PathLike[str], judge: JudgeSpec) -> Iterator[Journal]:
    """Hold the journal of the requests that settle how a judge is asked (`endpoint.py`)."""
    journal = probes(run, judge)
    with disk(journal.path):
        journal.path.parent.mkdir(parents=True, exist_ok=True)
    with held(journal.path.parent, journal):
        yield journal


def probes(run: str | os.PathLike[str], judge: JudgeSpec) -> Journal:
    """That journal, to read."""
    return Journal(Path(run) / PROBES / series_id(judge, *open_plan(run)) / CALLS)


@contextmanager
def held(folder: Path, journal: Journal) -> Iterator[None]:
    """Hold a journal's folder alone, and mend what a killed session left."""
    with locked(folder, wait=False) as acquired:
        if not acquired:
            raise UserError(
                "Another process is judging this series.",
                where=folder,
                fix="wait for it to end, then run the same command again",
            )
        journal.mend()
        yield


def series_id(judge: JudgeSpec, plan: Plan, profile: Profile) -> str:
    """Who judges what by which rules, as one short name."""
    return sha256(canonical([judge.document(), plan.hash, profile.hash]))[:16]


NO_REPLY = ("refused", "truncated", "rate_limited", "timeout", "server_error", "budget_exhausted")
"""Reasons that do not follow from the reply's text alone; the journal's word counts."""


@dataclass
class _Known:
    """What the journal says of one question so far."""

    said: Sequence[Judgment] = ()
    replies: int = 0
    line: int | None = None
    """Where it was last asked about."""

    @property
    def is_verdict(self) -> bool:
        return any(isinstance(judgment, GroupVerdict) for judgment in self.said)


class Series:
    """All that one judge said about one plan."""

    def __init__(self, run: Path, name: str, judge: JudgeSpec) -> None:
        self.run = run
        self.id = name
        self.judge = judge
        """Who judges."""
        self.path = run / SERIES / self.id
        self.journal = Journal(self.path / CALLS)
        self._known: dict[tuple[str, int], _Known] = {}
        self._entries_read = 0

    @classmethod
    def create(cls, run: str | os.PathLike[str], judge: JudgeSpec) -> Series:
        """The series of this judge, new or as far as it is."""
        series = cls.planned(run, judge)
        if not (series.path / JUDGE).exists():
            with disk(series.path):
                series.path.mkdir(parents=True, exist_ok=True)
            document = {
                "format": FORMAT,
                "strop": __version__,
                "id": series.id,
                "judge": judge.document(),
                "plan_sha256": series.plan.hash,
                "profile_sha256": series.profile.hash,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            write(series.path / JUDGE, as_json(document))
        return cls._load(series.run, series.path)

    @classmethod
    def planned(cls, run: str | os.PathLike[str], judge: JudgeSpec) -> Series:
        """The same without writing anything: what would be asked, and what is there already."""
        name = series_id(judge, *open_plan(run))
        return cls(Path(run), name, judge)

    @classmethod
    def open(cls, run: str | os.PathLike[str], name: str | None = None) -> Series:
        """A series by its id, the beginning of it, or its judge's name; the only one by default."""
        fitting = listed = list_series(run)
        if name is not None:
            exact = [series for series in listed if name in (series.id, series.name)]
            fitting = exact or [series for series in listed if series.id.startswith(name)]
        if len(fitting) == 1:
            return fitting[0]
        names = ", ".join(f"{series.name} ({series.id})" for series in listed)
        if not listed:
            what, fix = "Nobody has judged this plan yet.", f"strop groupeval judge {run} --offline"
        else:
            what = "Several judges have judged this plan; name one."
            fix = f"use `series={listed[0].id}`"
            if name is not None:
                what = f"{'Several series match' if fitting else 'No series matches'} {name!r}."
        raise UserError(what, where=run, expected=names or None, fix=fix)

    @classmethod
    def _load(cls, run: Path, folder: Path) -> Series:
        document = read_document(folder / JUDGE, "judge")
        if document.get("id") != folder.name:
            raise damaged(folder / JUDGE, "it does not describe this series")
        try:
            judge = JudgeSpec.from_document(document["judge"])
        except UserError as error:
            raise damaged(folder / JUDGE, error.what) from None
        series = cls(run, folder.name, judge)
        if series.id != series_id(series.judge, series.plan, series.profile):
            raise UserError(
                "The series was judged on another plan, profile or judge than this directory has.",
                where=folder,
                fix="restore the files, or judge anew",
            )
        return series

    @property
    def name(self) -> str:
        """What the judge is called in tables."""
        return self.judge.title

    @cached_property
    def _frozen(self) -> tuple[Plan, Profile]:
        return open_plan(self.run)

    @property
    def plan(self) -> Plan:
        """What is judged."""
        return self._frozen[0]

    @property
    def profile(self) -> Profile:
        """How it is judged."""
        return self._frozen[1]

    @cached_property
    def _texts(self) -> Texts:
        return Texts.read(self.run / TEXTS, self.plan.texts_sha256)

    def texts(self, cell: str, kind: GroupKind = "plan") -> list[str]:
        """A generator's texts by index, as they came; or those of its control groups."""
        code = next((c for c, name in self.plan.blinding.items() if name == cell), None)
        if code is None:
            raise UserError(
                f"There is no cell {cell!r}.", where=self.run, expected=", ".join(self.plan.cells)
            )
        return self._texts.of(code, kind)

    def sheet_texts(self, sheet: Sheet) -> tuple[list[str], str | None]:
        """The raw texts of a sheet in display order, and the prompt that they answer, if any."""
        places = zip(sheet.pools, sheet.indices, strict=True)
        rows = [self._texts.at(code, sheet.kind, index) for code, index in places]
        # Texts of an unconditional plan may come with prompts, each with another.
        prompt = None if self.profile.kind == "unconditional" else rows[0][1]
        return [text for text, _ in rows], prompt

    @property
    def repeats(self) -> int:
        """How often every sheet is asked; more than once only to measure the judge."""
        return 1 + max((e["repeat"] for e in self.journal.entries()), default=0)

    @property
    def asked(self) -> int:
        """The verdicts that make the series whole."""
        return len(self.plan.groups)

    def verdicts(self, kind: GroupKind = "plan", repeat: int = 0) -> list[GroupVerdict]:
        """Every verdict, in the order of the plan; repeat 0 is the one that is scored."""
        judgments = (judgment for _, states in self.states(kind, repeat) for judgment in states)
        return [judgment for judgment in judgments if isinstance(judgment, GroupVerdict)]

    def failures(self, kind: GroupKind = "plan", repeat: int = 0) -> list[Failure]:
        """The latest failure of every group that was asked and has no verdict."""
        judgments = (judgment for _, states in self.states(kind, repeat) for judgment in states)
        return [judgment for judgment in judgments if isinstance(judgment, Failure)]

    def states(
        self, kind: GroupKind = "plan", repeat: int = 0
    ) -> list[tuple[Sheet, Sequence[Judgment]]]:
        """What is known of every sheet: verdicts, failures, or nothing."""
        self._follow()
        nothing = _Known()
        return [
            (sheet, self._known.get((sheet.id, repeat), nothing).said)
            for sheet in self.plan.sheets
            if sheet.kind == kind
        ]

    def answered(self, repeat: int = 0) -> tuple[set[str], dict[str, int]]:
        """The ids of all sheets with a verdict; those that failed, and when each was last asked."""
        self._follow()
        questions = {sheet: question for (sheet, r), question in self._known.items() if r == repeat}
        done = {sheet for sheet, question in questions.items() if question.is_verdict}
        asked = {
            sheet: question.line
            for sheet, question in questions.items()
            if question.line is not None
        }
        return done, {sheet: line for sheet, line in asked.items() if sheet not in done}

    def served(self) -> dict[str, int]:
        """The names of models that the judge's server gave with its verdicts, and how often."""
        names = (e.get("model") for e in self.journal.entries() if e["outcome"] == "verdict")
        return dict(sorted(Counter(name for name in names if isinstance(name, str)).items()))

    def other_models(self) -> str | None:
        """A warning where verdicts came under other names than the one that was asked for."""
        served, asked = self.served(), self.judge.model or ""
        listed = ", ".join(f"{name[:80]} ({count:,})" for name, count in served.items())
        if len(served) > 1:
            return f"the verdicts come from several models, which are several judges: {listed}"
        if self.judge.kind == "endpoint" and not all(_alias(asked, name) for name in served):
            return f"{asked} was asked, and the verdicts come from another model: {listed}"
        return None

    def in_a_row(self) -> int:
        """Groups that were asked since the last verdict, in all sessions."""
        since: set[tuple[str, int]] = set()
        for entry in reversed(self.journal.entries()):
            if entry["outcome"] == "verdict":
                break
            if entry["outcome"] not in (SENT, SETTLED, "budget_exhausted"):
                since.add((entry.get("sheet", ""), entry["repeat"]))
        return len(since)

    def _follow(self) -> None:
        """Read what is new in the journal; every reply is validated once."""
        entries = self.journal.entries()
        for number in range(self._entries_read, len(entries)):
            entry = entries[number]
            if entry["outcome"] not in (SENT, SETTLED):
                for name in entry["sheets"] if "sheets" in entry else [entry["sheet"]]:
                    self._take(name, entry, number)
        self._entries_read = len(entries)

    def _take(self, name: str, entry: dict[str, Any], number: int) -> None:
        sheet = self.plan.by_id.get(name)
        if sheet is None:
            raise damaged(self.path / CALLS, f"line {number + 1}: there is no sheet {name!r}")
        question = self._known.setdefault((name, entry["repeat"]), _Known())
        capped = entry["outcome"] == "budget_exhausted"
        if question.is_verdict or (capped and question.said):
            return  # that a cap came first is no news of a group that failed before
        came = entry.get("reply") is not None or entry.get("tokens") is not None
        question.replies += bool(entry.get("delivered", came))
        question.line = question.line if capped else number
        question.said = self.read(entry, sheet, question.replies)

    def read(self, entry: dict[str, Any], sheet: Sheet, attempts: int = 1) -> Sequence[Judgment]:
        """One entry of the journal as verdicts, or as failures."""
        outcome, reply = entry["outcome"], entry.get("reply")
        try:
            if outcome in NO_REPLY:
                raise NoVerdict(outcome, entry.get("detail", ""))
            document = read_reply(reply, sheet.labels, self.profile)
        except NoVerdict as problem:
            return failures_of(problem.reason, problem.detail, reply, attempts, sheet, self.plan)
        prompt = self.sheet_texts(sheet)[1] if self.profile.kind == "answers" else None
        return verdicts_of(document, sheet, self.plan, self.profile, prompt)

    def append(self, entry: dict[str, Any]) -> None:
        """Add one entry to the journal, durably.

        `sheet` and `outcome` (`verdict` or a reason) must be there, and `reply`, the raw text,
        where one came. Hashes, the kind of group, the repeat and the time are filled in.
        """
        sheet = self.plan.by_id[entry["sheet"]] if "sheet" in entry else None
        reply = entry.get("reply")
        self.journal.append(
            {
                "repeat": 0,
                **({} if sheet is None else {"kind": sheet.kind}),
                "profile_sha256": self.profile.hash,
                "schema_sha256": sha256(self.profile.files[SCHEMA]),
                "reply_sha256": None if reply is None else hash_of(reply),
                "written": datetime.now(UTC).isoformat(timespec="milliseconds"),
                **entry,
            }
        )

    def write_result(self, document: dict[str, Any]) -> None:
        """Keep scores beside the journal that they follow from."""
        write(self.path / RESULT, as_json(plain(document)))

    def read_result(self) -> dict[str, Any] | None:
        """The scores that were kept last; None where nobody has scored."""
        path = self.path / RESULT
        try:
            document = revived(parsed(path))
            if not all(type(cell["n_groups"]) is int for cell in document["cells"].values()):
                raise ValueError("a cell does not say how many groups were judged")
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            fix = f"score again: strop groupeval score {self.run}@{self.id}"
            raise damaged(path, repr(error), fix=fix) from None
        return document

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the series: two sessions of one judge would ask everything twice."""
        with held(self.path, self.journal):
            yield


def _alias(asked: str, served: str) -> bool:
    """Whether two names may mean one model: `org/name` and `name`, `name` and `name-2026-01-31`."""
    short = [name.lower().rstrip("/").rpartition("/")[2] for name in (asked, served)]
    return short[0] in short[1] or short[1] in short[0]


def list_series(run: str | os.PathLike[str]) -> list[Series]:
    """Every judge of a plan, by id."""
    open_plan(run)
    path = Path(run)
    folders = sorted(p.parent for p in (path / SERIES).glob(f"*/{JUDGE}"))
    return [Series._load(path, folder) for folder in folders]
