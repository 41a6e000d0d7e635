"""Whole runs: they learn, survive anything, do not depend on the number of processes, refuse."""

import errno
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from toy import same, train, weights

import strop
import warm_processes
from strop.cli.main import run as strop_command
from strop.errors import Incomplete, UserError
from strop.training.data import Batches, prepare
from strop.training.loop import SilentTraining, TrainingProcess, first_alone
from strop.training.loop import train as run_training
from strop.training.run import TrainingRun
from strop.training.spec import DataSpec, config_names, read_spec

TORCHRUN = f"""
import sys
sys.path.append({str(Path(warm_processes.__file__).parent)!r})
import warm_processes
from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler
warm_processes.from_now_on()
subprocess_handler.Popen = warm_processes.subprocess.Popen
from torch.distributed.run import main
main()
"""
"""The launcher itself; the processes that it starts have loaded torch."""


def torchrun():
    """Two processes on this machine, at a port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    launcher = [sys.executable, "-c", TORCHRUN, "--nproc-per-node", "2"]
    return [*launcher, "--master-addr", "127.0.0.1", "--master-port", str(port)]


@pytest.mark.slow
def test_it_learns_more_than_word_frequencies(corpus):
    # The unigram bound is the held-out cross-entropy of the training frequencies: what a model
    # that ignores all context can reach. The toy language is far more regular than that.
    result = train(
        corpus,
        picture=True,
        steps=240,
        batch=16,
        micro_batch=16,
        lr=4e-3,
        warmup=20,
        ema=0.98,
        eval_every=60,
        final_rows=256,
        save_every=None,
        model={"dropout": 0.0, "init": "public"},
    )
    shards = prepare(DataSpec(**toy.config()["data"]), corpus / "shards", root=corpus)
    counts = shards.train.counts(300) + 0.5
    held = shards.held_out[np.arange(len(shards.held_out))]
    unigram = float(-np.log(counts / counts.sum())[held].mean())
    assert (
        result["held_out"]["nats_per_token"].high < unigram - 0.5
    )  # even the interval's upper end
    measured = [
        entry["nats_per_token"].value
        for entry in TrainingRun(corpus / "run").metrics()
        if entry["kind"] == "held_out"
    ]
    assert measured == sorted(measured, reverse=True)
    assert math.exp(measured[-1]) == pytest.approx(result["held_out"]["perplexity"].value)
    assert (corpus / "run" / "loss.png").stat().st_size > 5_000


def test_checkpoints_load_and_have_the_measured_loss(corpus):
    result = train(corpus, keep_steps=[6], steps=9)
    assert sorted(result["checkpoints"]) == ["6", "9"]
    denoiser = strop.load_denoiser(result["checkpoint"], device="cpu")
    assert (denoiser.vocab_size, denoiser.mask_id, denoiser.length) == (301, 300, 32)
    assert denoiser.codec is not None
    pool = strop.draw.sample(denoiser, strop.SamplerSpec(steps=4), n=2)
    assert pool.texts is not None
    # The denoiser that everyone else loads has the loss that the run reports.
    from strop.training.data import held_out_losses
    from strop.training.documents import Shards
    from training.dense_loss import loss_per_token

    losses = held_out_losses(
        lambda ids, noise: loss_per_token(denoiser, ids, noise=noise).mean(-1),
        Shards(corpus / "shards").held_out,
        count=32,
        form="any-order",
        seed=5,
        batch=8,
    )
    assert losses.mean() == pytest.approx(result["held_out"]["nats_per_token"].value, rel=1e-5)


def test_causal_models_load_in_transformers(corpus):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = {"family": "ar", "hidden_dim": 32, "n_blocks": 1, "n_heads": 2, "dropout": 0.0}
    spec = {**toy.config(objective="causal", steps=6), "model": model}
    result = run_training(spec, out=corpus / "ar", data_root=corpus, device="cpu")
    loaded = AutoModelForCausalLM.from_pretrained(result["checkpoint"])
    tokenizer = AutoTokenizer.from_pretrained(result["checkpoint"])
    assert tokenizer.eos_token == "<|endoftext|>"
    shards = prepare(DataSpec(**spec["data"]), corpus / "ar" / "shards", root=corpus)
    rows = torch.from_numpy(shards.held_out[np.arange(len(shards.held_out))])
    numbers = np.linspace(0, len(rows) - 1, 32).round().astype(int)
    with torch.no_grad():  # transformers' own loss, shifted inside
        loss = float(loaded(input_ids=rows[numbers], labels=rows[numbers]).loss)
    assert loss == pytest.approx(result["held_out"]["nats_per_token"].value, rel=1e-5)
    text = "The old king saw the river."
    codec = strop.denoisers.tokenizer.TextCodec.from_directory(result["checkpoint"])
    assert tokenizer(text)["input_ids"] == codec.encode(text)


def test_batches_are_pure_functions_of_the_step(corpus):
    rows = prepare(DataSpec(**toy.config()["data"]), corpus / "shards", root=corpus).train
    made = [Batches(rows, batch=48, seed=1, objective="public") for _ in range(2)]
    for step in (40, 3, 0, 41, 3):  # in any order, over epochs
        assert np.array_equal(
            made[0].numbers(step), Batches(rows, batch=48, seed=1, objective="public").numbers(step)
        )
        assert torch.equal(made[0].noise(step).hidden, made[1].noise(step).hidden)
    steps = -(-len(rows) // 48)
    seen = np.concatenate([made[0].numbers(step) for step in range(steps)])[: len(rows)]
    assert sorted(seen) == list(range(len(rows)))  # an epoch is every row once
    other = Batches(rows, batch=48, seed=2, objective="public")
    assert not np.array_equal(other.numbers(3), made[0].numbers(3))
    assert not torch.equal(other.noise(3).hidden, made[0].noise(3).hidden)


def test_killed_at_any_moment_it_ends_with_the_same_bits(corpus):
    whole = train(corpus, "whole", steps=26, keep_steps=[13])
    spec = toy.config(steps=26, keep_steps=[13])
    (corpus / "config.json").write_text(json.dumps(spec))  # JSON is YAML
    kills = 0
    for after in (3, 10, 17):
        process = toy.start(corpus, "killed")
        deadline = time.monotonic() + 600  # only guards a hang
        while process.poll() is None and time.monotonic() < deadline:
            try:
                reached = toy.losses(corpus / "killed")[-1][0]
            except (OSError, IndexError, ValueError):
                reached = 0
            if reached >= after:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.002)
        process.communicate()
        assert not (corpus / "killed" / "result.json").exists()
    assert kills == 3
    process = toy.start(corpus, "killed")
    _, told = process.communicate(timeout=600)
    assert process.returncode == 0, told
    assert "continuing at step" in told
    ended = TrainingRun(corpus / "killed").result()
    assert same(weights(ended), weights(whole))
    assert toy.losses(corpus / "killed") == toy.losses(corpus / "whole")
    assert ended["held_out"] == whole["held_out"]
    one, two = (
        torch.load(corpus / run / "resume.pt", weights_only=True) for run in ("killed", "whole")
    )
    assert same(one["weights"], two["weights"])
    assert one["optimizer"]["state"].keys() == two["optimizer"]["state"].keys()
    for key, moments in one["optimizer"]["state"].items():
        assert same(moments, two["optimizer"]["state"][key])
    early = [corpus / run / "checkpoints" / "step-00000013" for run in ("killed", "whole")]
    files = [(path / "model.safetensors").read_bytes() for path in early]
    assert files[0] == files[1]


def test_another_seed_gives_other_bits(corpus):
    # The control of the tests above: equality is not for lack of anything to differ.
    assert not same(
        weights(train(corpus, "a", steps=3)), weights(train(corpus, "b", steps=3, seed=6))
    )


@pytest.mark.parametrize(
    ("objective", "strategy"),
    [
        ("any-order", "ddp"),
        # The test below shares weights in every run of the tests, with the same curve.
        pytest.param("any-order", "fsdp", marks=pytest.mark.slow),
        pytest.param("public", "ddp", marks=pytest.mark.slow),
    ],
)
def test_two_processes_give_the_curve_of_one(corpus, objective, strategy):
    # Dropout is on: which units drop goes by micro-batch, not by process.
    spec = toy.config(steps=8, objective=objective)
    (corpus / "config.json").write_text(json.dumps(spec))
    one = train(corpus, "one", steps=8, objective=objective)
    process = toy.start(corpus, "two", launcher=torchrun(), flags=["--strategy", strategy])
    _, told = process.communicate(timeout=600)
    assert process.returncode == 0, told
    two = TrainingRun(corpus / "two").result()
    assert two["processes"] == 2
    curves = [np.array(toy.losses(corpus / run)) for run in ("one", "two")]
    assert curves[0].shape == (8, 2)
    assert np.allclose(curves[0], curves[1], rtol=1e-5)
    assert two["held_out"]["nats_per_token"].value == pytest.approx(
        one["held_out"]["nats_per_token"].value, rel=1e-5
    )
    for key, value in weights(one).items():
        assert torch.allclose(value, weights(two)[key], atol=2e-4), key


@pytest.mark.slow
def test_another_strategy_continues_a_run(corpus):
    # Saved by one process, continued by two that share the weights between them.
    whole = train(corpus, "whole", steps=8)

    class Stopper(SilentTraining):
        def advance(self, step, *_others):
            if step == 4:
                os.kill(os.getpid(), signal.SIGTERM)

    spec = toy.config(steps=8)
    (corpus / "config.json").write_text(json.dumps(spec))
    where = {"out": corpus / "run", "data_root": corpus, "shards": corpus / "shards"}
    with pytest.raises(Incomplete):
        run_training(spec, **where, device="cpu", progress=Stopper())
    process = toy.start(corpus, "run", launcher=torchrun(), flags=["--strategy", "fsdp"])
    _, told = process.communicate(timeout=600)
    assert process.returncode == 0, told
    assert "continuing at step 4" in told
    assert np.allclose(toy.losses(corpus / "run"), toy.losses(corpus / "whole"), rtol=1e-5)
    ended = weights(TrainingRun(corpus / "run").result())
    for key, value in weights(whole).items():
        assert torch.allclose(value, ended[key], atol=2e-4), key


def test_micro_batches_change_nothing_but_memory(corpus):
    off = {"dropout": 0.0}
    one = train(corpus, "one", steps=4, micro_batch=8, model=off)
    two = train(corpus, "two", steps=4, micro_batch=2, model=off)
    assert one["held_out"]["nats_per_token"].value == pytest.approx(
        two["held_out"]["nats_per_token"].value, rel=1e-5
    )
    assert np.allclose(toy.losses(corpus / "one"), toy.losses(corpus / "two"), rtol=1e-5)


def test_minutes_end_a_run_and_keep_a_share(corpus):
    result = train(
        corpus, steps=None, minutes=0.03, keep_shares=[0.3], decay="linear", decay_from=0.5
    )
    assert 1.8 <= result["seconds"] < 4
    early, last = sorted(int(step) for step in result["checkpoints"])
    assert 0 < early < 0.6 * last
    rates = [e["lr"] for e in TrainingRun(corpus / "run").metrics() if e["kind"] == "train"]
    assert rates[-1] < 0.2 * max(rates)


def test_a_finished_run_is_not_run_again(corpus):
    first = train(corpus, steps=3)
    began = time.monotonic()
    assert train(corpus, steps=3) == first
    assert time.monotonic() - began < 2


def test_a_stop_is_saved_and_continued(corpus):
    whole = train(corpus, "whole", save_every=None)

    class Stopper(SilentTraining):
        def advance(self, step, *_others):
            if step == 5:
                os.kill(os.getpid(), signal.SIGTERM)

    spec = toy.config(save_every=None)
    where = {"out": corpus / "run", "data_root": corpus, "shards": corpus / "shards"}
    with pytest.raises(Incomplete, match="asked to stop") as caught:
        run_training(spec, **where, device="cpu", progress=Stopper())
    assert "step 5" in caught.value.got
    assert same(weights(train(corpus, save_every=None)), weights(whole))


def test_a_resume_state_of_another_configuration_is_refused(corpus):
    train(corpus, steps=3)
    with pytest.raises(UserError, match="another configuration") as caught:
        train(corpus, steps=3, lr=1e-3, model={"n_blocks": 1})
    assert "lr: 0.002 there, 0.001 now" in caught.value.got
    assert "model.n_blocks: 2 there, 1 now" in caught.value.got
    # The state itself is checked too, not only the run's own description.
    train(corpus, "other", steps=4, seed=9)
    (corpus / "run" / "result.json").unlink()
    os.replace(corpus / "other" / "resume.pt", corpus / "run" / "resume.pt")
    with pytest.raises(UserError, match="another configuration") as caught:
        train(corpus, steps=3)
    assert "seed: 9 there, 5 now" in caught.value.got


def test_a_damaged_resume_state_is_told(corpus):
    train(corpus, steps=3)
    (corpus / "run" / "result.json").unlink()
    content = (corpus / "run" / "resume.pt").read_bytes()
    (corpus / "run" / "resume.pt").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="damaged") as caught:
        train(corpus, steps=3)
    assert "resume.pt" in caught.value.where


def test_non_finite_loss_stops_with_step_rows_and_checkpoint(corpus, monkeypatch):
    from strop.training import loop

    real = loop.TrainingProcess._losses

    def poisoned(self, module, ids, noise):
        out = real(self, module, ids, noise)
        return out * float("nan") if self.state.step == 7 and module is self.module else out

    monkeypatch.setattr(loop.TrainingProcess, "_losses", poisoned)
    with pytest.raises(UserError, match="not finite") as caught:
        train(corpus)
    error = caught.value
    assert error.where.startswith("step 8, rows ")
    assert error.expected.endswith("step-00000006")
    state = torch.load(corpus / "run" / "resume.pt", weights_only=True)
    assert state["step"] == 6
    assert all(torch.isfinite(value).all() for value in state["weights"].values())
    monkeypatch.undo()
    assert train(corpus)["steps"] == 12  # and it continues from there once the cause is gone


def test_exploding_training_is_noticed(corpus):
    with pytest.raises(UserError, match="not finite"):
        train(corpus, steps=200, lr=1e30, warmup=0, clip=1e30)


def test_disk_full_while_saving_leaves_the_last_state(corpus, monkeypatch):
    from strop import disk

    real = os.fsync
    files = []

    def full(handle):
        if os.path.isfile(f"/proc/self/fd/{handle}"):
            files.append(os.readlink(f"/proc/self/fd/{handle}"))
            if TrainingRun(corpus / "run").checkpoints().keys() >= {3}:
                raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    prepare(DataSpec(**toy.config()["data"]), corpus / "shards", root=corpus)
    monkeypatch.setattr(disk.os, "fsync", full)
    with pytest.raises(UserError, match="disk is full"):
        train(corpus)
    monkeypatch.undo()
    assert files
    leftovers = list((corpus / "run").rglob(".tmp-*"))
    assert leftovers == []
    assert same(weights(train(corpus)), weights(train(corpus, "whole")))


def test_two_trainers_in_one_directory(corpus):
    spec = read_spec(toy.config())
    with (
        TrainingRun.prepared(corpus / "run", spec),
        pytest.raises(UserError, match="Another process"),
    ):
        train(corpus)


def test_tokenizer_and_model_of_different_sizes(corpus):
    with pytest.raises(UserError, match="different sizes") as caught:
        train(corpus, model={"vocab_size": 300})
    assert (caught.value.got, caught.value.expected[:3]) == ("300", "301")
    assert train(corpus, "fits", steps=1, model={"vocab_size": 301})["steps"] == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"steps": None},
        {"steps": 0},
        {"micro_batch": 3},
        {"lr": 0},
        {"lr": float("nan")},
        {"ema": 1.0},
        {"objective": "causal"},
        {"objective": "sideways"},
        {"keep_shares": [1.5]},
        {"batch": -8},
        {"nonsense": 1},
        {"model": {"n_heads": 3}},
        {"model": {"dropout": 1.0}},
        {"model": {"time_conditioning": True}},
        {"precision": "float16"},
    ],
)
def test_bad_values_are_user_errors(corpus, bad):
    with pytest.raises(UserError):
        train(corpus, **bad)


def test_shipped_configurations_are_valid():
    names = config_names()
    assert {"mdlm-tiny", "mdlm-small", "embedded", "embedded-tiny", "embedded-ar"} <= set(names)
    for name in names:
        assert read_spec(name).name == name


def test_public_configurations_have_the_public_shapes():
    from strop.checkpoints.config import SHAPES, parameter_count
    from strop.training.model import shape_of

    for name, preset, count in (("tiny", "tiny", 33_789_010), ("small", "small", 169_627_218)):
        spec = read_spec(f"mdlm-{name}")
        assert shape_of(spec, 50257) == SHAPES[preset]
        assert parameter_count(shape_of(spec, 50257)) == count
        assert spec.keep_steps == (20_788, 914_672)
        assert (spec.lr, spec.warmup, spec.ema, spec.batch) == (3e-4, 2500, 0.9999, 512)
        assert spec.data.held_out.last == 100_000


def test_configurations_that_cannot_be_found_or_read(tmp_path, corpus):
    with pytest.raises(UserError, match="no configuration called"):
        read_spec("mdlm-tinny")
    (tmp_path / "bad.yaml").write_text("a: [1, 2")
    with pytest.raises(UserError, match="cannot be read"):
        read_spec(tmp_path / "bad.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(UserError, match="not a mapping"):
        read_spec(tmp_path / "list.yaml")
    assert read_spec(toy.config(), {"model.n_blocks": 4}).model.n_blocks == 4


def test_the_command_line(corpus, capsys):
    (corpus / "config.json").write_text(json.dumps(toy.config(steps=4)))
    flags = ["-o", str(corpus / "run"), "--data-root", str(corpus), "--device", "cpu"]
    again = ["train", str(corpus / "config.json"), *flags, "--set", "lr=1e-3", "--json"]
    assert strop_command(again) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["steps"] == 4
    assert "next: strop sample" in err
    assert TrainingRun(corpus / "run").spec.lr == 1e-3
    assert strop_command(["show", str(corpus / "run")]) == 0
    out, _ = capsys.readouterr()
    assert "finished: 4 steps done of 4 steps" in out
    assert "held out" in out
    assert strop_command(["show", str(corpus / "run"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["finished"]
    assert shown["spec"]["lr"] == 1e-3
    assert strop_command(["ls", str(corpus), "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["runs"]
    assert (listed["kind"], listed["state"]) == ("training", "finished")
    assert strop_command(["train", "nowhere.yaml", "-o", str(corpus / "x"), "--json"]) == 1
    assert "error" in json.loads(capsys.readouterr().out)
    assert strop_command(["train", str(corpus / "config.json"), *flags, "--set", "lr"]) == 1


def test_specs_load_without_torch():
    code = "import sys, strop; strop.TrainSpec; from strop.training.spec import read_spec; "
    code += "read_spec('mdlm-tiny'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_prepare_only(corpus, capsys):
    (corpus / "config.json").write_text(json.dumps(toy.config()))
    flags = ["-o", str(corpus / "run"), "--data-root", str(corpus), "--device", "cpu"]
    assert strop_command(["train", str(corpus / "config.json"), *flags, "--prepare-only"]) == 0
    assert (corpus / "run" / "shards" / "manifest.json").is_file()
    assert not (corpus / "run" / "resume.pt").exists()
    assert "tokens" in capsys.readouterr().out


def test_compiling_needs_a_compiler(corpus, monkeypatch):
    monkeypatch.setattr("strop.training.model.shutil.which", lambda _: None)
    with pytest.raises(UserError, match="compile: false"):
        train(corpus, compile=True, steps=2)
    assert not (corpus / "shards").exists()  # told before the corpus is prepared


def test_what_can_be_known_is_told_before_the_corpus_is_prepared(corpus):
    sources = [*toy.config()["data"]["sources"], {"name": "b", "path": "no.txt", "licence": "x"}]
    with pytest.raises(UserError, match="no such file"):
        train(corpus, data={"sources": sources})
    assert not (corpus / "shards" / "tokenizer.json").exists()
    (corpus / "old").mkdir()
    with pytest.raises(UserError, match="holds no 'step-3'"):
        train(corpus, "other", start=str(corpus / "old" / "step-3"))
    assert not list((corpus / "shards").glob("*.bin"))


@pytest.mark.slow
def test_compiled_blocks_follow_the_same_curve(corpus):
    """Compiling changes rounding and nothing else, also in a run that is continued."""
    quiet = {**toy.config()["model"], "dropout": 0.0}  # compiled code draws other masks
    curves = []
    for name, compiled in (("plain", False), ("compiled", True)):
        train(corpus, run=name, model=quiet, compile=compiled, steps=6, log_every=1)
        curves.append([loss for _, loss in toy.losses(corpus / name)])
    assert curves[0] == pytest.approx(curves[1], rel=1e-4)


def test_the_ten_lines_of_the_page_train_on_a_text_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    block = page.split("```yaml\n", 1)[1].split("```", 1)[0]
    assert len(block.splitlines()) == 10
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(block)
    toy.write_corpus(Path("mine.txt"), toy.documents(21, seed=3))
    small = {"steps": 2, "batch": 2, "data.bpe_size": 300, "data.length": 16}
    small |= {"model.hidden_dim": 16, "model.n_blocks": 1, "final_rows": 2, "eval_rows": 2}
    changes = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    assert strop_command(["train", "mine.yaml", *changes, "--device", "cpu", "-o", "run"]) == 0
    assert Path("run/checkpoints/step-00000002/model.safetensors").is_file()


class Ranks:
    """Two processes' fabric, as one of them sees it; a barrier says what was there before it."""

    def __init__(self, rank: int, folder: Path) -> None:
        self.global_rank, self.world_size, self.folder = rank, 2, folder
        self.seen: list[int] = []

    def broadcast(self, value: str | float) -> str | float:
        assert type(value) in (str, float)  # a tensor would be unpickled on the first one's device
        return "token" if isinstance(value, str) else value + 1

    def barrier(self) -> None:
        self.seen.append(len(list(self.folder.glob(".ready-token"))))


