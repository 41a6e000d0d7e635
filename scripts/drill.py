"""Attack strop: hostile programs, servers and checkpoints, kills, odd places, and a soak.

    make drill                              all of them, in less than twenty minutes
    python scripts/drill.py --quick         the same in small, in a few minutes
    python scripts/drill.py servers kills   some of them

Each drill tries cases and counts those that held: no traceback, no hang, no key where it does not
belong, no file that should not be, the same outputs as without the attack. Two drills run side by
side, so that two cores are busy. Prints a table and whatever did not hold, and ends with 3 if
anything did not. Traffic stays on loopback.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/groupeval")]

MODEL = "embedded:tales-tiny"
KEY = "sk-drill-0123456789-abcdef"
SECONDS = 240.0
"""After which a command hangs, also on a busy machine."""
MOST_MEMORY = 600 << 20
"""Bytes that a judge may take while a server floods it; it takes 150 MB by itself."""


@dataclass
class Count:
    """What a drill tried, and what did not hold."""

    tried: int = 0
    failed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def note(self, case: str, wrong: str | None) -> None:
        """Take down one case; `wrong` says what did not hold."""
        self.tried += 1
        if wrong:
            self.failed.append(f"{case}: {wrong}")
        print(f"  {case}: {wrong or 'held'}", file=sys.stderr, flush=True)


Drill = Callable[[Path, bool], Count]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str
    seconds: float
    memory: int

    def wrong(self, *codes: int) -> str | None:
        """What is wrong with any command that ends like this."""
        if "Traceback" in self.err:
            return f"a traceback: {self.err.strip().splitlines()[-1][:200]}"
        if self.seconds > SECONDS:
            return "it hangs"
        if self.code not in codes:
            return f"exit code {self.code}: {(self.err or self.out).strip()[-200:]}"
        return None


def command(words: list[str], cwd: Path, **environment: str) -> Ended:
    """Run a program to its end, or to that of our patience."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
        process = subprocess.Popen(
            words, cwd=cwd, env=env, stdout=out, stderr=err, stdin=subprocess.DEVNULL
        )
        while True:
            done, status, used = os.wait4(process.pid, os.WNOHANG)
            if done:
                break
            if time.monotonic() - start > SECONDS:
                process.kill()
            time.sleep(0.02)
        process.returncode = os.waitstatus_to_exitcode(status)
        told = []
        for file in (out, err):
            file.seek(0)
            told.append(file.read().decode(errors="replace"))
    seconds = time.monotonic() - start
    return Ended(process.returncode, told[0], told[1], seconds, used.ru_maxrss * 1024)


def strop(cwd: Path, *words: object, **environment: str) -> Ended:
    """The same for a command of strop."""
    return command([sys.executable, "-m", "strop", *map(str, words)], cwd, **environment)


# ---------------------------------------------------------------- programs


def programs(place: Path, quick: bool) -> Count:
    """What a model might write, in the sandbox: none may pass, get out or stay."""
    from strop.tasks import Limits, find_box
    from strop.tasks.sandbox import trial
    from tasks.drills import DRILLS

    count = Count()
    if shutil.which("bwrap") is None:
        count.left_out.append("bubblewrap is not installed")
        return count
    (place / "secret").write_text("secret")
    more = {"secret": str(place / "secret"), "here": __file__, "folder": str(place), "port": 9}
    texts = dict(DRILLS)
    for name in ("reads_files", "writes_files", "sockets"):
        texts[name] = texts[name].format(**more)
    case = {"prompt": "", "entry_point": "double"}
    case["test"] = "def check(candidate):\n    assert candidate(21) == 42"
    box = find_box(limits=Limits(seconds=3.0 if quick else 10.0, memory=256 << 20))
    with ThreadPoolExecutor(2) as pool:
        doing = {name: pool.submit(trial, box, text, case) for name, text in texts.items()}
        for name, one in doing.items():
            verdict = one.result()
            held = not verdict.passed and verdict.outcome != "lost"
            count.note(name, None if held else f"{verdict.outcome}: {verdict.detail}")
    left = sorted(path.name for path in place.iterdir())
    count.note("files that programs left", None if left == ["secret"] else ", ".join(left))
    return count


# ---------------------------------------------------------------- servers

