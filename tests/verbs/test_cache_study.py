"""The cache study: it sees nothing where nothing is stale, and something where it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import strop
from strop import verbs
from strop.checkpoints.config import SHAPES, DiTShape
from strop.checkpoints.layout import write_random
from strop.cli.main import run
from strop.denoisers import dream
from strop.errors import UserError
from strop.instruments.blocks import Compared
from strop.samplers.caches import CacheBench
from strop.stats.interval import value_of
from strop.table import revived
from strop.verbs.cache import random_llada

PROMPTS = ([5, 9, 200, 31], [77, 1], [8, 8, 1000, 4])
CACHES = ("prefix", "dual")


@pytest.fixture(scope="module")
def llada(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("cache") / "llada"
    return strop.load_model(random_llada(path), device="cpu")


@pytest.fixture(scope="module")
def small_dream(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("cache") / "dream"
    size = {"hidden_dim": 32, "n_blocks": 2, "n_heads": 4, "length": 64, "vocab_size": 60}
    shape = DiTShape(**{**vars(SHAPES["tiny"]), **size, "mask_id": 59})
    write_random(path, dream.layout(shape), 0)
    return strop.load_model(path, device="cpu")


def bench(model: Any, length: int = 16, **given: Any) -> CacheBench:
    fields = {"name": "fast-dllm", "steps": length, "cache": "dual", "block_length": 8, **given}
    spec = strop.SamplerSpec(**fields)
    prompts = [[t % (model.vocab_size - 1) for t in one] for one in PROMPTS]
    return CacheBench(model, spec, length, range(3), seed=1, prompts=prompts, batch_size=2)


def test_no_cache_against_no_cache_is_exactly_nothing(llada: Any) -> None:
    found = bench(llada).laws(["none"])["none"]
    assert found.open.sum() > 0
    assert not found.kl.any()
    assert not found.moved.any()


def test_a_cache_is_exact_when_it_is_filled_and_off_afterwards(llada: Any) -> None:
    laws = bench(llada).laws(CACHES)
    for cache in CACHES:
        kl = laws[cache].kl.sum(0) / np.maximum(laws[cache].open.sum(0), 1)
        assert kl[0] < 1e-9
        assert (kl[1:8] > 1e-6).all()
        assert kl[7] > 5 * kl[1]  # the more tokens have come, the staler
        # a block has 8 positions, all open at first, one fewer at each call
        assert laws[cache].open[0, :9].tolist() == [16, 14, 12, 10, 8, 6, 4, 2, 0]
    assert laws["dual"].kl.sum() > laws["prefix"].kl.sum()


def test_in_one_block_without_a_prompt_a_prefix_cache_has_nothing_to_keep(llada: Any) -> None:
    one = bench(llada, block_length=16)
    alone = CacheBench(llada, one.spec, 16, range(2), seed=1)
    laws = alone.laws(CACHES)
    for cache in CACHES:  # the window is the whole canvas: no key is stale
        assert laws[cache].kl.sum() < 1e-9
    assert (alone.run("prefix").ids == alone.run("none").ids).all()
    # After a prompt only the prompt is stale.
    assert one.laws(["prefix"])["prefix"].kl[:, 1:].sum() > 1e-5


def test_outputs_are_the_samplers_own_and_the_measurement_changes_none(llada: Any) -> None:
    mine = bench(llada, temperature=0.7)
    plain = mine.run("none")
    mine.laws(CACHES)
    assert (mine.run("none").ids == plain.ids).all()
    assert (mine.run("dual").ids != plain.ids).any()
    for cache in ("none", "prefix", "dual"):
        alone = CacheBench(llada, mine.spec, 16, range(3), seed=1)
        spec = mine.spec.model_copy(update={"cache": cache})
        pool = strop.draw.sample(llada, spec, n=3, seed=1, length=16)
        assert (pool.ids == alone.run(cache).ids).all()


def test_positions_are_counted(llada: Any) -> None:
    mine = bench(llada)
    prompt = np.array([len(one) for one in PROMPTS])
    assert (mine.run("none").positions == 16 * (prompt + 16)).all()
    # Per block one whole pass and seven windows: to the end, or of the block.
    assert (mine.run("prefix").positions == 2 * (prompt + 16) + 7 * (16 + 8)).all()
    assert (mine.run("dual").positions == 2 * (prompt + 16) + 7 * (8 + 8)).all()
    assert (mine.run("dual").calls == 16).all()


@pytest.mark.parametrize(
    "given",
    [
        {"name": "fast-dllm-dream"},
        {"name": "fast-dllm-dream", "alg": "entropy"},
        {"name": "blockwise", "score": "random"},
    ],
)
def test_dream_is_compared_with_its_cached_decoder_without_the_cache(
    small_dream: Any, given: dict[str, Any]
) -> None:
    laws = bench(small_dream, **given).laws(["none", *CACHES])
    assert not laws["none"].kl.any()
    for cache in CACHES:
        kl = laws[cache].kl.sum(0) / np.maximum(laws[cache].open.sum(0), 1)
        assert kl[0] < 1e-9
        # Through a window the first column would read another position's state: off by far more
        # than stale keys. The opening call has committed it.
        assert 0 < kl[1] < 0.05


def test_the_machine_is_warm_before_the_clock_runs(llada: Any) -> None:
    """Whole passes and windows of every cache have run: the first setting pays for no start."""
    events: list[tuple[str, int]] = []

    class Timed(CacheBench):
        def run(self, cache: str, *, seed: int | None = None) -> Any:
            events.append((f"run {cache}", 0))
            return super().run(cache, seed=seed)

    calls = {"remember": llada.remember, "window": llada.window, "hidden": llada.hidden}
    with pytest.MonkeyPatch.context() as patch:
        for name, real in calls.items():

            def call(ids: Any, *rest: Any, real: Any = real, name: str = name) -> Any:
                events.append((name, ids.shape[1]))
                return real(ids, *rest)

            patch.setattr(llada, name, call)
        Compared.of(Timed(**vars(bench(llada))), CACHES)
    first = next(i for i, (name, _) in enumerate(events) if name.startswith("run"))
    assert [name for name, _ in events[first:] if name.startswith("run")] == [
        "run none",
        "run none",
        "run prefix",
        "run dual",
    ]
    assert set(events[first:]) - {one for one in events if one[0].startswith("run")} <= set(
        events[:first]
    )


@pytest.mark.slow
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "Once upon a time"}\n{"ids": [5, 6]}\n')
    words = ["study", "cache", "-o", str(tmp_path / "out"), "--smoke", "-n", "2", "--length", "16"]
    words += ["--temperature", "0,1", "--axis", "block_length=8", "--prompts", str(prompts)]
    assert run([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["cache"] for row in found["rows"]] == [
        *("none", "prefix", "dual", "none, another seed") * 2
    ]
    rows = {
        (row["temperature"], row["cache"]): {k: value_of(revived(v)) for k, v in row.items()}
        for row in found["rows"]
    }
    assert rows[1.0, "none"]["kl"] == rows[1.0, "none"]["changed"] == 0
    assert 0 < rows[1.0, "prefix"]["kl"] < rows[1.0, "dual"]["kl"]
    assert rows[1.0, "none"]["saved"] == 0 < rows[1.0, "prefix"]["saved"] < 1
    assert rows[1.0, "prefix"]["saved"] < rows[1.0, "dual"]["saved"]
    assert rows[0.0, "none, another seed"]["changed"] == 0
    assert rows[1.0, "none, another seed"]["changed"] > 0.5
    calls = found["tables"]["calls"]["rows"]
    assert {row["call"] for row in calls} == set(range(1, 9))
    assert (tmp_path / "out" / "cache.png").stat().st_size > 1000
    # Again, from disk: the same numbers, seconds included.
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == found["rows"]


@pytest.mark.parametrize(
    ("sources", "given", "told"),
    [
        (["embedded:tales-tiny"], {}, "cannot read through a cache"),
        ([], {"sampler": "llada"}, "sampler with caches"),
        ([], {"axis": {"cache": ("dual",)}}, "what this study varies"),
    ],
)
def test_what_has_no_caches_is_refused(
    tmp_path: Path, sources: list[str], given: dict[str, Any], told: str
) -> None:
    with pytest.raises(UserError, match=told):
        verbs.run("cache", out=tmp_path / "x", sources=sources, smoke=True, **given)