def test_processes_look_for_a_file_while_the_first_one_prepares(tmp_path, monkeypatch):
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            (tmp_path / ".ready-token").touch()

    monkeypatch.setattr("strop.training.loop.time.sleep", sleep)
    other = Ranks(1, tmp_path)
    with first_alone(other, tmp_path) as first:
        assert not first
        assert other.seen == []
    assert (len(looks), other.seen) == (3, [1])
    (tmp_path / ".ready-token").unlink()
    mine = Ranks(0, tmp_path)
    with first_alone(mine, tmp_path) as first:
        assert first
        assert not list(tmp_path.glob(".ready-*"))
    assert mine.seen == [1]
    assert not list(tmp_path.glob(".ready-*"))
    with pytest.raises(OSError, match="disk"), first_alone(Ranks(0, tmp_path), tmp_path):
        raise OSError("no room on the disk")
    assert not list(tmp_path.glob(".ready-*"))


def test_the_clock_of_the_first_process_is_sent_as_a_number(tmp_path):
    class Clock:
        fabric: Any = Ranks(1, tmp_path)

    assert TrainingProcess._agree(Clock(), 3.0) == 4.0  # type: ignore[arg-type]
    Clock.fabric.world_size = 1
    assert TrainingProcess._agree(Clock(), 3.0) == 3.0  # type: ignore[arg-type]
