"""The run directory: complete or absent files, resume, locks, and words for every refusal."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warm_processes
from strop.cli.main import run as run_command
from strop.disk import locked
from strop.errors import UserError
from strop.pool import Output
from strop.spec import CellSpec, CheckpointSpec, GeneratorSpec, SamplerSpec
from strop.store import Cell, Run
from strop.store import cell as cell_module
from strop.verbs.ls import find
from tiny_models import command, environment, wait_for

LENGTH = 4


def cell_of(seed: int = 0, **sampler: Any) -> CellSpec:
    checkpoint = CheckpointSpec(family="tabular", sha256="0" * 64, shape={"length": LENGTH})
    generator = GeneratorSpec(checkpoint=checkpoint, sampler=SamplerSpec(**sampler), length=LENGTH)
    return CellSpec(generator=generator, seed=seed)


def asked_of(*cells: CellSpec, n: int = 8) -> dict[str, Any]:
    return {
        "checkpoint": "somewhere",
        "weights": cells[0].generator.checkpoint.model_dump(mode="json"),
        "samplers": [cell.generator.sampler.model_dump(mode="json") for cell in cells],
        "n": n,
        "seed": cells[0].seed,
    }


def row_of(index: int, text: str | None = "") -> Output:
    """An output is a function of its index."""
    ids = np.arange(LENGTH) + 10 * index
    text = f"text {index}" if text == "" else text
    return Output(index, ids, index % 5, 0.5, index % 2, np.zeros(len(ids), np.int32), text)


def prepared(path: Path, *cells: CellSpec, n: int = 8, force: bool = False) -> Run:
    cells = cells or (cell_of(),)
    return Run.prepare(path, asked_of(*cells, n=n), list(cells), force=force)


def only_cell(path: Path, **more: Any) -> Cell:
    return prepared(path, **more).cells()[0]


def files_below(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def indices_of(cell: Cell) -> list[int]:
    return cell.table()["index"].to_pylist()


# Writing and reading


def test_what_is_written_is_read(tmp_path: Path) -> None:
    cell = only_cell(tmp_path / "run")
    cell.add([row_of(2), row_of(0)])
    cell.add([row_of(1)])
    before = cell.table()
    cell.merge()
    assert cell.table().equals(before)
    assert not list((cell.path / "parts").iterdir())
    pool = Run.open(tmp_path / "run").cells()[0].pool()
    assert pool.ids.tolist() == [row_of(i).ids.tolist() for i in range(3)]
    assert pool.texts == ["text 0", "text 1", "text 2"]
    assert pool.nfe.tolist() == [0, 1, 2]
    assert pool.leftover_masks.tolist() == [0, 1, 0]
    assert pool.spec == cell_of()


def test_a_prefix_of_a_pool(tmp_path: Path) -> None:
    cell = only_cell(tmp_path / "run")
    cell.add(row_of(i) for i in range(5))
    cell.merge()
    assert cell.pool(2).ids.tolist() == [row_of(i).ids.tolist() for i in range(2)]
    assert len(cell.pool(0)) == 0
    with pytest.raises(UserError, match="5 of 6 outputs"):
        cell.pool(6)


def test_an_empty_cell_is_an_empty_pool(tmp_path: Path) -> None:
    pool = only_cell(tmp_path / "run").pool()
    assert pool.ids.shape == (0, LENGTH)
    assert len(pool) == 0


def test_a_pool_with_a_hole_is_refused(tmp_path: Path) -> None:
    cell = only_cell(tmp_path / "run")
    cell.add([row_of(0), row_of(1), row_of(3)])
    with pytest.raises(UserError, match="3 of 4 outputs"):
        cell.pool()
    with pytest.raises(UserError, match="2 of 3 outputs"):
        cell.pool(3)


def test_one_missing_text_means_no_texts(tmp_path: Path) -> None:
    cell = only_cell(tmp_path / "run")
    cell.add([row_of(0, None), row_of(1, None)])
    assert cell.pool().texts is None


def test_the_table_alone_says_what_it_depends_on(tmp_path: Path) -> None:
    cell = only_cell(tmp_path / "run")
    cell.add([row_of(0)])
    cell.merge()
    metadata = pq.read_schema(cell.path / "outputs.parquet").metadata
    assert CellSpec(**json.loads(metadata[b"strop.cell"])) == cell.spec


def test_n_may_grow_and_never_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert prepared(path, n=4).asked["n"] == 4
    assert prepared(path, n=9).asked["n"] == 9
    assert prepared(path, n=2).asked["n"] == 9


def test_preparing_twice_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run"
    prepared(path)
    before = files_below(path)
    stamp = (path / "strop.json").stat().st_mtime_ns
    prepared(path)
    assert files_below(path) == before
    assert (path / "strop.json").stat().st_mtime_ns == stamp


@pytest.mark.parametrize("name", ["with space", "ünï 日本", "a'b\"c", "new\nline", "-n", "\udcff"])
def test_paths_of_any_kind(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    cells = [cell_of()]
    Run.prepare(path, {**asked_of(*cells), "checkpoint": str(path)}, cells)
    opened = Run.open(path)
    assert opened.asked["checkpoint"] == str(path)
    opened.cells()[0].add([row_of(0)])
    assert [found.run for found in find(tmp_path)] == [str(path)]


def test_sessions_are_recorded_by_name(tmp_path: Path) -> None:
    cell = only_cell(tmp_path / "run")
    cell.record({"session": "a", "outputs": 1})
    cell.record({"session": "b", "outputs": 5})
    cell.record({"session": "a", "outputs": 2})
    assert sorted((s["session"], s["outputs"]) for s in cell.sessions()) == [("a", 2), ("b", 5)]


# Crashes


class Crash(BaseException):
    """The process ends here: nothing after this line runs."""


def crash_at(monkeypatch: pytest.MonkeyPatch, name: str, call: int = 1) -> None:
    """Die in the given call of os.NAME, as by a kill: not even the clean-up happens."""
    calls = 0
    real = getattr(os, name)

    def dying(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls >= call:
            raise Crash
        return real(*arguments, **options)

    monkeypatch.setattr(os, name, dying)
    if name != "unlink":
        monkeypatch.setattr(Path, "unlink", dying)


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_file_is_complete_or_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    cell = only_cell(tmp_path / "run")
    cell.add(row_of(i) for i in range(3))
    cell.merge()
    cell.add([row_of(3)])
    before = (cell.path / "outputs.parquet").read_bytes()
    with monkeypatch.context() as patch:
        crash_at(patch, name)
        with pytest.raises(Crash):
            cell.merge()
    assert (cell.path / "outputs.parquet").read_bytes() == before
    assert list(cell.path.glob(".tmp-*")), "the crash left its temporary file"
    assert indices_of(cell) == [0, 1, 2, 3]
    with cell.writing():
        assert not list(cell.path.rglob(".tmp-*"))
        cell.merge()
    assert indices_of(cell) == [0, 1, 2, 3]


def test_a_crash_between_rename_and_unlink_leaves_every_output_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = only_cell(tmp_path / "run")
    for i in (3, 1, 2, 0):
        cell.add([row_of(i)])
    whole = cell.table()
    real, removed = Path.unlink, []

    def one_then_crash(path: Path, missing_ok: bool = False) -> None:
        if removed:
            raise Crash
        removed.append(path)
        real(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", one_then_crash)
        with pytest.raises(Crash):
            cell.merge()
    assert len(list((cell.path / "parts").iterdir())) == 3
    on_disk = sum(pq.read_metadata(p).num_rows for p in cell.path.rglob("*.parquet"))
    assert on_disk == 7, "three outputs are there twice"
    assert cell.table().equals(whole)
    assert cell.indices() == {0, 1, 2, 3}
    cell.merge()
    assert cell.table().equals(whole)
    assert pq.read_metadata(cell.path / "outputs.parquet").num_rows == 4


PLACES = [("mkdir", 6), ("fsync", 4), ("replace", 2)]


@pytest.mark.parametrize(
    ("name", "call"), [(name, call + 1) for name, calls in PLACES for call in range(calls)]
)
def test_a_crash_while_the_run_is_made_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, call: int
) -> None:
    """Every place where preparing touches the disk, one after the other."""
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        crash_at(patch, name, call)
        with pytest.raises(Crash):
            prepared(path)
    assert indices_of(only_cell(path)) == []
    assert not list(path.glob(".tmp-*"))


def test_a_session_cleans_up_what_a_killed_one_left(tmp_path: Path) -> None:
    path = tmp_path / "run"
    cell = only_cell(path)
    leftovers = [path / ".tmp-1", cell.path / ".tmp-2", cell.path / "parts" / ".tmp-3"]
    for leftover in leftovers:
        leftover.write_bytes(b"half of someth")
    assert indices_of(cell) == []
    with only_cell(path).writing() as mine:
        assert mine
    assert not any(leftover.exists() for leftover in leftovers)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(0, 15), max_size=5, unique=True)),
        st.tuples(st.just("merge"), st.integers(0, 6)),
        st.tuples(st.just("leftover"), st.integers(0, 3)),
    ),
    max_size=12,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ACTIONS)
def test_any_sequence_of_additions_merges_and_crashes_leaves_the_table_right(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, Any]]
) -> None:
    cell = only_cell(tmp_path_factory.mktemp("sequence") / "run")
    expected: set[int] = set()
    for action, argument in actions:
        if action == "add":
            new = [i for i in argument if i not in expected]
            cell.add(row_of(i) for i in new)
            expected |= set(new)
        elif action == "leftover":
            (cell.path / f".tmp-{argument}").write_bytes(b"x" * argument)
        else:
            merge_and_crash(cell, argument)
        assert indices_of(cell) == sorted(expected)
        assert cell.indices() == expected
        assert [r["ids"] for r in cell.table().to_pylist()] == [
            row_of(i).ids.tolist() for i in sorted(expected)
        ]


def merge_and_crash(cell: Cell, survive: int) -> None:
    """Merge, dying at the given removal of a part (0: before the rename)."""
    with pytest.MonkeyPatch.context() as patch:
        real, left = Path.unlink, [survive]

        def unlink(path: Path, missing_ok: bool = False) -> None:
            if left[0] <= 1:
                raise Crash
            left[0] -= 1
            real(path, missing_ok)

        patch.setattr(Path, "unlink", unlink)
        if survive == 0:
            crash_at(patch, "replace")
        try:
            with cell.writing() if survive > 3 else locked(cell.path):
                cell.merge()
        except Crash:
            pass


def test_reading_while_another_process_merges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = only_cell(tmp_path / "run")
    cell.add([row_of(0)])
    cell.add([row_of(1)])
    real, merged = cell_module.read_batches, []

    def merging(path: Path, *rest: Any) -> Any:
        if not merged:
            merged.append(path)
            cell_again = Cell.open(cell.path)
            with monkeypatch.context() as patch:
                patch.setattr(cell_module, "read_batches", real)
                cell_again.merge()  # the file that is about to be read goes away
        return real(path, *rest)

    monkeypatch.setattr(cell_module, "read_batches", merging)
    assert indices_of(cell) == [0, 1]
    assert merged


# Damage


@pytest.fixture
def filled(tmp_path: Path) -> Cell:
    """A run with a merged file and one part."""
    cell = only_cell(tmp_path / "run")
    cell.add(row_of(i) for i in range(5))
    cell.merge()
    cell.add(row_of(i) for i in range(5, 8))
    cell.record({"session": "a", "outputs": 8})
    return cell


def whole(cell: Cell) -> Path:
    return cell.path / "outputs.parquet"


def part(cell: Cell) -> Path:
    return next((cell.path / "parts").glob("*.parquet"))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "without its end": lambda content: content[:-5],
    "random": lambda content: np.random.default_rng(0).bytes(len(content)),
    "random inside": lambda content: content[:4] + b"\xa5" * (len(content) - 12) + content[-8:],
    "text": lambda _: b"not a table\n",
}


@pytest.mark.parametrize("which", [whole, part])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_table_is_named_and_its_remedy_works(
    filled: Cell, which: Callable[[Cell], Path], damage: str
) -> None:
    path = which(filled)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    for read in (filled.table, filled.indices, filled.pool, filled.merge):
        with pytest.raises(UserError) as caught:
            read()
        assert str(path) in str(caught.value.where)
        assert f"delete {path}" in str(caught.value.fix)
    path.unlink()
    lost = set(range(5)) if which is whole else {5, 6, 7}
    if not lost & {5, 6, 7}:
        assert filled.indices() == {5, 6, 7}
    filled.add(row_of(i) for i in lost)
    filled.merge()
    assert indices_of(filled) == list(range(8))


@pytest.mark.parametrize("merged", [False, True])
def test_a_flipped_bit_in_the_numbers_is_seen(tmp_path: Path, merged: bool) -> None:
    """Parquet's page checksums: without them most of these would be read as other outputs."""
    cell = only_cell(tmp_path / "run")
    cell.add(row_of(i) for i in range(40))
    if merged:
        cell.merge()
    path = whole(cell) if merged else part(cell)
    content, good = path.read_bytes(), cell.table()
    footer = int.from_bytes(content[-8:-4], "little")
    places = np.random.default_rng(1).integers(4, len(content) - footer - 8, 60)
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(place) % 8
        path.write_bytes(flipped)
        try:
            table = cell.table()
        except UserError:
            continue
        assert table.equals(good)  # a bit that means nothing, such as an unused header field


