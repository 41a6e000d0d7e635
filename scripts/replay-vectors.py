"""Replay parity vectors: does every run of a folder come out as the public code had it?

    python scripts/replay-vectors.py DIR [--json]

DIR is a folder of vectors or holds such folders. Prints one line per run and a closing count; ends
with 1 unless every run that was not skipped is identical.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from vector_replay import folders, replay


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true", help="one document instead of lines")
    arguments = parser.parse_args()
    if not folders(arguments.directory):
        print(f"{arguments.directory}: no vectors here (no case.json)", file=sys.stderr)
        return 1
    done = []
    for run in replay(arguments.directory):
        done.append(run)
        if not arguments.json:
            print(run.line, flush=True)
    tried = [run for run in done if not run.skipped]
    same = sum(bool(run.identical) for run in tried)
    if arguments.json:
        print(json.dumps({"runs": [run.document() for run in done]}, indent=2))
    else:
        print(f"{same} of {len(tried)} runs identical")
    return 0 if same == len(tried) else 1


if __name__ == "__main__":
    sys.exit(main())
