"""Runs commands of strop, each in a fork of a process that has loaded the libraries already.

Loading torch takes longer than most of the small commands that golden.py and house.py run. A fork
keeps them apart: nothing that one command imports or changes is seen by the next.

It runs as a program of its own, with the source tree to be tried on PYTHONPATH; `Server` is the
other end. With `called`, a command also writes which of strop's files a function ran in.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from inspect import CO_OPTIMIZED
from pathlib import Path
from typing import Any

LIBRARIES = (
    "scipy.stats",
    "pandas",
    "pyarrow.parquet",
    "matplotlib.pyplot",
    "PIL.Image",
    "torch",
    "tokenizers",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.bert.modeling_bert",
    "transformers.models.llama.modeling_llama",
    "accelerate",
    "optuna.samplers",
    "rich.table",
)
"""Loaded once, and after them all modules of strop: that runs no function of theirs."""
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
ALONE = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "MPLBACKEND": "agg",
    "COLUMNS": "160",
    "NO_COLOR": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONWARNINGS": "ignore",
}
"""One thread, no network, no terminal: what could make two runs of one commit differ."""


class Server:
    """The commands of one source tree, run one after the other in one directory."""

    def __init__(self, source: Path, root: Path) -> None:
        environment = {**os.environ, **ALONE, "PYTHONPATH": str(source), "HOME": str(root)}
        environment |= {"XDG_CACHE_HOME": str(root / ".cache"), "TMPDIR": str(root / ".tmp")}
        (root / ".tmp").mkdir(exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=root,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        loaded = Path(self._answer()["strop"])
        if not loaded.is_relative_to(source):
            raise SystemExit(f"strop was loaded from {loaded}, not from {source}")

    def run(self, words: Sequence[str], out: Path, called: Path | None = None) -> dict[str, Any]:
        """Exit code and seconds of the processor; `out` has what was printed: stdout, stderr."""
        asked = {"words": list(words), "out": str(out), "called": called and str(called)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the server has ended with {self._process.wait()}")
        return json.loads(line)


def _serve() -> None:
    from importlib import import_module
    from pkgutil import walk_packages

    import strop

    of_strop = (module.name for module in walk_packages(strop.__path__, "strop."))
    for name in (*LIBRARIES, *of_strop):
        if not name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                import_module(name)
    print(json.dumps({"strop": strop.__file__}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _child(asked)
        _, status, used = os.wait4(child, 0)
        seconds = round(used.ru_utime + used.ru_stime, 3)
        exit_code = os.waitstatus_to_exitcode(status)
        print(json.dumps({"exit": exit_code, "seconds": seconds}), flush=True)


def _child(asked: dict[str, Any]) -> None:
    """Run one command as the shell would, and leave."""
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(f"{asked['out']}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    code = 1
    try:
        from strop.cli.entry import main

        with _recording(asked["called"]):
            main(asked["words"])
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@contextlib.contextmanager
def _recording(where: str | None) -> Any:
    """Write the files of strop in which the body of a function ran, if anybody wants them."""
    if where is None:
        yield
        return
    import strop

    home = str(Path(strop.__file__).parent) + os.sep
    code_objects = set[Any]()

    def seen(frame: Any, event: str, _: object) -> None:
        if event == "call":
            code_objects.add(frame.f_code)

    sys.setprofile(seen)
    try:
        yield
    finally:
        sys.setprofile(None)
        files = {
            code.co_filename.removeprefix(home)
            for code in code_objects
            if code.co_filename.startswith(home) and _is_body(code)
        }
        Path(where).write_text("\n".join(sorted(files)))


def _is_body(code: Any) -> bool:
    """A function's body: no module or class, which run when imported, and no comprehension."""
    return bool(code.co_flags & CO_OPTIMIZED) and code.co_name not in COMPREHENSIONS


if __name__ == "__main__":
    _serve()
