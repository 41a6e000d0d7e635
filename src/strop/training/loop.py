"""The training loop: batch, loss, backward, clip, AdamW, average; measured, saved, continued.

Every step is a function of the state before it, the seed and its number. The state goes to disk
whole and in one piece, so a run that was killed continues from the last one and, on the CPU, ends
with the same bits as a run that was not.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor

from strop.checkpoints.files import refuse_mistyped
from strop.denoisers.device import upload
from strop.denoisers.tokenizer import TextCodec
from strop.errors import Incomplete, UserError
from strop.rng import derive_seed
from strop.training.data import Batches, HeldOutLoss, held_out_losses, prepare, summary
from strop.training.documents import TOKENIZER, Shards
from strop.training.model import (
    Noise,
    Trainable,
    attend_plainly,
    begin_with,
    build,
    check_compiler,
    compile_blocks,
    save_network,
)
from strop.training.optimizers import (
    Parts,
    averaged,
    is_kept,
    is_over,
    learning_rate,
    make_fabric,
    network_dtype,
    optimizers_of,
    share_done,
)
from strop.training.run import KEPT, PLOT, TrainingRun, plot_losses, stopping
from strop.training.spec import TrainSpec, read_spec

POLL_SECONDS = 0.5
"""How often a process looks whether the first one has prepared what it needs."""

SPEED_STEPS = 20
"""Steps over which tokens per second are averaged for the progress line."""


class TrainingProgress(Protocol):
    """Receives reports of a training run."""

    def say(self, text: str) -> None:
        """Report one sentence."""

    def advance(self, step: int, share: float, loss: float, speed: float, left: float) -> None:
        """After every step: share of the run done, loss, tokens per second, seconds left."""


class SilentTraining(TrainingProgress):
    """Progress that is not shown."""


@dataclass
class State:
    """Everything the next step depends on, besides the spec."""

    step: int = 0
    """The number of updates done."""
    seconds: float = 0.0
    """Training time over all sessions, without measuring and saving."""
    window: list[float] = field(default_factory=list)
    """Losses since the last logged one."""
    start: str | None = None
    """SHA-256 of the weights that the run began with, if they were a checkpoint's."""


def train(
    config: str | os.PathLike[str] | dict[str, Any] | TrainSpec,
    *,
    out: str | os.PathLike[str],
    data_root: str | os.PathLike[str] = ".",
    shards: str | os.PathLike[str] | None = None,
    changes: dict[str, Any] | None = None,
    device: str = "auto",
    strategy: str = "auto",
    prepare_only: bool = False,
    progress: TrainingProgress | None = None,
) -> dict[str, Any]:
    """Train by a configuration into the run directory `out`, or continue there; returns the result.

    `config` is a YAML file, the name of a shipped configuration, a mapping or a `TrainSpec`;
    `changes` replaces values by dotted keys. `data_root` is where relative paths of the sources
    begin, `shards` where the prepared corpus lies (default: inside the run).
    """
    spec = read_spec(config, changes)
    fabric = make_fabric(device, strategy)
    if progress is None or fabric.global_rank != 0:
        progress = SilentTraining()
    dtype = network_dtype(spec, fabric.device)
    _share_of_batch(spec, fabric)  # what would otherwise be told after hours of tokenising
    if spec.compile:
        check_compiler(fabric.device)
    with _alone(fabric, out, spec) as run:
        if spec.start is not None and not run.begun:  # later it is not needed, and may be gone
            refuse_mistyped(spec.start)
        corpus = _corpus(fabric, spec, run, Path(data_root), shards, progress)
        done = run.result()
        if prepare_only or done is not None:
            return done or {"shards": str(corpus.directory), "manifest": corpus.manifest}
        session = TrainingProcess(fabric, spec, run, corpus, dtype, progress)
        return session.finish()


@contextmanager
def _alone(fabric: Any, out: str | os.PathLike[str], spec: TrainSpec) -> Iterator[TrainingRun]:
    """The run, held by the first process for all."""
    if fabric.global_rank == 0:
        with TrainingRun.prepared(out, spec) as run:
            fabric.barrier()
            yield run
    else:
        fabric.barrier()
        yield TrainingRun(out)


@contextmanager
def first_alone(fabric: Any, folder: Path) -> Iterator[bool]:
    """Whether this process is the one that prepares; all leave when it has.

    The others look for a file meanwhile: a barrier would give up after half an hour.
    """
    if fabric.world_size == 1:
        yield True
        return
    ready = folder / f".ready-{fabric.broadcast(uuid4().hex)}"
    first = fabric.global_rank == 0
    yield first
    if first:
        ready.touch()
    while not ready.exists():
        time.sleep(POLL_SECONDS)
    fabric.barrier()
    if first:
        ready.unlink()


