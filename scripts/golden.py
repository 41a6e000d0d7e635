"""Runs every verb on small inputs at two commits, and says what came out differently.

    scripts/golden.py OLD NEW                    two commits, e.g. `scripts/golden.py HEAD~3 HEAD`
    scripts/golden.py --capture COMMIT DIR       keep what one commit answers; DIR may stand for OLD
    scripts/golden.py OLD NEW --only audit       commands that begin so, and those they build on

A side is a commit, a directory with a source tree in `src` (what is not committed yet), or a
directory that --capture made. Both run on this machine with this interpreter and one thread. Of
every command the exit code, the document on stdout, and all files that it made are compared: ids,
counts and words must be equal, numbers to 1e-9 relative. golden.yaml has the commands, what is
left out (times, versions, paths), and the table of changes that are meant. Exit code 3 if there is
a difference that the table does not have.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from golden_compare import Difference, Table, compare, values
from golden_files import documents, plain, stamp
from strop_server import Server

HERE = Path(__file__).resolve().parent
ANSWERS, ABOUT = "commands", "capture.json"
RUNS = re.compile(r"(?:runs/[\w-]+|judged\.jsonl)")
FEW = 5
"""Differences of one kind that are printed; --all prints the others too."""


def main() -> int:
    """Compare, or capture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", metavar="OLD", help="a commit, a source tree or a capture")
    parser.add_argument("new", metavar="NEW", help="the same; with --capture, where to write")
    parser.add_argument("--capture", action="store_true", help="keep the answers of OLD in NEW")
    parser.add_argument("--only", default="", help="commands whose names begin so")
    parser.add_argument("--all", action="store_true", help="print every difference")
    asked = parser.parse_args()
    table = yaml.safe_load((HERE / "golden.yaml").read_text(encoding="utf-8"))
    if asked.capture:
        capture(asked.old, Path(asked.new), table, "old", asked.only)
        return 0
    with tempfile.TemporaryDirectory(prefix="golden-") as scratch:
        sides = [
            _answers(name, Path(scratch) / side, table, side, asked.only)
            for side, name in (("old", asked.old), ("new", asked.new))
        ]
    return report(sides[0], sides[1], Table.read(table), asked.all)


# ------------------------------------------------------------------------------- capturing


def _answers(
    side: str, scratch: Path, table: Mapping[str, Any], which: str, only: str
) -> dict[str, Any]:
    """What the commands of one side answered, by name."""
    place = Path(side)
    if not (place / ABOUT).exists():
        place = capture(side, scratch, table, which, only)
    wanted = select(table["commands"], only)
    found = {file.stem: file for file in (place / ANSWERS).glob("*.json")}
    return {name: json.loads(found[name].read_text()) for name in wanted if name in found}


def capture(side: str, place: Path, table: Mapping[str, Any], which: str, only: str) -> Path:
    """Run all commands and keep their answers in `place`, a file each."""
    begun = time.perf_counter()
    folder = place / ANSWERS
    folder.mkdir(parents=True, exist_ok=False)
    with (
        tempfile.TemporaryDirectory(prefix="golden-root-") as scratch,
        sources(side) as source,
        serving(source, Path(scratch) / "root", table["inputs"]) as server,
    ):
        root, told = Path(scratch).resolve() / "root", Path(scratch)
        seen = {name: stamp(root / name) for name in documents(root, {})}
        kept = dict[str, Any]()
        for name in select(table["commands"], only):
            spelled = table["commands"][name]
            words = spelled if isinstance(spelled, str) else spelled[which]
            ended = server.run(shlex.split(words), told)
            files = {one: _hidden(doc, root, source) for one, doc in documents(root, seen).items()}
            seen = {one: stamp(file) for one, file in _files(root)}
            changed = {one: doc for one, doc in files.items() if kept.get(one, None) != doc}
            kept |= files
            answer = {
                "words": words,
                **ended,
                "stdout": _hidden(_printed(told / "stdout"), root, source),
                "stderr": _hidden(_printed(told / "stderr"), root, source),
                "files": changed,
            }
            (folder / f"{name}.json").write_text(json.dumps(answer, indent=1, ensure_ascii=False))
            print(f"{ended['seconds']:7.2f} s  exit {ended['exit']}  {name}", file=sys.stderr)
    seconds = round(time.perf_counter() - begun, 1)
    (place / ABOUT).write_text(json.dumps({"of": side, "seconds": seconds}))
    print(f"{seconds} s for {side}", file=sys.stderr)
    return place


