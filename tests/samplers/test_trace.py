"""Samplers show their work: every loop tells what changes, and when each token last did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import strop
from strop import SamplerSpec
from strop.assets import EVALUATOR
from strop.checkpoints.config import SHAPES
from strop.checkpoints.layout import write_random
from strop.pool import Pool
from strop.records import FAMILIES, SAMPLERS
from strop.registry import resolve

STEPS, LENGTH, N = 6, 12, 4  # a batch of three, and one output of the next
SMALL = replace(
    SHAPES["tiny"], vocab_size=60, mask_id=59, length=16, hidden_dim=16, n_blocks=1, n_heads=2
)
BLOCKS = ("sdar", "llada2", "llada2-edit", "llada2-pipeline", "fast-dllm-v2", "bd3lm")
"""Block after block; what their public codes write is held by their vectors, ends included."""
LONELY = ("fast-dllm-dream",)  # its public code takes one sequence at a time
FORMS = [
    (name, form, precision)
    for name, one in SAMPLERS.items()
    for form in ("dense", "fast")
    for precision in ("float64", "float32")
    if getattr(one, form) is not None and (form == "dense" or precision in one.fast_precisions)
    if (name, form) not in [(block, "dense") for block in BLOCKS]
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Small and random: nothing here depends on what they have learned."""
    place = tmp_path_factory.mktemp("small")
    for family in ("mdlm", "sedd", "duo", "didi"):
        write_random(place / family, resolve(FAMILIES[family].layout)(SMALL), seed=0)
    roomy = replace(SMALL, length=64)  # for whole canvases
    write_random(
        place / "diffusion-gemma", resolve(FAMILIES["diffusion-gemma"].layout)(roomy), seed=0
    )
    sources = {path.name: str(path) for path in place.iterdir()} | {"ar": EVALUATOR}
    return {family: strop.load_model(source, device="cpu") for family, source in sources.items()}


def spec_of(name: str, form: str, precision: str) -> SamplerSpec:
    more: dict[str, Any] = {} if SAMPLERS[name].causal else {"steps": STEPS}
    if "block_length" in SAMPLERS[name].settings:
        more["block_length"] = LENGTH // 2
    return SamplerSpec(name=name, implementation=form, precision=precision, **more)  # type: ignore[arg-type]


def up_to_the_end(model: Any, name: str, ids: Any) -> Any:
    """Where tokens are a call's: DiffusionGemma fills up what stands behind an end."""
    if name != "diffusion-gemma":
        return np.ones(len(ids), bool)
    ends = np.isin(ids, model.stop_ids)
    return (ends.cumsum() == 0) | ((ends.cumsum() == 1) & ends)


def watched(model: Any, spec: SamplerSpec) -> tuple[Pool, list[tuple[int, int, Any, Any]]]:
    told: list[tuple[int, int, Any, Any]] = []
    pool = strop.draw.sample(
        model,
        spec,
        n=N,
        seed=3,
        length=LENGTH,
        batch_size=1 if spec.name in LONELY else 3,
        on_step=lambda *step: told.append(step),
    )
    return pool, told


@pytest.mark.parametrize(("name", "form", "precision"), FORMS)
def test_the_steps_add_up_to_the_output(
    models: dict[str, Any], name: str, form: str, precision: str
) -> None:
    model = models[SAMPLERS[name].family]
    pool, told = watched(model, spec_of(name, form, precision))
    # A grid has its updates and a finish; otherwise rounds are network calls.
    last = STEPS + 1 if SAMPLERS[name].grid else 2 * LENGTH
    for i in range(N):
        steps = [step for step in told if step[0] == i]
        rounds = [step[1] for step in steps]
        assert rounds == sorted(set(rounds)), "one call a round, in their order"
        assert all(1 <= number <= last for number in rounds)
        known, changed = np.full(LENGTH, -1), np.zeros(LENGTH, int)
        for _, number, positions, tokens in steps:
            assert len(set(positions.tolist())) == len(positions) == len(tokens) > 0
            assert (known[positions] != tokens).all(), "only what changes is told"
            known[positions], changed[positions] = tokens, number
        assert pool.changed[i] is not None
        assert pool.changed[i].tolist() == changed.tolist()
        seen = changed > 0
        told_of = seen & up_to_the_end(model, name, pool.ids[i])
        assert (pool.ids[i][told_of] == known[told_of]).all()
        if model.mask_id is not None and SAMPLERS[name].family != "duo":
            assert seen.all(), "everything was masked at the start"


@pytest.mark.parametrize("name", ["ancestral", "remdm-cap", "sedd-analytic", "didi-guided"])
def test_watching_changes_nothing(models: dict[str, Any], name: str) -> None:
    model, spec = models[SAMPLERS[name].family], spec_of(name, "fast", "float64")
    pool, _ = watched(model, spec)
    alone = strop.draw.sample(model, spec, n=N, seed=3, length=LENGTH, batch_size=3)
    assert (pool.ids == alone.ids).all()
    assert all((a == b).all() for a, b in zip(pool.changed, alone.changed, strict=True))  # type: ignore[union-attr]


def test_a_revising_sampler_tells_what_it_takes_back(models: dict[str, Any]) -> None:
    model = models["mdlm"]
    for form in ("dense", "fast"):
        spec = SamplerSpec(name="remdm-rescale", steps=40, eta=0.5, implementation=form)  # type: ignore[call-arg]
        _, told = watched(model, spec)
        assert any((tokens == model.mask_id).any() for _, _, _, tokens in told), form


def test_the_run_keeps_it(models: dict[str, Any], tmp_path: Path) -> None:
    model, spec = models["mdlm"], SamplerSpec(steps=4)
    drawn = strop.draw.sample(model, spec, n=3, seed=1, length=LENGTH)
    kept = strop.draw.sample(model, spec, n=3, seed=1, length=LENGTH, out=tmp_path / "run")
    assert [one.tolist() for one in kept.changed] == [one.tolist() for one in drawn.changed]
    assert all(len(one) == LENGTH and one.max() > 0 for one in kept.changed)
