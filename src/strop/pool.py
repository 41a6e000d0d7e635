"""What a generator produced: its outputs, and everything they depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from strop.records.record import SAMPLERS
from strop.spec.generator import CellSpec, label
from strop.table import Column, Table

OnStep = Callable[[int, int, NDArray[np.int64], NDArray[np.int64]], None]
"""Who watches a sampler at work: (output, round, positions, tokens that now stand there).

Positions are those of the output's ids: after a prompt, of the response.

Rounds count from 1, the finish is the one after the last update; what an update takes back is given
as the mask. Called once for every round in which something changed.
"""


TRACED = 8
"""Outputs of a cell, the first ones, that keep what stood at their tokens before."""
EARLIER = np.dtype(
    [("round", np.int32), ("place", np.int32), ("token", np.int32), ("chance", np.float32)]
)
"""A value that another one took the place of: after which round it stood (0: from the start), at
which token, and its chance."""


@dataclass(slots=True)
class Output:
    """One output, done. Not frozen: small targets make thousands at a time."""

    index: int
    ids: NDArray[np.int64]
    nfe: int
    """Network calls it took part in (dense: those of its batch)."""
    seconds: float
    """Its share of the wall time, split evenly among the sequences under way."""
    leftover_masks: int
    """Positions that are still masked."""
    changed: NDArray[np.int32]
    """Per token, the round after which it last changed: 0 for what was there at the start."""
    text: str | None = None
    """Decoded, where a tokenizer is known."""
    prompt: str | None = None
    """The id of the prompt that it answers, where there are prompts."""
    chance: NDArray[np.float32] | None = None
    """Per token, what the law of the clean token gave it when it came; NaN where unknown."""
    earlier: NDArray[np.void] | None = None
    """Values that others took the place of, by round (`EARLIER`); None where they are not kept."""
    pieces: tuple[str, ...] | None = None
    """The texts of the gaps that it fills, one by one; None where no tokenizer is known."""
    counts: dict[str, int] = field(default_factory=dict)
    """What its sampler counts beside calls, by the names that the sampler's record has."""


SHOWN = 20
"""Outputs of a pool that a notebook shows."""


