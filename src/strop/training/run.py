"""The directory of a training run: names, metrics, checkpoints, the resume state.

RUN/
  strop.json                     whose it is, and the spec, whole
  shards/                        the corpus, unless it lies elsewhere
  metrics.jsonl                  a line per logged step and per held-out measurement
  resume.pt                      everything the next step depends on
  checkpoints/step-00020788/     loadable: config.json, model.safetensors, tokenizer.json
  result.json, loss.png          at the end

Also what a run does when it is asked to stop, and its picture of the loss.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from strop.disk import TEMPORARY, disk, replacing, sync_folder, write
from strop.errors import UserError
from strop.store import FORMAT, Folder, Mark, read_mark
from strop.store.folder import MARK, RESULT, as_json, damaged, parsed, setting_changes
from strop.table import plain, revived
from strop.training.curve import METRICS, draw_losses, read_metrics
from strop.training.spec import TrainSpec


def plot_losses(metrics: list[dict[str, Any]], path: Path, title: str) -> None:
    """The losses as a PNG file."""
    buffer = io.BytesIO()
    draw_losses(metrics, title).savefig(buffer, format="png", dpi=180)
    write(path, buffer.getvalue())


class Stop:
    """Whether the run was asked to stop."""

    requested = False


@contextmanager
def stopping(world: int) -> Iterator[Stop]:
    """Let Ctrl-C and SIGTERM end the run after the step under way, saved.

    Of several processes each would stop at a step of its own and wait for the others; there the
    signals keep their usual meaning and the last resume state holds.
    """
    stop = Stop()

    def ask(_number: int, _frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True

    if world > 1:
        yield stop
        return
    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread, which alone may handle signals
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


RESUME, PLOT = "resume.pt", "loss.png"
CHECKPOINTS, SHARDS = "checkpoints", "shards"
KEPT = "kept"
"""A file in a checkpoint that the schedule keeps."""
STATE = ("step", "seconds", "window", "weights", "average", "updates", "optimizer", "spec")
"""What a resume state holds, as `strop.training.loop` makes it."""


class _TrainingFolder(Folder):
    def _look(self, force: bool) -> Mark | None:
        mark, run = super()._look(force), TrainingRun(self.path)
        if mark is None and run.checkpoints() and not run.begun:
            raise self.stranger([CHECKPOINTS])  # somebody else's: nothing says how they came about
        return mark


class TrainingRun:
    """One run on disk."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    @contextmanager
    def prepared(cls, path: str | os.PathLike[str], spec: TrainSpec) -> Iterator[TrainingRun]:
        """A new run, or one of the same spec to continue; only one process trains in it."""
        run, folder = cls(path), _TrainingFolder(path, "training", "train")
        with folder.held(wait=False) as mark:
            if mark is not None:
                run._refuse_another(run.spec.model_dump(mode="json"), spec, run.path / MARK)
            else:
                run.load_resume(spec)  # where only the mark was lost, it must be of this run
                folder.write(spec.model_dump(mode="json"))
            with disk(run.path):
                (run.path / CHECKPOINTS).mkdir(exist_ok=True)
                for leftover in (run.path / CHECKPOINTS).glob(f"{TEMPORARY}*"):
                    shutil.rmtree(leftover)
            yield run

    @property
    def spec(self) -> TrainSpec:
        """The spec of the run."""
        mark = read_mark(self.path)
        if mark is None or mark.kind != "training":
            raise _damaged(self.path / MARK, "it is not a training run's")
        try:
            return TrainSpec(**mark.asked)
        except UserError as error:
            raise _damaged(self.path / MARK, error) from None

    @property
    def begun(self) -> bool:
        """Whether there is a state to continue from."""
        return (self.path / RESUME).is_file()

    @property
    def shards(self) -> Path:
        """Where the corpus lies unless it was put elsewhere."""
        return self.path / SHARDS

    def metrics(self) -> list[dict[str, Any]]:
        """All measurements, by step."""
        return read_metrics(self.path)

    def cut_metrics(self, step: int) -> None:
        """Forget measurements after a step: the steps after it are done again."""
        remaining = [entry for entry in self.metrics() if entry["step"] <= step]
        write(self.path / METRICS, b"".join(_line(entry) for entry in remaining))

    def measure(self, entry: dict[str, Any]) -> None:
        """Append one measurement."""
        with disk(self.path), open(self.path / METRICS, "ab") as file:
            file.write(_line(entry))

    def result(self) -> dict[str, Any] | None:
        """The final numbers, if the run has ended."""
        path = self.path / RESULT
        if not path.is_file():
            return None
        try:
            content = parsed(path)
            if not isinstance(content, dict):
                raise ValueError("it does not hold an object")
        except ValueError as error:
            raise _damaged(path, error) from None
        return revived(content)

    def finish(self, result: dict[str, Any]) -> None:
        """Write the final numbers."""
        write(self.path / RESULT, as_json(plain(result)))

    def checkpoints(self) -> dict[int, Path]:
        """Loadable checkpoints by step."""
        folders = (self.path / CHECKPOINTS).glob("step-*")
        numbered = {path.name.removeprefix("step-"): path for path in sorted(folders)}
        return {int(step): path for step, path in numbered.items() if step.isdecimal()}

    @contextmanager
    def new_checkpoint(self, step: int) -> Iterator[Path]:
        """A directory to fill; it gets its name when the block ends well."""
        final = self.path / CHECKPOINTS / f"step-{step:08d}"
        temporary = final.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
        with disk(final):
            temporary.mkdir()
            try:
                yield temporary
                if final.exists():  # the same step of the same run, after a crash
                    shutil.rmtree(final)
                os.replace(temporary, final)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
            sync_folder(final.parent)

    def drop_checkpoints(self, newest: int) -> None:
        """Drop all but this one and those that the schedule keeps."""
        for step, path in self.checkpoints().items():
            if step != newest and not (path / KEPT).exists():
                with disk(path):
                    shutil.rmtree(path)

    def save_resume(self, state: dict[str, Any], spec: TrainSpec) -> None:
        """Replace the resume state, whole, with the hash of its content."""
        content = {"format": FORMAT, "spec": spec.model_dump(mode="json"), **state}
        with replacing(self.path / RESUME) as file:
            torch.save({**content, "sha256": content_hash(content)}, file)

    def load_resume(self, spec: TrainSpec) -> dict[str, Any] | None:
        """The resume state, if there is one; refused if it belongs to another spec."""
        path = self.path / RESUME
        if not path.is_file():
            return None
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # the library raises many kinds for damaged files
            raise _damaged(path, error) from None
        _check_resume(state, path)
        self._refuse_another(state["spec"], spec, path)
        return state

    def _refuse_another(self, was: dict[str, Any], spec: TrainSpec, path: Path) -> None:
        different = setting_changes(was, spec.model_dump(mode="json"))
        if different:
            raise UserError(
                "This run belongs to another configuration.",
                where=path,
                got="; ".join(different),
                expected="the configuration that the run was started with",
                fix="choose another `out`, or restore the configuration",
            )


