"""Who is judged with whom, in which order, under which opaque names.

A sheet is what the judge reads at once. Sheets name pools by codes; only the blinding map, which
has a file of its own, knows which generator a code stands for. A group is the part of a sheet
that belongs to one generator: one response in a conditional plan, else all of the sheet.
The texts are frozen with the plan, under the codes of their pools.

Two partitions share as few pairs as possible. Let G groups of n outputs be given. A group of the
second partition takes a_1, ..., a_G outputs from the G groups of the first; it reuses
sum_j a_j (a_j - 1) / 2 pairs, least if the a_j differ by one at most. With n = qG + r the table
a_ij = q + [(j - i) mod G < r] has all row and column sums n and such rows throughout, so the second
partition built from it is optimal: no pair is reused from G >= n on (128 outputs in eights), and 15
are for 40 outputs.

Controls are groups of their own whose right answer is known in part. Each holds originals of one
pool, a second copy of one of them (it must share its mode and its grades), one with its words
shuffled (it must not be more coherent) and an empty text (it must be invalid). They tell about the
judge and never enter a score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from strop.disk import reading
from strop.errors import UserError, unknown_name
from strop.groupeval.profile import Profile, canonical, sha256
from strop.rng import derive_seed
from strop.store.folder import parquet, parquet_file

Partition = NDArray[np.int64]
"""Output indices [G, n], one row per group."""

METHODS = ("minimum", "best-of-2000")
"""`minimum`: the construction above; `best-of-2000`: the paper's, from that many candidates."""

CANDIDATES = 2_000


def partitions(outputs: int, size: int, count: int, seed: int, method: str) -> list[Partition]:
    """One or two partitions of the indices 0 .. outputs - 1; `outputs` is a multiple of `size`.

    They depend on nothing but the arguments: equal pools are cut in the same way.
    """
    rng = np.random.default_rng(derive_seed(seed, "groupeval partition", outputs, size))
    first = rng.permutation(outputs).reshape(-1, size)
    if count == 1:
        return [first]
    return [first, _minimum(first, rng) if method == "minimum" else _best(first, rng)]


