"""Write exact texts of a language as rows for block diffusion, with its words as a tokenizer.

    python scripts/make-block-texts.py OUT [--language even] [--count N] [--seed S]

OUT gets texts.txt.gz (a text per line, an end of text behind it, so that a row of `wrapped` is an
end, the text and three ends) and tokenizer/tokenizer.json, in which words keep their ids.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

from strop.disk import write
from strop.language import Language
from strop.language.reading import END, tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description="Write training texts of a language.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--language", default="even")
    parser.add_argument("--count", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args()
    language = Language.load(options.language)
    (options.out / "tokenizer").mkdir(parents=True, exist_ok=True)
    content = json.dumps(tokenizer(language), indent=1)
    write(options.out / "tokenizer" / "tokenizer.json", content.encode())
    texts = (language.decode(ids) for ids in language.draw(options.count, options.seed))
    lines = "".join(f"{text} {END}\n" for text in texts)
    write(options.out / "texts.txt.gz", gzip.compress(lines.encode(), 6, mtime=0))


if __name__ == "__main__":
    main()
