"""A warm process is a process: words, files, environment, signals, exit codes as of a cold one."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warm_processes
from tiny_models import environment, wait_for

BOTH = pytest.mark.parametrize("start", [subprocess.run, warm_processes.run], ids=["cold", "warm"])
"""What is expected of a warm process is what a cold one does."""
pytestmark = pytest.mark.skipif(not warm_processes.HERE, reason="processes start cold here")


def python(*words: object) -> list[str]:
    return [sys.executable, *map(str, words)]


def test_it_has_loaded_torch_and_a_cold_one_has_not() -> None:
    code = "import sys; print('torch' in sys.modules)"
    told = [
        start(python("-c", code), capture_output=True, text=True).stdout
        for start in (subprocess.run, warm_processes.run)
    ]
    assert told == ["False\n", "True\n"]


@BOTH
def test_words_directory_environment_and_input(start: Any, tmp_path: Path) -> None:
    code = "import os, sys; print(sys.argv, os.getcwd(), os.environ['A'], 'HOME' in os.environ)"
    code += "; print(sys.stdin.read(), __name__); print('é', file=sys.stderr)"
    env = {"A": "b", "PATH": os.environ["PATH"], "PYTHONUTF8": "1"}
    line = python("-c", code, "one", "--two")
    done = start(line, cwd=tmp_path, env=env, input="given", capture_output=True, text=True)
    assert done.stdout == f"['-c', 'one', '--two'] {tmp_path} b False\ngiven __main__\n"
    assert done.stderr == "é\n"


@BOTH
def test_modules_scripts_and_their_paths(start: Any, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
    (tmp_path / "tool.py").write_text(
        "import sys, beside\nprint(beside.NAME, sys.argv[1:], __name__)\n"
    )
    lines = {"script": python(tmp_path / "tool.py", "x"), "module": python("-m", "tool", "x")}
    told = {
        name: start(line, cwd=tmp_path, env=environment(), capture_output=True, text=True)
        for name, line in lines.items()
    }
    path = environment(PYTHONPATH=str(tmp_path))
    line = python("-P", "-m", "tool", "x")
    told["path"] = start(line, env=path, capture_output=True, text=True)
    for done in told.values():
        assert done.stdout == "beside ['x'] __main__\n", done.stderr


@BOTH
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("pass", 0),
        ("raise SystemExit(7)", 7),
        ("raise SystemExit('said')", 1),
        ("raise ValueError('said')", 1),
        ("import atexit; atexit.register(print, 'said')", 0),
        ("import os; os._exit(3)", 3),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
    ],
)
def test_how_it_ends(start: Any, code: str, status: int) -> None:
    done = start(python("-c", code), capture_output=True, text=True)
    assert done.returncode == status
    assert ("said" in code) == ("said" in done.stdout + done.stderr)


@BOTH
@pytest.mark.parametrize(("unbuffered", "status"), [("", 120), ("1", 1)])
def test_output_that_nobody_can_take(start: Any, unbuffered: str, status: int) -> None:
    env = environment(PYTHONUNBUFFERED=unbuffered)
    line = python("-c", "print(1)")
    with open("/dev/full", "w") as full:
        done = start(line, env=env, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == status
    assert "No space left" in done.stderr


def test_it_is_killed_like_any_other_and_takes_nobody_with_it() -> None:
    code = "import sys; print(1, flush=True); sys.stdin.read()"
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    first, second = (warm_processes.Popen(python("-c", code), **pipes) for _ in range(2))
    for one in (first, second):
        assert one.stdout.readline() == "1\n"
        assert one.poll() is None
    assert first.pid != second.pid
    assert {first.pid, second.pid} <= set(warm_processes.started_by(os.getpid()))
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(0.05)
    first.send_signal(signal.SIGKILL)
    assert first.wait(60) == -signal.SIGKILL
    assert not Path(f"/proc/{first.pid}").exists()
    assert first.pid not in warm_processes.started_by(os.getpid())
    assert second.poll() is None
    assert second.communicate("")[0] == ""
    assert second.returncode == 0
    first.kill()  # it is gone: nothing happens


def test_it_keeps_only_the_files_it_was_given() -> None:
    """A pipe that a copy kept open would never end."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    code = "import os, sys; print(os.listdir('/proc/self/fd'), flush=True); sys.stdin.read()"
    ends = [warm_processes.Popen(python("-c", code), **pipes) for _ in range(3)]
    opened = [one.stdout.readline() for one in ends]
    assert len(set(opened)) == 1, opened
    for one in ends:  # each ends when its own input does
        one.stdin.close()
        assert one.wait(60) == 0
        one.stdout.close()


def test_a_file_keeps_its_number(tmp_path: Path) -> None:
    mine, theirs = os.pipe()
    code = "import os, sys; os.write(int(sys.argv[1]), b'here')"
    line = python("-c", code, theirs)
    assert warm_processes.run(line, pass_fds=[theirs]).returncode == 0
    os.close(theirs)
    assert os.read(mine, 10) == b"here"
    os.close(mine)


@BOTH
def test_what_limits_the_starter_limits_it(start: Any, tmp_path: Path) -> None:
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_FSIZE)[0])"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**9, before[1]))
    try:
        done = start(python("-c", code), capture_output=True, text=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.stdout == f"{10**9}\n"


def test_its_seconds_are_counted() -> None:
    before = warm_processes.seconds
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    warm_processes.run(python("-c", busy), check=True)
    assert 0.25 < warm_processes.seconds - before < 5


def test_only_this_interpreter_is_warm() -> None:
    with pytest.raises(AssertionError, match="only"):
        warm_processes.run(["true"])


def test_the_server_ends_with_whoever_started_it() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import warm_processes as w; w.LOADED = (); "
        "w.run([sys.executable, '-c', 'import os; print(os.getppid())'], check=True); "
        "import os; sys.stdout.flush(); os.kill(os.getpid(), 9)"
    )
    line = python("-c", code, Path(__file__).parent)
    env = {k: v for k, v in environment().items() if k != warm_processes.ADDRESS}
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    server = Path(f"/proc/{int(done.stdout)}")
    with subprocess.Popen(["sleep", "60"]) as clock:
        assert wait_for(
            clock, lambda: not server.exists() or " Z " in (server / "stat").read_text()
        )
        clock.kill()
