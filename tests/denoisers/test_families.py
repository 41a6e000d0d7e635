"""The families' public layouts: which family a file is of, and one message for each mismatch."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_checkpoints import FLAT, SMALL, random_tensors, with_buffer
from training_file import PUBLIC_CONFIG, write_training_file

import strop
from strop.denoisers.didi import Discriminator, discriminator_tensors

SEDD_CONFIG = {
    "tokens": 12,
    "graph": {"type": "absorb"},
    "noise": {"type": "loglinear"},
    "model": {"hidden_size": 16, "cond_dim": 6, "length": 8, "n_blocks": 2, "n_heads": 2},
}
DUO_CONFIG = {
    "model_type": "DUO",
    "var_min": True,
    **{k: v for k, v in FLAT.items() if k != "time_conditioning"},
}


def judge_tensors(seed: int = 9, prefix: str = "") -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = discriminator_tensors(SMALL)
    return {prefix + k: torch.randn(v, generator=generator) for k, v in sizes.items()}


def directory(path: Path, config: dict | None, prefix: str, judge: dict | None = None) -> Path:
    path.mkdir()
    save_file(random_tensors(prefix=prefix), path / "model.safetensors")
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    if judge is not None:
        save_file(judge, path / "discriminator.safetensors")
    return path


def state(*names: str) -> dict[str, torch.Tensor]:
    found = {}
    for seed, name in enumerate(names):
        if name == "discriminator":
            found |= judge_tensors(prefix="discriminator.")
        else:
            found |= random_tensors(seed=seed, prefix=f"{name}.")
    return found


def config_with(**changes) -> dict:
    kept = {k: v for k, v in PUBLIC_CONFIG.items() if k != "parameterization"}
    return {**kept, **changes}


def averages() -> list[torch.Tensor]:
    return list(random_tensors(seed=2).values())


def fails(source: Path, **options) -> str:
    with pytest.raises(strop.UserError) as caught:
        strop.load_denoiser(source, device="cpu", **options)
    return str(caught.value)


def test_hub_layouts(tmp_path):
    cases = {
        "mdlm": directory(tmp_path / "a", FLAT, "backbone."),
        "sedd": directory(tmp_path / "b", SEDD_CONFIG, ""),
        "duo": directory(tmp_path / "c", DUO_CONFIG, "backbone."),
        "didi": directory(tmp_path / "d", FLAT, "", judge_tensors()),
    }
    for family, path in cases.items():
        denoiser = strop.load_denoiser(path, device="cpu")
        assert denoiser.spec.family == family
        assert denoiser.mask_id == (13 if family == "duo" else 12)
        assert denoiser.time_conditioned == (family != "mdlm")
        pool = strop.draw.sample(denoiser, n=2, length=5)
        assert (pool.ids < 13).all()
        assert pool.leftover_masks.sum() == 0
        assert strop.load_denoiser(path, family=family, device="cpu").spec == denoiser.spec


def test_the_discriminator_is_part_of_the_identity(tmp_path):
    one = directory(tmp_path / "a", FLAT, "", judge_tensors(1))
    other = directory(tmp_path / "b", FLAT, "", judge_tensors(2))
    specs = [strop.load_denoiser(path, device="cpu").spec for path in (one, other)]
    assert specs[0].sha256 != specs[1].sha256


@pytest.mark.parametrize(
    ("config", "family"),
    [
        (config_with(algo={"name": "mdlm"}), "mdlm"),
        (config_with(algo={"name": "duo"}), "duo"),
        (config_with(algo={"name": "distillation"}), "duo"),
        (config_with(algo={"name": "sedd"}), "sedd"),
        (config_with(parameterization="sedd"), "sedd"),
        (config_with(parameterization="subs"), "mdlm"),
    ],
    ids=str,
)
def test_training_files_name_their_algorithm(config, family, tmp_path):
    raw = with_buffer(random_tensors(seed=1, prefix="backbone."), "backbone.")
    file = write_training_file(tmp_path / "x.ckpt", raw, averages(), config)
    denoiser = strop.load_denoiser(file, device="cpu")
    assert (denoiser.spec.family, denoiser.spec.weights) == (family, "ema")


@pytest.mark.parametrize("weights", [None, "raw"])
def test_sedd_pth(weights, tmp_path):
    raw = with_buffer(random_tensors(seed=1))
    ema = {"decay": 0.9999, "num_updates": 3, "shadow_params": [*averages(), torch.zeros(1)]}
    torch.save({"model": raw, "ema": ema, "step": 3, "optimizer": {}}, tmp_path / "checkpoint.pth")
    with pytest.warns(UserWarning, match="no sequence length"):
        denoiser = strop.load_denoiser(tmp_path / "checkpoint.pth", weights=weights, device="cpu")
    assert denoiser.spec.family == "sedd"
    wanted = random_tensors(seed=1 if weights else 2)["output_layer.linear.bias"]
    assert torch.equal(denoiser.network.output_layer.linear.bias, wanted)


@pytest.mark.parametrize("weights", [None, "raw"])
def test_didi_training_file(weights, tmp_path):
    everything = state("backbone", "teacher", "discriminator", "student_ema")
    everything["reward_baseline"] = torch.zeros(())
    file = write_training_file(tmp_path / "x.ckpt", everything, None)
    denoiser = strop.load_denoiser(file, weights=weights, device="cpu")
    assert denoiser.spec.family == "didi"
    prefix = "backbone." if weights else "student_ema."
    mine = everything[prefix + "output_layer.linear.bias"]
    assert torch.equal(denoiser.network.output_layer.linear.bias, mine)
    assert denoiser.base is not None
    assert denoiser.discriminator is not None


def test_a_missing_discriminator_is_told_when_it_is_needed(tmp_path):
    path = directory(tmp_path / "a", {"n_heads": 2}, "")
    with pytest.warns(UserWarning, match="no sequence length"):
        denoiser = strop.load_denoiser(path, family="didi", device="cpu")
    for kind in ("fast", "dense"):
        spec = strop.SamplerSpec(name="didi-guided", steps=2, implementation=kind)
        with pytest.raises(strop.UserError, match="no discriminator"):
            strop.draw.sample(denoiser, spec, length=4)
    strop.draw.sample(denoiser, strop.SamplerSpec(name="didi-ancestral", steps=2), length=4)


def test_a_missing_average_of_the_student(tmp_path):
    file = write_training_file(tmp_path / "x.ckpt", state("backbone", "discriminator"), None)
    message = fails(file)
    assert "no averaged (EMA) student" in message
    assert "`weights=raw`" in message
    assert strop.load_denoiser(file, weights="raw", device="cpu").spec.weights == "raw"


def test_wrong_families(tmp_path):
    duo = directory(tmp_path / "a", DUO_CONFIG, "backbone.")
    assert "of the family 'duo', not 'mdlm'" in fails(duo, family="mdlm")
    assert "no family called 'duos'" in fails(duo, family="duos")
    causal = directory(tmp_path / "b", {**FLAT, "model_type": "gpt2"}, "backbone.")
    assert "'gpt2', which is not a known diffusion family" in fails(causal)
    uniform = {**SEDD_CONFIG, "graph": {"type": "uniform"}}
    assert "'uniform', which is not a known diffusion family" in fails(
        directory(tmp_path / "c", uniform, "")
    )


def test_vocabularies_that_do_not_match(tmp_path):
    sedd = directory(tmp_path / "a", {**SEDD_CONFIG, "tokens": 50257}, "")
    assert "not that of the configuration" in fails(sedd)
    judge = judge_tensors()
    judge["vocab_embed.embedding"] = torch.zeros(14, 16)
    assert "vocabulary is not the student's" in fails(directory(tmp_path / "b", FLAT, "", judge))
    judge = {k: v for k, v in judge_tensors().items() if not k.endswith("weight_u")}
    assert "weight_u" in fails(directory(tmp_path / "c", FLAT, "", judge))


def test_a_file_that_says_nothing_is_taken_for_mdlm_with_a_warning(tmp_path):
    path = directory(tmp_path / "a", {"n_heads": 2, "model_length": 8}, "backbone.")
    with pytest.warns(UserWarning, match="its files name no family"):
        assert strop.load_denoiser(path, device="cpu").spec.family == "mdlm"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert strop.load_denoiser(path, family="duo", device="cpu").spec.family == "duo"


def test_spectral_norm_is_that_of_torch():
    """The stored matrix over u'Wv, as torch's own layer computes it in evaluation."""
    layer = torch.nn.utils.spectral_norm(torch.nn.Linear(16, 16)).eval()
    ours = Discriminator(SMALL).output_layer.main[0]
    ours.load_state_dict(layer.state_dict())
    x = torch.randn(3, 16)
    assert torch.allclose(ours(x), layer(x), atol=1e-6)


def test_the_gradient_is_the_same_with_and_without_memory():
    vectors = Path(__file__).parents[1] / "vectors" / "didi"
    expected = load_file(vectors / "expected.safetensors")
    with pytest.warns(UserWarning, match="no sequence length"):
        denoiser = strop.load_denoiser(vectors / "weights.safetensors", device="cpu")
    judge, ids = denoiser.discriminator, expected["ids"]
    embedded, sigma = judge.vocab_embed(ids), torch.full((3,), 0.7)
    masked = ids == denoiser.mask_id
    frugal = judge.gradient(embedded, masked, sigma, torch.float32)
    leaf = embedded.clone().requires_grad_()
    (judge.scores(leaf, sigma, torch.float32) * masked).sum().backward()
    assert torch.allclose(frugal, leaf.grad, atol=1e-7)


@pytest.mark.parametrize(("name", "config"), [("SEDD", SEDD_CONFIG), ("DUO", DUO_CONFIG)])
def test_a_prediction_that_depends_on_noise_needs_its_level(
    tmp_path: Path, name: str, config: dict
) -> None:
    place = directory(tmp_path / name, config, "backbone." if name == "DUO" else "")
    model = strop.load_denoiser(place, device="cpu")
    with pytest.raises(strop.UserError, match=f"{name}'s prediction depends on the noise level"):
        model.log_probs(torch.zeros((1, 4), dtype=torch.long))
    model.log_probs(torch.zeros((1, 4), dtype=torch.long), torch.tensor(0.5))
