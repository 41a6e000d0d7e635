"""The cost study: what is counted, what is compared, and the command."""

from __future__ import annotations

import json

import pytest
import torch

import warm_processes
from strop import denoisers, verbs
from strop.cli.main import run
from strop.denoisers import load_denoiser, load_model
from strop.errors import UserError
from strop.instruments import cost
from strop.instruments.cost import PeakMemory, measure_apart, measure_cost
from strop.instruments.pretend import claimed_cuda
from strop.spec import SamplerSpec
from strop.stats.interval import Interval
from strop.verbs.cost import compare


def test_batches_calls_and_warmup(checkpoint):
    denoiser = load_denoiser(str(checkpoint))
    for kind in ("dense", "fast"):
        spec = SamplerSpec(steps=4, implementation=kind)
        found = measure_cost(denoiser, spec, batch=2, batches=3, warmup=1)
        assert len(found.seconds) == len(found.calls) == 3
        assert all(value > 0 for value in found.seconds)
        assert all(0 < calls <= 5 for calls in found.calls)
        assert found.weights_bytes == 4 * sum(p.numel() for p in denoiser.network.parameters())


@pytest.mark.skipif(
    PeakMemory(torch.device("cpu")).extra() is None, reason="peak memory is read on Linux only"
)
def test_peak_memory_sees_what_was_freed_again():
    peak = PeakMemory(torch.device("cpu"))
    before = peak.extra()
    block = torch.ones(16 * 2**20)  # 64 MB
    del block
    assert before is not None
    assert 60 * 2**20 < (peak.extra() or 0) - before < 80 * 2**20


def test_a_process_of_its_own_and_its_failure(checkpoint, tmp_path):
    spec = SamplerSpec(steps=2)
    with warm_processes.everywhere():
        found = measure_apart(str(checkpoint), spec, batch=2, batches=1, warmup=0)
        assert found.calls[0] > 0
        with pytest.raises(UserError, match="cannot be measured") as caught:
            measure_apart(str(tmp_path / "nothing"), spec)
    assert "nothing" in (caught.value.got or "")


def row(name: str, setting: str, seconds: float, peak: float | None) -> dict:
    return {
        "implementation": name,
        "setting": setting,
        "updates": 4,
        "seconds": Interval(seconds),
        "peak_gib": peak,
        "calls": 5.0 if name == "dense" else 4.0,
        "failure": None,
    }


def test_comparisons():
    # The paper's own numbers: 40.0% less memory, 17.2% more throughput.
    rows = [
        row("dense", "standard", 4.764, 13.439),
        row("dense", "sharpened", 4.065, 8.069),
        row("fast", "sharpened", 1.0, None),
    ]
    sharp, fast = compare(rows)
    assert (sharp["what"], sharp["against"]) == ("dense sharpened", "dense standard")
    assert sharp["memory_saved"] == pytest.approx(0.400, abs=5e-4)
    assert sharp["throughput"] == pytest.approx(1.172, abs=5e-4)
    assert (fast["what"], fast["against"]) == ("fast sharpened", "dense sharpened")
    assert fast["memory_saved"] is None
    assert fast["calls"] == pytest.approx(0.8)


@pytest.fixture
def here(monkeypatch):
    """Measure in this process, and count: a child per cell would take seconds each."""
    asked = []

    def measure(source, spec, *, device, dtype, **settings):
        asked.append(spec)
        if spec.steps == 3 and spec.implementation == "dense":
            raise UserError("A sampler's cost cannot be measured.", got="not enough memory")
        return measure_cost(load_model(source), spec, **settings)

    monkeypatch.setattr(cost, "measure_apart", measure)
    return asked


