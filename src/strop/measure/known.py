"""Models and evaluators by their identity, loaded only when something has to be computed.

A finished run asks for nothing but names. Files that were read before, and have not changed since,
have theirs in `strop.store.remembered`; a hub's repository is always asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from strop import assets
from strop.checkpoints.files import refuse_mistyped, refuse_training_run
from strop.engine.plan import WORKERS
from strop.errors import UserError
from strop.spec.generator import CheckpointSpec
from strop.spec.value import EvaluatorSpec
from strop.store import read_mark
from strop.store.remembered import FileMemory, files_at

if TYPE_CHECKING:
    from strop.denoisers import Model
    from strop.measure.evaluator import Evaluator

USUAL = {"device": ("auto", "cpu", WORKERS), "dtype": ("auto", "float32")}
"""What decides nothing about an identity; anything else is looked at by loading."""


class Late:
    """A model or evaluator of which the identity is known; everything else loads it."""

    def __init__(self, spec: Any, source: str, load: Callable[[], Any], **facts: Any) -> None:
        self.spec, self.source, self._load = spec, source, load
        self.facts = facts

    @cached_property
    def loaded(self) -> Any:
        """The thing itself."""
        thing = self._load()
        if thing.spec != self.spec:
            raise UserError(
                "The model's files changed while they were used.",
                where=self.source,
                fix="run the same command again",
            )
        return thing

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.loaded, name)


def known_evaluator(name: str, *, device: str = "auto", dtype: str = "auto") -> Evaluator:
    """As `load_evaluator`, at once where its identity is known."""

    def load() -> Evaluator:
        from strop.measure.evaluator import load_evaluator

        return load_evaluator(name, device=device, dtype=dtype)

    memory, remembered = _memory("evaluator", name, device, dtype)
    if (spec := _spec(EvaluatorSpec, remembered)) is not None:
        return cast("Evaluator", Late(spec, str(remembered.get("source", name)), load))
    evaluator = load()
    if memory is not None:
        memory.keep({"spec": evaluator.spec.model_dump(mode="json"), "source": evaluator.source})
    return evaluator


def check_evaluator_name(name: str) -> None:
    """Refuse a name that no evaluator has; of one that is known nothing is looked at."""
    _, remembered = _memory("evaluator", name, *(usual[0] for usual in USUAL.values()))
    if not remembered:
        from strop.measure.evaluator import check_name

        check_name(name)


def refuse_usual_evaluator(sources: Iterable[str]) -> None:
    """Refuse the default evaluator for outputs of checkpoints that are not embedded.

    It has read fairy tales only: perplexities of other texts under it are in the thousands and say
    nothing.
    """
    for source in sources:
        if not _embedded(source):
            refuse_mistyped(source)
            refuse_training_run(Path(source).expanduser())
            raise UserError(
                "No evaluator was named, and the default one was trained on fairy tales only.",
                where="`evaluator`",
                got=source,
                expected=f"a language model for such texts; {assets.EVALUATOR} is for embedded: "
                "checkpoints",
                fix="say `evaluator=gpt2`, as the paper does, or another model that reads the "
                "language of your texts: a hub id, a directory, smollm2-135m",
            )


def _embedded(source: str) -> bool:
    """Whether it is an embedded checkpoint, or a run of one."""
    if source.startswith(assets.EMBEDDED):
        return True
    for path in (source, source.rpartition("@")[0]):
        mark = read_mark(Path(path)) if path and Path(path).is_dir() else None
        if mark is not None and mark.holds_cells:
            return str(mark.asked.get("checkpoint")).startswith(assets.EMBEDDED)
    return False


def known_model(source: str, *, device: str = "auto", dtype: str = "auto") -> Model:
    """As `load_model`, at once where its identity is known."""

    def load() -> Model:
        from strop.denoisers import load_model

        return load_model(source, device=device, dtype=dtype)

    memory, remembered = _memory("model", source, device, dtype)
    spec = _spec(CheckpointSpec, remembered)
    if spec is not None and type(remembered.get("length")) is int:
        return cast("Model", Late(spec, source, load, length=remembered["length"]))
    model = load()
    if memory is not None:
        from strop.denoisers.base import usable_length

        length = usable_length(model, None)
        memory.keep({"spec": model.spec.model_dump(mode="json"), "length": length})
    return model


def _memory(
    kind: str, name: str, device: str, dtype: str
) -> tuple[FileMemory | None, dict[str, Any]]:
    """What may be known of files on this machine, and what is."""
    if device not in USUAL["device"] or dtype not in USUAL["dtype"]:
        return None, {}
    embedded = name.startswith(assets.EMBEDDED)
    path = assets.embedded_path(name) if embedded else Path(name).expanduser()
    try:
        settings = {"kind": kind, "name": name, "place": str(path.resolve())}
        memory = FileMemory(files_at(path), settings) if path.exists() else None
    except OSError:  # the loader has words for it
        memory = None
    return memory, {} if memory is None else memory.recall() or {}


def _spec(kind: type[Any], facts: dict[str, Any]) -> Any:
    try:
        return kind(**facts["spec"])
    except (UserError, KeyError, TypeError):
        return None