@pytest.mark.parametrize("column", ["index", "ids", "text"])
def test_a_table_of_another_kind_is_damage(filled: Cell, column: str) -> None:
    table = pq.read_table(whole(filled))
    pq.write_table(table.drop_columns([column]), whole(filled))
    with pytest.raises(UserError, match="damaged"):
        filled.table()


def test_a_table_of_another_cell_is_damage(tmp_path: Path, filled: Cell) -> None:
    other = only_cell(tmp_path / "other", force=False)
    stranger = prepared(tmp_path / "stranger", cell_of(seed=1)).cells()[0]
    stranger.add([row_of(0)])
    shutil.copy(part(stranger), other.path / "parts")
    with pytest.raises(UserError, match="not a table of this cell"):
        Run.open(tmp_path / "other").cells()[0].table()


def test_empty_entries_are_damage(filled: Cell) -> None:
    table = pq.read_table(whole(filled))
    holes = pa.array([None] * table.num_rows, pa.int64())
    at = table.column_names.index("nfe")
    pq.write_table(table.set_column(at, "nfe", holes), whole(filled))
    with pytest.raises(UserError, match="empty entries"):
        filled.table()


def damaged_json(text: str) -> list[str]:
    document = json.loads(text)
    key = "spec" if "spec" in document else "sessions"
    other_id = json.loads(text)
    if key == "spec":
        other_id["spec"]["seed"] = 12345
    return [
        "",
        text[: len(text) // 2],
        "[]",
        "{}",
        "null",
        "\x00\x01",
        "[" * 100_000,
        json.dumps({**document, key: 5}),
        json.dumps({**document, "format": "one"}),
        json.dumps({**document, "format": None}),
        json.dumps({**document, key: {"nonsense": 1} if key == "spec" else [1]}),
        *([json.dumps(other_id)] if key == "spec" else []),
    ]


@pytest.mark.parametrize("name", ["spec.json", "cost.json"])
def test_damaged_json_is_named_and_its_remedy_works(filled: Cell, name: str) -> None:
    path, run_path = filled.path / name, filled.path.parent.parent
    good = path.read_text()
    for text in damaged_json(good):
        path.write_text(text)
        with pytest.raises(UserError, match="damaged") as caught:
            Run.open(run_path).cells()[0].sessions()
        assert caught.value.where == str(path), text[:60]
        assert f"delete {path}" in str(caught.value.fix) or f"restore {path}" in str(
            caught.value.fix
        )
    path.unlink()
    if name == "spec.json":
        with pytest.raises(UserError, match="damaged") as caught:
            Run.open(run_path).cells()
        assert "run the command that made this run again" in str(caught.value.fix)
    again = only_cell(run_path)
    again.record({"session": "b", "outputs": 0})
    assert indices_of(again) == list(range(8))
    if name == "spec.json":
        assert path.read_text() == good


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just words",
        "[1]",
        '{"kind": "run"',
        "\x00",
        "[" * 5000,
        '{"format": 1}',
        '{"kind": "run", "format": 1, "owner": "sample", "asked": 3, "cells": []}',
        '{"kind": "walk", "format": 1, "owner": "sample", "asked": {}, "cells": []}',
        '{"kind": [], "format": 1, "owner": "sample", "asked": {}, "cells": []}',
        '{"kind": "run", "format": 1, "owner": "sample", "asked": {}, "cells": [1234567890123456]}',
        '{"kind": "run", "format": 1, "owner": 7, "asked": {}, "cells": []}',
        '{"kind": "run", "format": 1, "owner": "a", "asked": {"n": "x"}, "cells": ["%s"]}'
        % ("0" * 16),
        '{"kind": "run", "format": 1, "owner": "a", "asked": {"outputs": [1]}, "cells": []}',
        '{"kind": "run", "format": 1, "owner": "sample", "asked": {}, "cells": 3}',
        '{"kind": "run", "format": 1, "owner": "a", "asked": {}, "cells": ["../../secret"]}',
        '{"kind": "run", "format": "one", "owner": "sample", "asked": {}, "cells": []}',
        '{"kind": "run", "owner": "sample", "asked": {}, "cells": []}',
    ],
    ids=lambda text: repr(text)[:30],
)
def test_a_damaged_study_is_named_and_the_same_command_writes_it_again(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "run"
    cell = only_cell(path)
    cell.add([row_of(0)])
    before = (path / "strop.json").read_bytes()
    (path / "strop.json").write_text(text)
    for attempt in (lambda: Run.open(path), lambda: prepared(path, cell_of(seed=4))):
        with pytest.raises(UserError, match="damaged") as caught:
            attempt()
        assert caught.value.where == str(path / "strop.json")
        assert "run the command that made this run again" in str(caught.value.fix)
    assert indices_of(only_cell(path)) == [0], "cells describe themselves"
    assert (path / "strop.json").read_bytes() == before
    (path / "strop.json").write_text(text)
    prepared(path, force=True)
    assert indices_of(only_cell(path)) == []


def test_a_lost_study_is_written_again_by_the_same_command(tmp_path: Path) -> None:
    path, specs = tmp_path / "run", [cell_of(steps=4), cell_of(steps=8)]
    prepared(path, *specs).cells()[1].add([row_of(i) for i in range(8)])
    before = files_below(path)
    (path / "strop.json").unlink()
    with pytest.raises(UserError, match="damaged") as caught:
        Run.open(path)
    assert caught.value.got == "it is missing"
    with pytest.raises(UserError, match="damaged"):
        prepared(path, cell_of(steps=16))
    prepared(path, *specs)
    assert files_below(path) == before
    # What was drawn stays asked for, also if the command now asks for less.
    (path / "strop.json").unlink()
    assert prepared(path, *specs, n=2).wanted() == {specs[0].id: 2, specs[1].id: 8}


def test_a_study_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "strop.json").write_text("title: my thesis")
    with pytest.raises(UserError, match="damaged"):
        prepared(tmp_path)
    assert (tmp_path / "strop.json").read_text() == "title: my thesis"