def test_command_and_continuation(checkpoint, here, tmp_path, capsys):
    out = tmp_path / "out"
    args = ["study", "cost", str(checkpoint), "--steps", "1,4", "-o", str(out)]
    args += ["--batch-size", "2", "--batches", "2"]
    assert run([*args, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["rows"]) == 2 * 2 * 2
    assert {row["updates"] for row in printed["rows"]} == {1, 4}
    dense = next(r for r in printed["rows"] if r["updates"] == 4)
    assert dense["calls"] == 5.0  # four updates and the finish: two columns, two numbers
    seconds = dense["seconds"]
    assert seconds["low"] <= seconds["value"] <= seconds["high"]
    assert (seconds["level"], seconds["n"], seconds["how"]) == (1.0, 2, "range")
    assert len(here) == 8
    assert run(args) == 0  # from disk
    assert len(here) == 8
    captured = capsys.readouterr()
    assert "dense sharpened" in captured.out
    assert "next: strop sample" in captured.err
    assert (out / "table.csv").read_text().count("\n") == 9
    for kind in ("svg", "png"):
        assert (out / f"cost.{kind}").stat().st_size > 1000
    assert run([*args, "--force"]) == 0
    assert len(here) == 16


def test_a_cell_that_fails_is_told_and_tried_again(checkpoint, here, tmp_path, capsys):
    args = ["study", "cost", str(checkpoint), "--steps", "1,3", "-o", str(tmp_path / "out")]
    args += ["--batch-size", "2", "--batches", "1", "--json"]
    for _ in range(2):
        assert run(args) == 2
        captured = capsys.readouterr()
        rows = json.loads(captured.out)["rows"]
        assert [r["failure"] for r in rows].count("not enough memory") == 2
        assert all((r["seconds"] is None) == (r["failure"] is not None) for r in rows)
        assert "2 cells could not be measured" in captured.err
    assert len(here) == 8 + 2


@pytest.mark.parametrize(
    "wrong",
    [
        ["--steps", "0"],
        ["--implementation", "slow"],
        ["--batch-size", "0"],
        ["--batches", "0"],
        ["--warmup", "-1"],
        ["--length", "99"],
    ],
)
def test_wrong_flags(wrong, checkpoint, tmp_path, capsys):
    args = ["study", "cost", str(checkpoint), "-o", str(tmp_path / "out"), *wrong, "--json"]
    assert run(args) == 1
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "UserError"


def test_missing_checkpoint(tmp_path):
    with pytest.raises(UserError):
        verbs.run("cost", sources=[str(tmp_path / "none")], out=tmp_path / "out")


@pytest.mark.parametrize(
    ("family", "forms", "calls"), [("duo", {"dense", "fast"}, 2), ("sedd", {"dense", "fast"}, 2)]
)
def test_every_family_has_a_cost(families, here, tmp_path, family, forms, calls):
    settings = {"steps": (2,), "batch_size": 1, "batches": 1, "warmup": 0, "length": 8}
    found = verbs.run("cost", sources=[families[family]], out=tmp_path / "out", **settings)
    assert {row["implementation"] for row in found.table.rows} == forms
    assert len(here) == 2 * calls
    # DUO has no fast float32 form: its sharpened setting stays in float64, and that is said.
    precisions = {row["precision"] for row in found.table.rows if row["setting"] == "sharpened"}
    assert precisions == ({"float64"} if family == "duo" else {"float32"})
    assert bool(found.notes) == (family == "duo")


def test_the_papers_memory_stands_beside_the_measured(checkpoint, here, tmp_path):
    from strop.verbs import paper

    settings = {"steps": (1, 1024), "batch_size": 1, "batches": 1, "warmup": 0}
    found = verbs.run("cost", sources=[str(checkpoint)], out=tmp_path / "out", **settings)
    table = paper.items()["cost"][1].beside(found, None, {})
    rows = {(r["setting"], r["steps"], r["implementation"]): r for r in table.rows}
    one = rows["sharpened", 1024, "dense"]
    assert (one["paper"], one["paper_peak"]) == (4.065, 8.069)
    assert one["measured"].value > 0
    assert rows["sharpened", 1024, "fast"]["paper"] is None  # the paper's is the public algorithm
    assert rows["standard", 1, "dense"]["paper"] is None
    assert {"paper GiB", "measured GiB"} <= set(table.header())


def test_a_gpu_has_room_for_the_measured_model_alone(checkpoint, tmp_path, monkeypatch):
    """The study itself reads the specification; weights are on the card in the cell's process."""
    made, asked, real = [], [], denoisers.load_model

    def load(*args, **kwargs):
        made.append(real(*args, **kwargs))
        return made[-1]

    def measure(source, spec, *, device, dtype, **settings):
        asked.append((device, dtype, spec.noise))
        return measure_cost(real(source, device="cpu"), spec, **settings)

    monkeypatch.setattr(denoisers, "load_model", load)
    monkeypatch.setattr(cost, "measure_apart", measure)
    settings = {"steps": (2,), "batch_size": 1, "batches": 1, "warmup": 0, "length": 8}
    with claimed_cuda(2):
        found = verbs.run(
            "cost",
            sources=[str(checkpoint)],
            out=tmp_path / "out",
            device="cuda:1",
            dtype="bfloat16",
            implementation=("fast",),
            **settings,
        )
    assert asked == [("cuda:1", "bfloat16", "cpu")] * 2
    assert len(made) == 1
    assert all(one.is_meta for one in made[0].network.parameters())
    assert found.facts["device"] == "a pretend device, cuda:1"
    assert found.facts["session"]["device"] == "cuda:1"
    assert found.facts["checkpoint"]["spec"]["network_dtype"] == "bfloat16"
