"""Causal language models from left to right: ids, law, batches, resume and wrong input.

Power of the law tests: with N = 20,000 outputs a law that is off by .04 in total variation moves
the chi-square statistic by at least 4 N .04**2 = 128, so over 64 outcomes a test at 1e-3 detects
it with probability above .99; the wrong laws are off by more (asserted) and must fail.
"""

from __future__ import annotations

import itertools
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import laws
import numpy as np
import pytest
import torch
from laws import chi_square, sharpen

import strop
from strop import SamplerSpec, UserError
from strop.cli.main import run
from strop.denoisers import CausalModel, Denoiser
from strop.rng import Stream
from strop.samplers.machinery.categorical import race
from strop.samplers.machinery.lattice import exact_law
from strop.spec import CheckpointSpec
from tiny_models import WORDS

PRECISIONS = ["float64", "float32"]
LENGTH, VOCAB, START = 12, 11, 10


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random GPT-2 in transformers' own layout, with a tokenizer."""
    from tokenizers import Tokenizer, models
    from transformers import GPT2Config, GPT2LMHeadModel

    path = tmp_path_factory.mktemp("causal") / "gpt2"
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=LENGTH,
        n_embd=16,
        n_layer=2,
        n_head=2,
        initializer_range=0.6,
        bos_token_id=START,
        eos_token_id=START,
    )
    GPT2LMHeadModel(config).save_pretrained(path)
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    Tokenizer(models.WordLevel(vocabulary, unk_token="the")).save(str(path / "tokenizer.json"))
    return path


@pytest.fixture(scope="module")
def model(directory: Path) -> Any:
    return strop.load_model(directory)


def spec(**more: Any) -> SamplerSpec:
    return SamplerSpec(name="autoregressive", **more)


def test_what_is_loaded(model: Any, directory: Path) -> None:
    assert isinstance(model, CausalModel)
    assert not isinstance(model, Denoiser)
    assert (model.vocab_size, model.length, model.start_id) == (VOCAB, LENGTH, START)
    assert model.spec.family == "ar"
    import hashlib

    weights = (directory / "model.safetensors").read_bytes()
    assert model.spec.sha256 == hashlib.sha256(weights).hexdigest()
    with pytest.raises(UserError, match="not a masked denoiser"):
        strop.load_denoiser(directory)


def plain_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """The whole prefix through the network every time: no cache."""
    with torch.no_grad():
        return model.network(input_ids=ids, use_cache=False).logits[:, -1]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.9)])
def test_dense_ids_are_those_of_a_plain_loop_without_a_cache(model, precision, temperature, top_p):
    generator = torch.Generator().manual_seed(5)
    ids = torch.full((8, 1), START)
    for _ in range(LENGTH - 1):
        laws = torch.softmax(plain_logits(model, ids).double(), -1).numpy()
        law = torch.from_numpy(np.stack([sharpen(row, temperature, top_p) for row in laws]))
        weights = law.to(getattr(torch, precision))
        uniforms = torch.rand(weights.shape, dtype=weights.dtype, generator=generator)
        ids = torch.cat([ids, race(weights, uniforms)[:, None]], dim=1)
    settings = spec(
        precision=precision, temperature=temperature, top_p=top_p, implementation="dense"
    )
    pool = strop.draw.sample(model, settings, n=8, seed=5, batch_size=8)
    assert (pool.ids == ids.numpy()).all()
    assert (pool.nfe == LENGTH - 1).all()
    assert len(np.unique(pool.ids, axis=0)) > 4


def test_fast_ids_are_those_of_a_plain_loop_without_a_cache(model):
    stream = Stream(5, "autoregressive")
    ids = torch.full((8, 1), START)
    for position in range(1, LENGTH):
        law = torch.softmax(plain_logits(model, ids).double(), -1).numpy()
        u = stream.uniform(np.arange(8), 0, position, 1)
        token = (law.cumsum(-1) <= u[:, None] * law.sum(-1, keepdims=True)).sum(-1)
        ids = torch.cat([ids, torch.from_numpy(token)[:, None]], dim=1)
    assert (strop.draw.sample(model, spec(), n=8, seed=5).ids == ids.numpy()).all()


def test_greedy_is_the_best_continuation(model):
    ids = torch.full((1, 1), START)
    for _ in range(LENGTH - 1):
        ids = torch.cat([ids, plain_logits(model, ids).argmax(-1)[:, None]], dim=1)
    for implementation in ("fast", "dense"):
        for precision in PRECISIONS:
            settings = spec(temperature=0, implementation=implementation, precision=precision)
            pool = strop.draw.sample(model, settings, n=2, seed=1, batch_size=2)
            assert (pool.ids == ids.numpy()).all()