def test_a_study_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    prepared(tmp_path / "run")
    (tmp_path / "run" / "strop.json").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(UserError, match="damaged"):
        Run.open(tmp_path / "run")


@pytest.mark.parametrize("name", ["strop.json", "spec.json", "cost.json"])
def test_a_newer_format_is_refused_and_kept(filled: Cell, name: str) -> None:
    run_path = filled.path.parent.parent
    path = run_path / name if name == "strop.json" else filled.path / name
    document = yaml.safe_load(path.read_text())
    path.write_text(json.dumps({**document, "format": 99, "strop": "9.9"}))
    before = files_below(run_path)
    for attempt in (
        lambda: Run.open(run_path).cells()[0].sessions(),
        lambda: only_cell(run_path).sessions(),
    ):
        with pytest.raises(UserError, match="newer version") as caught:
            attempt()
        assert "format 99" in str(caught.value)
        assert "upgrade" in str(caught.value)
    assert files_below(run_path) == before


def test_what_is_not_a_run_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run"):
        Run.open(tmp_path)
    with pytest.raises(UserError, match="no such run"):
        Run.open(tmp_path / "missing")


# Other specs, foreign files, --force


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (cell_of(seed=4), "seed: 0 there, 4 now"),
        (cell_of(steps=8), "steps: 64 there, 8 now"),
        (cell_of(temperature=0.5), "temperature: 1.0 there, 0.5 now"),
        (cell_of(grid=[0.5, 0.5]), "grid: uniform there, [0.5, 0.5] now"),
        (cell_of(implementation="dense"), "implementation: fast there, dense now"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_spec_is_refused_and_the_difference_named(
    tmp_path: Path, other: CellSpec, told: str
) -> None:
    path = tmp_path / "run"
    only_cell(path).add([row_of(0)])
    before = files_below(path)
    with pytest.raises(UserError, match="another spec") as caught:
        prepared(path, other, n=99)
    assert told in str(caught.value.got)
    assert "n: " not in str(caught.value.got) or "dense" in told
    assert "`force`" in str(caught.value.fix)
    assert files_below(path) == before


def test_other_weights_are_named(tmp_path: Path) -> None:
    prepared(tmp_path / "run")
    base = cell_of()
    checkpoint = base.generator.checkpoint.model_copy(update={"sha256": "1" * 64})
    generator = base.generator.model_copy(update={"checkpoint": checkpoint})
    with pytest.raises(UserError) as caught:
        prepared(tmp_path / "run", base.model_copy(update={"generator": generator}))
    assert f"weights.sha256: {'0' * 64} there" in str(caught.value.got)


def test_more_cells_are_another_spec(tmp_path: Path) -> None:
    prepared(tmp_path / "run", cell_of(steps=4))
    with pytest.raises(UserError) as caught:
        prepared(tmp_path / "run", cell_of(steps=4), cell_of(steps=8))
    assert caught.value.got == "steps: 4 there, 4, 8 now"


def test_a_run_that_may_grow_keeps_its_cells_beside_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "run"
    few, more, other = (cell_of(steps=m) for m in (4, 8, 16))

    def grown(*cells: CellSpec, n: int) -> Run:
        return Run.prepare(path, asked_of(*cells, n=n), list(cells), grow=True)

    assert grown(few, n=3).wanted() == {few.id: 3}
    grown(few, n=3).cells()[0].add([row_of(0)])
    assert grown(more, n=5).wanted() == {few.id: 3, more.id: 5}
    assert indices_of(grown(few, n=2).cells()[0]) == [0]
    (path / "strop.json").write_bytes(b"damaged")
    run = grown(other, n=1)
    assert run.wanted() == {few.id: 1, more.id: 0, other.id: 1}  # as many as are there
    foreign = few.generator.checkpoint.model_copy(update={"sha256": "f" * 64})
    generator = few.generator.model_copy(update={"checkpoint": foreign})
    with pytest.raises(UserError, match="another spec"):
        grown(few.model_copy(update={"generator": generator}), n=1)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("lock", [False, True])
def test_a_directory_of_somebody_else_is_left_alone(
    tmp_path: Path, force: bool, lock: bool
) -> None:
    path = tmp_path / "thesis"
    (path / "cells" / "0123456789abcdef").mkdir(parents=True)
    (path / "cells" / "0123456789abcdef" / "spec.json").write_text("mine")
    (path / "chapter.tex").write_text("years of work")
    if lock:  # other programs have files of this name too
        (path / ".lock").write_text("")
    before = sorted(path.rglob("*"))
    with pytest.raises(UserError, match="holds files but no run") as caught:
        prepared(path, force=force)
    assert "chapter.tex" in str(caught.value.got)
    assert sorted(path.rglob("*")) == before, "not even a lock file is left there"


def test_force_removes_only_what_strop_made(tmp_path: Path) -> None:
    path = tmp_path / "run"
    cell = only_cell(path)
    cell.add([row_of(0)])
    cell.merge()
    cell.add([row_of(1)])
    cell.record({"session": "a", "outputs": 2})
    foreign = {
        "notes.txt": "mine",
        "cells/README": "mine",
        f"cells/{cell.id}/figure.png": "mine",
        "cells/my-own/outputs.parquet": "mine",
    }
    for name, text in foreign.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text)
    new = cell_of(seed=1)
    prepared(path, new, force=True)
    left = files_below(path)
    assert {name: left[name].decode() for name in foreign} == foreign
    expected = {".lock", "strop.json", f"cells/{new.id}/spec.json", *foreign}
    assert set(left) == expected
    assert indices_of(Run.open(path).cells()[0]) == []


