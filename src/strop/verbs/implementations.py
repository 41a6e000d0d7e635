"""One DiffusionGemma checkpoint through the laws of four public codes, as settings of one decoder.

transformers is followed to the bit, by runs of it. diffusers was tried on tiny weights by others:
where a canvas has not converged it commits noise. That vLLM draws with float32 Gumbel noise and
without a seed, and that SGLang's generator begins anew with every canvas, was read, not run.
Outputs of one number share random numbers, so that what differs is the law; vLLM's are others, as
under a second seed, which shows what the numbers alone do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from strop.errors import UserError
from strop.spec.generator import OperatingPoint, SamplerSpec
from strop.stats.resample import bootstrap, mean
from strop.table import Column, Table
from strop.verbs import parameters
from strop.verbs.cache import random_llada
from strop.verbs.points import draw, load
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter, Result

if TYPE_CHECKING:
    from strop.pool import Pool

FAMILY = "diffusion-gemma"
CODES: dict[str, tuple[dict[str, Any], str]] = {
    "transformers 5.22.2": ({}, "run, to the bit"),
    "diffusers 0.42.1": ({"emit": "canvas"}, "tried on tiny weights"),
    "vLLM": ({"precision": "float32"}, "read"),
    "SGLang": ({"numbers": "same"}, "read"),
    "plain": ({"temperature": "linear/1/1", "emit": "drawn"}, "ours, for comparison"),
}
"""What each is here, and how it is known."""
AGAIN = "transformers, another seed"
RUNS = ("run", "again")
COLUMNS = (
    Column("code"),
    Column("known", "how it is known"),
    Column("settings"),
    Column("outputs", "n"),
    Column("changed", "tokens changed", digits=3, help="Share, against transformers' outputs."),
    Column("entropy", unit="nats", digits=3, help="Mean unigram entropy of an output."),
    Column("calls", digits=2, help="Network calls per output."),
    Column("canvases", digits=2, help="Canvases until the end of a text."),
)


def _run(ask: Ask) -> Result:
    random = ask.out / "random-diffusion-gemma"
    if not ask.sources and not random.is_dir():
        random_llada(random, family=FAMILY)
    source = ask.sources[0] if ask.sources else str(random)
    model = load(ask, source)
    if model.spec.family != FAMILY:
        raise UserError(
            "The implementations are DiffusionGemma's.",
            where=source,
            got=f"a checkpoint of the family {model.spec.family!r}",
            expected=f"one of the family {FAMILY!r}",
        )
    points = {
        code: OperatingPoint.of(SamplerSpec(name=FAMILY, **fields))
        for code, (fields, _) in CODES.items()
    }
    steps, n = ask["steps"], ask["n"]
    cells = draw(ask, model, [(steps, point) for point in points.values()], ask.out / RUNS[0])
    by_sampler = {cell.spec.generator.sampler: cell.pool(n) for cell in cells}
    pools = {code: by_sampler[point.at(steps)] for code, point in points.items()}
    first = next(iter(points))
    [other] = draw(ask, model, [(steps, points[first])], ask.out / RUNS[1], seed=ask["seed"] + 1)
    pools[AGAIN] = other.pool(n)
    rows = [_row(code, pool, pools[first]) for code, pool in pools.items()]
    note = "Intervals resample outputs. " + " ".join(
        (__doc__ or "").partition("\n\n")[2].split("Outputs of")[0].split()
    )
    return Result(ask.said(), Table("Four implementations", COLUMNS, rows), notes=(note,))


def _row(code: str, pool: Pool, reference: Pool) -> dict[str, Any]:
    from strop.measure.entropy import entropy

    width = min(pool.ids.shape[1], reference.ids.shape[1])
    values = {
        "changed": (pool.ids[:, :width] != reference.ids[:, :width]).mean(1),
        "entropy": entropy(pool.ids),
        "calls": pool.nfe,
        "canvases": pool.counts["canvases"],
    }
    fields, status = CODES.get(code, ({}, "run, to the bit"))
    row = {
        "code": code,
        "known": status,
        "settings": ", ".join(f"{k}={v}" for k, v in fields.items()) or "public",
        "outputs": len(pool),
    }
    return row | {k: bootstrap(mean(np.asarray(v, float))) for k, v in values.items()}


STUDY = Study(
    name="implementations",
    title="How far apart are the public codes of one model?",
    about="Draw from CHECKPOINT (DiffusionGemma) under the laws of four public codes, with the "
    "same random numbers. Without CHECKPOINT: a random one.",
    sources=Sources(smoke=()),
    parameters=(
        Parameter.count("steps", "Decoder calls per canvas at most.", 48, smoke=6),
        parameters.outputs(64, smoke=4),
        *parameters.ANSWERING,
        Parameter.count("length", "Generated tokens per output.", smoke=16),
        *parameters.MEASURED,
    ),
    run=_run,
    runs=RUNS,
    examples=(
        "strop study implementations --smoke -o runs/implementations",
        "strop study implementations CHECKPOINT --prompts FILE -o runs/implementations",
    ),
)
