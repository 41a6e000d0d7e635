"""Publish numbers of a checkpoint: cells drawn and scored, as a file that `certify` reads.

    python scripts/make-card.py embedded:tales-tiny --cells 16,1,float64 4096,1,float64 -n 1024 \
        --evaluator embedded:tales-ar -o src/strop/assets/published/tales-tiny.yaml

Its seeds are others than those of `strop models certify`, so that the two are independent.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path
from typing import Any

import yaml

from strop.denoisers import load_model
from strop.rng import derive_seed
from strop.stats.resample import student
from strop.verbs.certify import CELL, STUDY, measure, own_numbers


def main() -> None:
    parser = argparse.ArgumentParser(description="Publish numbers of a checkpoint.")
    parser.add_argument("checkpoint")
    parser.add_argument("--cells", nargs="+", required=True, help="steps,temperature,precision")
    parser.add_argument("-n", type=int, default=1024)
    parser.add_argument("--evaluator", required=True)
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    cells = []
    for one in options.cells:
        steps, temperature, precision = one.split(",")
        cells.append((int(steps), float(temperature), precision))
    with tempfile.TemporaryDirectory() as place:
        asked = {"n": options.n, "evaluator": options.evaluator}
        ask = STUDY.ask(Path(place) / "card", [options.checkpoint], **asked)
        model = load_model(options.checkpoint)
        found = measure(ask, model, cells, derive_seed(0, "card"))
        rows = [
            [*cell, *_numbers(own_numbers(one))] for cell, one in zip(cells, found, strict=True)
        ]
        evaluator = ask.evaluator.spec
    document = {
        "id": options.out.stem,
        "label": options.checkpoint,
        "kind": "table",
        "caption": f"Numbers of {options.checkpoint}, made by scripts/make-card.py.",
        "settings": {
            "checkpoint": options.checkpoint,
            "sha256": model.spec.sha256,
            "weights": model.spec.weights,
            "evaluator": options.evaluator,
            "evaluator_sha256": evaluator.sha256,
            "span": "first-document",
            "length": model.length,
            "outputs": options.n,
        },
        "units": {
            "perplexity_error": "standard error of its logarithm",
            "entropy": "nats, mean unigram entropy per output",
        },
        "columns": [*CELL, "perplexity", "perplexity_error", "entropy", "entropy_error"],
        "rows": rows,
    }
    text = yaml.safe_dump(document, sort_keys=False, width=100, default_flow_style=None)
    options.out.write_text(text, encoding="utf-8")


def _numbers(own: dict[str, Any]) -> list[float]:
    found = []
    for name, one in own.items():
        scale = math.log if name == "perplexity" else float
        half = (scale(one.high) - scale(one.low)) / 2
        error = half / student(one.level, one.n - 1)
        found += [round(one.value, 4), round(error, 6)]
    return found


if __name__ == "__main__":
    main()
