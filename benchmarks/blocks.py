"""Memory and host cost of a call: the loop of block models beside that of the blockwise decoders.

    python benchmarks/blocks.py [OUTPUTS]

Tiny random checkpoints, so that the loop is what costs: calls per output, milliseconds of CPU time
per call of the batch, and the most memory that the process took until then.
"""

from __future__ import annotations

import dataclasses
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import strop
from strop.checkpoints.config import SHAPES
from strop.checkpoints.layout import write_random
from strop.records import FAMILIES
from strop.registry import resolve

CELLS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("llada", "llada", {"block_length": 8}),
    ("llada", "fast-dllm", {"block_length": 8, "cache": "dual"}),
    ("sdar", "sdar", {"block_length": 8, "remasking": "sequential"}),
    ("sdar", "sdar", {"block_length": 8, "threshold": 0.3}),
    ("sdar", "blockwise", {"block_length": 8, "score": "left"}),
    ("bd3lm", "bd3lm", {"block_length": 4, "redraw": "never"}),
    ("bd3lm", "bd3lm", {"block_length": 4, "redraw": "never", "update": "grid"}),
    ("diffusion-gemma", "diffusion-gemma", {"confidence": 0.0}),
)
LENGTH = 64


def main() -> None:
    """One line per cell."""
    outputs = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    small = {"vocab_size": 512, "length": 128, "hidden_dim": 32, "n_blocks": 2, "n_heads": 2}
    shape = dataclasses.replace(next(iter(SHAPES.values())), **small, mask_id=511)
    print(f"{'model':16}{'sampler':16}{'calls':>8}{'ms/call':>9}{'peak MB':>9}  settings")
    with tempfile.TemporaryDirectory() as folder:
        for family in dict.fromkeys(family for family, *_ in CELLS):
            layout = FAMILIES[family].layout
            assert layout is not None
            write_random(Path(folder) / family, resolve(layout)(shape), 0)
        for family, name, settings in CELLS:
            model = strop.load_denoiser(Path(folder) / family, device="cpu")
            steps = LENGTH if family == "llada" or name == "blockwise" else 4
            spec = strop.SamplerSpec(name=name, steps=steps, settings=settings)
            began = time.process_time()
            pool = strop.draw.sample(model, spec, n=outputs, length=LENGTH, batch_size=outputs)
            spent = time.process_time() - began
            calls, peak = pool.nfe.max(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            said = ", ".join(f"{key}={value}" for key, value in settings.items())
            cost = 1000 * spent / calls
            print(f"{family:16}{name:16}{pool.nfe.mean():8.1f}{cost:9.2f}{peak:9.0f}  {said}")


if __name__ == "__main__":
    main()
