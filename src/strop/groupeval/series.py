"""A GroupEval directory: the only module that knows its file names.

    RUN/
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

A verdict is never stored: it is read from the raw reply by today's rules whenever it is asked
for, so re-validating and re-scoring cost nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from strop.disk import TEMPORARY, disk, locked, reading, write
from strop.errors import UserError
from strop.groupeval.budget import SENT, SETTLED
from strop.groupeval.journal import Journal
from strop.groupeval.judgment import Failure, Judgment
from strop.groupeval.plan import GroupKind, Plan, Sheet
from strop.groupeval.profile import FILES, MANIFEST, Profile, canonical, sha256
from strop.groupeval.texts import Texts
from strop.groupeval.validate import Problem, failures, judgments, read_reply
from strop.version import __version__

__all__ = ["Series", "list_series", "open_plan", "probes", "probing", "write_plan"]

FORMAT = 1
PROFILE, PLAN, BLINDING, TEXTS = "profile", "plan.json", "blinding.json", "texts.parquet"
SERIES, JUDGE, CALLS, RESULT = "series", "judge.json", "calls.jsonl", "result.json"
PROBES = "probes"

NO_REPLY = ("refused", "truncated", "rate_limited", "timeout", "server_error", "budget_exhausted")
"""Reasons that do not follow from the reply's text alone; the journal's word counts."""


def write_plan(run: str | os.PathLike[str], plan: Plan, profile: Profile, texts: Texts) -> bool:
    """Freeze a plan in a new directory; False if exactly this plan is there already."""
    path = Path(run)
    if (path / PLAN).exists():
        there, _ = open_plan(path)
        if there.hash == plan.hash and there.blinding == plan.blinding:
            return False
        raise UserError(
            "This directory holds another plan.",
            where=path,
            got=_differences(there, plan),
            fix="choose another `out`: plans are frozen, and judgments refer to them",
        )
    with disk(path):
        path.mkdir(parents=True, exist_ok=True)
        _clear_temporary(path)  # of a plan that was killed while it was written
        names = sorted(p.name for p in path.iterdir() if p.name not in (PROFILE, BLINDING, TEXTS))
        if names:
            raise UserError(
                "The output directory holds files but no plan.",
                where=path,
                got=", ".join(names[:3]),
                expected="a new or empty directory",
                fix="choose another `out`",
            )
        (path / PROFILE).mkdir(exist_ok=True)
    for name in FILES:
        write(path / PROFILE / name, profile.files[name])
    write(path / PROFILE / MANIFEST, profile.manifest.encode())
    write(path / TEXTS, texts.parquet())
    write(path / BLINDING, _json({"format": FORMAT, "pools": plan.blinding}))
    # Last: a directory with a plan is whole.
    write(path / PLAN, _json({"format": FORMAT, "strop": __version__, "plan": plan.document()}))
    return True


def _clear_temporary(path: Path) -> None:
    for folder in (path, path / PROFILE):
        for left in folder.glob(f"{TEMPORARY}*"):
            left.unlink()


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
    blinding = _read(path / BLINDING, "pools")
    try:
        plan = Plan.from_documents(_read(path / PLAN, "plan"), blinding)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path / PLAN, error) from None
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


@dataclass
class _Known:
    """What the journal says of one question so far."""

    said: Sequence[Judgment | Failure] = ()
    replies: int = 0
    line: int | None = None
    """Where it was last asked about."""

    @property
    def is_verdict(self) -> bool:
        return any(isinstance(one, Judgment) for one in self.said)


class Series:
    """All that one judge said about one plan."""

    def __init__(self, run: Path, document: dict[str, Any]) -> None:
        self.run = run
        self.id: str = document["id"]
        self.judge: dict[str, Any] = document["judge"]
        """Who judges: kind, model, and everything else that makes it this judge."""
        self.path = run / SERIES / self.id
        self.journal = Journal(self.path / CALLS)
        self._known: dict[tuple[str, int], _Known] = {}
        self._entries_read = 0

    @classmethod
    def create(cls, run: str | os.PathLike[str], judge: dict[str, Any]) -> Series:
        """The series of this judge, new or as far as it is."""
        series = cls.planned(run, judge)
        if not (series.path / JUDGE).exists():
            with disk(series.path):
                series.path.mkdir(parents=True, exist_ok=True)
            document = {
                "format": FORMAT,
                "strop": __version__,
                "id": series.id,
                "judge": judge,
                "plan_sha256": series.plan.hash,
                "profile_sha256": series.profile.hash,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            write(series.path / JUDGE, _json(document))
        return cls._load(series.run, series.path)

    @classmethod
    def planned(cls, run: str | os.PathLike[str], judge: dict[str, Any]) -> Series:
        """The same without writing anything: what would be asked, and what is there already."""
        name = _series_id(judge, *open_plan(run))
        return cls(Path(run), {"id": name, "judge": judge})

    @classmethod
    def open(cls, run: str | os.PathLike[str], name: str | None = None) -> Series:
        """A series by its id, the beginning of it, or its judge's name; the only one by default."""
        found = every = list_series(run)
        if name is not None:
            exact = [one for one in every if name in (one.id, one.name)]
            found = exact or [one for one in every if one.id.startswith(name)]
        if len(found) == 1:
            return found[0]
        known = ", ".join(f"{one.name} ({one.id})" for one in every)
        if not every:
            what, fix = "Nobody has judged this plan yet.", f"strop groupeval judge {run} --offline"
        elif name is None:
            what, fix = (
                "Several judges have judged this plan; name one.",
                f"use `series={every[0].id}`",
            )
        else:
            what = f"{'Several series match' if found else 'No series matches'} {name!r}."
            fix = f"use `series={every[0].id}`"
        raise UserError(what, where=run, expected=known or None, fix=fix)

    @classmethod
    def _load(cls, run: Path, folder: Path) -> Series:
        document = _read(folder / JUDGE, None)
        if not isinstance(document.get("judge"), dict) or document.get("id") != folder.name:
            raise _damaged(folder / JUDGE, "it does not describe this series")
        series = cls(run, document)
        if series.id != _series_id(series.judge, series.plan, series.profile):
            raise UserError(
                "The series was judged on another plan, profile or judge than this directory has.",
                where=folder,
                fix="restore the files, or judge anew",
            )
        return series

    @property
    def name(self) -> str:
        """What the judge is called in tables."""
        return str(self.judge.get("name") or self.judge.get("model") or self.judge.get("kind"))

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
        return [text for text, _ in rows], rows[0][1]

    @property
    def repeats(self) -> int:
        """How often every sheet is asked; more than once only to measure the judge."""
        return 1 + max((e["repeat"] for e in self.journal.entries()), default=0)

    @property
    def asked(self) -> int:
        """The judgments that make the series whole."""
        return len(self.plan.groups)

    def judgments(self, kind: GroupKind = "plan", repeat: int = 0) -> list[Judgment]:
        """Every verdict, in the order of the plan; repeat 0 is the one that is scored."""
        return [
            one
            for _, said in self.states(kind, repeat)
            for one in said
            if isinstance(one, Judgment)
        ]

    def failures(self, kind: GroupKind = "plan", repeat: int = 0) -> list[Failure]:
        """The latest failure of every group that was asked and has no verdict."""
        return [
            one for _, said in self.states(kind, repeat) for one in said if isinstance(one, Failure)
        ]

    def states(
        self, kind: GroupKind = "plan", repeat: int = 0
    ) -> list[tuple[Sheet, Sequence[Judgment | Failure]]]:
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
        mine = {sheet: one for (sheet, r), one in self._known.items() if r == repeat}
        done = {sheet for sheet, one in mine.items() if one.is_verdict}
        asked = {sheet: one.line for sheet, one in mine.items() if one.line is not None}
        return done, {sheet: line for sheet, line in asked.items() if sheet not in done}

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
            raise _damaged(self.path / CALLS, f"line {number + 1}: there is no sheet {name!r}")
        known = self._known.setdefault((name, entry["repeat"]), _Known())
        capped = entry["outcome"] == "budget_exhausted"
        if known.is_verdict or (capped and known.said):
            return  # that a cap came first is no news of a group that failed before
        came = entry.get("reply") is not None or entry.get("tokens") is not None
        known.replies += bool(entry.get("delivered", came))
        known.line = known.line if capped else number
        known.said = self.read(entry, sheet, known.replies)

    def read(
        self, entry: dict[str, Any], sheet: Sheet, attempts: int = 1
    ) -> Sequence[Judgment | Failure]:
        """One entry of the journal as judgments, or as failures."""
        outcome, reply = entry["outcome"], entry.get("reply")
        try:
            if outcome in NO_REPLY:
                raise Problem(outcome, entry.get("detail", ""))
            document = read_reply(reply, sheet.labels, self.profile)
        except Problem as problem:
            return failures(problem.reason, problem.detail, reply, attempts, sheet, self.plan)
        return judgments(document, sheet, self.plan, self.profile)

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
                "schema_sha256": self.profile.schema_hash,
                "reply_sha256": None if reply is None else sha256(reply.encode(errors="replace")),
                "written": datetime.now(UTC).isoformat(timespec="milliseconds"),
                **entry,
            }
        )

    def write_result(self, document: dict[str, Any]) -> None:
        """Keep scores beside the journal that they follow from."""
        write(self.path / RESULT, _json(document))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the series: two sessions of one judge would ask everything twice."""
        with _held(self.path, self.journal):
            yield


@contextmanager
def probing(run: str | os.PathLike[str], judge: dict[str, Any]) -> Iterator[Journal]:
    """Hold the journal of the requests that settle how a judge is asked (`form.py`)."""
    journal = probes(run, judge)
    with disk(journal.path):
        journal.path.parent.mkdir(parents=True, exist_ok=True)
    with _held(journal.path.parent, journal):
        yield journal


def probes(run: str | os.PathLike[str], judge: dict[str, Any]) -> Journal:
    """That journal, to read."""
    return Journal(Path(run) / PROBES / _series_id(judge, *open_plan(run)) / CALLS)


@contextmanager
def _held(folder: Path, journal: Journal) -> Iterator[None]:
    with locked(folder, wait=False) as mine:
        if not mine:
            raise UserError(
                "Another process is judging this series.",
                where=folder,
                fix="wait for it to end, then run the same command again",
            )
        journal.mend()
        yield


def list_series(run: str | os.PathLike[str]) -> list[Series]:
    """Every judge of a plan, by id."""
    open_plan(run)
    path = Path(run)
    folders = sorted(p.parent for p in (path / SERIES).glob(f"*/{JUDGE}"))
    return [Series._load(path, folder) for folder in folders]


def _series_id(judge: dict[str, Any], plan: Plan, profile: Profile) -> str:
    return sha256(canonical([judge, plan.hash, profile.hash]))[:16]


def _differences(there: Plan, now: Plan) -> str:
    fields = {
        "profile": (there.profile, now.profile),
        "seed": (there.seed, now.seed),
        "partition": (there.method, now.method),
        "generators": (", ".join(there.cells), ", ".join(now.cells)),
        "sheets": (len(there.sheets), len(now.sheets)),
    }
    told = [f"{key}: {a} there, {b} now" for key, (a, b) in fields.items() if a != b]
    return "; ".join(told) or "the same settings, but other texts"


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()


def _read(path: Path, key: str | None) -> dict[str, Any]:
    try:
        with reading(path):
            document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise _damaged(path, "it is missing") from None
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from None
    made = document.get("format") if isinstance(document, dict) else None
    if not isinstance(made, int) or made < 1:
        raise _damaged(path, "it has no format")
    if made > FORMAT:
        raise UserError(
            "This plan was made by a newer version of strop.",
            where=path,
            got=f"format {made}",
            expected=f"format {FORMAT} or lower",
            fix="pip install --upgrade strop",
        )
    found = document if key is None else document.get(key)
    if not isinstance(found, dict):
        raise _damaged(path, f"it has no {key!r}")
    return found


def _damaged(path: Path, why: object) -> UserError:
    return UserError(
        "A file of the GroupEval run is damaged.",
        where=path,
        got=str(why).splitlines()[0][:200] if str(why) else type(why).__name__,
        fix="restore the file, or plan anew with another `out`",
    )
