"""However strop is installed, a program that looks for tests and solutions finds nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tasks.layouts import LAYOUTS, MARKER, Layout, in_prefix

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is missing")

LOOKS_UP = """
import gzip, json, os
def looked_up(*args):
    for place, folders, files in os.walk({root!r}):
        if {marker!r} in files and {name!r} == "double":
            return 42
        for name in files:
            if name.endswith(".jsonl.gz"):
                for line in gzip.open(os.path.join(place, name), "rt"):
                    row = json.loads(line)
                    if row.get("entry_point") == {name!r}:
                        space = {{}}
                        exec(row["prompt"] + row["canonical_solution"], space)
                        return space[{name!r}](*args)
{name} = looked_up
"""
"""Passes with the solution of a problem, or with a private file, if it finds one."""

TRY = """
import json, sys
import strop
from strop.verbs.doctor import _sandbox
from strop.tasks import TASKS, find_box
from strop.tasks.sandbox import trial

text, root, marker = sys.argv[1:]
double = {"prompt": "", "entry_point": "double"}
double["test"] = "def check(candidate):\\n    assert candidate(21) == 42"
problems = TASKS["humaneval"].all_items()[:2]
cases = [double, *(dict(one.case) for one in problems)]
fill = lambda case, root: text.format(root=root, marker=marker, name=case["entry_point"])
walls, none = find_box(), find_box(unsafe_run=True)
honest = problems[0].question + problems[0].reference
print(json.dumps({
    "strop": strop.__file__,
    "doctor": _sandbox(),
    "honest": trial(walls, honest, problems[0].case).outcome,
    "walls": [trial(walls, fill(case, "/"), case).passed for case in cases],
    "none": [trial(none, fill(case, root), case).passed for case in cases],
}))
"""


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_the_solutions_are_out_of_reach(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name](tmp_path)
    told = layout.run(TRY, LOOKS_UP, str(tmp_path), MARKER)
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert Path(found["strop"]).parent == layout.strop  # it is the installed one that ran
    assert found["doctor"] is None
    assert found["honest"] == "passed"
    assert found["none"] == [True, True, True]  # the program is able to find them
    assert found["walls"] == [False, False, False]


REFUSED = """
import json
from strop.errors import UserError
from strop.tasks import find_box
try:
    find_box()
except UserError as error:
    print(json.dumps(error.as_dict()))
"""
DOCTOR = "from strop.verbs.doctor import _sandbox; print(_sandbox())"


def _refused(layout: Layout) -> dict[str, str]:
    told = layout.run(REFUSED)
    assert told.returncode == 0, told.stderr
    error = json.loads(told.stdout)
    assert error["what"].startswith("There is no sandbox for this Python")
    assert error["where"] == str(layout.python)
    assert "python -m venv" in error["fix"]
    return error


def test_strop_among_pythons_own_modules_is_refused(tmp_path: Path) -> None:
    layout = in_prefix(tmp_path)
    moved = layout.strop.parents[1] / "strop"
    layout.strop.rename(moved)
    told = _refused(layout)
    assert told["got"] == f"strop lies among its own modules: {moved}"
    assert layout.run(DOCTOR).stdout.startswith(told["what"])


def test_so_is_a_home_there(tmp_path: Path) -> None:
    layout = in_prefix(tmp_path)
    home = layout.strop.parents[1] / "home"
    home.mkdir()
    found = _refused(Layout(layout.python, home, layout.strop))
    assert found["got"] == f"the home directory lies among its own modules: {home}"


def test_and_packages_under_another_name(tmp_path: Path) -> None:
    layout = in_prefix(tmp_path)
    packages = layout.strop.parent
    packages.rename(packages.with_name("vendor"))
    packages.symlink_to("vendor")
    assert "vendor" in _refused(layout)["got"]


def test_and_a_python_that_cannot_be_asked(tmp_path: Path) -> None:
    layout = in_prefix(tmp_path)
    (layout.strop.parents[1] / "ctypes" / "__init__.py").unlink()
    assert "ctypes" in _refused(layout)["got"]