def _corpus(
    fabric: Any,
    spec: TrainSpec,
    run: TrainingRun,
    root: Path,
    shards: str | os.PathLike[str] | None,
    progress: TrainingProgress,
) -> Shards:
    """The first process prepares, the others wait and read."""
    directory, corpus = run.shards if shards is None else Path(shards), None
    with first_alone(fabric, run.path) as first:
        if first:
            corpus = prepare(spec.data, directory, root=root, say=progress.say)
            if run.result() is None:
                corpus.verify(progress.say)
    corpus = corpus or Shards(directory)
    masked = spec.model.family != "ar"
    needed = corpus.vocabulary + masked
    if spec.model.vocab_size not in (None, needed):
        raise UserError(
            "Tokenizer and model have different sizes.",
            where="model.vocab_size",
            got=spec.model.vocab_size,
            expected=f"{needed}: {corpus.vocabulary} tokens" + (" and the mask" if masked else ""),
            fix="leave model.vocab_size out, or use the tokenizer that the model was made for",
        )
    return corpus


class TrainingProcess:
    """One process's part in one sitting of a run."""

    def __init__(
        self,
        fabric: Any,
        spec: TrainSpec,
        run: TrainingRun,
        corpus: Shards,
        dtype: torch.dtype,
        progress: TrainingProgress,
    ) -> None:
        self.fabric, self.spec, self.run, self.corpus = fabric, spec, run, corpus
        self.progress = progress
        self.micro_batches = _share_of_batch(spec, fabric)
        self.batches = Batches(
            corpus.train,
            batch=spec.batch,
            seed=spec.seed,
            objective=spec.objective,
            block=spec.model.block_size,
        )
        module = build(
            spec,
            corpus.vocabulary,
            corpus.end_of_text,
            dtype,
            lambda: corpus.train.counts(corpus.vocabulary),
        )
        self.codec = TextCodec.from_directory(corpus.directory)
        resume = run.load_resume(spec)
        self.state = State()
        if resume is None and spec.start is not None:
            self.state.start = begin_with(module, spec.start, self.codec)
            progress.say(f"begins with the weights of {spec.start}")
        sharded = type(fabric.strategy).__name__ == "ModelParallelStrategy"
        self.average = averaged(module, spec.ema)
        if dtype == torch.bfloat16 and fabric.device.type == "cpu":
            attend_plainly(module)
        if spec.compile:
            compile_blocks(module, fabric.device)
        self.module = fabric.setup_module(module)
        if sharded:
            self.average.module = fabric.setup_module(self.average.module)
        else:
            self.average.to(fabric.device)
        self.optimizers = optimizers_of(spec, self.module, sharded, dtype)
        self.rates = [group["lr"] for o in self.optimizers for group in o.param_groups]
        self.fabric_optimizers = fabric.setup_optimizers(*self.optimizers)
        if len(self.optimizers) == 1:
            self.fabric_optimizers = [self.fabric_optimizers]
        self.parts = Parts(self.module, self.optimizers)
        self.mean_parts = Parts(self.average.module)
        self.network: Trainable = module
        plain = "causal" if spec.objective == "causal" else "any-order"
        self.form = "public" if spec.model.time_conditioning else plain
        self._resume(resume)

    @property
    def first(self) -> bool:
        """Whether this process writes."""
        return self.fabric.global_rank == 0

    def finish(self) -> dict[str, Any]:
        """Train to the end of the schedule, measure, write the result."""
        spec, state = self.spec, self.state
        began = time.monotonic()
        speed = _Speed(spec.batch * self.corpus.length)
        with stopping(self.fabric.world_size) as stop:
            saved_at = time.monotonic()
            while not is_over(spec, state.step, state.seconds):
                loss, keep = self._step()
                share = share_done(spec, state.step, state.seconds)
                left = state.seconds * (1 - share) / max(share, 1e-9)
                self.progress.advance(
                    state.step, share, loss, speed.after(state.step, state.seconds), left
                )
                over = is_over(spec, state.step, state.seconds)
                if not over and state.step % spec.eval_every == 0:
                    self._measure(spec.eval_rows)
                due = spec.save_every is not None and state.step % spec.save_every == 0
                late = self._agree(time.monotonic() - saved_at) > 60 * spec.save_minutes
                if keep or over or due or late or stop.requested:
                    self._save(keep or over)
                    saved_at = time.monotonic()
                if stop.requested and not over:
                    raise Incomplete(
                        "Training was asked to stop; everything is saved.",
                        where=self.run.path,
                        got=f"step {state.step}, {share:.1%} of the run",
                        fix="run the same command again to continue",
                    )
        return self._result(time.monotonic() - began)

    def _step(self) -> tuple[float, bool]:
        """One update; returns its loss and whether its checkpoint is one to keep."""
        spec, state, fabric = self.spec, self.state, self.fabric
        began = time.monotonic()
        before = share_done(spec, state.step, state.seconds)
        rate = learning_rate(spec, state.step, before)
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        for group, highest in zip(groups, self.rates, strict=True):
            group["lr"] = highest * rate / spec.lr
        numbers = self.batches.numbers(state.step)
        total = self._backward(numbers)
        loss = float(fabric.all_reduce(total, reduce_op="mean"))
        norm = float(torch.nn.utils.clip_grad_norm_(self.module.parameters(), spec.clip))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise self._diverged(loss, norm, numbers)
        for optimizer in self.fabric_optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.average.update_parameters(self.module)
        state.step += 1
        state.seconds = self._agree(state.seconds + time.monotonic() - began)
        state.window.append(loss)
        if state.step % spec.log_every == 0 or is_over(spec, state.step, state.seconds):
            self._log(rate, norm)
        now = share_done(spec, state.step, state.seconds)
        return loss, is_kept(spec, state.step, before, now)

    def _backward(self, numbers: np.ndarray) -> Tensor:
        """Gradients of this process's micro-batches; returns their mean loss."""
        spec, step = self.spec, self.state.step
        noise = self.batches.noise(step)
        self.module.train()
        total = torch.zeros((), device=self.fabric.device)
        for micro in self.micro_batches:
            # Every so many-th sequence: each micro-batch then has all noise levels, and no process
            # is left with the batch's heavily masked end.
            part = slice(micro, None, spec.batch // spec.micro)
            if spec.model.dropout:  # which units drop depends on the micro-batch, not the process
                torch.manual_seed(derive_seed(spec.seed, "dropout", step, micro))
            more = micro != self.micro_batches[-1]
            with self.fabric.no_backward_sync(self.module, enabled=more):
                losses = self._losses(
                    self.module,
                    self.batches.ids(numbers[part]),
                    None if noise is None else noise.part(part),
                )
                loss = losses.mean() / len(self.micro_batches)
                self.fabric.backward(loss)
            total += loss.detach()
        return total

    def _losses(self, module: Any, ids: Tensor, noise: Noise | None) -> Tensor:
        device = self.fabric.device
        on_device = upload(ids, device)
        return (
            module(on_device) if noise is None else module(on_device, *noise.to(device).tensors())
        )

    def _log(self, rate: float, norm: float) -> None:
        state = self.state
        if self.first:
            self.run.measure(
                {
                    "kind": "train",
                    "step": state.step,
                    "loss": float(np.mean(state.window)),
                    "lr": rate,
                    "gradient_norm": norm,
                    "tokens": state.step * self.spec.batch * self.corpus.length,
                    "seconds": round(state.seconds, 3),
                }
            )
        state.window.clear()

    def _measure(self, rows: int) -> HeldOutLoss:
        """Held-out loss of the averaged weights."""
        fabric, spec = self.fabric, self.spec
        self.average.eval()
        losses = held_out_losses(
            lambda ids, noise: self._losses(self.average.module, ids, noise),
            self.corpus.held_out,
            count=rows,
            form=self.form,
            seed=spec.seed,
            batch=spec.micro,
            block=spec.model.block_size,
            share=(fabric.global_rank, fabric.world_size),
        )
        if fabric.world_size > 1:
            summed = fabric.all_reduce(torch.from_numpy(losses).to(fabric.device), reduce_op="sum")
            losses = summed.cpu().numpy()
        held_out = summary(losses, self.corpus.held_out, self.form, self.codec)
        if self.first:
            self.run.measure({"kind": "held_out", "step": self.state.step, **vars(held_out)})
        loss = held_out.nats_per_token
        self.progress.say(
            f"step {self.state.step}: held out {loss.value:.4f} nats per token "
            f"{loss.span('.4f')}, perplexity {held_out.perplexity.value:.1f}"
        )
        return held_out

    def _save(self, keep: bool) -> None:
        """A loadable checkpoint, then the resume state, then older ones go."""
        state, run = self.state, self.run
        weights, mean = self.parts.weights(), self.mean_parts.weights()
        optimizer = self.parts.optimizer_state()
        if self.first:
            with run.new_checkpoint(state.step) as directory:
                tensors = {key.removeprefix("network."): value for key, value in mean.items()}
                tokenizer = (self.corpus.directory / TOKENIZER).read_bytes()
                save_network(directory, self.network, tensors, tokenizer, self.corpus.end_of_text)
                if keep:
                    (directory / KEPT).touch()
            run.save_resume(
                {
                    "step": state.step,
                    "seconds": state.seconds,
                    "window": list(state.window),
                    "start": state.start,
                    "weights": weights,
                    "average": mean,
                    "updates": int(self.average.n_averaged),
                    "optimizer": optimizer,
                },
                self.spec,
            )
            run.drop_checkpoints(state.step)
        self.fabric.barrier()

    def _resume(self, state: dict[str, Any] | None) -> None:
        if state is None:
            if self.first:
                self.run.cut_metrics(0)
            return
        self.parts.load_weights(state["weights"])
        self.mean_parts.load_weights(state["average"])
        self.average.n_averaged.fill_(state["updates"])
        self.parts.load_optimizer(state["optimizer"])
        self.state = State(
            state["step"], state["seconds"], list(state["window"]), state.get("start")
        )
        if self.first:
            self.run.cut_metrics(self.state.step)
        self.progress.say(f"continuing at step {self.state.step}")

    def _agree(self, seconds: float) -> float:
        """The first process's clock, for all processes."""
        if self.fabric.world_size == 1:
            return seconds
        # A number: a tensor would be unpickled on the first process's device, by everybody.
        return float(self.fabric.broadcast(seconds))

    def _diverged(self, loss: float, norm: float, numbers: np.ndarray) -> UserError:
        places = ", ".join(str(n) for n in self.corpus.train.places(numbers)[:8])
        good = self.run.checkpoints()
        last = good[max(good)] if good else None
        return UserError(
            "The loss is not finite; training has stopped before it could spoil the weights.",
            where=f"step {self.state.step + 1}, rows {places}"
            + (" ..." if len(numbers) > 8 else "")
            + f" of {self.corpus.directory}",
            got=f"loss {loss}, gradient norm {norm}",
            expected="finite numbers; the last good checkpoint is "
            + (str(last) if last else "the beginning, none was saved yet"),
            fix="lower lr, raise warmup, or look at these rows; then start a new run",
        )

    def _result(self, seconds: float) -> dict[str, Any]:
        measured = self._measure(self.spec.final_rows)
        checkpoints = self.run.checkpoints()
        result = {
            "name": self.spec.name,
            "id": self.spec.id,
            "steps": self.state.step,
            "tokens": self.state.step * self.spec.batch * self.corpus.length,
            "seconds": round(self.state.seconds, 3),
            "session_seconds": round(seconds, 3),
            "start_sha256": self.state.start,
            "parameters": sum(p.numel() for p in self.network.parameters()),
            "held_out": vars(measured),
            "checkpoint": str(checkpoints[max(checkpoints)]) if checkpoints else None,
            "checkpoints": {str(step): str(path) for step, path in checkpoints.items()},
            "device": str(self.fabric.device),
            "processes": self.fabric.world_size,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
        if self.first:
            plot_losses(self.run.metrics(), self.run.path / PLOT, self.spec.name)
            self.run.finish(result)
        self.fabric.barrier()
        return result


def _share_of_batch(spec: TrainSpec, fabric: Any) -> range:
    """The numbers of this process's micro-batches; every process has equally many."""
    count, world = spec.batch // spec.micro, fabric.world_size
    if count % world:
        raise UserError(
            "The batch cannot be shared equally among the processes.",
            where="TrainSpec.micro_batch",
            got=f"{count} micro-batches of {spec.micro} for {world} processes",
            expected=f"a multiple of {world}",
            fix=f"set micro_batch to {max(1, spec.batch // world)} or a divisor of it",
        )
    each = count // world
    return range(fabric.global_rank * each, (fabric.global_rank + 1) * each)


class _Speed:
    """Tokens per second of training over the last steps."""

    def __init__(self, tokens_per_step: int) -> None:
        self.tokens = tokens_per_step
        self.marks: deque[tuple[int, float]] = deque(maxlen=SPEED_STEPS + 1)

    def after(self, step: int, seconds: float) -> float:
        """The speed, once two steps are known."""
        self.marks.append((step, seconds))
        (first, then) = self.marks[0]
        return self.tokens * (step - first) / (seconds - then) if seconds > then else 0.0