class Table:
    """An exact causal model: any law of the next token after any prefix."""

    mask_id = None
    codec = None
    source = "table"
    device = torch.device("cpu")

    def __init__(self, vocab: int, length: int, seed: int) -> None:
        self.vocab_size, self.length, self.default_length = vocab, length, length
        self.start_id = 0
        self.spec = CheckpointSpec(family="ar", sha256="0" * 64, weights="exact", shape={})
        random = np.random.default_rng(seed)
        self.laws = {
            prefix: 0.97 * random.dirichlet(np.full(vocab, 0.4)) + 0.03 / vocab
            for n in range(length)
            for prefix in itertools.product(range(vocab), repeat=n)
        }

    def read(self, ids: torch.Tensor, memory: Any) -> tuple[torch.Tensor, Any]:
        seen = ids if memory is None else torch.cat([memory, ids], dim=1)
        rows = [self.laws[tuple(row)] for row in seen.tolist()]
        return torch.from_numpy(np.stack(rows)).log().float(), seen


def output_law(table: Table, draw: Any) -> np.ndarray:
    """The law of the tokens after the start, by enumeration; `draw` turns p into its outcome."""
    free = table.length - 1
    law = np.zeros((table.vocab_size,) * free)
    for tokens in itertools.product(range(table.vocab_size), repeat=free):
        prefix, chance = (table.start_id,), 1.0
        for token in tokens:
            chance *= draw(table.laws[prefix])[token]
            prefix = (*prefix, token)
        law[tokens] = chance
    return law


def observed(table: Table, settings: SamplerSpec, bits: int = 24) -> np.ndarray:
    counts = np.zeros((table.vocab_size,) * (table.length - 1))
    for ids in laws.draw(table, settings, 3, n=20_000, bits=bits, slots=20_000):
        assert ids[0] == table.start_id
        counts[tuple(ids[1:])] += 1
    return counts


@pytest.mark.parametrize("implementation", ["fast", "dense"])
def test_output_law(implementation):
    table = Table(4, 4, seed=1)
    sharp = spec(steps=4, temperature=0.8, top_p=0.9, implementation=implementation)
    right = output_law(table, lambda p: sharpen(p, 0.8, 0.9))
    counts = observed(table, sharp)
    assert chi_square(counts, right) > 1e-3
    wrong = output_law(table, lambda p: sharpen(p, 0.9, 0.9))
    assert abs(right - wrong).sum() / 2 > 0.04
    assert chi_square(counts, wrong + 1e-12) < 1e-6


@pytest.mark.parametrize("implementation", ["fast", "dense"])
def test_float32_law_on_a_coarse_lattice(implementation):
    table = Table(4, 4, seed=2)
    bits = 3
    right = output_law(table, lambda p: exact_law(p.astype(np.float32), bits))
    wrong = output_law(table, lambda p: p)
    assert abs(right - wrong).sum() / 2 > 0.04
    settings = spec(steps=4, precision="float32", implementation=implementation)
    counts = observed(table, settings, bits)
    assert chi_square(counts, right) > 1e-3
    assert chi_square(counts, wrong) < 1e-6
    exact = observed(table, settings.model_copy(update={"precision": "float64"}))
    assert chi_square(exact, wrong) > 1e-3


@pytest.mark.parametrize("precision", PRECISIONS)
def test_outputs_do_not_depend_on_the_batch(model, precision):
    settings = spec(precision=precision)
    pools = [strop.draw.sample(model, settings, n=20, seed=9, batch_size=b) for b in (1, 7, 20)]
    for pool in pools[1:]:
        assert (pool.ids == pools[0].ids).all()
        assert pool.spec == pools[0].spec
    assert len(np.unique(pools[0].ids, axis=0)) == 20
    more = strop.draw.sample(model, settings, n=25, seed=9)
    assert (more.ids[:20] == pools[0].ids).all()
    shorter = strop.draw.sample(model, settings, n=20, seed=9, length=5)
    assert (shorter.ids == pools[0].ids[:, :5]).all()
    assert shorter.spec.generator.sampler.steps == 5


def test_a_run_is_continued(model, tmp_path):
    whole = strop.draw.sample(model, spec(), n=9, seed=2)
    part = strop.draw.sample(model, spec(), n=4, seed=2, out=tmp_path / "run")
    again = strop.draw.sample(model, spec(), n=9, seed=2, out=tmp_path / "run")
    assert (part.ids == whole.ids[:4]).all()
    assert (again.ids == whole.ids).all()
    assert again.texts == whole.texts
    assert [session["outputs"] for session in again.provenance] == [4, 5]
    assert (again.leftover_masks == 0).all()
    with pytest.raises(UserError, match="another spec"):
        strop.draw.sample(model, spec(temperature=0.9), n=9, seed=2, out=tmp_path / "run")


def test_other_weights_and_configurations_are_other_generators(directory, model, tmp_path):
    from safetensors.torch import load_file, save_file

    other = shutil.copytree(directory, tmp_path / "weights")
    tensors = load_file(other / "model.safetensors")
    tensors["transformer.ln_f.bias"] += 0.5
    save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    assert strop.load_model(other).spec.id != model.spec.id
    changed = edited(directory, tmp_path / "config", layer_norm_epsilon=0.1)
    assert strop.load_model(changed).spec.id != model.spec.id
    bookkeeping = edited(directory, tmp_path / "same", attn_pdrop=0.3, transformers_version="4.0")
    assert strop.load_model(bookkeeping).spec.id == model.spec.id


