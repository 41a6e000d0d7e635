"""Change one thing at a time in modules that make numbers, and count the changes tests notice.

    make mutants                            the modules of scripts/mutants.yaml; it continues
    make mutants MODULE=stats/published.py      one module (a part of its path is enough)
    make mutants MODULE="stats --most 50"   half as many of each for now
    python scripts/mutants.py --survivors   what no test has noticed, with its ids
    python scripts/mutants.py --table       puts the results into the table of docs/testing.md

Changes are those of mutmut's operators: a number by one, `<` to `<=`, `+` to `-`, `and` to `or`, an
argument left out. Its runner is not used: it leaves out properties and everything else that is
decorated, and would run one list of tests for all modules. Here one process loads torch and the
tests; each mutant is a copy of it (a fork) in which the functions that the change is in have new
code, and it runs the tests that call them, the quickest first, until one is red. A change outside
functions needs the module to be imported anew: that costs seconds. So does one that stays green in
a constant, or in a function that was called while modules and tests were imported: what came of it
may be held elsewhere. Everything happens in a copy of the tree. Results are in build/mutants; they
hold as long as the module's text is the same, and survivors run again when its tests have changed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import gc
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import yaml

from mutant_texts import Mutant, mutants_of, short_hash

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "scripts" / "mutants.yaml"
RESULTS = ROOT / "build" / "mutants"
LEFT_OUT = (".git", ".venv", ".stamps", "build", "runs", "__pycache__", "*_cache")
SAMPLE = 100
"""A module with more mutants runs this many: those with the smallest ids, which are hashes."""
TIMES, SECONDS = 10, 3.0
"""A mutant that takes this many times as long as without the change, and this much more, hangs."""
QUICK = 0.2
"""Seconds of a test that may be run for nothing."""
MEMORY = 4 << 30
"""Bytes that a mutant may ask for beyond what its process began with."""
LOADED = ("torch", "numpy", "scipy.stats", "hypothesis")
"""What is loaded once, before all modules."""
KILLED, SURVIVED, HUNG, UNCALLED = "killed", "survived", "hung", "uncalled"
ANEW = "anew"
"""Green so far, but the module has to be imported anew to know."""


def _functions(module: CodeType) -> list[CodeType]:
    """The code of functions and methods, in their order; not of those inside others."""
    result: list[CodeType] = []
    for const in module.co_consts:
        if isinstance(const, CodeType):
            is_class = const.co_flags & 0x2 == 0  # CO_NEWLOCALS: functions have it, classes do not
            result.extend(_functions(const) if is_class else [const])
    return result


def transplant(path: str, before: str, after: str, live: Sequence[FunctionType]) -> None:
    """Give living functions of a module the code that a changed text of it has."""
    old, new = (
        _functions(compile(text, path, "exec", dont_inherit=True)) for text in (before, after)
    )
    place = {(code.co_qualname, code.co_firstlineno): k for k, code in enumerate(old)}
    for function in live:
        code = function.__code__
        k = place.get((code.co_qualname, code.co_firstlineno))
        if k is not None and new[k] != code:
            function.__code__ = new[k]


def reassign(module: Any, name: str, after: str) -> None:
    """Give a module's constant the value of a changed text, wherever it was imported."""
    old = vars(module)[name]
    for node in ast.parse(after).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == name:
                code = compile(ast.Expression(node.value), name, "eval")
                new = eval(code, dict(vars(module)))
                for other in list(sys.modules.values()):
                    if getattr(other, "__dict__", {}).get(name) is old:
                        vars(other)[name] = new


def in_a_copy(act: Callable[[], int], seconds: float) -> tuple[str, float]:
    """Run something in a fork of this process that ends with its number: 0 says all is green."""
    began = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            gc.disable()  # a collection would touch, and so copy, every page of this process
            os.setsid()
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + MEMORY
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
            code = act()
        except BaseException:
            traceback.print_exc()
            code = 1
        finally:
            os._exit(code)
    state, done = HUNG, 0
    try:
        while time.monotonic() - began < seconds:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
                state = SURVIVED if status == 0 else HUNG if late else KILLED
                break
            time.sleep(0.002)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        if not done:
            os.kill(pid, signal.SIGKILL)  # it may not have come to its own group yet
            os.waitpid(pid, 0)
    return state, time.monotonic() - began