@dataclass(frozen=True, repr=False)
class Pool:
    """The outputs of one generator under one seed, in the order of their index.

    `len(pool)` counts them, `pool[3]` is an `Output`, `pool[:3]` a list of them.
    """

    spec: CellSpec
    """Checkpoint, sampler, seed: output i is a function of this and i."""
    ids: NDArray[np.int64]
    """Token ids [n, L], of the response alone where there are prompts."""
    texts: list[str] | None
    """Decoded outputs; None where no tokenizer is known."""
    nfe: NDArray[np.int64]
    """Per output, the network calls it took part in (dense: those of its batch)."""
    seconds: NDArray[np.float64]
    """Per output, its share of the wall time."""
    leftover_masks: NDArray[np.int64]
    """Per output, positions that are still masked."""
    changed: list[NDArray[np.int32]] = field(default_factory=list, compare=False)
    """Per output and token, the round after which it last changed; see `Output`."""
    chance: list[NDArray[np.float32] | None] = field(default_factory=list, compare=False)
    """Per output and token, how likely it was when it came; see `Output`."""
    earlier: list[NDArray[np.void] | None] = field(default_factory=list, compare=False)
    """Of the first outputs, what stood there before; see `Output`."""
    lengths: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Per output, how many of its ids count: fewer than L where a prompt leaves less open than
    another does. The rest is `filler`."""
    prompts: list[str] | None = None
    """Per output, the id of the prompt that it answers; None without prompts."""
    counts: dict[str, NDArray[np.int64]] = field(default_factory=dict, compare=False)
    """Per output, what the sampler counts beside calls; see `Output`."""
    provenance: list[dict[str, Any]] = field(default_factory=list, compare=False)
    """One entry per session that drew outputs: when, where, with which packages."""

    @classmethod
    def of(
        cls, spec: CellSpec, outputs: Sequence[Output], provenance: list[dict[str, Any]]
    ) -> Pool:
        """Outputs 0 .. n - 1, given in any order."""
        outputs = sorted(outputs, key=lambda output: output.index)
        texts = [output.text for output in outputs if output.text is not None]
        prompts = [output.prompt for output in outputs if output.prompt is not None]
        return cls(
            spec=spec,
            ids=padded([output.ids for output in outputs], spec),
            lengths=np.array([len(output.ids) for output in outputs], np.int64),
            prompts=prompts if spec.generator.prompts is not None else None,
            texts=texts if len(texts) == len(outputs) else None,
            nfe=np.array([output.nfe for output in outputs], np.int64),
            seconds=np.array([output.seconds for output in outputs], np.float64),
            leftover_masks=np.array([output.leftover_masks for output in outputs], np.int64),
            changed=[output.changed for output in outputs],
            chance=[output.chance for output in outputs],
            earlier=[output.earlier for output in outputs],
            counts=counted(outputs, spec),
            provenance=provenance,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, which: int) -> Output: ...
    @overload
    def __getitem__(self, which: slice) -> list[Output]: ...
    def __getitem__(self, which: int | slice) -> Output | list[Output]:
        if isinstance(which, slice):
            return [self[i] for i in range(len(self))[which]]
        i = range(len(self))[which]
        ids = self.ids[i] if not len(self.lengths) else self.ids[i, : self.lengths[i]]
        return Output(
            i,
            ids,
            int(self.nfe[i]),
            float(self.seconds[i]),
            int(self.leftover_masks[i]),
            self.changed[i] if self.changed else np.zeros(0, np.int32),
            None if self.texts is None else self.texts[i],
            None if self.prompts is None else self.prompts[i],
            chance=self.chance[i] if self.chance else None,
            earlier=self.earlier[i] if self.earlier else None,
            counts={name: int(values[i]) for name, values in self.counts.items()},
        )

    def __iter__(self) -> Iterator[Output]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        count = f"{len(self):,} output{'' if len(self) == 1 else 's'}"
        calls = f", {self.nfe.mean():.1f} calls each" if len(self) else ""
        return f"Pool({count}, {label(self.spec.generator.sampler)}{calls})"

    def _repr_html_(self) -> str:
        """For a notebook: the first outputs."""
        columns = (Column("output"), *([Column("prompt")] if self.prompts else []))
        columns += (Column("calls"), Column("text" if self.texts is not None else "ids"))
        rows = [
            {
                "output": output.index,
                "prompt": output.prompt,
                "calls": output.nfe,
                "text": output.text,
                "ids": " ".join(map(str, output.ids.tolist())),
            }
            for output in self[:SHOWN]
        ]
        more = f" The first {SHOWN} are shown." if len(self) > SHOWN else ""
        return Table(f"{self!r}.{more}", columns, rows)._repr_html_()

    @property
    def index(self) -> NDArray[np.int64]:
        """The outputs' indices: 0 .. n - 1."""
        return np.arange(len(self.ids))


def filler(spec: CellSpec) -> int:
    """What stands behind a response that is shorter than others: the mask, or the end of a text."""
    shape = spec.generator.checkpoint.shape
    return int(shape.get("mask_id", shape.get("start_id", 0)))


def counted(outputs: Sequence[Output], spec: CellSpec) -> dict[str, NDArray[np.int64]]:
    """Of every output, what its sampler's record says that it counts."""
    names = SAMPLERS[spec.generator.sampler.name].counts
    return {name: np.array([output.counts[name] for output in outputs], np.int64) for name in names}


def padded(rows: Sequence[NDArray[np.int64]], spec: CellSpec) -> NDArray[np.int64]:
    """Rows of ids as one table, short ones filled up at their end."""
    ids = np.full((len(rows), spec.generator.length), filler(spec), np.int64)
    for table, row in zip(ids, rows, strict=True):
        table[: len(row)] = row
    return ids