# Waits of milliseconds instead of seconds; everything else is the command's own.
JUDGE = """
import functools, sys
from strop.groupeval import endpoint
quick = {"attempts": 3, "first_wait": 0.01, "longest_wait": 0.02, "jitter": 0.01}
endpoint.Patience = functools.partial(endpoint.Patience, **quick)
from strop.cli.main import main
main(sys.argv[1:])
"""


def _server_cases() -> Iterator[tuple[str, Callable[[dict[str, Any], int], Any]]]:
    from scripted_server import Action, agree

    def always(action: Action) -> Callable[[dict[str, Any], int], Action]:
        return lambda *_: action

    zeros = gzip.compress(b" " * (64 << 20), 9)
    deep = b"[" * 200_000
    packed = {"content-encoding": "gzip"}
    encoded = KEY.encode().hex()
    yield "an honest server", lambda body, _: agree(body)
    yield "a flood", always(Action(body=b'{"choices": [', flood=b" " * (1 << 20)))
    yield "a packed bomb", always(Action(body=zeros, headers=packed))
    yield "packed twice", always(Action(body=zeros, headers={"content-encoding": "gzip, gzip"}))
    yield "packed, but not", always(Action(body=b"{}", headers=packed))
    yield "a redirect", always(Action(status=307, headers={"location": "http://127.0.0.2:9/v1"}))
    yield "deep JSON", always(Action(body=deep))
    yield "deep JSON as an error", always(Action(status=500, body=b'{"error": ' + deep))
    yield "deep JSON as a verdict", always(Action(deep.decode()))
    for value in ("nan", "-5", "0", "1e999", "86400", "soon"):
        headers = {"retry-after": value}
        yield f"Retry-After {value}", always(Action(status=429, headers=headers))
    yield "no word", always(Action(drop=True))
    yield "half a body", always(Action("{}", cut=40))
    yield "a drip", always(Action("{}", drip=0.05))
    yield "an HTML page", always(Action(status=502, body=b"<!doctype html><title>no</title>"))
    yield "no UTF-8", always(Action(body=b"\xff\xfe\x00"))
    yield "an empty body", always(Action(body=b""))
    yield "the key as a reply", always(Action(f"{KEY} {KEY[::-1]} {encoded}"))
    yield "the key as an error", always(Action(status=400, error={"message": encoded}))
    yield "the key refused", always(Action(status=401, error={"message": KEY}))
    yield "half a surrogate", always(Action(body=b'{"choices": [{"message": "\\ud800"}]}'))
    counts = b'"usage": {"prompt_tokens": -9, "completion_tokens": 1e999}'
    yield "counts below zero", always(Action(body=b'{"choices": [], %b}' % counts))


def servers(place: Path, quick: bool) -> Count:
    """A judge behind an address that means harm: an end, in words, in time, without the key."""
    from pools import planned
    from scripted_server import Action, serving

    def goodwill(*_: Any) -> Action:
        return Action("{}")

    count = Count()
    words = [sys.executable, "-c", JUDGE, "groupeval", "judge"]
    for number, (case, script) in enumerate(_server_cases()):
        run = planned(place / str(number), {"a": 8 if quick else 64})
        # Every other server means harm from its first request on, which holds no text.
        with serving(script, script if number % 2 else goodwill) as served:
            flags = ["--base-url", served.url, "--model", "m", "--timeout", "3"]
            ended = command([*words, str(run), *flags], place, OPENAI_API_KEY=KEY)
        wrong = ended.wrong(0, 1, 2)
        spilt = [file for file in run.rglob("*") if file.is_file() and _spilt(file.read_bytes())]
        if _spilt((ended.out + ended.err).encode()) or spilt:
            wrong = f"the key is in {spilt or 'the message'}"
        if ended.memory > MOST_MEMORY:
            wrong = f"{ended.memory >> 20} MB of memory"
        count.note(case, wrong)
    _tls(place, count)
    return count


def _spilt(content: bytes) -> bool:
    return any(one.encode() in content for one in (KEY[4:], KEY[::-1], KEY.encode().hex()))