def _quiet() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)


class Loop:
    """What takes the place of pytest's loop over tests: one over mutants."""

    def __init__(
        self, path: Path, source: str, todo: Sequence[Mutant], keep: Callable[..., None]
    ) -> None:
        self.path, self.source, self.todo, self.keep = path, source, todo, keep
        self.clean: dict[str, Any] = {}
        self.early: set[str] = set()
        """Functions that were called before the first test."""
        sys.settrace(functools.partial(self._trace, self.early))

    def _trace(self, seen: set[str], frame: Any, *_: object) -> None:
        if frame.f_code.co_filename == str(self.path):
            seen.add(frame.f_code.co_qualname.split(".<locals>")[0])

    def pytest_runtestloop(self, session: Any) -> bool:
        """First all tests as they are, to see which call what; then the mutants."""
        sys.settrace(None)
        from hypothesis.internal.conjecture import engine

        engine.MAX_SHRINKS = 0  # a red test is enough: no smaller example is looked for
        self.base = Path(session.config.option.basetemp)
        gc.unfreeze()
        live = [
            f for f in gc.get_objects()
            if type(f) is FunctionType and f.__code__.co_filename == str(self.path)
        ]  # fmt: skip
        gc.freeze()
        note = self.base.parent / "clean.json"
        note.unlink(missing_ok=True)
        state, _ = in_a_copy(lambda: self._look(session.items, note), 900)
        self.clean = json.loads(note.read_text()) if note.exists() else {"red": state}
        if state != SURVIVED:
            return True
        for name in self.clean["loaded"]:  # what tests load late would be loaded by every copy
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        called, seconds = self.clean["called"], self.clean["seconds"]
        for mutant in self.todo:
            which = [k for k, names in enumerate(called) if mutant.function in names]
            if mutant.constant:  # tests that only read it are quick, or call something too
                which = [k for k, names in enumerate(called) if names or seconds[k] < QUICK]
            which.sort(key=lambda k: seconds[k])
            early = mutant.constant or mutant.function in self.early
            if not which:
                self.keep(mutant, ANEW if early else UNCALLED, 0.0)
                continue
            limits = [TIMES * seconds[k] + SECONDS for k in which]
            items = [session.items[k] for k in which]
            act = functools.partial(self._try, mutant, live, items, limits)
            state, took = in_a_copy(act, sum(limits))
            self.keep(mutant, ANEW if early and state == SURVIVED else state, took)
            shutil.rmtree(self.base, ignore_errors=True)
            self.base.mkdir()
        return True

    def _look(self, items: Sequence[Any], note: Path) -> int:
        """Run every test on its own; write how long each takes and which functions it calls."""
        seen, before = set[str](), set(sys.modules)
        memories = [f for f in gc.get_objects() if type(f) is functools._lru_cache_wrapper]
        trace = functools.partial(self._trace, seen)
        threading.settrace(trace)
        sys.settrace(trace)
        called: list[list[str]] = []
        seconds: list[float] = []
        red: list[str] = []
        for item in items:
            for memory in memories:
                if str(getattr(memory, "__module__", "")).startswith("strop"):
                    memory.cache_clear()
            seen.clear()
            began = time.monotonic()
            red.extend(_red([item]))
            called.append(sorted(seen))
            seconds.append(time.monotonic() - began)
        known = {"called": called, "seconds": seconds, "red": red}
        note.write_text(json.dumps(known | {"loaded": [n for n in sys.modules if n not in before]}))
        return 1 if red else 0

    def _try(
        self,
        mutant: Mutant,
        live: Sequence[FunctionType],
        items: Sequence[Any],
        limits: Sequence[float],
    ) -> int:
        _quiet()
        if mutant.constant:
            names = ".".join(self.path.with_suffix("").parts).rpartition("src.")[2]
            reassign(sys.modules[names], mutant.constant, mutant.source)
        else:
            transplant(str(self.path), self.source, mutant.source, live)
        return 1 if any(_red(items, limits)) else 0


