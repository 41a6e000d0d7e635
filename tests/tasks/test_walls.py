"""The walls of the sandbox word by word, and its limits as the system has them."""

from __future__ import annotations

import errno
import json
import os
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from strop.tasks import Box, Limits
from strop.tasks.sandbox import INSIDE, _packages, seccomp_filter

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


def test_directories_of_packages_are_found_wherever_they_lie(tmp_path: Path) -> None:
    """Debian calls them otherwise; what lies in one is covered with it."""
    for name in ("site-packages/a/site-packages", "b/dist-packages", "b/packages", "json"):
        (tmp_path / name).mkdir(parents=True)
    found = [os.path.relpath(one, tmp_path) for one in _packages(str(tmp_path))]
    assert sorted(found) == ["b/dist-packages", "site-packages"]


CALLS = {  # from the kernel's tables
    "x86_64": {"fork": 57, "vfork": 58, "clone": 56, "unshare": 272, "setns": 308, "mount": 165}
    | {"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "shmget": 29}
    | {"msgget": 68, "semget": 64, "mq_open": 240, "socket": 41, "socketpair": 53, "add_key": 248}
    | {"request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298}
    | {"userfaultfd": 323, "io_uring_setup": 425},
    "aarch64": {"clone": 220, "unshare": 97, "setns": 268, "mount": 40, "ptrace": 117}
    | {"process_vm_readv": 270, "process_vm_writev": 271, "shmget": 194, "msgget": 186}
    | {"semget": 190, "mq_open": 180, "socket": 198, "socketpair": 199, "add_key": 217}
    | {"request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241}
    | {"userfaultfd": 282, "io_uring_setup": 425},
}
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED, KILLED, FAILS = 0x7FFF0000, 0x80000000, 0x00050000


def decision(machine: str, architecture: int, call: int) -> int:
    """What the kernel makes of the filter: its own little machine, as far as it is used."""
    program = list(struct.iter_unpack("=HBBI", seccomp_filter(machine) or b""))
    loaded = at = 0
    while True:
        code, jump_true, jump_false, value = program[at]
        at += 1
        if code == 0x06:
            return value
        if code == 0x20:
            loaded = {0: call, 4: architecture}[value]
        else:
            hit = {0x15: loaded == value, 0x35: loaded >= value}[code]
            at += jump_true if hit else jump_false


@pytest.mark.parametrize("machine", CALLS)
def test_every_call_that_leads_out_is_refused_and_all_others_are_not(machine: str) -> None:
    refused = {decision(machine, AUDIT[machine], call) for call in CALLS[machine].values()}
    assert refused == {FAILS | errno.EPERM}
    assert decision(machine, AUDIT[machine], 435) == FAILS | errno.ENOSYS  # clone3
    others = set(range(450)) - set(CALLS[machine].values()) - {435}
    assert {decision(machine, AUDIT[machine], call) for call in others} == {ALLOWED}
    # Numbers of another machine, and the second set of numbers on this one, end the process.
    for call in (0, 0x40000000, 0x40000000 + 56):
        other = AUDIT["aarch64" if machine == "x86_64" else "x86_64"]
        assert decision(machine, other, call) == KILLED
        assert decision(machine, AUDIT[machine], call) == (KILLED if call else ALLOWED)
