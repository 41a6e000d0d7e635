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
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from strop.disk import TEMPORARY, disk, locked, write
from strop.errors import UserError
from strop.groupeval.plan import Plan, Texts
from strop.groupeval.profile import FILES, MANIFEST, Profile, canonical, sha256
from strop.served.journal import Journal
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