def _tls(place: Path, count: Count) -> None:
    """A certificate that nobody signed, and a server without any."""
    import ssl

    from pools import planned
    from scripted_server import agree, serving

    run = planned(place / "tls", {"a": 8})
    judge = ("groupeval", "judge", run, "--model", "m", "--base-url")
    with serving(lambda body, _: agree(body)) as served:
        ended = strop(place, *judge, served.url.replace("http:", "https:"))
    told = None if "TLS" in ended.err else ended.err[-200:]
    count.note("TLS to a server without", ended.wrong(1) or told)
    if shutil.which("openssl") is None:
        count.left_out.append("a certificate that nobody signed: there is no openssl")
        return
    names = ["-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    extra = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *extra], cwd=place, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "cert.pem", place / "key.pem")
    with serving(lambda body, _: agree(body), context=context) as served:
        ended = strop(place, *judge, served.url)
        told = None if "certificate" in ended.err else ended.err[-200:]
        count.note("a certificate that nobody signed", ended.wrong(1) or told)
        ended = strop(place, *judge, served.url, SSL_CERT_FILE=str(place / "cert.pem"))
        count.note("the same, trusted by SSL_CERT_FILE", ended.wrong(0))


# ---------------------------------------------------------------- checkpoints


class _Runs:
    """Pickles as a call of the shell."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def checkpoints(place: Path, quick: bool) -> Count:
    """Files that lie or want to be run: refused in words, and nothing of them runs."""
    from strop import assets

    count = Count()
    canary = place / "canary"
    good = assets.embedded_path(MODEL)
    evaluator = assets.embedded_path("embedded:tales-ar")

    def copy(name: str, of: Path = good, **files: bytes) -> Path:
        folder = place / name
        shutil.copytree(of, folder)
        for file, content in files.items():
            (folder / file.replace("__", ".")).write_bytes(content)
        return folder

    config = json.loads((good / "config.json").read_text())
    weights = (good / "model.safetensors").read_bytes()
    call = pickle.dumps({"state_dict": _Runs(f"touch {canary}")})
    (place / "call.ckpt").write_bytes(call)
    huge = json.dumps({**config, "vocab_size": 10**12}).encode()
    header = (2**62).to_bytes(8, "little")
    cases = [
        ("a pickle that calls the shell", place / "call.ckpt"),
        ("the same as weights", copy("pickled", model__safetensors=call)),
        ("a vocabulary of 10^12", copy("huge", config__json=huge)),
        ("a configuration without end", copy("deep", config__json=b"[" * 10**6)),
        ("no configuration", copy("none", config__json=b"")),
        ("a header of 2^62 bytes", copy("header", model__safetensors=header + weights[8:])),
        ("half of the weights", copy("half", model__safetensors=weights[: len(weights) // 2])),
        ("weights of zeros", copy("zeros", model__safetensors=bytes(1 << 20))),
        ("a tokenizer without end", copy("tokens", tokenizer__json=b'{"a":' * 10**5)),
    ]
    for case, source in cases[:4] if quick else cases:
        ended = strop(place, "models", "check", source)
        fine = (0, 1, 3) if source.name == "huge" else (1, 3)  # tensors win over what is claimed
        count.note(case, ended.wrong(*fine) or ("it ran" if canary.exists() else None))
    code = f"open({str(canary)!r}, 'w')\n".encode()
    told = json.loads((evaluator / "config.json").read_text())
    told |= {
        "model_type": "evil",
        "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"},
    }
    evil = copy("evil", evaluator, config__json=json.dumps(told).encode(), evil__py=code)
    run = place / "run"
    strop(place, "sample", MODEL, "--steps", 2, "-n", 2, "--length", 16, "-o", run)
    ended = strop(place, "score", run, "--evaluator", evil)
    count.note("an evaluator with code", ended.wrong(1) or ("it ran" if canary.exists() else None))
    _templates(place, evaluator, count, quick)
    return count


def _templates(place: Path, model: Path, count: Count, quick: bool) -> None:
    template = "{{ messages[0].content }}"
    cases = {
        "a template of 9^(9^9)": "{{ 9**(9**9) }}",
        "a template of 2^30 letters": "{{ 'x' * (2**30) }}",
        "a template that drops the message": "hello",
        "a template that looks around": "{{ ''.__class__.__mro__ }}" + template,
        "a template of loops": "{% for i in range(99999) %}{% for j in range(99999) %}"
        "{% endfor %}{% endfor %}",
    }
    prompts = place / "prompts.jsonl"
    prompts.write_text('{"prompt": "Once upon a time"}\n')
    for number, (case, source) in enumerate(cases.items()):
        if quick and number > 2:
            break
        folder = place / f"chat{number}"
        shutil.copytree(model, folder)
        (folder / "chat_template.jinja").write_text(source)
        words = ("--chat", "--prompts", prompts, "--length", 4, "-o", place / f"chat{number}-run")
        count.note(case, strop(place, "sample", folder, *words).wrong(1))


# ---------------------------------------------------------------- kills

OFTEN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import strop.engine.sink
strop.engine.sink.FLUSH_SECONDS = 0.01
from strop.cli.main import main
main(sys.argv[1:])
"""
SAMPLED = ["sample", MODEL, "--steps", "16", "--length", "64", "--batch-size", "4", "-n", "96"]


def kills(place: Path, quick: bool) -> Count:
    """Signals at random times: the same command goes on, and the outputs are the same."""
    from strop.store import Run

    count, chance = Count(), random.Random(0)
    strop(place, *SAMPLED, "-o", "whole")
    seconds = strop(place, *SAMPLED, "-o", "whole-2").seconds
    [whole] = Run.open(place / "whole").cells()
    ways = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    number = 0
    for number in range(3 if quick else 24):
        way = ways[number % 3]
        run = place / f"killed-{number // 6}"
        with tempfile.TemporaryFile() as err:
            process = subprocess.Popen(
                [sys.executable, "-c", OFTEN, *SAMPLED, "-o", str(run)],
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                cwd=place,
                stdout=subprocess.DEVNULL,
                stderr=err,
            )
            while process.poll() is None and not any(run.glob("cells/*")):
                time.sleep(0.02)
            time.sleep(chance.uniform(0, seconds / 4))
            process.send_signal(way)
            try:
                code = process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                code = None
            err.seek(0)
            told = err.read().decode(errors="replace")
        wanted = (0, -9) if way == signal.SIGKILL else (0, 2)
        wrong = None if code in wanted else f"exit code {code}: {told[-200:]}"
        count.note(f"{way.name} {number}", "a traceback" if "Traceback" in told else wrong)
    for last in range(number // 6 + 1):
        ended = strop(place, *SAMPLED, "-o", f"killed-{last}")
        [cell] = Run.open(place / f"killed-{last}").cells()
        names = ["index", "ids", "text", "nfe", "changed"]
        same = cell.table().select(names).equals(whole.table().select(names))
        left = [one.name for one in (place / f"killed-{last}").rglob(".*") if "tmp" in one.name]
        wrong = None if same else "other outputs"
        count.note(f"outputs after kills {last}", ended.wrong(0) or wrong or ", ".join(left))
    return count


# ---------------------------------------------------------------- places


def places(place: Path, quick: bool) -> Count:
    """Machines that are set up otherwise; as quick as they can be."""
    del quick
    count = Count()
    small = ("--steps", 2, "-n", 2, "--length", 16)
    plain = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    prompts = place / "prompts.jsonl"
    prompts.write_bytes('{"prompt": "Once – é"}\r\n{"prompt": "A 文"}\r\n'.encode())
    asked = ("sample", MODEL, "--prompts", prompts, "--steps", 2, "--length", 8)
    ended = strop(place, *asked, "-o", "latin", **plain)
    count.note(
        "locale C, Windows line ends",
        ended.wrong(0) or strop(place, "show", "latin", **plain).wrong(0),
    )
    odd = place / "Räume mit 文字 und 'Zeichen'"
    odd.mkdir()
    ended = strop(odd, "sample", MODEL, *small, "-o", "ein Lauf; $x")
    count.note(
        "spaces and other scripts", ended.wrong(0) or strop(odd, "score", "ein Lauf; $x").wrong(0)
    )
    ended = strop(odd, "report", "ein Lauf; $x", "-o", "Bericht é.html")
    count.note("the same for a report", ended.wrong(0))
    nowhere = {"HOME": "/proc/nowhere", "XDG_CACHE_HOME": "/proc/nowhere", "STROP_CACHE": ""}
    ended = strop(place, "sample", MODEL, *small, "-o", "homeless", **nowhere)
    count.note("no home", ended.wrong(0) or strop(place, "score", "homeless", **nowhere).wrong(0))
    _walls(place, small, count)
    jumps = "import time, itertools; real = time.time; n = itertools.count()\n"
    jumps += "time.time = lambda: real() + (-1) ** next(n) * 3e7\n"
    words = [*map(str, ("sample", MODEL, *small, "-o", "jumps"))]
    ended = command([sys.executable, "-c", jumps + OFTEN, *words], place)
    count.note("a clock that jumps by a year", ended.wrong(0))
    _little_memory(place, count)
    _ordinary(place, small, count)
    return count


def _little_memory(place: Path, count: Count) -> None:
    """A limit on memory, as `ulimit` or a batch system sets it: an end in words.

    That of a container kills instead, as the drill of kills does.
    """
    words = ["sample", "embedded:tales", "--steps", "2", "-n", "512"]
    dense = ["--implementation", "dense", "--batch-size", "512"]
    for case, megabytes, more in (
        ("memory for half of torch", 300, ()),
        ("memory for a model, and not for its batch", 2500, dense),
    ):
        limited = ["sh", "-c", 'ulimit -v "$0"; exec "$@"', str(megabytes << 10)]
        out = ["-o", f"limited-{megabytes}"]
        ended = command([*limited, sys.executable, "-m", "strop", *words, *more, *out], place)
        told = None if "memory" in ended.err.lower() else ended.err[-200:]
        count.note(case, ended.wrong(1) or told)


def _ordinary(place: Path, small: tuple[object, ...], count: Count) -> None:
    """Not root, for whom no file is closed; whoever runs this as another user is one anyway."""
    if os.getuid() != 0 or shutil.which("bwrap") is None or shutil.which("setpriv") is None:
        count.left_out.append("an ordinary user in place of root: not root, or no setpriv, bwrap")
        return
    place.chmod(0o777)
    home = Path.home()
    parts = {Path(one).resolve() for one in (sys.base_prefix, sys.prefix, ROOT)}
    hidden = [one for one in sorted(parts) if one.is_relative_to(home)]
    shown = ["--dev-bind", "/", "/", *(["--tmpfs", str(home)] if hidden else [])]
    for one in hidden:
        between = [up for up in reversed(one.parents) if up != home and up.is_relative_to(home)]
        shown += [word for up in between for word in ("--perms", "0755", "--dir", str(up))]
        shown += ["--ro-bind", str(one), str(one)]
    rights = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--chdir", str(place), "--"]
    rights += ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--bounding-set=-all"]
    words = ["bwrap", *shown, *rights, "env", f"HOME={place}", sys.executable, "-m", "strop"]
    drawn = [*map(str, ("sample", MODEL, *small, "--devices", "cpu:2", "-o", "ordinary"))]
    count.note("an ordinary user", command([*words, *drawn], place).wrong(0))
    checked = ["task", "check", "humaneval", "--limit", "2"]
    count.note("a sandbox of an ordinary user", command([*words, *checked], place).wrong(0))


def _walls(place: Path, small: tuple[object, ...], count: Count) -> None:
    """What bubblewrap can set up: another number, nothing to write on, no shared memory."""
    if shutil.which("bwrap") is None:
        count.left_out.append("another number, a read-only home, no /dev/shm: no bubblewrap")
        return
    bound = ["--bind", str(place), str(place), "--chdir", str(place)]
    private = ["--tmpfs", "/tmp"] if not str(place).startswith("/tmp") else []
    ways = {
        "another user's number": ["--dev-bind", "/", "/", "--unshare-user", "--uid", "1000"],
        "nothing but the run can be written": ["--ro-bind", "/", "/", "--dev", "/dev", *private],
        "no /dev/shm": ["--dev-bind", "/", "/", "--ro-bind", str(ROOT / "docs"), "/dev/shm"],
        "no network": ["--dev-bind", "/", "/", "--unshare-net"],
    }
    count.note(
        "a run to be read again", strop(place, "sample", MODEL, *small, "-o", "kept").wrong(0)
    )
    kept = [
        "bwrap",
        "--dev-bind",
        "/",
        "/",
        *bound,
        "--ro-bind",
        str(place / "kept"),
        str(place / "kept"),
    ]
    for case, code, more in (("a finished run, read-only", 0, "2"), ("more of it", 1, "3")):
        words = ["sample", MODEL, *map(str, small), "-n", more, "-o", "kept"]
        ended = command([*kept, "--", sys.executable, "-m", "strop", *words], place)
        count.note(case, ended.wrong(code))
    for number, (case, way) in enumerate(ways.items()):
        strop_words = [sys.executable, "-m", "strop", "sample", MODEL, *map(str, small)]
        devices = ["--devices", "cpu:2", "-o", f"walls-{number}"]
        ended = command(["bwrap", *way, *bound, "--", *strop_words, *devices], place)
        count.note(case, ended.wrong(0))


# ---------------------------------------------------------------- soak


def soak(place: Path, quick: bool) -> Count:
    """Outputs for minutes with two workers: memory and descriptors stay, nothing is lost."""
    from strop.store import Run

    count = Count()
    words = ["sample", MODEL, "--steps", "2", "--length", "16", "--batch-size", "64"]
    words += ["-n", "1000000", "--devices", "cpu:2", "-o", "soak"]
    with tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "strop", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            cwd=place,
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
        memory, opened = [], []
        while process.poll() is None and not any((place / "soak").rglob("*.parquet")):
            time.sleep(0.1)
        end = time.monotonic() + (30 if quick else 300)
        while time.monotonic() < end and process.poll() is None:
            memory.append(_memory(process.pid))
            opened.append(len(list(Path(f"/proc/{process.pid}/fd").iterdir())))
            time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        code = process.wait(SECONDS)
        err.seek(0)
        told = err.read().decode(errors="replace")
    count.note("the end of a soak", None if code == 2 else f"exit code {code}: {told[-200:]}")
    quarter = max(1, len(memory) // 4)
    early = sorted(memory[quarter : 2 * quarter])[quarter // 2] if len(memory) >= 4 else memory[0]
    late = sorted(memory[-quarter:])[quarter // 2]
    grown = f"{early >> 20} to {late >> 20} MB"
    count.note(f"memory of the driver, {grown}", grown if late > 1.1 * early + 2**24 else None)
    most = max(opened)
    count.note(f"at most {most} open files", None if most <= 64 else "more than 64")
    [cell] = Run.open(place / "soak").cells()
    index = cell.table(["nfe"])["index"].to_pylist()
    count.note(
        f"{len(index):,} outputs, each once", None if len(set(index)) == len(index) else "not"
    )
    left = [one.name for one in (place / "soak").rglob("*") if "tmp" in one.name]
    count.note("temporary files", ", ".join(left[:5]) or None)
    return count


def _memory(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


DRILLS = (programs, servers, checkpoints, kills, places, soak)
LONGEST_FIRST = (soak, kills, places, servers, checkpoints, programs)
SIDE_BY_SIDE = 2
IMPORTED = ("strop.assets", "strop.store", "strop.tasks.sandbox")
IMPORTED += ("pools", "scripted_server", "tasks.drills")
"""Before there are threads: two that import the same thing at once may see half of it."""


def timed(drill: Drill, quick: bool) -> tuple[Count, float]:
    """A drill in a folder of its own, and the seconds that it took."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="strop-drill-") as folder:
        count = drill(Path(folder), quick)
    seconds = time.monotonic() - start
    print(f"{drill.__name__}: {seconds:.0f} s", file=sys.stderr, flush=True)
    return count, seconds


def main() -> None:
    """Run the drills that were named, or all."""
    names = [drill.__name__ for drill in DRILLS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("drills", nargs="*", metavar="DRILL", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="in small, in a few minutes")
    asked = parser.parse_args()
    for name in asked.drills:
        if name not in names:
            parser.error(f"there is no drill {name!r}: {', '.join(names)}")
    wanted = asked.drills or names
    for name in IMPORTED:
        import_module(name)
    start = time.monotonic()
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        running = {
            drill.__name__: pool.submit(timed, drill, asked.quick)
            for drill in LONGEST_FIRST
            if drill.__name__ in wanted
        }
    counts = {name: running[name].result() for name in names if name in running}
    print("| drill | tried | held | seconds |\n|---|---|---|---|")
    for name, (count, seconds) in counts.items():
        held = count.tried - len(count.failed)
        print(f"| {name} | {count.tried} | {held} | {seconds:.0f} |")
    tried = sum(count.tried for count, _ in counts.values())
    failed = sum(len(count.failed) for count, _ in counts.values())
    print(f"| all | {tried} | {tried - failed} | {time.monotonic() - start:.0f} |")
    for count, _ in counts.values():
        for case in count.failed:
            print(f"did not hold: {case}")
        for case in count.left_out:
            print(f"not tried: {case}")
    sys.exit(3 if failed else 0)


if __name__ == "__main__":
    main()
