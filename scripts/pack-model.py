"""Pack a finished training run as a small model with a card.

    python scripts/pack-model.py RUN OUT --name NAME --shards DIR [--step K] [--after RUN]
                                 [--held-out FILE]

Stores float16, checks that the held-out loss is unchanged to three digits, writes the model card
from the run's own records and, for a diffusion model, ten unselected samples.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import strop
from packing import PackedLoss, as_lines, held_out_texts, pack
from strop.denoisers.tokenizer import TextCodec
from strop.disk import write
from strop.store.folder import setting_changes
from strop.training.documents import Shards
from strop.training.run import TrainingRun
from strop.training.spec import TrainSpec

SAMPLES, STEPS, TEMPERATURE = 10, 64, 0.9
READ, KNOWN = 64, 5
"""Samples whose words are looked up, and how often training rows must have a word."""
WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"']?\s+")
HELD_OUT_SEED = 1
"""The same held-out rows under the same noise for every model, whatever its training's seed."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Pack a training run as a small model.")
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--step", type=int, help="a kept checkpoint; by default the last")
    parser.add_argument("--first", action="store_true", help="the earliest kept checkpoint")
    parser.add_argument("--after", type=Path, help="the run whose weights this one began with")
    parser.add_argument("--rows", type=int, default=2048, help="held-out rows of the check")
    parser.add_argument("--held-out", type=Path, help="also write held-out text here")
    parser.add_argument("--held-out-rows", type=int, default=300)
    options = parser.parse_args()

    run, shards = TrainingRun(options.run), Shards(options.shards)
    checkpoints = run.checkpoints()
    step = options.step or (min if options.first else max)(checkpoints)
    before = None if options.after is None else TrainingRun(options.after)
    packed = pack(checkpoints[step], options.out, shards, seed=HELD_OUT_SEED, rows=options.rows)
    card = write_card(options.name, run, before, step, packed, shards, options.out)
    write(options.out / "README.md", card.encode())
    if options.held_out is not None:
        options.held_out.parent.mkdir(parents=True, exist_ok=True)
        codec = TextCodec.from_directory(options.out)
        rows = held_out_texts(shards.held_out, codec, options.held_out_rows)
        write(options.held_out, as_lines(rows))
    print(
        f"{options.out}: step {step:,}, {packed.bytes / 1e6:.1f} MB, held out "
        f"{packed.after.nats_per_token.value:.4f} nats per token (float16 changes it by "
        f"{packed.change:+.6f})"
    )


def write_card(
    name: str,
    run: TrainingRun,
    before: TrainingRun | None,
    step: int,
    packed: PackedLoss,
    shards: Shards,
    out: Path,
) -> str:
    """The model card, from what the run, and the one before it, recorded."""
    spec = run.spec
    loss, nats, model = packed.after, packed.after.nats_per_token, spec.model
    bound = "perplexity" if loss.form == "causal" else "perplexity at most"
    character = f", {loss.nats_per_character:.4f} per character" if loss.nats_per_character else ""
    lines = [
        f"# embedded:{name}",
        "",
        f"A {'causal' if model.family == 'ar' else 'masked diffusion'} language model of "
        f"{packed.parameters:,} parameters, trained by `scripts/train-embedded.sh` for tests, "
        "tutorials and quick looks on a laptop.",
        "",
        "## Numbers",
        f"- Held out: {nats.value:.4f} nats per token {nats.span('.4f')}"
        f"{character}; {bound} {loss.perplexity:.1f}. {loss.rows} rows, {_form(loss.form)}, 95% "
        "intervals from "
        "resampled rows.",
        f"- Stored in float16, which changes that by {packed.change:+.6f} nats per token.",
        *_history(before, run, step),
        "",
        "| step | held out (nats per token) |",
        "|---|---|",
        *(_measured(before, "first run, ") if before else []),
        *_measured(run, "second run, " if before else ""),
        "",
        "The curve is the run's own: fewer rows, other noise, and the precision that it trained "
        "in. The number above is in float32.",
        "",
        "## Data",
        *_data(shards),
        "",
        "## Recipe",
        f"Seed {spec.seed}. The configuration{' of the second run' if before else ''}, whole:",
        "",
        "```json",
        json.dumps(_shown(spec), indent=1),
        "```",
        *_changes(before, run),
        "",
        "## Limits",
        "English prose of the 19th and early 20th century, with the views of its time. Too small "
        "to keep a story together; nothing it says is a fact. Not for use with people.",
    ]
    if model.family == "mdlm":
        texts = _drawn(out)
        lines += ["", f"## {SAMPLES} samples, unselected", _sample_note(), ""]
        lines += [f"{number}. {text!r}" for number, text in enumerate(texts[:SAMPLES], 1)]
        lines += ["", _readable(texts, shards)]
    return "\n".join(lines) + "\n"