def reused_pairs(first: Partition, second: Partition) -> int:
    """Pairs of outputs that are in one group in both partitions."""
    groups, size = first.shape
    owner = np.empty(groups * size, np.int64)
    owner[first.ravel()] = np.repeat(np.arange(groups), size)
    # Which outputs meet: those of one second group that come from one first group.
    met = np.sort(owner[second], axis=1)
    starts = np.flatnonzero(np.diff(met, axis=1, prepend=-1).ravel())
    counts = np.diff(starts, append=met.size)
    return int((counts * (counts - 1) // 2).sum())


def _minimum(first: Partition, rng: np.random.Generator) -> Partition:
    groups, size = first.shape
    q, r = divmod(size, groups)
    # Which group of the first partition plays which column, and in which order it hands out.
    donors = rng.permuted(first, axis=1)[rng.permutation(groups)]
    # Row i of the table, spelled out: each donor j as often as a_ij says, in their order.
    rows = np.arange(groups)[:, None]
    always = np.broadcast_to(np.repeat(np.arange(groups), q), (groups, groups * q))
    takes = np.sort(np.hstack([always, (rows + np.arange(r)) % groups]), axis=1)
    # A donor hands its outputs out one by one, to the rows from the first to the last.
    turn = np.empty(takes.size, np.int64)
    turn[np.argsort(takes, axis=None, kind="stable")] = np.tile(np.arange(size), groups)
    second = donors[takes, turn.reshape(takes.shape)]
    return second[rng.permutation(groups)]


def _best(first: Partition, rng: np.random.Generator) -> Partition:
    candidates = (rng.permutation(first.size).reshape(first.shape) for _ in range(CANDIDATES))
    return min(candidates, key=lambda second: reused_pairs(first, second))


PLANTED = ("duplicate", "shuffled", "empty")


@dataclass(frozen=True)
class Control:
    """The texts of one control group."""

    cell: str
    group: int
    first: int
    """Index of its first text among the cell's control texts."""
    texts: tuple[str, ...]
    planted: tuple[str, ...]
    """Of each text: `copied` (there is a duplicate of it), `ordered` (there is a shuffled form of
    it), `original`, or one of `PLANTED`."""


def plant(cell: str, texts: Sequence[str], size: int, seed: int, groups: int) -> list[Control]:
    """Control groups from a pool; the copied and the shuffled text are the longest of each.

    Long ones, because shuffling a few words, or copying an empty text, plants nothing.
    """
    rng = np.random.default_rng(derive_seed(seed, "groupeval control", len(texts)))
    controls = []
    for group in range(groups):
        picked = [texts[int(i)] for i in rng.choice(len(texts), size - len(PLANTED), replace=False)]
        picked.sort(key=lambda text: len(text.split()), reverse=True)
        words = picked[1].split()
        shuffled = " ".join(words[i] for i in rng.permutation(len(words)))
        kinds = ("copied", "ordered", *["original"] * (len(picked) - 2), *PLANTED)
        controls.append(
            Control(cell, group, group * size, (*picked, picked[0], shuffled, ""), kinds)
        )
    return controls


@dataclass(frozen=True)
class Source:
    """The texts of one generator, in the order of their index."""

    name: str
    """What the generator is called in tables; never shown to a judge."""
    texts: tuple[str, ...]
    prompts: tuple[str, ...] | None
    """What each text answers, where the input has a `prompt` field."""
    origin: str
    """Where they were read."""


GroupKind = Literal["plan", "control"]

LETTERS = "bcdfghjkmnpqrstvwxz"
"""No vowels, so that an id spells no word, and no letter that looks like a digit."""


@dataclass(frozen=True)
class Sheet:
    """What the judge reads at once, without any name."""

    id: str
    kind: GroupKind
    partition: int
    group: int
    pools: tuple[str, ...]
    """The code of the pool that each text is from, in display order."""
    indices: tuple[int, ...]
    """Its index in that pool, in display order."""
    labels: tuple[str, ...]
    """The opaque ids under which the judge sees the texts, in display order."""
    planted: tuple[str, ...] = ()
    """Of a control: what each text is, in display order (`Control.planted`)."""


@dataclass(frozen=True)
class Group:
    """Some outputs of one generator that are judged together, with the blinding undone."""

    cell: str
    partition: int
    group: int
    indices: tuple[int, ...]
    """In display order. Of a control: indices into the cell's control texts."""
    sheet: str
    """The id of the sheet that holds it."""
    kind: GroupKind = "plan"
    planted: tuple[str, ...] = ()
    """As on the sheet."""


@dataclass(frozen=True)
class Plan:
    """The frozen design of a GroupEval run."""

    profile: str
    """Name of the profile."""
    profile_sha256: str
    group_size: int
    seed: int
    method: str
    """How the second partition was made."""
    reuse: dict[str, int]
    """Per pool size, the pairs of outputs that are in one group in both partitions."""
    sheets: tuple[Sheet, ...]
    """In the order in which they are judged: all pools and partitions interleaved."""
    texts_sha256: str
    """Of the frozen texts."""
    blinding: dict[str, str]
    """Pool code -> name of the cell; stored apart from the rest."""
    sizes: dict[str, int]
    """Pool code -> number of outputs."""

    @cached_property
    def cells(self) -> dict[str, int]:
        """Every generator's name and its number of outputs."""
        return {self.blinding[code]: n for code, n in self.sizes.items()}

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Every group to judge, without the controls."""
        return self._groups("plan")

    @cached_property
    def controls(self) -> tuple[Group, ...]:
        """The planted control groups."""
        return self._groups("control")

    @cached_property
    def by_id(self) -> dict[str, Sheet]:
        """Sheets by their ids."""
        return {sheet.id: sheet for sheet in self.sheets}

    def groups_of(self, sheet: Sheet) -> list[Group]:
        """The groups on one sheet: one, or in a conditional plan one per response."""
        return [
            Group(
                self.blinding[code],
                sheet.partition,
                sheet.group,
                tuple(i for p, i in zip(sheet.pools, sheet.indices, strict=True) if p == code),
                sheet.id,
                sheet.kind,
                sheet.planted,
            )
            for code in dict.fromkeys(sheet.pools)
        ]

    def _groups(self, kind: GroupKind) -> tuple[Group, ...]:
        wanted = (sheet for sheet in self.sheets if sheet.kind == kind)
        return tuple(group for sheet in wanted for group in self.groups_of(sheet))

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the design and the texts, names left out: what a series was asked."""
        return sha256(canonical(self.document()))

    def document(self) -> dict[str, Any]:
        """Everything but the blinding map, as JSON."""
        document = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        del document["blinding"]
        # Not `asdict`, which copies every number of every sheet.
        return {**document, "sheets": [vars(sheet) for sheet in self.sheets]}

    @classmethod
    def from_documents(cls, document: dict[str, Any], blinding: dict[str, str]) -> Plan:
        """The reverse of `document`."""
        values = {name: document[name] for name in cls.__dataclass_fields__ if name != "blinding"}
        sheets: list[dict[str, Any]] = [
            {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in sheet.items()
            }
            for sheet in values["sheets"]
        ]
        values["sheets"] = tuple(Sheet(**sheet) for sheet in sheets)
        plan = cls(**values, blinding=blinding)
        _check_pools(plan)
        return plan


def _check_pools(plan: Plan) -> None:
    """Every sheet names pools that the plan has and outputs that they have; else a ValueError."""
    if plan.sizes.keys() != plan.blinding.keys():
        raise ValueError("the plan and the blinding map name other pools")
    for sheet in plan.sheets:
        if sheet.kind not in get_args(GroupKind) or len(sheet.labels) != len(sheet.indices):
            raise ValueError(f"the sheet {sheet.id!r} has no sense")
        for pool, index in zip(sheet.pools, sheet.indices, strict=True):
            if pool not in plan.sizes:
                raise ValueError(f"the sheet {sheet.id!r} names an unknown pool {pool!r}")
            if index < 0 or (sheet.kind == "plan" and index >= plan.sizes[pool]):
                raise ValueError(f"the sheet {sheet.id!r} names an output that is not there")


def make_plan(
    sources: Sequence[Source],
    profile: Profile,
    *,
    seed: int = 0,
    method: str = "minimum",
    controls: int = 0,
) -> tuple[Plan, Texts]:
    """Cut every pool into groups, and freeze the texts.

    `inputs.fitted` has seen that the pools divide. `controls` is the number of control groups per
    cell; they are judged in between and never scored.
    """
    if method not in METHODS:
        raise unknown_name("partition method", method, METHODS, where="`partition`")
    # In an order that does not follow the order of the inputs.
    numbers = np.random.default_rng(derive_seed(seed, "groupeval codes")).permutation(len(sources))
    pools = {f"pool-{i:03d}": source for i, source in zip(numbers, sources, strict=True)}
    planted = {code: _planted(s, profile, seed, controls) for code, s in pools.items()}
    if profile.kind == "conditional":
        drafts, reuse = _pairs(pools), {}
    elif profile.kind == "answers":
        drafts, reuse = _prompts(pools), {}
    else:
        drafts, reuse = _groups(pools, profile, seed, method)
    texts = Texts.freeze(pools, planted)
    plan = Plan(
        profile=profile.name,
        profile_sha256=profile.hash,
        group_size=profile.group_size,
        seed=seed,
        method=method,
        reuse=reuse,
        sheets=_shuffled([*drafts, *_controls(planted)], seed),
        texts_sha256=texts.hash,
        blinding={code: source.name for code, source in pools.items()},
        sizes={code: len(source.texts) for code, source in pools.items()},
    )
    return plan, texts


Draft = tuple[GroupKind, int, int, list[str], list[int], tuple[str, ...]]


def _groups(
    pools: dict[str, Source], profile: Profile, seed: int, method: str
) -> tuple[list[Draft], dict[str, int]]:
    drafts: list[Draft] = []
    reuse: dict[str, int] = {}
    for code, source in pools.items():
        n = len(source.texts)
        parts = partitions(n, profile.group_size, profile.partitions, seed, method)
        if len(parts) == 2:
            reuse[str(n)] = reused_pairs(*parts)
        for p, part in enumerate(parts):
            for g, rows in enumerate(part):
                drafts.append(("plan", p, g, [code] * profile.group_size, rows.tolist(), ()))
    return drafts, reuse


def _pairs(pools: dict[str, Source]) -> list[Draft]:
    """One sheet per prompt, with the response of every generator."""
    prompts = len(next(iter(pools.values())).texts)
    return [("plan", 0, i, list(pools), [i] * len(pools), ()) for i in range(prompts)]


def _prompts(pools: dict[str, Source]) -> list[Draft]:
    """One sheet per generator and prompt; a prompt has one number for all generators."""
    numbers: dict[str, int] = {}
    drafts: list[Draft] = []
    for code, source in pools.items():
        rows: dict[int, list[int]] = {}
        for index, prompt in enumerate(source.prompts or ()):
            rows.setdefault(numbers.setdefault(prompt, len(numbers)), []).append(index)
        for number, answers in rows.items():
            drafts.append(("plan", 0, number, [code] * len(answers), answers, ()))
    return drafts


def _planted(source: Source, profile: Profile, seed: int, groups: int) -> list[Control]:
    if groups and profile.kind != "unconditional":
        raise UserError(
            f"The profile {profile.name} has no control groups.",
            where="`controls`",
            expected="an unconditional profile such as webtext-v1",
        )
    if groups and profile.group_size < len(PLANTED) + 2:
        raise UserError(
            f"Groups of {profile.group_size} are too small for controls.",
            where="`controls`",
            expected=f"at least {len(PLANTED) + 2} texts per group",
        )
    return plant(source.name, source.texts, profile.group_size, seed, groups)


def _controls(planted: dict[str, list[Control]]) -> list[Draft]:
    drafts: list[Draft] = []
    for code, control in ((code, item) for code, controls in planted.items() for item in controls):
        indices = list(range(control.first, control.first + len(control.texts)))
        drafts.append(
            ("control", 0, control.group, [code] * len(indices), indices, control.planted)
        )
    return drafts


def _shuffled(drafts: Sequence[Draft], seed: int) -> tuple[Sheet, ...]:
    """Sheets in a random order, each with a random display order and random labels."""
    rng = np.random.default_rng(derive_seed(seed, "groupeval order"))
    sheets = []
    for position, number in enumerate(rng.permutation(len(drafts))):
        kind, partition, group, pools, indices, what = drafts[number]
        order = rng.permutation(len(indices))
        sheets.append(
            Sheet(
                id=f"{position:05d}",
                kind=kind,
                partition=partition,
                group=group,
                pools=tuple(pools[i] for i in order),
                indices=tuple(int(indices[i]) for i in order),
                labels=_labels(len(indices), rng),
                planted=tuple(what[i] for i in order) if what else (),
            )
        )
    return tuple(sheets)


def _labels(count: int, rng: np.random.Generator) -> tuple[str, ...]:
    """Different short ids, such as `k7fq`, whose alphabetical order says nothing."""
    labels: dict[str, None] = {}
    while len(labels) < count:
        a, b, c = (LETTERS[i] for i in rng.integers(len(LETTERS), size=3))
        labels[f"{a}{rng.integers(2, 10)}{b}{c}"] = None
    return tuple(labels)


COLUMNS = ("kind", "pool", "index", "text", "prompt")

Row = tuple[str, str, int, str, str | None]


@dataclass(frozen=True)
class Texts:
    """Rows of (kind, pool code, index, text, prompt)."""

    rows: tuple[Row, ...]

    @classmethod
    def freeze(
        cls, sources: Mapping[str, Source], controls: Mapping[str, Sequence[Control]]
    ) -> Texts:
        """Of every pool code, its source and its control groups."""
        rows: list[Row] = []
        for code in sorted(sources):
            source = sources[code]
            prompts = source.prompts or (None,) * len(source.texts)
            pairs = zip(source.texts, prompts, strict=True)
            rows += [("plan", code, i, text, prompt) for i, (text, prompt) in enumerate(pairs)]
            planted = [text for control in controls.get(code, ()) for text in control.texts]
            rows += [("control", code, i, text, None) for i, text in enumerate(planted)]
        return cls(tuple(rows))

    @property
    def hash(self) -> str:
        """SHA-256 of all rows."""
        return sha256(canonical(self.rows))

    @cached_property
    def _by_pool(self) -> dict[tuple[str, str], list[tuple[str, str | None]]]:
        by_pool: dict[tuple[str, str], list[tuple[str, str | None]]] = {}
        for kind, code, _, text, prompt in self.rows:
            by_pool.setdefault((code, kind), []).append((text, prompt))
        return by_pool

    def of(self, code: str, kind: str = "plan") -> list[str]:
        """The texts of one pool by index."""
        return [text for text, _ in self._by_pool.get((code, kind), ())]

    def at(self, code: str, kind: str, index: int) -> tuple[str, str | None]:
        """One text, and the prompt that it answers if the plan is conditional."""
        return self._by_pool[code, kind][index]

    def parquet(self) -> bytes:
        """The content of the file."""
        import pyarrow as pa

        kinds = (pa.string(), pa.string(), pa.int64(), pa.string(), pa.string())
        columns = zip(*self.rows, strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        return parquet(pa.table(arrays, names=COLUMNS))

    @classmethod
    def read(cls, path: Path, expected: str) -> Texts:
        """The frozen texts, if they are still those of the plan."""
        import pyarrow as pa

        try:
            with reading(path):
                content = path.read_bytes()
            table = parquet_file(pa.BufferReader(content)).read(use_threads=False)
            texts = cls(tuple(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True)))
            same = texts.hash == expected
        # Whatever a changed byte makes of the file: arrow's errors, no text, no table, no memory.
        except (OSError, KeyError, TypeError, ValueError, MemoryError, pa.ArrowException):
            same, texts = False, cls(())
        if not same:
            raise UserError(
                "The frozen texts are missing or were changed.",
                where=path,
                fix="restore the file; judgments refer to exactly these texts",
            )
        return texts
