"""The slowest tests of a run with `pytest --cpu-times=FILE`, in processor seconds.

    make test PYTEST_FLAGS="--cpu-times=times.jsonl"
    python scripts/durations.py times.jsonl [--top 20] [--write]

A fixture that several tests share has a line of its own. `--write` brings `tests/durations.json` up
to date: the files by whose seconds the tests are put in order, the longest first, so that no long
file is left for the end.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

ORDER = Path(__file__).resolve().parents[1] / "tests" / "durations.json"
LEAST = 4.0
"""Seconds from which on a file's place in the order matters."""


def read(file: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    shared = [row for row in rows if row["what"] == "fixture" and row["scope"] != "function"]
    return [row for row in rows if row["what"] == "test"] + shared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    lines = asked.file.read_text("utf-8").splitlines()
    workers = [row for row in map(json.loads, lines) if row["what"] == "worker"]
    rows = read(asked.file)
    items, files = Counter[str](), Counter[str]()
    for row in rows:
        items[f"{row['name']} ({row['what']})"] += row["cpu"]
        files[row["name"].partition("::")[0]] += row["cpu"]
    for title, counted in (("file", files), ("test or shared fixture", items)):
        print(f"\n| seconds | {title} |\n|---|---|")
        for name, spent in counted.most_common(asked.top):
            print(f"| {spent:.1f} | {name} |")
    tests = sum(row["what"] == "test" for row in rows)
    print(f"\n{tests} tests: {sum(items.values()):.0f} s of processor time", end="")
    print(f"; whole workers {sum(one['cpu'] for one in workers):.0f} s" if workers else "")
    if asked.write:
        long = {name: round(spent) for name, spent in files.most_common() if spent >= LEAST}
        ORDER.write_text(json.dumps(long, indent=1) + "\n")


if __name__ == "__main__":
    main()
