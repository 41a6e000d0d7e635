"""Programs that try to get out, to break the machine, or to pass without the right answer.

Every one is asked for `double(21)`. Those that look for a way out return 42 if they find one, so
that passing means that the sandbox leaks; those that forge must not pass whatever they do.
"""

from __future__ import annotations

__all__ = ["DRILLS"]

LOOP = "def double(n):\n    while True:\n        pass"

LOOP_AT_IMPORT = "while True:\n    pass"

DEAF = """
import signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
def double(n):
    while True:
        try:
            time.sleep(1)
        except BaseException:
            pass
"""

FORK_BOMB = """
import os
def double(n):
    while True:
        os.fork()
"""

OTHER_PROCESSES = """
import os, subprocess, sys, threading, multiprocessing
def double(n):
    ways = [
        lambda: subprocess.run(["/bin/sh", "-c", "true"], check=True),
        lambda: os.system("true") == 0 or 1 / 0,
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        lambda: os.posix_spawn(sys.executable, ["python", "-c", ""], {}),
        lambda: threading.Thread(target=print).start(),
        lambda: multiprocessing.Process(target=print).start(),
    ]
    for way in ways:
        try:
            way()
            return 42
        except BaseException:
            pass
    return 41
"""

NAMESPACES = """
import ctypes
def double(n):
    libc = ctypes.CDLL(None)
    return 42 if libc.unshare(0x10000000) == 0 or libc.ptrace(0, 0, 0, 0) == 0 else 41
"""

SHARED_MEMORY = """
import ctypes
def double(n):
    libc = ctypes.CDLL(None)
    return 42 if libc.shmget(0, 1 << 20, 0o1600) >= 0 else 41
"""

MESSAGE_QUEUE = """
import ctypes, os
def double(n):
    number = {"x86_64": 240, "aarch64": 180}[os.uname().machine]
    queue = ctypes.CDLL(None).syscall(number, b"queue", os.O_CREAT | os.O_RDWR, 0o600, None)
    return 42 if queue >= 0 else 41
"""

EMPTY_FILES = """
import os
def double(n):
    number = 0
    while True:
        os.mkdir(f"/tmp/{number}")
        number += 1
"""

MEMORY_BOMB = "def double(n):\n    return len(bytearray(8 << 30))"

MEMORY_IN_PIECES = """
def double(n):
    held = []
    try:
        while True:
            held.append(bytearray(16 << 20))
    except MemoryError:
        return 42 if len(held) >= 16 else 41
"""

PRINTS_GIGABYTES = """
def double(n):
    while True:
        print("x" * 65536)
"""

ANSWERS_AT_LENGTH = "def double(n):\n    return 'x' * (16 << 20)"

ENDLESS_ANSWER = "import itertools\ndef double(n):\n    return itertools.count()"

READS_ENVIRONMENT = """
import os
def double(n):
    return 42 if "STROP_SECRET" in os.environ or len(os.environ) > 8 else 41
"""

READS_FILES = """
import os
def double(n):
    places = [{secret!r}, {here!r}, "/etc/passwd", "/etc/hostname", "/proc/1/environ", "/proc/self"]
    places += [os.path.expanduser("~/.bashrc"), "/root/.bashrc", "/sys", "/home", "/srv", "/var"]
    return 42 if any(os.path.exists(place) for place in places) else 41
"""

READS_PACKAGES = """
import os
def double(n):
    for place, folders, files in os.walk("/"):
        packages = place.endswith(("site-packages", "dist-packages"))
        if packages and folders + files or any(name.endswith(".jsonl.gz") for name in files):
            return 42
    return 41
"""

READS_SYSTEM = """
import os
def double(n):
    places = ["/usr/share", "/usr/local/share", "/usr/include", "/usr/bin/env", "/bin/sh", "/etc"]
    return 42 if any(os.path.exists(place) for place in places) else 41
"""