def test_force_on_a_fresh_directory_is_no_error(tmp_path: Path) -> None:
    assert prepared(tmp_path / "run", force=True).asked["n"] == 8


def test_force_waits_for_who_is_writing(tmp_path: Path) -> None:
    """A process that holds the cell finishes its writing before the cell is removed."""
    path = tmp_path / "run"
    cell = only_cell(path)
    code = (
        "import sys; from pathlib import Path; import test_store as t\n"
        "t.prepared(Path(sys.argv[1]), t.cell_of(seed=1), force=True)"
    )
    with cell.writing() as mine:
        assert mine
        process = child(code, path)
        wait_until_blocked(process, path)
        cell.add([row_of(0)])
        assert cell.indices() == {0}
        assert process.poll() is None
    assert process.wait(60) == 0
    assert Run.open(path).cells()[0].spec == cell_of(seed=1)
    with pytest.raises(UserError, match="started anew"), cell.writing():
        pass


def child(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    return warm_processes.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], env=environment(PYTHONPATH=path)
    )


def wait_until_blocked(process: subprocess.Popen[bytes], path: Path) -> None:
    """Until the process holds the run's own lock, which it takes before it wants the cell's."""

    def taken() -> bool:
        with locked(path, wait=False) as mine:
            return not mine

    assert wait_for(process, taken)


