"""The outputs of a side, from pools made by hand: as many as were asked for, in their order."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from made_runs import SCORED_TOKENS, cell_spec, made_cell, output, with_tokens
from strop.comparing.diversity import copies
from strop.comparing.outputs import Named, SideOutputs, pool_cell, seed_of
from strop.errors import UserError
from strop.measure.cells import Scorers
from strop.measure.entropy import entropy
from strop.measure.guard import guard
from strop.verbs.compare import STUDY
from strop.verbs.study import Ask

LENGTH, HELD = 8, 12
IDS = np.random.default_rng(0).integers(0, 9, (HELD, LENGTH))
IDS[9, :7] = IDS[2, :7]  # a copy that eight outputs do not have
NATS = np.linspace(1, 3, HELD * LENGTH).astype(np.float32).reshape(HELD, LENGTH)
SHORT = 5
"""An output whose last three tokens are not scored."""


def asked(out: Path, n: int, **more: Any) -> Ask:
    values = {"n": n, "vendi": "off", "device": "cpu", "span": "first-document", **more}
    return Ask(STUDY, out, ("", ""), values)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("points") / "run"
    rows = [output(i, IDS[i]) for i in range(HELD)]
    with_tokens(made_cell(path, cell_spec(LENGTH, 0.7), rows), *scored())
    return path


def scored() -> tuple[np.ndarray, np.ndarray]:
    """What an evaluator scores: everything, but of one output five tokens."""
    ids, nats = IDS.copy(), NATS.copy()
    ids[SHORT, 5:], nats[SHORT, 5:] = -1, 0
    return ids, nats


def point(pool: Path, n: int, **more: Any) -> Any:
    by = Scorers(own={"scored-tokens": lambda _: SCORED_TOKENS})
    side = Named("pool", str(pool), {}, ())
    return SideOutputs(asked(pool.parent, n, **more), side, None, by).fixed()


@pytest.mark.parametrize(("n", "held"), [(8, 8), (11, 11), (12, 12), (99, 12)])
def test_a_pool_is_cut_to_as_many_as_were_asked_for(pool: Path, n: int, held: int) -> None:
    found = point(pool, n)
    assert found.texts == [f"text {i}" for i in range(held)]
    assert found.kept == pytest.approx(0.5)
    ids, nats = (one[:held] for one in scored())
    whole = found.sample(5)
    assert whole.n == held
    assert whole.nll == pytest.approx(nats[:, :5].sum(1))
    assert whole.tokens.tolist() == [5] * held
    assert whole.entropy.tolist() == entropy(ids[:, :5]).tolist()
    sample, there = found.sample(LENGTH), np.arange(held) != SHORT
    assert sample.counted.tolist() == there.tolist()
    assert sample.nll[there] == pytest.approx(nats[there].sum(1))
    same = np.ix_(there, there)
    assert sample.alike["copies"][same].tolist() == copies(ids[there]).tolist()
    assert found.calls == pytest.approx((10 + np.arange(held)).mean())
    assert found.seconds == pytest.approx((0.5 + np.arange(held)).mean())
    assert found.temperature == 0.7
    row = found.row("A", 4, LENGTH)
    assert (row["outputs"], row["left_out"]) == (held, pytest.approx(1 / held))
    assert row["perplexity"] == pytest.approx(np.exp(nats[there].mean()))
    assert row["entropy"] == pytest.approx(entropy(ids[there]).mean())


def test_too_few_outputs_are_refused(tmp_path: Path) -> None:
    for held, enough in ((7, False), (8, True)):
        path = tmp_path / str(held)
        rows = [output(i, IDS[i]) for i in range(held)]
        with_tokens(made_cell(path, cell_spec(LENGTH), rows), IDS[:held], NATS[:held])
        if enough:
            assert point(path, 99).scored.n == held
        else:
            with pytest.raises(UserError, match="too few outputs"):
                point(path, 99)


def test_embeddings_are_of_the_tokens_that_count(pool: Path) -> None:
    """Of the first tokens of the outputs that have them, and of nothing behind."""
    from strop.measure.entropy import vendi_score

    asked_for: list[Any] = []
    vectors = np.random.default_rng(1).normal(size=(HELD, 5)).astype(np.float32)

    def embed(rows: Any) -> np.ndarray:
        asked_for.append(rows)
        return vectors[: len(rows)].copy()

    found = replace(point(pool, 8), embed=embed)
    there = np.arange(8) != SHORT
    pairs = found.sample(6).alike["embeddings"]
    assert asked_for == [IDS[:8][there, :6].tolist()]
    exact = vectors[:7].astype(float)  # where products of float32 would be rounded
    unit = exact / np.linalg.norm(exact, axis=1, keepdims=True)
    cosine = unit @ unit.T
    expected = np.where(cosine > 0, np.minimum(cosine, 1) ** 2, 0)
    assert pairs[np.ix_(there, there)] == pytest.approx(expected, rel=1e-12)
    assert not pairs[SHORT].any()
    assert found.row("A", 4, 6)["vendi"] == pytest.approx(vendi_score(unit))
    assert len(asked_for) == 1


def test_diversity_is_of_the_outputs_that_reach_so_far(pool: Path) -> None:
    found, held = point(pool, HELD), guard(LENGTH, np.random.default_rng(1).integers(0, 9, (40, 8)))
    assert held.pairs is not None
    there = np.arange(HELD) != SHORT
    assert found.diversity(6, held) == held.pairs.diversity(IDS[there, :6])
    assert found.diversity(5, held) == held.pairs.diversity(IDS[:, :5])
    assert found.diversity(6, held) is found.diversity(6, held)
    assert found.diversity(9, held) is None  # none has so many
    assert found.diversity(6, guard(LENGTH)) is None


def test_texts_are_cut_to_as_many_as_were_asked_for(tmp_path: Path) -> None:
    texts = [f"Once upon a time there were {i} kings." for i in range(10)]
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    ask = asked(tmp_path, 9, evaluator="embedded:tales-ar")
    found = SideOutputs(ask, Named("texts", str(path), {}, ()), None, Scorers()).fixed()
    assert found.texts == texts[:9]
    assert found.scored.n == 9
    # The first token of a text has no context and is not scored.
    tokens = ask.evaluator.encode(texts[:9])
    assert found.scored.lengths.tolist() == [len(one) - 1 for one in tokens]
    assert found.scored.ids[0, : len(tokens[0]) - 1].tolist() == tokens[0][1:]
    assert (found.calls, found.seconds, found.temperature) == (None, None, None)


def test_nothing_behind_the_first_document_is_read(tmp_path: Path) -> None:
    """Neither for perplexity nor for entropy: with noise behind it a text has the same scores."""
    ends = [f"Once upon a time there were {i} kings.<|endoftext|>" for i in range(8)]
    ask, found = asked(tmp_path, 8, evaluator="embedded:tales-ar"), []
    for name, noise in (("plain", ""), ("noisy", "zebra quartz 77 of moth vow, kiln elk")):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(json.dumps({"text": text + noise}) for text in ends))
        found.append(SideOutputs(ask, Named("texts", str(path), {}, ()), None, Scorers()).fixed())
    plain, noisy = found
    tokens = int(plain.scored.lengths.min())
    assert noisy.scored.lengths.tolist() == plain.scored.lengths.tolist()
    for one, two in zip(*(vars(point.sample(tokens)).values() for point in found), strict=True):
        if isinstance(one, np.ndarray):
            assert two == pytest.approx(one, rel=1e-5)
    assert (plain.kept, noisy.kept < 0.7) == (1.0, True)


def test_a_cell_is_named_by_its_run_and_id(pool: Path, tmp_path: Path) -> None:
    only = pool_cell(str(pool))
    assert pool_cell(f"{pool}@{only.id}").id == only.id
    for temperature in (0.5, 1.0):
        cell = made_cell(tmp_path / "two", cell_spec(LENGTH, temperature), [output(0, IDS[0])])
    assert pool_cell(f"{tmp_path / 'two'}@{cell.id}").id == cell.id
    with pytest.raises(UserError, match="several cells"):
        pool_cell(str(tmp_path / "two"))


def test_temperatures_have_numbers_of_their_own() -> None:
    seeds = {seed_of(seed, t) for seed in (0, 1) for t in (0.7, 0.75, 0.8, 1.0)}
    assert len(seeds) == 8
    assert seed_of(0, 0.7) == seed_of(0, 0.1 + 0.6)  # equal up to rounding