def content_hash(content: Any) -> str:
    """SHA-256 of a tree of mappings, lists, tensors and plain values."""
    digest = hashlib.sha256()

    def take(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            take((str(value.dtype), list(value.shape)))
            flat = value.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().data)
        elif isinstance(value, dict):
            take(list(value))
            for part in value.values():
                take(part)
        elif isinstance(value, (list, tuple)):
            digest.update(f"{len(value)}:".encode())
            for part in value:
                take(part)
        else:
            digest.update(f"{value!r};".encode())

    take(content)
    return digest.hexdigest()


def _check_resume(state: Any, path: Path) -> None:
    """Whether a file that torch can read is a resume state, and the one that was written."""
    if not isinstance(state, dict) or not all(key in state for key in ("format", *STATE)):
        raise _damaged(path, "it is not a resume state")
    written_format = state["format"]
    if written_format != FORMAT:
        raise _damaged(path, f"its format is {written_format!r}")
    content = {key: value for key, value in state.items() if key != "sha256"}
    if state.get("sha256") != content_hash(content):
        raise _damaged(path, "its content is not what was written")


FIXES = {
    RESUME: "training starts from the beginning",
    MARK: "it writes the same file",
    RESULT: "it measures and writes the result again",
}
"""What follows from deleting a damaged file and giving the same command again."""


def _damaged(path: Path, why: object) -> UserError:
    return damaged(path, why, f"delete {path} and run the command again: {FIXES[path.name]}")


def _line(entry: dict[str, Any]) -> bytes:
    return (json.dumps(plain(entry), allow_nan=False) + "\n").encode()