def select(commands: Mapping[str, Any], only: str) -> list[str]:
    """The commands whose names begin with `only`, and before them those that use the same runs."""
    uses = {name: set(RUNS.findall(str(words))) for name, words in commands.items()}
    wanted, runs = list[str](), set[str]()
    for name in reversed(list(commands)):
        if name.startswith(only) or uses[name] & runs:
            wanted.append(name)
            runs |= uses[name]
    return wanted[::-1]


@contextlib.contextmanager
def sources(side: str) -> Iterator[Path]:
    """The folder `src` of a source tree, or of a commit, which is unpacked for as long."""
    if (Path(side) / "src" / "strop").is_dir():
        yield (Path(side) / "src").resolve()
        return
    with tempfile.TemporaryDirectory(prefix="golden-src-") as scratch:
        packed = subprocess.run(
            ["git", "-C", str(HERE.parent), "archive", side, "src"],
            stdout=subprocess.PIPE,
            check=True,
        )
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(scratch, filter="data")
        yield (Path(scratch) / "src").resolve()


@contextlib.contextmanager
def serving(source: Path, root: Path, inputs: Mapping[str, Any]) -> Iterator[Server]:
    """A server in a new directory that holds the small inputs."""
    root.mkdir()
    root = root.resolve()
    for name, content in inputs.items():
        if isinstance(content, list):
            content = "".join(json.dumps(row) + "\n" for row in content)
        elif not isinstance(content, str):
            content = json.dumps(content)
        (root / name).write_text(content, encoding="utf-8")
    server = Server(source, root)
    try:
        yield server
    finally:
        server.close()


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    for file in root.rglob("*"):
        if file.is_file():
            yield str(file.relative_to(root)), file


def _printed(file: Path) -> Any:
    """One JSON document, or lines."""
    text = file.read_text(encoding="utf-8")
    try:
        return plain(json.loads(text))
    except ValueError:
        return text.splitlines()


def _hidden(value: Any, root: Path, source: Path) -> Any:
    """A document in which no path says where it was made."""
    if isinstance(value, Mapping):
        return {key: _hidden(part, root, source) for key, part in value.items()}
    if isinstance(value, list):
        return [_hidden(part, root, source) for part in value]
    if isinstance(value, str) and "/" in value:
        return value.replace(str(root), "ROOT").replace(str(source), "SRC")
    return value


# ------------------------------------------------------------------------------- comparing


def report(old: Mapping[str, Any], new: Mapping[str, Any], table: Table, every: bool) -> int:
    """Print what differs; the exit code."""
    differences = list[Difference]()
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in old or name not in new:
            print(f"{name}: not in the {'old' if name not in old else 'new'} capture")
            continue
        if old[name]["words"] != new[name]["words"]:
            print(f"{name}: asked as {old[name]['words']}, then as {new[name]['words']}")
        was, now = (values(name, side[name], table) for side in (old, new))
        differences += compare(was, now, table)
    kinds: dict[str, int] = {}
    for one in differences:
        kind = re.sub(r"\d+", "0", " ".join(one.address))
        kinds[kind] = kinds.get(kind, 0) + 1
        if every or kinds[kind] <= FEW:
            print(one)
    for kind, count in kinds.items():
        if count > FEW and not every:
            print(f"... and {count - FEW} more like {kind}")
    for rule in table.unused():
        print(f"not needed here: {rule.pattern.pattern} ({rule.reason})", file=sys.stderr)
    print(f"{len(old)} commands, {len(differences)} differences that are not in the table")
    return 3 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
