"""The family `language`: exact laws, known ways off them, and samplers on both."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from strop import SamplerSpec, UserError, load_denoiser
from strop.cli.main import run
from strop.denoisers.language import LanguageDenoiser
from strop.draw import sample
from strop.language import Language
from strop.language.reading import _seen
from strop.measure.cells import measure
from strop.measure.guard import default_guard
from strop.store import Run

WORDS = ["a", "b", "c", "d"]
GRAMMAR = {
    "format": "strop-language/1",
    "length": 4,
    "noise": 0.05,
    "vocabulary": WORDS,
    "classes": {"any": {"words": ["a", "d"], "weights": [1, 2]}},
    "latents": {
        "x": {"values": ["0", "1", "2"], "weights": [5, 3, 1], "features": {"w": ["a", "b", "c"]}}
    },
    "mode": ["x"],
    "segments": [
        {"length": 2, "scope": ["x"], "variants": [{"weight": 1, "tokens": ["{x.w}", "<any>"]}]},
        {
            "length": 2,
            "scope": ["x"],
            "variants": [
                {"weight": 1, "tokens": ["b", "{x.w}"]},
                {"weight": 1, "tokens": ["{x.w}", "{x.w}"]},
            ],
        },
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a grammar of its own beside its configuration."""
    place = tmp_path_factory.mktemp("models") / "own"
    place.mkdir()
    (place / "small.json").write_text(json.dumps(GRAMMAR))
    config = {"model_type": "language", "language": "small.json"}
    (place / "config.json").write_text(json.dumps(config))
    return place


@pytest.fixture(scope="module")
def small(folder: Path) -> Language:
    return Language.load(folder / "small.json")


@pytest.fixture(scope="module")
def even() -> Language:
    return Language.load("even")


MASKED = torch.tensor([[0, 4, 4, 1], [4, 3, 4, 4], [4, 4, 4, 4]])


def laws_of(model: LanguageDenoiser) -> np.ndarray:
    return model.log_probs(MASKED).exp().numpy()[..., :4]


def test_a_mixture_by_settings_is_the_formula(folder: Path, small: Language):
    exact = small.predictive(MASKED.numpy())
    hidden = MASKED.numpy() == 4
    np.testing.assert_allclose(laws_of(load_denoiser(folder)), exact, atol=1e-12)
    narrow = small.narrowed(10)
    alone = np.concatenate(
        [
            narrow.predictive(np.where(np.arange(4) < 2, MASKED, 4))[:, :2],
            narrow.predictive(np.where(np.arange(4) >= 2, MASKED, 4))[:, 2:],
        ],
        axis=1,
    )
    unigram = small.predictive([4, 4, 4, 4]).mean(0)
    expected = 0.9 * (0.75 * narrow.predictive(MASKED.numpy()) + 0.25 * alone) + 0.1 * unigram
    model = load_denoiser(folder, load={"leak": 0.1, "near": 0.25, "narrow": 10})
    np.testing.assert_allclose(laws_of(model)[hidden], expected[hidden], atol=1e-12)
    assert abs(expected - exact)[hidden].max() > 0.05
    assert model.spec.id != load_denoiser(folder).spec.id
    short = load_denoiser(folder).log_probs(MASKED[:, :3]).exp().numpy()[..., :4]
    np.testing.assert_allclose(short, small.predictive(MASKED[:, :3].numpy())[:, :3], atol=1e-12)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("perfect", {"leak": 0, "near": 0, "narrow": 1}),
        ("leaky", {"leak": 0.02, "near": 0, "narrow": 1}),
        ("narrow", {"leak": 0, "near": 0, "narrow": 100}),
        ("near", {"leak": 0, "near": 1, "narrow": 1}),
    ],
)
def test_the_models_that_ship(name: str, settings: dict[str, float], even: Language):
    model = load_denoiser(f"embedded:{name}")
    assert model.spec.shape == {"vocab_size": 354, "length": 96, "mask_id": 353, **settings}
    ids = even.draw(1, seed=4)
    ids[:, 11:] = even.mask_id  # all but the first sentence
    laws = model.log_probs(torch.tensor(ids)).exp().numpy()[..., :-1]
    off = abs(laws - even.predictive(ids)).max()
    assert off < 1e-12 if name == "perfect" else off > 1e-3


