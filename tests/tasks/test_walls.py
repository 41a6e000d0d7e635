"""The walls of the sandbox word by word, and its limits as the system has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from strop.tasks import Box, Limits
from strop.tasks.sandbox import INSIDE

LIMITS = Limits(
    seconds=2.5,
    memory=1 << 29,
    file=4096,
    scratch=1 << 22,
    output=1 << 16,
    open_files=17,
    processes=19,
)


def following(walls: list[str], flag: str, count: int) -> list[tuple[str, ...]]:
    """The words behind every occurrence of a flag."""
    where = [i for i, word in enumerate(walls) if word == flag]
    return [tuple(walls[i + 1 : i + 1 + count]) for i in where]


def test_nothing_of_this_machine_is_inside_but_python() -> None:
    walls = Box("bwrap", LIMITS)._walls(7)
    assert walls[0] == "bwrap"
    assert "--unshare-all" in walls
    assert not {"--share-net", "--bind", "--dev-bind", "--proc", "--symlink"} & set(walls)
    bound = following(walls, "--ro-bind", 2)
    assert bound[-1] == (str(INSIDE), "/inside")
    library = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    for source, place in bound[:-1]:  # its library, and single files: the program, its libraries
        assert place == os.path.normpath(source)
        assert os.path.isfile(source) or os.path.realpath(source) in library, source
    assert {name for name, _ in following(walls, "--setenv", 2)} == {
        *("PATH", "LANG", "PYTHONHASHSEED", "LD_LIBRARY_PATH")
    }
    assert following(walls, "--cap-drop", 1) == [("ALL",)]
    assert following(walls, "--uid", 1) == following(walls, "--gid", 1) == [("65534",)]
    assert following(walls, "--size", 3) == [(str(1 << 22), "--tmpfs", "/tmp")]
    assert following(walls, "--remount-ro", 1)[-2:] == [("/dev",), ("/",)]
    assert walls[-3:] == ["--seccomp", "7", "--"]
    # The root is made read-only after all that is put inside.
    last = max(i for i, word in enumerate(walls) if word in ("--ro-bind", "--tmpfs"))
    assert walls.index("/", last) == walls.index("--chdir") - 1


def test_without_bubblewrap_there_are_no_walls_and_the_level_says_so() -> None:
    assert Box(None, LIMITS)._walls(7) == []
    assert (Box(None).level, Box("bwrap").level) == ("none", "bubblewrap")


def test_limits_are_those_of_the_process_and_cannot_be_raised() -> None:
    """Seconds of the processor are the wall's, rounded up, and one more."""
    code = (
        "import json, resource as r, sys; from strop.tasks.inside.plain import confine\n"
        "confine(json.loads(sys.argv[1]))\n"
        "names = ('AS', 'CPU', 'FSIZE', 'NOFILE', 'NPROC', 'CORE')\n"
        "print(json.dumps({n: r.getrlimit(getattr(r, 'RLIMIT_' + n)) for n in names}))"
    )
    source = Path(INSIDE).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, LIMITS.as_json()],
        env={"PYTHONPATH": str(source), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = {"AS": 1 << 29, "CPU": 4, "FSIZE": 4096, "NOFILE": 17, "NPROC": 19, "CORE": 0}
    assert json.loads(done.stdout) == {name: [most, most] for name, most in wanted.items()}
