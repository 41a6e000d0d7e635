"""How many test problems of `sums` a checkpoint gets right by greedy decoding.

    python scripts/sums_score.py CHECKPOINT... [--count 500] [--steps 24] [--temperature 0]

A diffusion model fills 24 positions after the prompt by LLaDA's decoder, by default one token per
call; a causal model writes as many from left to right.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from strop.denoisers.load import load_model
from strop.samplers.decoders import fill, recipe
from strop.spec import SamplerSpec
from strop.tasks.sums import RESPONSE, SumsProblem, answer_of, problems


def main() -> None:
    parser = argparse.ArgumentParser(description="Score checkpoints on the test problems of sums.")
    parser.add_argument("checkpoint", nargs="+")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--steps", type=int, default=RESPONSE)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    test = problems("test", options.count)
    for checkpoint in options.checkpoint:
        model = load_model(checkpoint, device="cpu")
        told = score(model, test, options.steps, options.temperature, options.seed)
        print(json.dumps({"checkpoint": checkpoint, **told}))


def score(
    model: Any, test: list[SumsProblem], steps: int, temperature: float, seed: int
) -> dict[str, float]:
    """Accuracy with its standard error, and how many answers could not be read."""
    by_length: dict[int, list[int]] = defaultdict(list)
    prompts = model.codec.encode_all([problem.prompt for problem in test])
    for number, prompt in enumerate(prompts):
        by_length[len(prompt)].append(number)
    answers: dict[int, int | None] = {}
    for numbers in by_length.values():
        ids = torch.tensor([prompts[number] for number in numbers])
        if model.mask_id is None:
            found = _written(model, ids)
        else:
            found = _filled(model, ids, numbers, steps, temperature, seed)
        for number, row in zip(numbers, found.tolist(), strict=True):
            text = model.codec.decode(row).split("<|endoftext|>")[0]
            answers[number] = answer_of(text)
    right = sum(answers[number] == problem.answer for number, problem in enumerate(test))
    share = right / len(test)
    return {
        "problems": len(test),
        "right": share,
        "standard_error": round(math.sqrt(share * (1 - share) / len(test)), 4),
        "unreadable": sum(answer is None for answer in answers.values()),
    }


def _filled(
    model: Any, ids: Tensor, outputs: list[int], steps: int, temperature: float, seed: int
) -> Tensor:
    spec = SamplerSpec(name="llada", steps=steps, temperature=temperature)
    masks = torch.full((len(ids), RESPONSE), model.mask_id)
    found, start = recipe(spec.name, spec.settings), torch.cat([ids, masks], 1)
    canvas = fill(model, found, start, spec, seed=seed, outputs=outputs)
    return canvas.ids[:, ids.shape[1] :]


def _written(model: Any, ids: Tensor) -> Tensor:
    """The likeliest next token, again and again."""
    new, memory, found = ids, None, []
    for _ in range(RESPONSE):
        scores, memory = model.read(new, memory)
        new = scores.argmax(-1, keepdim=True)
        found.append(new)
    return torch.cat(found, 1)


if __name__ == "__main__":
    main()
