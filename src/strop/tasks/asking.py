"""How problems are put to a model: template, opening, end tokens; and with which samplers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from strop.denoisers import Model
from strop.denoisers.prompting import reader_of
from strop.denoisers.stops import end_ids
from strop.errors import UserError
from strop.prompts import Canvases, ChatTemplate, PromptSet, Template, resolve
from strop.records import FAMILIES, Precision, default_sampler
from strop.spec import SAMPLERS, SamplerSpec
from strop.tasks import Task
from strop.tasks.run_folder import Candidate, label_of

BASE = re.compile(r"(?i)(^|[-_.])base($|[-_.\d])")


@dataclass(frozen=True)
class Sampling:
    """The settings under which problems are answered."""

    temperatures: Sequence[float]
    sampler: str | None = None
    """Of the diffusion models; None is each family's own."""
    steps: Sequence[int] | None = None
    """Of the diffusion models; None is one token per call."""
    precision: Precision | None = None
    """Of the draw; None is what each family's public code has."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the diffusion models' sampler."""
    implementation: Literal["fast", "dense"] = "fast"

    def of(self, model: Model, length: int) -> list[SamplerSpec]:
        """Every setting of one model, in the order of the temperatures."""
        family = model.spec.family
        usual = FAMILIES[family].precision if family in FAMILIES else None
        causal = model.mask_id is None
        name = default_sampler(family)
        own: list[dict[str, Any]] = [{}]
        if not causal:
            name = self.sampler or name
            own = [{"steps": m, "settings": dict(self.settings)} for m in self.steps or (length,)]
        known = SAMPLERS.find(name, "SamplerSpec.name").fast_precisions
        if usual is None or (self.implementation == "fast" and usual not in known):
            usual = known[0]
        return [
            SamplerSpec(
                name=name,
                temperature=tau,
                precision=self.precision or usual,
                implementation=self.implementation,
                **one,
            )
            for one in own
            for tau in self.temperatures
        ]


def candidate_of(model: Model, source: str, chat: bool | None, bos: str | None) -> Candidate:
    """A model as it is going to be asked; what was not said is decided here."""
    directory = None if model.codec is None else model.codec.directory
    templated = _has_template(directory) and not BASE.search(label_of(source))
    always = model.spec.family == "dream" and model.codec is not None and model.codec.bos_id
    ends = end_ids(model)
    return Candidate(
        label=label_of(source),
        source=model.source,
        checkpoint=model.spec,
        chat=templated if chat is None else chat,
        bos=bos or ("always" if always else "tokenizer"),
        ends=() if model.codec is None else tuple(model.codec.decode([one]) for one in ends),
        end_ids=ends,
    )


def decided(candidate: Candidate) -> str:
    """What was decided, in one line."""
    how = "as messages in its chat template, thinking off where it has such a switch"
    if not candidate.chat:
        opened = {"always": ", after its beginning-of-text token", "never": ""}
        how = "as plain text" + opened.get(candidate.bos, "")
    ends = " or ".join(candidate.ends) or "nothing but the length"
    return f"{candidate.label}: problems {how}; a response ends at {ends}"


def canvases_of_task(model: Model, candidate: Candidate, task: Task, length: int) -> Canvases:
    """All problems of a task before one model; a larger limit is a longer look at the same ones."""
    chat = None
    if candidate.chat:
        directory = None if model.codec is None else model.codec.directory
        chat = ChatTemplate.beside(directory)
    rows = [{"prompt": one.prompt, "id": one.id} for one in task.all_items()]
    bos: Any = candidate.bos
    template = Template(chat=chat, bos=bos, marks=False)
    try:
        return resolve(PromptSet.of(rows), reader_of(model), template, length)
    except UserError as error:
        where = f"{model.source}, {task.name}: {error.where}"
        told = {"got": error.got, "expected": error.expected, "fix": error.fix}
        raise UserError(error.what, where=where, **told) from error


def _has_template(directory: Path | None) -> bool:
    try:
        ChatTemplate.beside(directory)
    except UserError:
        return False
    return True