def _red(items: Sequence[Any], limits: Sequence[float] = ()) -> Iterator[str]:
    """Run tests one by one; what is red of them. A test that goes beyond its limit ends it all."""
    from _pytest.runner import runtestprotocol

    for item, following, limit in zip_longest(items, items[1:], limits):
        if limit:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, limit)
        for report in runtestprotocol(item, log=False, nextitem=following):
            if report.failed:
                yield f"{item.nodeid}: {str(report.longrepr)[-2000:]}"


def run_module(tree: Path, name: str, entry: dict[str, Any], most: int = SAMPLE) -> None:
    """Run what is still to be run of the first `most` mutants of a module; keep each result."""
    path = tree / "src" / "strop" / name
    source = path.read_text()
    every = mutants_of(source)
    state = read_results(name)
    if state.get("source") != short_hash(source):
        state = {"source": short_hash(source), "all": len(every), "runs": {}}
    tests = [test.partition("::")[0] for test in entry["tests"]]
    watch = short_hash(*((tree / test).read_text() for test in dict.fromkeys(tests)))
    sample = every[:SAMPLE]
    ids = {mutant.id for mutant in sample}
    state["runs"] = {key: run for key, run in state["runs"].items() if key in ids}
    todo, inside_todo = [], []
    for mutant in sample[:most]:
        last = state["runs"].get(mutant.id, {"state": None, "tests": None})
        stale = last["tests"] != watch
        if last["state"] == ANEW or (stale and last["state"] not in (KILLED, HUNG)):
            todo.append(mutant)
            if mutant.inside and stale:
                inside_todo.append(mutant)
    if not todo:
        return
    print(f"{name}: {len(todo)} of {len(every)} to run", flush=True)

    def keep(mutant: Mutant, outcome: str, took: float) -> None:
        state["runs"][mutant.id] = {
            "state": outcome, "line": mutant.line, "change": mutant.change, "tests": watch,
            "seconds": round(took, 2),
        }  # fmt: skip
        write_results(name, state)

    def collect(plugins: list[Any], *more: str) -> int:
        import pytest

        os.chdir(tree)
        shutil.rmtree(tree / "tmp", ignore_errors=True)
        (tree / "tmp" / "base").mkdir(parents=True)
        flags = [
            "-q",
            "-W",
            "ignore",
            "--tb=no",
            "--assert=plain",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
        ]
        flags.append(f"--basetemp={tree}/tmp/base")
        marks = ["-m", "not slow and not heavy and not server"]
        return int(pytest.main([*flags, *marks, *more, *entry["tests"]], plugins=plugins))

    def inside() -> int:
        loop = Loop(path, source, inside_todo, keep)
        collect([loop], "-s")
        if loop.clean.get("red"):
            print(f"{name}: red without a change: {loop.clean['red']}", flush=True)
            return 1
        return 0

    if inside_todo and in_a_copy(inside, 24 * 3600)[0] != SURVIVED:
        print(f"{name}: NOT RUN", flush=True)
        return
    state.update(read_results(name))
    outside = [m for m in todo if not m.inside or state["runs"][m.id]["state"] == ANEW]
    if not outside:
        return

    def anew() -> int:
        _quiet()
        sys.dont_write_bytecode = True
        return collect([], "-x", "--no-header")

    stamp = path.stat()
    clean, took = in_a_copy(anew, 900)
    if clean != SURVIVED:
        print(f"{name}: red without a change", flush=True)
        return
    for mutant in outside:
        path.write_text(mutant.source)
        outcome, spent = in_a_copy(anew, TIMES * took + SECONDS)
        path.write_text(source)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        keep(mutant, outcome, spent)


def read_results(name: str) -> dict[str, Any]:
    """What is known of a module's mutants."""
    file = RESULTS / (name.replace("/", "-") + ".json")
    return json.loads(file.read_text()) if file.exists() else {}


def write_results(name: str, state: dict[str, Any]) -> None:
    """Put a module's results on disk whole, so that a run may be broken off at any time."""
    file = RESULTS / (name.replace("/", "-") + ".json")
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(state, indent=1))
    fresh.replace(file)