def edited(directory: Path, to: Path, **fields: Any) -> Path:
    shutil.copytree(directory, to)
    config = {**json.loads((to / "config.json").read_text()), **fields}
    (to / "config.json").write_text(json.dumps(config))
    return to


def test_bad_directories_are_refused_in_words(directory, tmp_path):
    cases = {
        "no weights in safetensors": edited(directory, tmp_path / "empty"),
        "cannot load": edited(directory, tmp_path / "unknown", model_type="never-heard-of"),
        "do not fit": edited(directory, tmp_path / "deeper", n_layer=3),
        "begins with": edited(
            directory, tmp_path / "startless", bos_token_id=None, eos_token_id=VOCAB
        ),
        "not a known diffusion family": edited(
            directory, tmp_path / "bert", architectures=["BertForMaskedLM"]
        ),
    }
    (tmp_path / "empty" / "model.safetensors").unlink()
    for told, path in cases.items():
        with pytest.raises(UserError, match=told) as caught:
            strop.load_model(path)
        assert len(str(caught.value)) < 700
    with pytest.raises(UserError, match="one set of weights"):
        strop.load_model(directory, weights="ema")
    narrower = edited(directory, tmp_path / "narrower", n_embd=8)
    with pytest.raises(UserError, match=r"do not fit|cannot load"):
        strop.load_model(narrower)


def test_samplers_and_models_that_do_not_fit_are_refused(model, checkpoint):
    with pytest.raises(UserError, match="needs a masked denoiser"):
        strop.draw.sample(model, SamplerSpec(steps=4), n=1)
    with pytest.raises(UserError, match="needs a causal language model"):
        strop.draw.sample(checkpoint, spec(), n=1)
    with pytest.raises(UserError, match="exceeds what the model"):
        strop.draw.sample(model, spec(), n=1, length=LENGTH + 1)
    with pytest.raises(UserError, match="one step per token"):
        strop.draw.sample(model, spec(steps=3), n=1, length=4)


def test_missing_transformers_is_told_with_its_remedy(directory, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"transformers.*not installed") as caught:
        strop.load_model(directory)
    assert "strop[models]" in str(caught.value)


def test_the_command(directory, tmp_path, capsys):
    arguments = ["sample", str(directory), "--sampler", "autoregressive", "--precision"]
    arguments += ["float64,float32", "-n", "3", "-o", str(tmp_path / "run"), "--json"]
    assert run(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert [cell["nfe_mean"] for cell in document["cells"]] == [LENGTH - 1] * 2
    assert [cell["sampler"]["steps"] for cell in document["cells"]] == [LENGTH] * 2
    assert run(arguments) == 0
    assert json.loads(capsys.readouterr().out) == document
    own = ["sample", str(directory), "-n", "3", "-o", str(tmp_path / "own"), "--json"]
    assert run(own) == 0  # left out, the sampler is the family's own
    assert json.loads(capsys.readouterr().out)["cells"][0] == document["cells"][0] | {
        "seconds": pytest.approx(0, abs=60)
    }
    wrong = [*own[:4], "--sampler", "ancestral", "-o", str(tmp_path / "other")]
    assert run(wrong) == 1
    told = capsys.readouterr().err
    assert "--sampler autoregressive" in told
    assert "Traceback" not in told


def test_the_command_shows_the_plain_baseline_of_a_revising_sampler(checkpoint, tmp_path, capsys):
    flags = ["--steps", "4", "--top-p", "0.9", "--temperature", "0.8", "-n", "2"]
    flags += ["-o", str(tmp_path / "run"), "--settings", "eta=0.2"]
    assert run(["sample", str(checkpoint), "--sampler", "remdm-cap", *flags]) == 0
    shown = capsys.readouterr()
    assert "remdm-cap M=4 tau=0.8 float64 top_p=0.9 eta=0.2" in shown.out
    assert "ancestral-remdm M=4 tau=0.8 float64 top_p=0.9" in shown.out
    line = next(one for one in shown.err.splitlines() if one.startswith("plain baseline: "))
    words = shlex.split(line.removeprefix("plain baseline: "))
    assert words[:2] == ["strop", "sample"]
    assert run([*words[1:], "--json"]) == 0
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert (cell["sampler"]["top_p"], cell["sampler"]["temperature"]) == (0.9, 0.8)
    assert cell["sampler"]["name"] == "ancestral-remdm"
    for wrong in ("eta", "eta=", "=1", "eta=1,eta=2", "eta=much", "etta=0.1"):
        assert run(["sample", str(checkpoint), "--sampler", "remdm-cap", *flags[:-1], wrong]) == 1
        assert "Traceback" not in capsys.readouterr().err
