"""Write the training problems of `sums`, with their tokenizer, for `strop train`.

    python scripts/make-sums.py OUT [--count N] [--seed S]

OUT gets train.jsonl.gz (one {"prompt", "response"} per line, no test problem among them) and
tokenizer/tokenizer.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

from strop.disk import write
from strop.tasks.sums import problems
from sums_words import tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the training problems of sums.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = [
        json.dumps({"prompt": one.prompt, "response": one.response}) + "\n"
        for one in problems("train", options.count, seed=options.seed)
    ]
    (options.out / "tokenizer").mkdir(parents=True, exist_ok=True)
    write(options.out / "train.jsonl.gz", gzip.compress("".join(rows).encode(), 6, mtime=0))
    write(options.out / "tokenizer" / "tokenizer.json", json.dumps(tokenizer(), indent=1).encode())
    print(f"{options.out}: {len(rows):,} problems")


if __name__ == "__main__":
    main()