WRITES_FILES = """
import os, sys
def double(n):
    modules = os.path.dirname(os.__file__)
    places = ["/", "/usr", "/dev", "/dev/shm", "/inside", sys.prefix, {folder!r}]
    places += [modules, os.path.join(modules, "site-packages")]
    for place in places:
        try:
            os.makedirs(place, exist_ok=True)
            with open(os.path.join(place, "written"), "w") as file:
                file.write("x")
            if place != {folder!r}:  # below the private /tmp this is nobody's
                return 42
        except OSError:
            pass
    return 41
"""

FILLS_TMP = """
def double(n):
    written = 0
    try:
        for number in range(10000):
            with open(f"/tmp/{number}", "wb") as file:
                written += file.write(bytes(1 << 19))
    except OSError:
        pass
    return 42 if written > (17 << 20) else 41
"""

LARGE_FILE = """
def double(n):
    with open("/tmp/large", "wb") as file:
        file.write(bytes(4 << 20))
    return 42
"""

SOCKETS = """
import socket
def double(n):
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):
        try:
            socket.socket(family)
            return 42
        except OSError:
            pass
    try:
        socket.create_connection(("127.0.0.1", {port}), timeout=1)
        return 42
    except OSError:
        return 41
"""

KILLS = """
import os, signal
def double(n):
    for target in (os.getppid(), 1, -1, 0):
        try:
            os.kill(target, signal.SIGKILL)
        except OSError:
            pass
    return 41
"""

KERNEL_SETTINGS = """
def double(n):
    for name in ("core_pattern", "hostname", "pid_max"):
        try:
            open(f"/proc/sys/kernel/{name}", "r+")
            return 42
        except OSError:
            pass
    return 41
"""

VERDICT = '\'{"outcome": "passed", "detail": "", "calls": 1}\''

PRINTS_PASSED = (
    f"print('passed')\nprint({VERDICT}, flush=True)\ndef double(n):\n    print({VERDICT})\n"
)

EXITS = "raise SystemExit(0)"

EXITS_AT_ONCE = "import os\nos._exit(0)"

EXITS_LATER = "import os\ndef double(n):\n    os._exit(0)"

CRASHES = "import ctypes\ndef double(n):\n    ctypes.string_at(0)"

WRITES_TO_ALL = f"""
import os
for number in range(64):
    try:
        os.write(number, {VERDICT}.encode() + b"\\n")
    except OSError:
        pass
def double(n):
    return 41
"""

CLOSES_ALL = """
import os
os.closerange(0, 64)
def double(n):
    return 42
"""

EQUALS_ALL = """
class Any(int):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = int.__hash__
def double(n):
    return Any(41)
"""

EQUALS_ALL_PLAIN = """
class Any:
    __eq__ = lambda self, other: True
    __class__ = int
    __iter__ = lambda self: iter(())
def double(n):
    return Any()
"""

PATCHES = """
import builtins, json, sys, types
builtins.AssertionError = KeyError
json.loads = json.dumps = lambda *args, **kwargs: {"value": True}
for module in list(sys.modules.values()):
    if isinstance(module, types.ModuleType) and module.__name__ not in ("sys", "builtins"):
        for name in list(vars(module)):
            if callable(vars(module)[name]) and not name.startswith("__"):
                setattr(module, name, lambda *args, **kwargs: True)
def double(n):
    return True
"""

RECURSION = "def double(n):\n    return double(n)"

DEEP_RECURSION = "import sys\nsys.setrecursionlimit(10**9)\ndef double(n):\n    return double(n)"

DEEP_ANSWER = """
def double(n):
    deep = []
    for _ in range(100000):
        deep = [deep]
    return deep
"""

RAW_DEEP_ANSWER = """
import os
def double(n):
    for number in range(3, 10):
        try:
            os.write(number, b'{"value": ' + b"[" * 100000 + b"\\n")
        except OSError:
            pass
    return 41
"""

_TEXTS = {name.lower(): text for name, text in globals().items() if name.isupper()}
del _TEXTS["verdict"]
DRILLS: dict[str, str] = _TEXTS
"""By name. Those with places in braces are filled in by `str.format`."""
