"""LLaDA's, Dream's and Fast-dLLM's decoders as published, replayed from tests/vectors."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import warm_processes

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from vector_replay import Folder, replay  # noqa: E402

VECTORS = ROOT / "tests" / "vectors"


@pytest.fixture(scope="module", params=["llada", "dream"])
def folder(request) -> Folder:
    return Folder(VECTORS / request.param)


def test_runs_of_the_current_states_are_identical(folder):
    """Every third one; code, cache and rule change from one to the next."""
    done = [folder.run(run) for run in folder.case["runs"][::3]]
    assert [run.line for run in done if not run.skipped and not run.identical] == []
    assert sum(run.skipped is None for run in done) >= 15


@pytest.mark.slow
def test_every_run_of_the_current_states_is_identical(folder):
    done = [folder.run(run) for run in folder.case["runs"]]
    assert [run.line for run in done if not run.skipped and not run.identical] == []
    skipped = {run.code for run in done if run.skipped}
    assert skipped <= {"fast-dllm-llada@june", "fast-dllm-llada@july"}
    assert sum(run.skipped is None for run in done) == {"llada": 61, "dream": 49}[folder.family]


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("seed", 1),
        ("next_rand", 0.5),
        ("calls", 3),
        ("options", {"temperature": 0.6}),
    ],
)
def test_another_seed_number_count_or_option_is_noticed(folder, key, change):
    name = {"llada": "own/lowconf-T0.5-block", "dream": "hub/maskgit_plus-T1"}[folder.family]
    run = next(run for run in folder.case["runs"] if run["name"] == name)
    assert folder.run(run).identical
    value = {**run[key], **change} if isinstance(change, dict) else change
    assert folder.run({**run, key: value}).identical is False


def test_another_order_is_noticed(folder):
    run = next(
        run for run in folder.case["runs"] if "T1" in run["name"] and "june" not in run["code"]
    )
    order = folder.expected[run["order"]]
    folder.expected["other"] = order.flip(1)
    assert folder.run({**run, "order": "other"}).differs == ("order",)


def test_the_script_says_what_it_found(tmp_path):
    small = tmp_path / "dream"
    small.mkdir()
    for file in (VECTORS / "dream").iterdir():
        (small / file.name).write_bytes(file.read_bytes())
    case = json.loads((small / "case.json").read_text())
    case["runs"] = [run for run in case["runs"] if run["name"].startswith("fast/nocache")]
    case["runs"].append({**case["runs"][0], "code": "fast-dllm-dream@june"})
    (small / "case.json").write_text(json.dumps(case))

    def told(*flags: str) -> subprocess.CompletedProcess[str]:
        script = [sys.executable, str(ROOT / "scripts" / "replay-vectors.py"), str(tmp_path)]
        return warm_processes.run([*script, *flags], capture_output=True, text=True)

    plain = told()
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout.splitlines()[-1] == "4 of 4 runs identical"
    found = json.loads(told("--json").stdout)["runs"]
    assert [run["calls"] for run in found[:4]] == [run["calls"] for run in case["runs"][:4]]
    assert found[4]["identical"] is None
    assert "june" in found[4]["skipped"]
    case["runs"][0]["seed"] += 1
    case["runs"][1]["next_rand"] = 0.0
    (small / "case.json").write_text(json.dumps(case))
    wrong = told()
    assert wrong.returncode == 1
    assert wrong.stdout.splitlines()[-1] == "2 of 4 runs identical"


def test_the_older_families_replay_through_the_same_script():
    done = list(replay(VECTORS / "duo_sedd")) + list(replay(VECTORS / "didi"))
    assert len(done) == 6
    assert all(run.identical for run in done)


def half_precision_task(seed: int):
    from strop.samplers.public_decoders import PublicRun

    folder = Folder(VECTORS / "dream")
    ids = torch.nn.functional.pad(folder.expected["prompt"].long(), (0, 24), value=310)
    spec = folder.denoiser.spec.model_copy(update={"network_dtype": "bfloat16"})
    folder.denoiser.spec = spec
    return PublicRun(folder.denoiser, ids, 10, torch.Generator().manual_seed(seed))


def test_the_literal_dream_warns_when_half_precision_turns_it_greedy():
    from strop.samplers.public_decoders import dream

    task = half_precision_task(0)
    with pytest.warns(UserWarning, match="do not sum to one"):
        dream(task, steps=8, temperature=1.0, alg="maskgit_plus")


def test_the_form_for_users_draws_in_half_precision_all_the_same():
    from strop.samplers.decoders import fill, recipe
    from strop.spec import SamplerSpec

    task = half_precision_task(0)
    settings = {"alg": "maskgit_plus", "alg_temp": 0.0, "top_k": 0, "eps": 1e-3}
    ids = task.ids.repeat(3, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spec = SamplerSpec(name="blockwise", steps=8)
        found = recipe("dream", settings)
        drawn = fill(task.denoiser, found, ids, spec, seed=0, outputs=[0, 1, 2]).ids
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[1], drawn[2])