def test_from_left_to_right_the_laws_multiply_to_the_probability(even: Language):
    text = even.draw(1, seed=6)
    rows = np.where(np.arange(96) < np.arange(96)[:, None], text, even.mask_id)
    model = LanguageDenoiser(even)
    hidden, each = model.hidden(torch.tensor(rows), None), torch.arange(96)
    logs = model.logits(hidden, each, each)[each, torch.tensor(text[0])]
    assert float(logs.sum()) == pytest.approx(float(even.log_p(text)[0]), abs=1e-10)


def test_one_token_a_call_has_no_excess_and_all_at_once_have_one(folder: Path, small: Language):
    texts = np.array(np.meshgrid(*[range(4)] * 4, indexing="ij")).reshape(4, -1).T
    logs = small.log_p(texts)
    entropy = -(np.exp(logs) * logs).sum()
    order = {"score": "left", "block_length": 0}
    excess, errors = {}, {}
    for steps in (4, 1):
        spec = SamplerSpec(name="blockwise", steps=steps, settings=order)
        pool = sample(load_denoiser(folder), spec, n=2000, seed=1)
        assert (pool.nfe == steps).all()
        surprise = -small.log_p(pool.ids)
        excess[steps], errors[steps] = surprise.mean() - entropy, surprise.std() / 2000**0.5
    assert abs(excess[4]) < 3 * errors[4]
    assert excess[1] > 10 * errors[1]


def test_texts_of_a_run(folder: Path, small: Language, tmp_path: Path, capsys):
    out = str(tmp_path / "run")
    asked = ["sample", str(folder), "--load", "leak=0.5", "--steps", "4", "-n", "5", "-o", out]
    assert run(asked) == 0
    capsys.readouterr()
    pool = sample(load_denoiser(folder, load={"leak": 0.5}), SamplerSpec(steps=4), n=5)
    assert pool.texts == [small.decode(row) for row in pool.ids]
    assert run(["language", "score", out, "--language", str(folder / "small.json"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"][0]
    assert found["violations"]["value"] == small.violations(pool.ids).mean()
    # the run keeps the grammar: the truth is measured by who never loaded it, and not without it
    _seen.clear()
    kept = Run.open(out)
    assert kept.grammar.read_bytes() == (folder / "small.json").read_bytes()
    (row,) = measure(kept.cells(), ["violations", "modes"])
    truth = {name: row.of(name).values for name in ("violations", "modes")}
    assert truth["violations"]["violations"].value == small.violations(pool.ids).mean()
    assert truth["modes"]["effective"] >= 1
    assert "exact texts" in default_guard(kept.cells()[0].spec.generator, kept).source
    kept.grammar.unlink()
    _seen.clear()
    assert default_guard(kept.cells()[0].spec.generator, kept).threshold is None


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ({"leek": 0.1}, "no setting of a language called 'leek'"),
        ({"leak": 2}, "'leak' is out of range"),
        ({"narrow": 0.5}, "'narrow' is out of range"),
        ({"near": "all"}, "'near' is out of range"),
        ({"language": "odd"}, "no language called 'odd'"),
    ],
)
def test_a_setting_that_is_wrong_is_one_message(folder: Path, load: dict, words: str):
    with pytest.raises(UserError, match=words):
        load_denoiser(folder, load=load)


def test_there_are_no_weights_to_choose(folder: Path):
    with pytest.raises(UserError, match="no weights"):
        load_denoiser(folder, weights="raw")
    with pytest.raises(UserError, match="of the family 'language', not 'sedd'"):
        load_denoiser(folder, family="sedd")
