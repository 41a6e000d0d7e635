"""Pack a training run of `sums` as a small model with a card that says how much it gets right.

    python scripts/pack-sums.py RUN OUT --name NAME --shards DIR [--count 500]

Stores float16, checks that the held-out loss is unchanged to three digits, and scores what it
stored: the test problems are read here for the first time.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from packing import PackedLoss, pack
from strop.denoisers.load import load_model
from strop.disk import write
from strop.tasks.sums import RESPONSE, problems
from strop.training.documents import Shards
from strop.training.run import TrainingRun
from sums_score import score
from sums_words import best_by_numbers, commonest_answer

FEWER_CALLS = (RESPONSE, RESPONSE // 2, RESPONSE // 4)
SHOWN = 4


def main() -> None:
    parser = argparse.ArgumentParser(description="Pack a training run of sums.")
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--count", type=int, default=500, help="test problems")
    options = parser.parse_args()
    run, shards = TrainingRun(options.run), Shards(options.shards)
    step = max(run.checkpoints())
    packed = pack(run.checkpoints()[step], options.out, shards, seed=1, rows=1000)
    accuracy = _accuracy(options.out, options.count)
    card = _card(options.name, run, step, packed, accuracy)
    write(options.out / "README.md", card.encode())
    print(f"{options.out}: step {step:,}, {packed.bytes / 1e6:.2f} MB; {'; '.join(accuracy)}")


def _accuracy(out: Path, count: int) -> list[str]:
    """One line per number of calls; a causal model has one number."""
    model = load_model(str(out), device="cpu")
    test = problems("test", count)
    told = []
    for calls in FEWER_CALLS if model.mask_id is not None else FEWER_CALLS[:1]:
        found = score(model, test, calls, 0.0, 0)
        told.append(
            f"{found['right']:.1%} of {count} test problems right at {RESPONSE // calls} "
            f"token{'s' if calls < RESPONSE else ''} per call (standard error "
            f"{found['standard_error']:.1%}), {found['unreadable']:.0f} without an answer"
        )
    return told


def _card(name: str, run: TrainingRun, step: int, packed: PackedLoss, accuracy: list[str]) -> str:
    spec, loss, nats = run.spec, packed.after, packed.after.nats_per_token
    seconds = [e["seconds"] for e in run.metrics() if e["kind"] == "train" and e["step"] <= step]
    kind = "A causal language model" if spec.model.family == "ar" else "A model in LLaDA's layout"
    shown = problems("test", SHOWN)
    lines = [
        f"# embedded:{name}",
        "",
        f"{kind} of {packed.parameters:,} parameters that answers the word problems of "
        "`strop.tasks.sums`, trained by `scripts/train-sums.sh`.",
        "",
        "## Numbers",
        *(f"- Greedy: {line}." for line in accuracy),
        f"- For comparison: the best guess from the numbers alone is right in "
        f"{best_by_numbers():.1%}, the commonest answer in {commonest_answer()[1]:.1%}.",
        f"- Held out of training: {nats.value:.4f} nats per token of the response "
        f"{nats.span('.4f')}, end-of-texts included; the {loss.form} form.",
        f"- Stored in float16, which changes that by {packed.change:+.6f}.",
        f"- {step:,} steps of {spec.batch} problems, {(seconds or [0.0])[-1] / 60:.0f} minutes.",
        "",
        "| step | held out (nats per token) |",
        "|---|---|",
        *_measured(run),
        "",
        "## Data",
        "Made by `scripts/make-sums.py`; the two steps that a test problem begins with follow each "
        "other nowhere in it. A prompt, then the response, each tokenised by itself:",
        "",
        *(f"    {line}" for one in shown for line in f"{one.prompt}{one.response}".splitlines()),
        "",
        "## Recipe",
        "```json",
        json.dumps(spec.model_dump(mode="json"), indent=1),
        "```",
        "",
        "## Limits",
        "Knows these problems and nothing else: other words fall apart into letters that it has "
        "never seen.",
    ]
    return "\n".join(lines) + "\n"


def _measured(run: TrainingRun) -> list[str]:
    measured = [entry for entry in run.metrics() if entry["kind"] == "held_out"]
    return [f"| {entry['step']:,} | {entry['nats_per_token'].value:.4f} |" for entry in measured]


if __name__ == "__main__":
    main()