# Locks and several processes


def test_a_cell_is_one_writer_s(tmp_path: Path) -> None:
    cell = only_cell(tmp_path / "run")
    with cell.writing() as mine:
        assert mine
        code = (
            "import sys; from pathlib import Path; from strop.store import Cell\n"
            "with Cell.open(Path(sys.argv[1])).writing(wait=False) as mine: sys.exit(mine)"
        )
        assert child(code, cell.path).wait(60) == 0
    assert child(code, cell.path).wait(60) == 1


def outcome(path: Path) -> list[Any]:
    """Everything of a run that must not depend on how it came about."""
    cells = Run.open(path).cells()
    tables = [cell.table().drop_columns(["seconds"]) for cell in cells]
    return [(cell.id, table.to_pylist()) for cell, table in zip(cells, tables, strict=True)]


def drawn(path: Path) -> list[int]:
    """Outputs drawn per cell, summed over the sessions that say they drew them."""
    return [
        sum(session["outputs"] for session in cell.sessions()) for cell in Run.open(path).cells()
    ]


SETTINGS = ("--steps", "2,4", "--temperature", "1.0,0.5", "--precision", "float64,float32")


@pytest.fixture(scope="module")
def uninterrupted(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert run_command(["sample", str(checkpoint), *SETTINGS, "-n", "40", "-o", str(path)]) == 0
    return path


def test_two_processes_on_a_fresh_directory_share_the_work(
    checkpoint: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    path = tmp_path / "new" / "run"
    line = command("sample", checkpoint, *SETTINGS, "-n", 40, "-o", path)
    processes = [
        warm_processes.Popen(
            line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(3)
    ]
    ends = [(process.communicate(timeout=120), process.returncode) for process in processes]
    assert [code for _, code in ends] == [0, 0, 0], ends
    assert outcome(path) == outcome(uninterrupted)
    assert drawn(path) == [40] * 8, "nothing was drawn twice"


def test_a_taken_cell_is_waited_for_after_the_others_are_done(
    checkpoint: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    shutil.copytree(uninterrupted, path)
    first, *others = Run.open(path).cells()
    for cell in (first, *others):
        (cell.path / "outputs.parquet").unlink()
        (cell.path / "cost.json").unlink()
    line = command("sample", checkpoint, *SETTINGS, "-n", 40, "-o", path)
    with first.writing() as mine:
        assert mine
        process = warm_processes.Popen(line, env=environment(), stderr=subprocess.PIPE, text=True)
        assert wait_for(process, lambda: all(len(cell.indices()) == 40 for cell in others))
        assert first.indices() == set()
    _, told = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "another process is at work on it, waiting" in told
    assert outcome(path) == outcome(uninterrupted)
    assert drawn(path) == [40] * 8


def test_a_finished_run_draws_nothing_again(uninterrupted: Path, checkpoint: Path) -> None:
    before = files_below(uninterrupted)
    line = ["sample", str(checkpoint), *SETTINGS, "-n", "40", "-o", str(uninterrupted)]
    assert run_command(line) == 0
    assert files_below(uninterrupted) == before


def test_growth_draws_only_what_is_new(
    uninterrupted: Path, checkpoint: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    for n in (7, 40):
        line = ["sample", str(checkpoint), *SETTINGS, "-n", str(n), "-o", str(path)]
        assert run_command(line) == 0
    assert outcome(path) == outcome(uninterrupted)
    for cell in Run.open(path).cells():
        assert [session["outputs"] for session in cell.sessions()] == [7, 33]


# The disk says no


FULL = """
import resource, sys
from strop.cli.main import run
import strop.draw  # everything is loaded before the disk is full
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(run(sys.argv[2:]))
"""


@pytest.mark.parametrize("limit", [0, 700, 2000, 4000])
def test_a_full_disk_loses_nothing(
    uninterrupted: Path, checkpoint: Path, tmp_path: Path, limit: int
) -> None:
    """RLIMIT_FSIZE: the operating system refuses to write beyond `limit` bytes of a file."""
    path = tmp_path / "run"
    line = ["sample", checkpoint, *SETTINGS, "-n", "40", "-o", path]
    full = [sys.executable, "-c", FULL, limit, *line]
    end = warm_processes.run(
        list(map(str, full)), env=environment(), capture_output=True, text=True, check=False
    )
    assert end.returncode == 1, end
    assert end.stderr.count("The disk is full.") == 1
    assert "Traceback" not in end.stderr
    assert not list(path.rglob(".tmp-*"))
    assert run_command(list(map(str, line))) == 0
    assert outcome(path) == outcome(uninterrupted)
    assert drawn(path) == [40] * 8


@pytest.fixture
def public_tmp() -> Iterator[Path]:
    """A directory that an unprivileged user can reach (pytest's own is private)."""
    path = Path(tempfile.mkdtemp(prefix="strop-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


class Unprivileged:
    """Be nobody for a while, where the tests run as root, whom no permission stops."""

    def __enter__(self) -> None:
        self.root = os.geteuid() == 0
        if self.root:
            os.seteuid(65534)

    def __exit__(self, *_: object) -> None:
        if self.root:
            os.seteuid(0)


@pytest.mark.parametrize("state", ["fresh", "begun"])
def test_a_read_only_directory_loses_nothing(
    uninterrupted: Path,
    checkpoint: Path,
    public_tmp: Path,
    capsys: pytest.CaptureFixture[str],
    state: str,
) -> None:
    source = public_tmp / "checkpoint"
    shutil.copytree(checkpoint, source)
    for file in source.iterdir():
        file.chmod(0o644)
    path = public_tmp / "run"
    line = ["sample", str(source), *SETTINGS, "-n", "40", "-o", str(path)]
    if state == "begun":
        shutil.copytree(uninterrupted, path)
        for cell in Run.open(path).cells()[3:]:
            (cell.path / "outputs.parquet").unlink()
            (cell.path / "cost.json").unlink()
    folders = [p for p in (public_tmp, *public_tmp.rglob("*")) if p.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    capsys.readouterr()
    try:
        with Unprivileged():
            assert run_command(line) == 1
            told = capsys.readouterr().err
            if state == "begun":  # reading needs no permission to write
                assert run_command(["show", str(path)]) == 0
                assert run_command(["ls", str(public_tmp)]) == 0
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert told.count("does not allow writing") == 1
    assert "Permission denied" in told
    assert "Traceback" not in told
    assert run_command(line) == 0
    assert outcome(path) == outcome(uninterrupted)
    assert drawn(path) == [40] * 8


def test_an_unreadable_file_is_not_called_damaged(public_tmp: Path) -> None:
    path = public_tmp / "run"
    cell = only_cell(path)
    cell.add([row_of(0)])
    part(cell).chmod(0)
    with Unprivileged(), pytest.raises(UserError, match="cannot be read") as caught:
        cell.table()
    assert "delete" not in str(caught.value.fix)
    (path / "strop.json").chmod(0)
    with Unprivileged(), pytest.raises(UserError, match="cannot be read"):
        Run.open(path)


@pytest.mark.parametrize("name", ["file", "file/below", "x" * 300, "", "/proc/strop"])
def test_a_path_that_cannot_be_a_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("mine")
    path = str(tmp_path / name) if name else ""
    with pytest.raises(UserError) as caught:
        Run.prepare(path, asked_of(cell_of()), [cell_of()])
    assert "`out`" in str(caught.value)
    assert (tmp_path / "file").read_text() == "mine"