def counts(name: str, entry: dict[str, Any]) -> tuple[int, int, int, int, int]:
    """Mutants, run, killed, survived, equivalent."""
    state = read_results(name)
    runs = state.get("runs", {})
    killed = sum(run["state"] in (KILLED, HUNG) for run in runs.values())
    same = sum(
        run["state"] not in (KILLED, HUNG) and key in (entry.get("equivalent") or {})
        for key, run in runs.items()
    )
    return state.get("all", 0), len(runs), killed, len(runs) - killed - same, same


def kept_rows(page: str) -> dict[str, tuple[int, ...]]:
    """The rows that a table has, of modules whose text still has as many mutants.

    Results stay where they were made: what was run further elsewhere is known from the page alone.
    """
    found = {}
    for line in page.splitlines():
        if line.startswith("| `"):
            name, *numbers = line.strip("| ").split(" | ")[:6]
            path = ROOT / "src" / "strop" / name.strip("`")
            if path.is_file() and len(mutants_of(path.read_text())) == int(numbers[0]):
                found[name.strip("`")] = tuple(map(int, numbers))
    return found


def table(modules: dict[str, Any], page: str = "") -> str:
    """The table of docs/testing.md; the share leaves out what is equivalent."""
    kept = kept_rows(page)
    known = {
        name: max(counts(name, entry), kept.get(name, ()), key=lambda row: row[1:2])
        for name, entry in modules.items()
    }
    rows = [
        "| module | mutants | run | killed | survived | equivalent | killed of those that differ |",
        "|---|---|---|---|---|---|---|",
    ]
    total = [0, 0, 0, 0, 0]
    for name, numbers in known.items():
        if numbers[1]:
            total = [a + b for a, b in zip(total, numbers, strict=True)]
            rows.append(_row(f"`{name}`", numbers))
    later = [f"`{name}`" for name, numbers in known.items() if not numbers[1]]
    rest = f"\nNot run, or not since they changed: {', '.join(later)}.\n" if later else ""
    return "\n".join([*rows, _row("all", total)]) + "\n" + rest


def _row(name: str, numbers: Sequence[int]) -> str:
    _, run, killed, _, same = numbers
    share = f"{killed / (run - same):.0%}" if run > same else ""
    return f"| {name} | {' | '.join(map(str, numbers))} | {share} |"


def survivors(modules: dict[str, Any]) -> Iterator[str]:
    """What no test has noticed and nobody has called equivalent."""
    for name, entry in modules.items():
        known = entry.get("equivalent") or {}
        runs = read_results(name).get("runs", {}).items()
        for key, run in sorted(runs, key=lambda pair: pair[1]["line"]):
            if run["state"] not in (KILLED, HUNG) and key not in known:
                yield f"{key} {run['state']:8} {name}:{run['line']} {run['change']}"


def main(words: Sequence[str]) -> int:
    """Run, or say what is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("module", nargs="*", help="a part of a path; all modules without")
    parser.add_argument("--most", type=int, default=SAMPLE, help="mutants of a module for now")
    parser.add_argument("--survivors", action="store_true")
    parser.add_argument("--table", action="store_true")
    wanted = parser.parse_args(words)
    modules: dict[str, Any] = yaml.safe_load(LIST.read_text())
    chosen = {
        name: entry for name, entry in modules.items()
        if not wanted.module or any(part in name for part in wanted.module)
    }  # fmt: skip
    if not chosen:
        print(f"{LIST.name} has no module named {' or '.join(wanted.module)}")
        return 2
    if wanted.survivors:
        print("\n".join(survivors(chosen)))
    elif wanted.table:
        page = ROOT / "docs" / "testing.md"
        old = page.read_text()
        begin, end = "<!-- mutants -->\n", "<!-- end of mutants -->"
        head, _, rest = old.partition(begin)
        before, _, after = rest.partition(end)
        page.write_text(head + begin + table(modules, before) + end + after)
    else:
        run(chosen, wanted.most)
        print(table(chosen))
    return 0


def run(chosen: dict[str, Any], most: int) -> None:
    """Copy the tree, load what is large, and run module after module."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="strop-mutants-") as place:
        tree = Path(place).resolve() / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT))
        os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", PYTHONPATH=str(tree / "src"))
        sys.path[:0] = [str(tree / "src"), str(tree)]
        sys.path_importer_cache.clear()
        for name in LOADED:
            importlib.import_module(name)
        for name, entry in chosen.items():
            run_module(tree, name, entry, most)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
