"""The outputs of a side, from pools made by hand: as many as were asked for, in their order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from made_runs import PERPLEXITY, cell_spec, made_cell, output, with_perplexity
from strop.comparing import copies
from strop.comparing.outputs import Named, Outputs, pool_cell, seed_of
from strop.errors import UserError
from strop.measure.cells import Scorers
from strop.measure.embeddings import available
from strop.measure.entropy import entropy
from strop.verbs.compare import STUDY
from strop.verbs.study import Ask

LENGTH, HELD = 8, 12
IDS = np.random.default_rng(0).integers(0, 9, (HELD, LENGTH))
IDS[9, :7] = IDS[2, :7]  # a copy that eight outputs do not have
NLL = np.linspace(10, 21, HELD)
TOKENS = np.arange(HELD) % 4 + 5


def asked(out: Path, n: int, **more: Any) -> Ask:
    values = {"n": n, "vendi": "off", "device": "cpu", "span": "first-document", **more}
    return Ask(STUDY, out, ("", ""), values)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("points") / "run"
    rows = [output(i, IDS[i]) for i in range(HELD)]
    with_perplexity(made_cell(path, cell_spec(LENGTH, 0.7), rows), NLL, TOKENS)  # type: ignore[arg-type]
    return path


def point(pool: Path, n: int, **more: Any) -> Any:
    by = Scorers(own={"perplexity": lambda _: PERPLEXITY})
    side = Named("pool", str(pool), {}, ())
    return Outputs(asked(pool.parent, n, **more), side, None, by, False).fixed()


@pytest.mark.parametrize(("n", "held"), [(8, 8), (11, 11), (12, 12), (99, 12)])
def test_a_pool_is_cut_to_as_many_as_were_asked_for(pool: Path, n: int, held: int) -> None:
    found = point(pool, n)
    assert found.sample.n == held
    assert found.texts == [f"text {i}" for i in range(held)]
    assert found.sample.nll.tolist() == NLL[:held].tolist()
    assert found.sample.tokens.tolist() == TOKENS[:held].tolist()
    assert found.sample.entropy.tolist() == entropy(IDS[:held]).tolist()
    assert found.sample.alike["copies"].tolist() == copies(IDS[:held]).tolist()
    assert found.calls == pytest.approx((10 + np.arange(held)).mean())
    assert found.seconds == pytest.approx((0.5 + np.arange(held)).mean())
    assert found.temperature == 0.7
    row = found.row("A", 4)
    assert row["outputs"] == held
    assert row["perplexity"] == pytest.approx(np.exp(NLL[:held].sum() / TOKENS[:held].sum()))
    assert row["entropy"] == pytest.approx(entropy(IDS[:held]).mean())


def test_too_few_outputs_are_refused(tmp_path: Path) -> None:
    for held, enough in ((7, False), (8, True)):
        path = tmp_path / str(held)
        rows = [output(i, IDS[i]) for i in range(held)]
        with_perplexity(
            made_cell(path, cell_spec(LENGTH), rows), NLL[:held].tolist(), TOKENS[:held].tolist()
        )
        if enough:
            assert point(path, 99).sample.n == held
        else:
            with pytest.raises(UserError, match="too few outputs"):
                point(path, 99)


@pytest.mark.skipif(not available(), reason="the embedder is not installed")
def test_embeddings_are_of_the_same_outputs(pool: Path) -> None:
    from strop.measure.embeddings import vendi_metric
    from strop.measure.vendi import vendi_score

    vectors = np.random.default_rng(1).normal(size=(HELD, 5)).astype(np.float32)
    pool_cell(str(pool)).add_scores(vendi_metric(), {"embedding": vectors})
    found = point(pool, 8, vendi="on")
    unit = vectors[:8].astype(float)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosine = unit @ unit.T
    expected = np.where(cosine > 0, np.minimum(cosine, 1) ** 2, 0)
    assert found.sample.alike["embeddings"] == pytest.approx(expected)
    assert found.vendi == pytest.approx(vendi_score(unit))


def test_texts_are_cut_to_as_many_as_were_asked_for(tmp_path: Path) -> None:
    texts = [f"Once upon a time there were {i} kings." for i in range(10)]
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    ask = asked(tmp_path, 9, evaluator="embedded:tales-ar")
    found = Outputs(ask, Named("texts", str(path), {}, ()), None, Scorers(), True).fixed()
    assert found.texts == texts[:9]
    assert found.sample.n == len(found.sample.entropy) == 9
    assert (found.calls, found.seconds, found.temperature) == (None, None, None)


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
