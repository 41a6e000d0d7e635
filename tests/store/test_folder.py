"""The one folder: its mark is written first and removed last, whatever happens in between."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from strop.disk import locked
from strop.errors import UserError
from strop.pool import Output
from strop.spec import CellSpec, CheckpointSpec, GeneratorSpec, SamplerSpec
from strop.store import KINDS, Folder, Run, StudyFolder, read_mark, study_result
from strop.tasks import TASKS
from strop.tasks.outcome import Entrant, TaskRun
from strop.verbs.ls import find

ASKED = {"n": 3, "seed": 1}
CHECKPOINT = CheckpointSpec(family="tabular", sha256="0" * 64, shape={"length": 2})


def cell_of(steps: int) -> CellSpec:
    sampler = SamplerSpec(steps=steps)
    return CellSpec(
        generator=GeneratorSpec(checkpoint=CHECKPOINT, sampler=sampler, length=2), seed=0
    )


def prepared(path: Any, *steps: int, n: int = 2, **how: Any) -> Run:
    cells = [cell_of(one) for one in steps]
    asked = {"weights": CHECKPOINT.model_dump(mode="json"), "n": n, "seed": 0}
    run = Run.prepare(path, asked, cells, **how)
    for cell in run.cells() if not how.get("grow") else ():
        with cell.writing():
            """Whoever draws removes what was left of a killed process."""
    return run


def row(index: int) -> Output:
    return Output(index, np.array([index, 1]), 2, 0.5, 0, np.zeros(2, np.int32), "text")


def below(path: Path) -> dict[str, bytes]:
    files = [one for one in path.rglob("*") if one.is_file() and one.name != ".lock"]
    return {str(one.relative_to(path)): one.read_bytes() for one in files}


def document(path: Path) -> dict[str, Any]:
    return json.loads((path / "strop.json").read_text())


# ------------------------------------------------------------------ the mark


def test_the_mark_says_whose_it_is_and_what_was_asked(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new", "study", "letters", version="2")
    with folder.held() as mark:
        assert mark is None
        folder.write(ASKED)
    from strop.version import __version__

    assert document(tmp_path / "new") == {
        "kind": "study",
        "format": 1,
        "strop": __version__,
        "owner": "letters",
        "version": "2",
        "asked": ASKED,
    }
    assert next(iter(document(tmp_path / "new"))) == "kind"
    found = read_mark(tmp_path / "new")
    assert found is not None
    assert (found.kind, found.owner, found.version, found.asked) == (
        "study",
        "letters",
        "2",
        ASKED,
    )
    with folder.held() as again:
        assert again == found


def test_writing_the_same_mark_again_touches_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "study", "letters")
    folder.write(ASKED)
    before = (tmp_path / "strop.json").stat()
    folder.write(ASKED)
    assert (tmp_path / "strop.json").stat().st_mtime_ns == before.st_mtime_ns
    folder.write({**ASKED, "n": 4})
    assert document(tmp_path)["asked"]["n"] == 4


def test_no_mark_is_none_and_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "missing", tmp_path / "file", "owner/name", "embedded:x"):
        assert read_mark(path) is None


# ------------------------------------------------------------------ strangers


@pytest.mark.parametrize(("there", "asked"), list(permutations(KINDS, 2)))
def test_a_directory_of_another_kind_is_refused(tmp_path: Path, there: str, asked: str) -> None:
    Folder(tmp_path, there, "somebody").write(ASKED)
    before = below(tmp_path)
    for force in (False, True):
        folder = Folder(tmp_path, asked, "me")
        for attempt in (folder.refuse_strangers, lambda f=folder, g=force: enter(f, g)):
            with pytest.raises(UserError, match=f"but no {KINDS[asked].words}\\.") as caught:
                attempt()
        assert caught.value.got == f"{KINDS[there].words}, made by `somebody`"
        assert KINDS[asked].command in str(caught.value.expected)
    assert below(tmp_path) == before
    assert not (tmp_path / ".lock").exists()
    (tmp_path / ".lock").touch()  # as every directory has that was written to
    with pytest.raises(UserError, match="but no "):
        Folder(tmp_path, asked, "me").refuse_strangers()


def enter(folder: Folder, force: bool) -> None:
    with folder.held(force=force):
        pytest.fail("it was let in")


@pytest.mark.parametrize(("kind", "force"), list(product(KINDS, (False, True))))
def test_files_of_somebody_else_are_left_alone(tmp_path: Path, kind: str, force: bool) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    (tmp_path / "cells").mkdir()
    with pytest.raises(UserError, match=f"holds files but no {KINDS[kind].words}") as caught:
        enter(Folder(tmp_path, kind, "me"), force)
    assert "thesis.tex" in str(caught.value.got)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["cells", "thesis.tex"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_kind_of_another_owner(tmp_path: Path, kind: str) -> None:
    """Runs may be continued by any verb, and keep their first owner; a study is its own."""
    Folder(tmp_path, kind, "first").write(ASKED, [] if KINDS[kind].cells else None)
    folder = Folder(tmp_path, kind, "second")
    if KINDS[kind].cells:
        with folder.held():
            folder.write(ASKED, [])
        assert document(tmp_path)["owner"] == "first"
    else:
        with pytest.raises(UserError, match="belongs to another") as caught:
            enter(folder, True)
        assert (caught.value.got, caught.value.expected) == ("first", "second")


def test_an_empty_path_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="path is empty"):
        enter(Folder("", "run", "sample"), False)
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------ a lost or damaged mark


def test_a_lost_mark_of_a_study_is_written_again_among_its_own_files(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path, "study", "letters")
    with folder.writing(ASKED):
        folder.complete("a" * 16, pa.table({"x": [1]}))
        folder.finish({"rows": []}, b"x\n")
    before = below(tmp_path)
    (tmp_path / "strop.json").unlink()
    with (
        pytest.raises(UserError, match="holds files but no study") as caught,
        StudyFolder(tmp_path, "study", "words").writing(ASKED),
    ):
        pytest.fail("the result says that it is of `letters`")
    assert caught.value.got == "result.json"
    with folder.writing(ASKED):
        assert folder.cell("a" * 16) == pa.table({"x": [1]})
    assert below(tmp_path) == before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "study"}', '"mine"'])
def test_a_damaged_mark_of_a_study_is_named_and_deleting_it_helps(
    tmp_path: Path, text: str
) -> None:
    folder = StudyFolder(tmp_path, "study", "letters")
    with folder.writing(ASKED):
        folder.complete("a" * 16, pa.table({"x": [1]}))
    (tmp_path / "strop.json").write_text(text)
    with pytest.raises(UserError, match="damaged") as caught, folder.writing(ASKED):
        pytest.fail("it was let in")
    assert caught.value.where == str(tmp_path / "strop.json")
    assert f"delete {tmp_path / 'strop.json'}" in str(caught.value.fix)
    with folder.writing(ASKED, force=True):
        assert folder.cell("a" * 16) is None
    assert document(tmp_path)["owner"] == "letters"


def test_a_mark_of_somebody_else_s_is_not_replaced_by_force(tmp_path: Path) -> None:
    (tmp_path / "strop.json").write_text("mine")
    for kind in KINDS:
        with pytest.raises(UserError, match="damaged"):
            enter(Folder(tmp_path, kind, "me"), True)
    assert below(tmp_path) == {"strop.json": b"mine"}


@pytest.mark.parametrize("damage", [None, b"{"])
def test_a_lost_mark_is_rebuilt_from_the_cells(tmp_path: Path, damage: bytes | None) -> None:
    prepared(tmp_path, 4, 8, n=2).cells()[1].add([row(index) for index in range(5)])
    mark = tmp_path / "strop.json"
    mark.unlink() if damage is None else mark.write_bytes(damage)
    with pytest.raises(UserError, match="damaged") as caught:
        prepared(tmp_path, 4)
    assert caught.value.where == str(mark)
    run = prepared(tmp_path, 4, 8, n=3)
    assert run.wanted() == {cell_of(4).id: 3, cell_of(8).id: 5}
    # By another checkpoint it cannot grow: the cells say whose they are.
    mark.unlink() if damage is None else mark.write_bytes(damage)
    other = CHECKPOINT.model_copy(update={"sha256": "f" * 64})
    cell = cell_of(4).model_copy(
        update={"generator": cell_of(4).generator.model_copy(update={"checkpoint": other})}
    )
    asked = {"weights": other.model_dump(mode="json"), "n": 1}
    with pytest.raises(UserError, match="another spec"):
        Run.prepare(tmp_path, asked, [cell], grow=True)


def test_a_newer_mark_is_refused_whatever_its_kind(tmp_path: Path) -> None:
    text = json.dumps({"kind": "dance", "format": 2, "strop": "9.9", "owner": "x", "asked": {}})
    (tmp_path / "strop.json").write_text(text)
    for kind in KINDS:
        with pytest.raises(UserError, match="newer version"):
            enter(Folder(tmp_path, kind, "me"), True)
    assert below(tmp_path) == {"strop.json": text.encode()}


# ------------------------------------------------------------------ continuing, growing, anew


def test_a_run_continues_grows_and_starts_anew(tmp_path: Path) -> None:
    prepared(tmp_path, 4, n=2).cells()[0].add([row(0)])
    with pytest.raises(UserError, match="another spec"):
        prepared(tmp_path, 8)
    run = prepared(tmp_path, 4, n=5)
    assert run.wanted() == {cell_of(4).id: 5}
    assert prepared(tmp_path, 8, n=1, grow=True).wanted() == {cell_of(4).id: 5, cell_of(8).id: 1}
    assert document(tmp_path)["asked"]["outputs"] == [5, 1]
    (tmp_path / "notes.txt").write_text("mine")
    assert prepared(tmp_path, 8, n=1, force=True).wanted() == {cell_of(8).id: 1}
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "cells" / cell_of(4).id).exists()


@pytest.mark.parametrize("kind", ["audit", "search"])
def test_audits_and_searches_hold_cells(tmp_path: Path, kind: str) -> None:
    folder = StudyFolder(tmp_path / "x", kind, kind)
    with folder.writing(ASKED):
        prepared(folder, 4).cells()[0].add([row(0)])
        folder.finish({"rows": []}, b"x\n")
    assert Run.open(tmp_path / "x").cells()[0].indices() == {0}
    assert document(tmp_path / "x")["kind"] == kind
    with pytest.raises(UserError, match="but no run"):
        prepared(tmp_path / "x", 4)
    with folder.writing(ASKED, force=True):
        assert study_result(folder.path) is not None, "kept until something is drawn anew"
        prepared(folder, 4, force=True)
        assert study_result(folder.path) is None
        assert Run.open(folder).cells()[0].indices() == set()


def test_force_on_a_study_takes_what_it_made_and_no_run_inside(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path, "study", "frontier", inside=("pools",))
    with folder.writing(ASKED):
        prepared(tmp_path / "pools", 4)
        folder.finish({"rows": []}, b"x\n")
        folder.figures()[0].write_text("<svg/>")
    (tmp_path / "frontier.md").write_text("mine")
    pools = below(tmp_path / "pools")
    with folder.writing({**ASKED, "n": 9}, force=True):
        assert set(below(tmp_path)) == {
            "frontier.md",
            "strop.json",
            *(f"pools/{name}" for name in pools),
        }
        assert document(tmp_path)["asked"]["n"] == 9


# ------------------------------------------------------------------ killed at any moment


class Killed(BaseException):
    """What no handler catches."""


OPERATIONS = ("fsync", "replace", "mkdir", "unlink", "rmdir")


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[list[int]]:
    """A process that dies before its `at`-th change of the disk: it does nothing any more."""
    count = [0]

    def mortal(does: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **named: Any) -> Any:
            if count[0] >= at:
                raise Killed
            count[0] += 1
            return does(*arguments, **named)

        return operation

    with monkeypatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(os, name, mortal(getattr(os, name)))
        yield count


def a_run(path: Path, force: bool) -> None:
    run = prepared(path, 4, 8, force=force)
    run.cells()[0].add([row(0)])
    run.keep_guard({"source": "texts"})


def a_search(path: Path, force: bool) -> None:
    folder = StudyFolder(path, "search", "tune")
    with folder.writing(ASKED, force=force):
        prepared(folder, 4, force=force)
        folder.finish({"rows": []}, b"x\n")


def a_study(path: Path, force: bool) -> None:
    folder = StudyFolder(path, "study", "letters")
    with folder.writing(ASKED, force=force):
        if folder.cell("a" * 16) is None:
            folder.keep("a" * 16, 0, pa.table({"x": [1]}))
            folder.complete("a" * 16, pa.table({"x": [1]}))
        folder.finish({"rows": []}, b"x\n")


def a_comparison(path: Path, force: bool) -> None:
    folder = StudyFolder(path, "comparison", "compare", inside=("runs",))
    with folder.writing(ASKED, force=force):
        (path / "runs").mkdir(exist_ok=True)
        prepared(path / "runs" / "a", 4)
        folder.finish({"rows": []}, b"x\n")


def a_task(path: Path, force: bool) -> None:
    task_run = TaskRun.make(path, TASKS.find("sums"), 8, force=force)
    who = Entrant("mine", "mine", CHECKPOINT, False, "tokenizer", (), ())
    task_run, who = task_run.enter(who)
    prepared(Folder(path / who.label, "run", "task run"), 4)


def a_plan(path: Path, force: bool) -> None:
    from strop.groupeval import Profile, Source, make_plan, write_plan

    assert not force
    profile = Profile.load("webtext-v1")
    texts = tuple(f"text {number}" for number in range(8))
    plan, frozen = make_plan([Source("one", texts, None, "one")], profile, seed=0)
    write_plan(path, plan, profile, frozen)


def a_training(path: Path, force: bool) -> None:
    from strop.training.run import TrainingRun
    from strop.training.spec import read_spec

    assert not force
    with TrainingRun.prepared(path, read_spec("mdlm-tiny")):
        """Nothing is trained."""


MAKERS = {
    "run": a_run,
    "search": a_search,
    "study": a_study,
    "comparison": a_comparison,
    "task": a_task,
    "groupeval": a_plan,
    "training": a_training,
}
CASES = [(kind, False) for kind in MAKERS]
CASES += [(kind, True) for kind in MAKERS if kind not in ("groupeval", "training")]
"""Plans are frozen, and training has no --force."""


@pytest.mark.parametrize(("kind", "anew"), CASES)
def test_killed_between_any_two_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, anew: bool
) -> None:
    """Whatever is there is marked, and the same command completes it."""
    make, whole = MAKERS[kind], tmp_path / "whole"
    make(whole, False)
    deaths, path = 0, whole
    for at in range(200):
        path = tmp_path / str(at)
        if anew:
            make(path, False)
        with dying(monkeypatch, at), suppress(Killed):
            make(path, anew)
            break
        deaths += 1
        left = [one for one in path.rglob("*") if one.name[:5] not in (".lock", ".tmp-")]
        if left:
            mark = read_mark(path)
            assert mark is not None, f"after {at} operations: {left}"
            assert mark.kind == kind
        make(path, False)
        assert same(path, whole), f"after {at} operations"
        assert not list(path.rglob(".tmp-*"))
    assert deaths >= 5
    assert same(path, whole)


def same(path: Path, whole: Path) -> bool:
    """The same files; of outputs, whose files have random names, the same rows."""

    def told(root: Path) -> tuple[Any, Any]:
        files = {name: content for name, content in below(root).items() if "parts/" not in name}
        rows = {
            str(one.parent.relative_to(root)): Run.open(one.parent).cells()[0].indices()
            for one in root.rglob("strop.json")
            if document(one.parent)["kind"] in ("run", "search")
        }
        return files, rows

    return told(path) == told(whole)


@pytest.mark.parametrize("error", [28, 30, 13], ids=["full", "read-only", "forbidden"])
def test_what_the_disk_refuses_is_told_and_nothing_is_half_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        for make in MAKERS.values():
            with pytest.raises(UserError) as caught:
                make(tmp_path / "x", False)
            assert caught.value.got == os.strerror(error)
            assert not below(tmp_path / "x")
    a_study(tmp_path / "x", False)


# ------------------------------------------------------------------ two at once


def test_a_second_holder_waits_or_is_refused(tmp_path: Path) -> None:
    folder, entered = Folder(tmp_path, "study", "letters"), threading.Event()

    def second() -> None:
        with Folder(tmp_path, "study", "letters").held() as mark:
            assert mark is not None
            entered.set()

    other = threading.Thread(target=second)
    with folder.held():
        folder.write(ASKED)
        other.start()
        with pytest.raises(UserError, match="Another process"), folder.held(wait=False):
            pytest.fail("two hold it")
        assert not entered.wait(0.1)
    other.join(10)
    assert entered.is_set()


def test_a_lock_that_a_dead_process_left_is_free(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("")
    with Folder(tmp_path, "study", "letters").held(wait=False) as mark:
        assert mark is None


def test_shards_do_not_wait_for_each_other(tmp_path: Path) -> None:
    folders = [StudyFolder(tmp_path, "study", "letters") for _ in range(3)]
    with (
        folders[0].writing(ASKED),
        folders[1].writing(ASKED, together=True),
        folders[2].writing(ASKED, together=True),
    ):
        folders[1].keep("a" * 16, 0, pa.table({"x": [1]}))
        assert folders[2].part("a" * 16, 0) == pa.table({"x": [1]})
    with (
        pytest.raises(UserError, match="another study"),
        StudyFolder(tmp_path, "study", "words").writing(ASKED, together=True),
    ):
        pytest.fail("it was let in")


def test_a_shard_waits_only_until_there_is_a_mark(tmp_path: Path) -> None:
    shard, done = Folder(tmp_path, "study", "letters"), threading.Event()

    def join() -> None:
        shard.join(ASKED)
        done.set()

    other = threading.Thread(target=join)
    with locked(tmp_path):
        other.start()
        assert not done.wait(0.1), "whoever holds the directory has not said whose it is"
        Folder(tmp_path, "study", "letters").write({"n": 7})
        assert done.wait(10)
    other.join(10)
    assert document(tmp_path)["asked"] == {"n": 7}, "the mark that is there stays"
    alone = Folder(tmp_path / "alone", "study", "letters")
    alone.join(ASKED)
    assert document(tmp_path / "alone")["asked"] == ASKED


# ------------------------------------------------------------------ what lies where


def test_a_folder_inside_another_has_its_own_mark_and_is_not_listed(tmp_path: Path) -> None:
    for kind, make in MAKERS.items():
        make(tmp_path / "made" / kind, False)
    prepared(tmp_path / "made" / "search" / "fresh" / "a", 4)
    (tmp_path / "made" / "audit").mkdir()
    Folder(tmp_path / "made" / "audit", "audit", "audit").write(ASKED, [])
    (tmp_path / "made" / "broken").mkdir()
    (tmp_path / "made" / "broken" / "strop.json").write_text("{")
    (tmp_path / "made" / "elsewhere" / "result.json").parent.mkdir()
    (tmp_path / "made" / "elsewhere" / "result.json").write_text("[1]")
    listed = [(Path(one.run).name, one.kind, one.state) for one in find(tmp_path / "made")]
    assert listed == [
        ("audit", "audit", "0 of 0 outputs"),
        ("broken", "unknown", "A file of the run is damaged."),
        ("comparison", "comparison", "finished"),
        ("groupeval", "groupeval", "not judged"),
        ("run", "run", "1 of 4 outputs"),
        ("search", "search", "0 of 2 outputs"),
        ("study", "study letters", "finished"),
        ("task", "task sums", "0 of 2 outputs"),
        ("training", "training", "not finished"),
    ]
    assert [one.kind for one in find(tmp_path / "made" / "task" / "mine")] == ["run"]
    looks = {one.kind: one.look.split(str(tmp_path))[0] for one in find(tmp_path / "made")}
    assert looks["groupeval"] == "strop groupeval show "
    assert looks["study letters"] == looks["comparison"] == "strop report "
    assert looks["task sums"] == "strop task score "
    assert looks["search"] == looks["training"] == "strop show "