def _form(form: str) -> str:
    return "exact" if form == "causal" else f"the {form} form of the negative ELBO"


def _history(before: TrainingRun | None, run: TrainingRun, step: int) -> list[str]:
    if before is None:
        return [f"- Step {_work(run, step)}"]
    return [
        f"- First run, step {_work(before, max(before.checkpoints()))}",
        f"- Second run, from the weights of the first, step {_work(run, step)}",
    ]


def _work(run: TrainingRun, step: int) -> str:
    """Tokens and time up to a step."""
    logged = [entry for entry in run.metrics() if entry["kind"] == "train"]
    reached = [entry for entry in logged if entry["step"] <= step]
    seconds = reached[-1]["seconds"] if reached else 0.0
    tokens = step * run.spec.batch * run.spec.data.length
    return f"{step:,}: {tokens:,} tokens, {seconds / 60:.1f} minutes of training."


def _measured(run: TrainingRun, prefix: str) -> list[str]:
    measured = [entry for entry in run.metrics() if entry["kind"] == "held_out"]
    every = max(1, len(measured) // 12)
    few = measured[::-1][::every][::-1]
    return [f"| {prefix}{entry['step']:,} | {entry['nats_per_token'].value:.4f} |" for entry in few]


def _shown(spec: TrainSpec) -> dict[str, Any]:
    """The configuration without places of the machine that it ran on."""
    shown = spec.model_dump(mode="json")
    if spec.start is not None and Path(spec.start).is_absolute():
        shown["start"] = "the first run's last checkpoint"
    return shown


def _changes(before: TrainingRun | None, run: TrainingRun) -> list[str]:
    """What the run before did otherwise, and the weights that it handed over."""
    if before is None:
        return []
    told = "; ".join(setting_changes(_shown(before.spec), _shown(run.spec)))
    result = run.result() or {}
    return [
        "",
        f"The first run's, where it differs (`there` is the first): {told}. The weights that the "
        f"second began with have the SHA-256 {str(result.get('start_sha256'))[:16]}...",
    ]


def _data(shards: Shards) -> list[str]:
    manifest = shards.manifest
    told = [
        f"- {source['name']}: {source['documents']} documents, {source['held_out']} of them held "
        f"out; {source['licence']}; SHA-256 of the documents {source['documents_sha256'][:16]}..."
        for source in manifest["sources"]
    ]
    train, held = manifest["train"], manifest["held_out"]
    return [
        *told,
        f"- Training rows: {train.get('rows_that_count', train['rows']):,} of {train['rows']:,}; "
        f"held-out rows: {held.get('rows_that_count', held['rows']):,}, of {manifest['length']} "
        "tokens.",
        f"- Split: {json.dumps(manifest['split_rule'])}, before anything else. Tokenizer "
        f"({manifest['tokenizer']['vocabulary']:,} tokens) and filter saw training documents only.",
    ]


def _sample_note() -> str:
    return f"{STEPS} steps, temperature {TEMPERATURE}, float64 draw, seed 0, the first {SAMPLES}."


def _drawn(out: Path) -> list[str]:
    denoiser = strop.load_denoiser(out, device="cpu")
    spec = strop.SamplerSpec(steps=STEPS, temperature=TEMPERATURE)
    return strop.draw.sample(denoiser, spec, n=READ, seed=0).texts or []


def _readable(texts: list[str], shards: Shards) -> str:
    """How many sentences have no broken word, in samples and in held-out text."""
    codec, rows = TextCodec.from_directory(shards.directory), shards.train
    count: Counter[str] = Counter()
    for first in range(0, len(rows), 1_000):
        numbers = np.arange(first, min(first + 1_000, len(rows)))
        count.update(w.lower() for row in rows[numbers] for w in WORD.findall(codec.decode(row)))
    known = {word for word, times in count.items() if times >= KNOWN}
    held = [row["text"] for row in held_out_texts(shards.held_out, codec, 300)]
    (ours, of), (theirs, among) = (_without_broken_words(some, known) for some in (texts, held))
    return (
        f"Of the {of} whole sentences in {len(texts)} such samples, {ours / max(1, of):.0%} "
        f"consist of words that the training rows have at least {KNOWN} times; in held-out "
        f"text it is {theirs / max(1, among):.0%} of {among}. That counts broken "
        "words, not grammar or sense."
    )


def _without_broken_words(texts: list[str], known: set[str]) -> tuple[int, int]:
    """Sentences of known words only, and all: whole ones (the ends of a row are cut off)."""
    parts = [part for text in texts for part in SENTENCE_END.split(text)[1:-1]]
    sentences = [words for part in parts if len(words := WORD.findall(part)) >= 3]
    return sum(all(word.lower() in known for word in one) for one in sentences), len(sentences)


if __name__ == "__main__":
    main()
