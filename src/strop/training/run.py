"""The directory of a training run: names, metrics, checkpoints, the resume state.

RUN/
  train.json                     the spec, whole, and where it ran
  shards/                        the corpus, unless it lies elsewhere
  metrics.jsonl                  a line per logged step and per held-out measurement
  resume.pt                      everything the next step depends on
  checkpoints/step-00020788/     loadable: config.json, model.safetensors, tokenizer.json
  result.json, loss.png          at the end
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from strop.disk import LOCK, TEMPORARY, disk, locked, reading, replacing, sync_folder, write
from strop.errors import UserError
from strop.stats.interval import plain, revived
from strop.training.spec import TrainSpec
from strop.version import __version__

__all__ = ["TrainingRun", "differences"]

FORMAT = 1
SPEC, METRICS, RESUME, RESULT, PLOT = (
    "train.json",
    "metrics.jsonl",
    "resume.pt",
    "result.json",
    "loss.png",
)
CHECKPOINTS, SHARDS = "checkpoints", "shards"
OURS = {METRICS, RESUME, RESULT, PLOT, CHECKPOINTS, SHARDS, LOCK}
RESUME_FORMAT = 2
"""Since 2 the resume state has the hash of its content."""
STATE = ("step", "seconds", "window", "weights", "average", "updates", "optimizer", "spec")
"""What a resume state holds, as `strop.training.loop` makes it."""


class TrainingRun:
    """One run on disk."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def exists(cls, path: str | os.PathLike[str]) -> bool:
        """Whether a directory is a training run."""
        return (Path(path) / SPEC).is_file()

    @classmethod
    def prepare(cls, path: str | os.PathLike[str], spec: TrainSpec) -> TrainingRun:
        """A new run, or one of the same spec to continue."""
        run = cls(path)
        with disk(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
        if cls.exists(path):
            run._refuse_another(run.document["spec"], spec, run.path / SPEC)
        else:
            run._refuse_strangers()
            run.load_resume(spec)  # where only train.json was lost, it must be of this run
            document = {
                "format": FORMAT,
                "strop": __version__,
                "id": spec.id,
                "spec": spec.model_dump(mode="json"),
            }
            write(run.path / SPEC, _json(document))
        with disk(run.path):
            (run.path / CHECKPOINTS).mkdir(exist_ok=True)
        return run

    def _refuse_strangers(self) -> None:
        """A directory without train.json is ours if it is empty or holds what training writes."""
        with disk(self.path):
            names = {p.name for p in self.path.iterdir() if not p.name.startswith(TEMPORARY)}
        strange = sorted(names - OURS)
        if not strange and (RESUME in names or not self.checkpoints()):
            return
        shown = strange or sorted(names)
        raise UserError(
            "The output directory holds files but no training run.",
            where=self.path,
            got=", ".join(shown[:3]) + (", ..." if len(shown) > 3 else ""),
            expected="a new or empty directory, or one made by strop train",
            fix="choose another `out`",
        )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the run; refused if another process trains here."""
        with locked(self.path, wait=False) as mine:
            if not mine:
                raise UserError(
                    "Another process is training in this directory.",
                    where=self.path,
                    fix="wait for it, or choose another `out`",
                )
            for folder in (self.path, self.path / CHECKPOINTS):
                for leftover in folder.glob(f"{TEMPORARY}*"):
                    shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            yield

    @property
    def document(self) -> dict[str, Any]:
        """The content of train.json."""
        document = _read(self.path / SPEC)
        if type(document.get("format")) is not int or not isinstance(document.get("spec"), dict):
            raise _damaged(self.path / SPEC, "it is not a training run's")
        if document["format"] > FORMAT:
            raise UserError(
                "This run was made by a newer version of strop.",
                where=self.path,
                fix="pip install --upgrade strop",
            )
        return document

    @property
    def spec(self) -> TrainSpec:
        """What was asked."""
        return TrainSpec(**self.document["spec"])

    @property
    def begun(self) -> bool:
        """Whether there is a state to continue from."""
        return (self.path / RESUME).is_file()

    @property
    def shards(self) -> Path:
        """Where the corpus lies unless it was put elsewhere."""
        return self.path / SHARDS

    def metrics(self) -> list[dict[str, Any]]:
        """All measurements, by step; a line cut off by a crash is left out."""
        path = self.path / METRICS
        if not path.is_file():
            return []
        found = []
        for line in path.read_bytes().splitlines():
            try:
                found.append(revived(json.loads(line)))
            except ValueError:
                break  # a crash while writing: what follows is written again
            if not (isinstance(found[-1], dict) and {"kind", "step"} <= found[-1].keys()):
                raise _damaged(path, f"line {len(found)} is no measurement")
        return found

    def cut_metrics(self, step: int) -> None:
        """Forget measurements after a step: the steps after it are done again."""
        kept = [entry for entry in self.metrics() if entry["step"] <= step]
        write(self.path / METRICS, b"".join(_line(entry) for entry in kept))

    def measure(self, entry: dict[str, Any]) -> None:
        """Append one measurement."""
        with disk(self.path), open(self.path / METRICS, "ab") as file:
            file.write(_line(entry))

    def result(self) -> dict[str, Any] | None:
        """The final numbers, if the run has ended."""
        path = self.path / RESULT
        return revived(_read(path)) if path.is_file() else None

    def finish(self, result: dict[str, Any]) -> None:
        """Write the final numbers."""
        write(self.path / RESULT, _json(plain(result)))

    def checkpoints(self) -> dict[int, Path]:
        """Loadable checkpoints by step."""
        found = (self.path / CHECKPOINTS).glob("step-*")
        numbered = {path.name.removeprefix("step-"): path for path in sorted(found)}
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

    def remove_checkpoint(self, step: int) -> None:
        """Drop one that the schedule does not keep."""
        path = self.checkpoints().get(step)
        if path is not None:
            with disk(path):
                shutil.rmtree(path)

    def save_resume(self, state: dict[str, Any], spec: TrainSpec) -> None:
        """Replace the resume state, whole, with the hash of its content."""
        whole = {"format": RESUME_FORMAT, "spec": spec.model_dump(mode="json"), **state}
        with replacing(self.path / RESUME) as file:
            torch.save({**whole, "sha256": content_hash(whole)}, file)

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
        different = differences(was, spec.model_dump(mode="json"))
        if different:
            raise UserError(
                "This run belongs to another configuration.",
                where=path,
                got="; ".join(different),
                expected="the configuration that the run was started with",
                fix="choose another `out`, or restore the configuration",
            )


def differences(was: Any, now: Any, key: str = "") -> list[str]:
    """Where two trees of a configuration differ, one phrase each; a missing key is None."""
    if isinstance(was, dict) and isinstance(now, dict):
        told = []
        for name in {**was, **now}:
            where = f"{key}.{name}" if key else name
            told += differences(was.get(name), now.get(name), where)
        return told
    return [] if was == now else [f"{key}: {was!r} there, {now!r} now"]


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
            for one in value.values():
                take(one)
        elif isinstance(value, (list, tuple)):
            digest.update(f"{len(value)}:".encode())
            for one in value:
                take(one)
        else:
            digest.update(f"{value!r};".encode())

    take(content)
    return digest.hexdigest()


def _check_resume(state: Any, path: Path) -> None:
    """Whether a file that torch can read is a resume state, and the one that was written."""
    if not isinstance(state, dict) or not all(key in state for key in ("format", *STATE)):
        raise _damaged(path, "it is not a resume state")
    made = state["format"]
    if type(made) is not int or not 1 <= made <= RESUME_FORMAT:
        raise _damaged(path, f"its format is {made!r}")
    content = {key: value for key, value in state.items() if key != "sha256"}
    if made > 1 and state.get("sha256") != content_hash(content):
        raise _damaged(path, "its content is not what was written")


def _read(path: Path) -> dict[str, Any]:
    """A JSON object of the run."""
    try:
        with reading(path):
            document = json.loads(path.read_bytes())
    except (ValueError, RecursionError, FileNotFoundError) as error:
        raise _damaged(path, error) from None
    if not isinstance(document, dict):
        raise _damaged(path, "it does not hold an object")
    return document


FIXES = {
    RESUME: "training starts from the beginning",
    SPEC: "it writes the same file",
    RESULT: "it measures and writes the result again",
    METRICS: "the curve begins where the run is continued",
}
"""What follows from deleting a damaged file and giving the same command again."""


def _damaged(path: Path, error: object) -> UserError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return UserError(
        "A file of the training run is damaged.",
        where=path,
        got=reason[:200],
        fix=f"delete {path} and run the command again: {FIXES[path.name]}",
    )


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()


def _line(entry: dict[str, Any]) -> bytes:
    return (json.dumps(plain(entry), allow_nan=False) + "\n").encode()
