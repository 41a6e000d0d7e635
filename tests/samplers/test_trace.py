"""Samplers show their work: every loop tells what changes, and when each token last did."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import strop
from strop import SamplerSpec
from strop.assets import EVALUATOR
from strop.checkpoints.config import SHAPES
from strop.checkpoints.layout import write_random
from strop.denoisers.base import all_logits
from strop.pool import TRACED, Pool
from strop.records import FAMILIES, SAMPLERS
from strop.registry import resolve
from strop.samplers.machinery.start import Start, Trace, alpha_of, neighbouring, reveal_grid

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
    if (name, form) not in [(block, "dense") for block in BLOCKS] and one.family != "served"
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


REPLAYED = [
    (name, form, precision)
    for name, form, precision in FORMS
    if name not in ("didi-guided", "didi-guided-literal", "diffusion-gemma")
]
"""Whose laws are read off the network alone, at the state that was told."""
HEAT = 0.7


def told_law(model: Any, spec: SamplerSpec, state: Any, number: int) -> Any:
    """The clean law of every position before a round, worked out from the public definitions."""
    name, family = spec.name, SAMPLERS[spec.name].family
    if family == "ar":
        ids = torch.tensor([[model.start_id, *state[1:]]])
        scores, memory, rows = None, None, [torch.zeros(model.vocab_size)]
        for position in range(LENGTH - 1):
            scores, memory = model.read(ids[:, position : position + 1], memory)
            rows.append(scores[0])
        return (torch.stack(rows) / HEAT).softmax(-1)
    grid = reveal_grid(spec) if SAMPLERS[name].grid else None
    sigma = None
    if model.time_conditioned:
        assert grid is not None
        times = neighbouring(grid) if "duo" in name or family == "duo" else grid
        if family in ("duo", "didi"):
            time = times.t[number - 1] if number <= STEPS else times.last
            sigma = -alpha_of(time).log()[None]
        else:
            sigma = times.sigmas()[number - 1][None]
    logits = all_logits(model, torch.tensor(state)[None], sigma)[0]
    if name == "didi-ancestral-literal":
        logits = torch.zeros_like(logits)  # the network that was trained is not in the file
    if model.mask_id < logits.shape[-1]:
        logits[:, model.mask_id] = -torch.inf
    return (logits / HEAT).softmax(-1)


@pytest.mark.parametrize(("name", "form", "precision"), REPLAYED)
def test_chances_are_those_of_the_law_at_that_moment(
    models: dict[str, Any], name: str, form: str, precision: str
) -> None:
    """Each round's state is put together from what was told, and read anew.

    The same for both forms, so that what they keep agrees; earlier values are held to it as well.
    """
    model = models[SAMPLERS[name].family]
    spec = spec_of(name, form, precision).model_copy(update={"temperature": HEAT})
    pool, told = watched(model, spec)
    checked = 0
    for i in range(N):
        one = pool[i]
        assert one.chance is not None
        assert one.earlier is not None
        kept = {(int(e["round"]), int(e["place"])): e for e in one.earlier}
        state = one.ids.copy()
        state[:] = model.mask_id if model.mask_id is not None else 0
        for entry in one.earlier[one.earlier["round"] == 0]:
            state[entry["place"]] = entry["token"]
        if SAMPLERS[name].family == "duo":
            state[one.changed == 0] = one.ids[one.changed == 0]
        for output, number, positions, tokens in told:
            if output != i:
                continue
            law = told_law(model, spec, state, number)
            for place, token in zip(positions.tolist(), tokens.tolist(), strict=True):
                last = one.changed[place] == number
                mine = one.chance[place] if last else kept.pop((number, place))["chance"]
                if token == model.mask_id:
                    assert np.isnan(mine)
                else:
                    assert mine == pytest.approx(float(law[place, token]), rel=0.01, abs=1e-6)
                    checked += 1
            state[positions] = tokens
        assert all(number == 0 for number, _ in kept), "earlier values are those that were told"
        assert all(np.isnan(entry["chance"]) for entry in kept.values())
    assert checked >= N * (LENGTH - 1)


def _into(told: list[Any], *step: Any) -> None:
    told.append(step)


def test_values_that_were_revised_are_kept_of_the_first_outputs(models: dict[str, Any]) -> None:
    """Every state that was told comes back from the last values and the earlier ones."""
    for name, form in itertools.product(("remdm-rescale", "duo-ancestral"), ("dense", "fast")):
        model = models[SAMPLERS[name].family]
        more = {"eta": 0.5} if name == "remdm-rescale" else {}
        spec = SamplerSpec(name=name, steps=40, implementation=form, **more)  # type: ignore[arg-type]
        told: list[Any] = []
        step = partial(_into, told)
        pool = strop.draw.sample(model, spec, n=TRACED + 1, seed=3, length=LENGTH, on_step=step)
        assert pool[TRACED].earlier is None
        assert pool[TRACED].chance is not None
        revised = 0
        for one in pool[:TRACED]:
            assert one.earlier is not None
            revised += len(one.earlier)
            order = [(entry["round"], entry["place"]) for entry in one.earlier]
            assert order == sorted(order)
            state: dict[int, int] = {}
            steps = {step[1]: step for step in told if step[0] == one.index}
            for number in range(1, 42):
                _, _, positions, tokens = steps.get(number, (0, 0, np.zeros(0), np.zeros(0)))
                state |= dict(zip(positions.tolist(), tokens.tolist(), strict=True))
                for place, token in state.items():
                    past = one.earlier[
                        (one.earlier["place"] == place) & (one.earlier["round"] <= number)
                    ]
                    now = one.ids[place] if one.changed[place] <= number else past["token"][-1]
                    assert now == token, (name, form, number, place)
        assert revised > LENGTH, name


def test_no_chance_is_left_where_another_token_stands_in_the_end() -> None:
    trace = Trace(Start(2, 3), torch.device("cpu"), None)
    slots, columns = np.array([0, 0, 1]), np.array([0, 1, 1])
    trace.note(slots, slots, np.zeros(3, int), columns, np.array([5, 6, 7]))
    trace.chance[:] = 0.5
    rows = np.array([[5, 9, 9], [9, 7, 9]])  # 6 became padding; 9 is the mask
    kept = trace.kept(np.array([0, 1]), rows, trace.chance.double().numpy(), 9)
    assert np.isnan(kept).tolist() == [[False, True, True], [True, False, True]]
    trace.forget(np.array([0]))
    trace.note(slots, slots, np.ones(3, int), columns, np.array([1, 2, 3]))
    assert len(trace.earlier(0, 9)) == 0
    [entry] = trace.earlier(1, 9)
    assert entry.tolist() == (1, 1, 7, 0.5)
    assert len(trace.earlier(1, 9)) == 0


def test_files_keep_chances_and_earlier_values_and_old_files_have_none(
    models: dict[str, Any], tmp_path: Path
) -> None:
    model, spec = models["mdlm"], SamplerSpec(name="remdm-rescale", steps=20, eta=0.5)  # type: ignore[call-arg]
    drawn = strop.draw.sample(model, spec, n=10, seed=1, length=LENGTH)
    kept = strop.draw.sample(model, spec, n=10, seed=1, length=LENGTH, out=tmp_path / "run")
    for mine, its in zip(drawn, kept, strict=True):
        assert np.array_equal(mine.chance, its.chance, equal_nan=True)  # type: ignore[arg-type]
        assert (mine.earlier is None) == (its.earlier is None) == (mine.index >= TRACED)
        if mine.earlier is not None:
            assert str(mine.earlier) == str(its.earlier)
    [path] = (tmp_path / "run").glob("cells/*/outputs.parquet")
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["chance", "earlier"]).slice(0, 6), path)
    [cell] = strop.Run.open(tmp_path / "run").cells()
    assert cell.pool(6)[0].chance is None
    assert (cell.pool(6).ids == drawn.ids[:6]).all()
    again = strop.draw.sample(model, spec, n=10, seed=1, length=LENGTH, out=tmp_path / "run")
    assert [one.chance is None for one in again] == [True] * 6 + [False] * 4
    assert (again.ids == drawn.ids).all()
    assert path.name in [one.name for one in cell.files()]
    pq.write_table(pq.read_table(path).drop_columns(["changed"]), path)
    with pytest.raises(strop.UserError, match="not a table of this cell"):
        cell.pool(10)


@pytest.mark.parametrize(
    ("name", "precision"), [(name, precision) for name, form, precision in FORMS if form == "fast"]
)
def test_another_temperature_has_the_same_random_numbers(
    models: dict[str, Any], name: str, precision: str
) -> None:
    """A hair's breadth of temperature changes nothing, another seed does: the page's player sets
    one temperature against another and says that every difference is the temperature's."""
    model = models[SAMPLERS[name].family]
    spec = spec_of(name, "fast", precision)

    def ids(heat: float, seed: int) -> Any:
        one = spec.model_copy(update={"temperature": heat})
        return strop.draw.sample(model, one, n=N, seed=seed, length=LENGTH).ids

    assert (ids(0.8, 3) == ids(0.8 * (1 + 1e-9), 3)).all()
    assert (ids(0.8, 3) != ids(0.8, 4)).any()
    if name != "diffusion-gemma":  # whose temperature acts on the path alone
        assert (ids(0.8, 3) != ids(0.3, 3)).any()
