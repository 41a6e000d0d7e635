"""A GroupEval directory: the only module that knows its file names; its plan and its journals.

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

A journal is one JSON object a line, appended, synced, never changed. A process that is killed in
the middle of a line leaves a torn one at the end. Readers pass over it; the next writer takes it
away before it appends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from strop.disk import TEMPORARY, disk, locked, reading, write
from strop.errors import UserError
from strop.groupeval.cost import SENT
from strop.groupeval.plan import Plan, Texts
from strop.groupeval.profile import FILES, MANIFEST, Profile, canonical, sha256
from strop.spec import JudgeSpec
from strop.store import FORMAT, Folder
from strop.store import documents as store
from strop.store.documents import as_json, told_apart
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
        known = _planned(path, plan)  # another process may have been first
        folder.write(_asked(plan))
        if known:
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
    there, _ = open_plan(path)
    if there.hash == plan.hash and there.blinding == plan.blinding:
        return True
    told = "; ".join(told_apart(_asked(there), _asked(plan)))
    raise UserError(
        "This directory holds another plan.",
        where=path,
        got=told or "the same settings, but other texts",
        fix="choose another `out`: plans are frozen, and judgments refer to them",
    )


def _asked(plan: Plan) -> dict[str, Any]:
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


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _counts(value: Any) -> bool:
    if not isinstance(value, dict) or not {"prompt", "completion"} <= value.keys():
        return False
    return all(map(_count, value.values()))


def _counts_or_none(value: Any) -> bool:
    return value is None or _counts(value)


KINDS: dict[str, Callable[[Any], bool]] = {
    "sheet": _text,
    "sheets": lambda value: isinstance(value, list) and all(map(_text, value)),
    "outcome": _text,
    "repeat": _count,
    "attempt": _count,
    "detail": _text,
    "reply": _text_or_none,
    "calls": _count,
    "unsent": _count,
    "tokens": _counts_or_none,
    "unseen": _counts_or_none,
    "reserve": _counts,
    "session": _text,
}
"""What is read back from an entry, and what it must be."""


class Journal:
    """An append-only file of entries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_to = 0
        self._entries: list[dict[str, Any]] = []

    def entries(self) -> list[dict[str, Any]]:
        """Every whole entry, oldest first; only what is new since the last call is read."""
        try:
            with reading(self.path), open(self.path, "rb") as file:
                file.seek(self._read_to)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        first = len(self._entries) + 1
        new = [self._entry(line, first + place) for place, line in enumerate(whole.splitlines())]
        self._entries += new
        self._read_to += len(whole)
        return self._entries

    def append(self, entry: dict[str, Any]) -> None:
        """One line, on the disk when this returns."""
        line = json.dumps(entry, allow_nan=False).encode() + b"\n"
        with disk(self.path):
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                while line:
                    line = line[os.write(handle, line) :]
                os.fsync(handle)
            finally:
                os.close(handle)

    def mend(self) -> None:
        """Take away the torn line of a session that was killed; only for who holds the series."""
        if not self.path.exists():
            return
        with disk(self.path), open(self.path, "rb+") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)

    def _entry(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._damaged(number, error) from None
        whole = isinstance(entry, dict) and {"outcome", "repeat"} <= entry.keys()
        if not whole or not {"sheet", "sheets"} & entry.keys():
            raise self._damaged(number, "it is not an entry")
        for name, kind in KINDS.items():
            if name in entry and not kind(entry[name]):
                raise self._damaged(number, f"{name} is {json.dumps(entry[name])[:60]}")
        if entry["outcome"] == SENT and not {"sheet", "reserve"} <= entry.keys():
            raise self._damaged(number, "it is no whole request")
        reply = entry.get("reply")
        if reply is not None and sha256(reply.encode(errors="replace")) != entry.get(
            "reply_sha256"
        ):
            raise self._damaged(number, "the reply is not the one that was written")
        return entry

    def _damaged(self, number: int, why: object) -> UserError:
        return UserError(
            "A line of the journal is damaged.",
            where=f"{self.path}, line {number}",
            got=repr(why)[:160],
            fix="restore the file, or delete that line: its group is then asked again",
        )


@contextmanager
def probing(run: str | os.PathLike[str], judge: JudgeSpec) -> Iterator[Journal]:
    """Hold the journal of the requests that settle how a judge is asked (`form.py`)."""
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
    with locked(folder, wait=False) as mine:
        if not mine:
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
