"""Write exact texts of a language, with its words as a tokenizer, for `strop train`.

    python scripts/make-language.py OUT [--language even] [--count N] [--seed S]

OUT gets train.jsonl.gz (one {"prompt", "response"} per line; the prompt is always the same token)
and tokenizer/tokenizer.json, in which the language's words keep their ids.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

from strop.disk import write
from strop.language import Language
from strop.language.reading import PROMPT, tokenizer

SEED = 2026
"""Not one that `strop language draw` is usually called with."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Write training texts of a language.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--language", default="even")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    language = Language.load(options.language)
    rows = [
        json.dumps({"prompt": PROMPT, "response": language.decode(ids)}) + "\n"
        for ids in language.draw(options.count, options.seed)
    ]
    (options.out / "tokenizer").mkdir(parents=True, exist_ok=True)
    write(options.out / "train.jsonl.gz", gzip.compress("".join(rows).encode(), 6, mtime=0))
    content = json.dumps(tokenizer(language), indent=1)
    write(options.out / "tokenizer" / "tokenizer.json", content.encode())
    print(f"{options.out}: {len(rows):,} texts of {options.language}")


if __name__ == "__main__":
    main()
