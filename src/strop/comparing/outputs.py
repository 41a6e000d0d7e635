"""The sides of a comparison: how each is named, and its outputs in the form that the rules need.

A side is a checkpoint with a sampler whose settings may be searched, or an existing pool: a cell of
a run (`RUN` or `RUN@CELL`), or texts from any source. A YAML file can give the same:

    checkpoint: runs/mine          # or pool: RUN@CELL, or texts: FILE
    sampler: {name: remdm-cap, eta: 0.02, temperature: 0.9}
    space: [temperature=0.7:1.1:0.05, "eta=0.005:0.1:log"]
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from strop.comparing.diversity import Scored
from strop.comparing.side import Sample
from strop.errors import UserError
from strop.records.record import SAMPLERS, default_sampler
from strop.rng import derive_seed
from strop.spec.generator import SamplerSpec, swept
from strop.spec.value import MOST_STEPS
from strop.store import Folder
from strop.tuning.space import parse
from strop.verbs.verb import ASIDE, Ask

if TYPE_CHECKING:
    from strop.denoisers import Model
    from strop.measure.cells import Scorers
    from strop.measure.guard import Guard
    from strop.spec.generator import SamplerSpec
    from strop.stats.interval import Interval
    from strop.store import Cell
    from strop.verbs.verb import Ask


# ---------------------------------------------------------------------------------------- outputs

Kind = Literal["checkpoint", "pool", "texts"]
KINDS: tuple[Kind, ...] = ("checkpoint", "pool", "texts")
SPACE = ("temperature=0.7:1.1:0.05",)
"""What is searched by default."""
CELL = "@"
NEAR = {"calls": 0.05, "seconds": 0.1}
"""Shares within which costs count as equal."""
FEWEST = 8
"""Outputs of a side at least: an interval from fewer means little."""


@dataclass(frozen=True)
class Named:
    """A side as the user named it."""

    kind: Kind
    source: str
    sampler: Mapping[str, Any]
    """Its published settings, as far as they are not the family's own."""
    space: tuple[str, ...]
    where: str = "`a`, `b`"
    """What messages name: a flag, or a file."""

    @property
    def tunable(self) -> bool:
        """Whether other outputs can be drawn."""
        return self.kind == "checkpoint"


def named(argument: str, settings: Sequence[str], space: Sequence[str], flag: str) -> Named:
    """From an argument and its flags; a YAML file may say all of it."""
    document: dict[str, Any] = {}
    filed = Path(argument).suffix.lower() in (".yaml", ".yml")
    if filed:
        document = _file(Path(argument))
    kind: Kind | None = next((name for name in KINDS if name in document), None)
    source = str(document[kind]) if kind is not None else argument
    where = argument if filed else f"`{flag}`"
    sampler = {**document.get("sampler", {}), **_settings(settings, flag)}
    axes = tuple(space) or tuple(map(str, document.get("space", ())))
    side = Named(kind or _kind(source), source, sampler, axes or SPACE, where)
    if not side.tunable and (sampler or axes):
        raise UserError(
            "An existing pool has no sampler to set or tune.",
            where=f"`{flag}`",
            got=source,
            fix="name the checkpoint instead, or leave the settings out",
        )
    with errors_at(f"`{flag}_space`" if space else where):
        names = [axis.name for axis in parse(axes)]
    if "steps" in (*sampler, *names):
        raise UserError(
            "Steps are the budget, which is the same for both sides.",
            where=where if "steps" in sampler else f"`{flag}_space`",
            got="steps",
            fix="leave it out, and give `steps`",
        )
    return side


@contextmanager
def errors_at(where: str) -> Iterator[None]:
    """Messages on a side's settings name the side, not flags that mean something else here."""
    try:
        yield
    except UserError as error:
        renamed = error.at(where)
        renamed.what = error.what.replace("SamplerSpec.", "")
        raise renamed from None


def _settings(texts: Sequence[str], flag: str) -> dict[str, Any]:
    with errors_at(f"`{flag}`"):
        axes = parse(texts)
    settings = {}
    for axis in axes:
        if len(axis.values) != 1:
            raise UserError(
                "A published setting has one value.",
                where=f"`{flag}`",
                got=str(axis),
                expected=f"such as {axis.name}=0.9; what may vary goes to `{flag}_space`",
            )
        settings[axis.name] = axis.values[0]
    return settings


def _file(path: Path) -> dict[str, Any]:
    import yaml

    from strop.disk import reading
    from strop.store.folder import load_yaml

    try:
        with reading(path):
            document = load_yaml(path.read_bytes())
    except FileNotFoundError:
        raise UserError("There is no such file of a side.", where=path) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError("The file of a side is not YAML.", where=path, got=reason) from None
    keys = {*KINDS, "sampler", "space"}
    kinds = [kind for kind in KINDS if isinstance(document, dict) and kind in document]
    if not isinstance(document, dict) or len(kinds) != 1 or set(document) - keys:
        raise UserError(
            "The file does not describe one side.",
            where=path,
            got=", ".join(map(str, document))
            if isinstance(document, dict)
            else type(document).__name__,
            expected="one of checkpoint, pool and texts; with a checkpoint also sampler and space",
        )
    space, sampler = document.get("space", []), document.get("sampler", {})
    named = isinstance(document[kinds[0]], str)
    if not isinstance(space, list) or not isinstance(sampler, dict) or not named:
        raise UserError(
            "The file does not describe one side.",
            where=path,
            got=", ".join(f"{key}: {value}" for key, value in document.items()),
            expected="checkpoint: NAME, sampler: {temperature: 0.9}, space: [temperature=0.7:1.1]",
        )
    return document


def _kind(source: str) -> Kind:
    from strop.groupeval.inputs import READERS, holds_texts
    from strop.store import KINDS, read_mark

    path = Path(source.rpartition(CELL)[0] or source)
    mark = read_mark(path)
    if mark is not None and mark.holds_cells:
        return "pool"
    if mark is not None and mark.kind != "training":  # whose checkpoints are named
        raise UserError(
            f"The directory is that of a {KINDS[mark.kind].words}, not a run.",
            where=source,
            expected="a checkpoint, RUN@CELL, texts, or a YAML file of a side",
            fix="name one of the runs inside it",
        )
    if Path(source).suffix.lower() in READERS and not Path(source).exists():
        raise UserError("There is no such file.", where=source)
    return "texts" if holds_texts(Path(source)) else "checkpoint"


# ---------------------------------------------------------------- its outputs


@dataclass(frozen=True, eq=False)
class Point:
    """One setting of a side, measured."""

    setting: str
    temperature: float | None
    scored: Scored
    kept: float
    """The share of the outputs' bytes that the span policy reads."""
    texts: Sequence[str]
    calls: float | None
    """Network calls per output."""
    seconds: float | None
    """Per output, as they were drawn."""
    embed: Callable[[Sequence[Sequence[int]]], NDArray] | None = None
    """From token ids of outputs to vectors, where embeddings are wanted."""
    read: dict[int, tuple[Sample, float | None]] = field(default_factory=dict)
    diverse: dict[int, Interval | None] = field(default_factory=dict)

    def sample(self, tokens: int) -> Sample:
        """What is compared: the first so many scored tokens of every output."""
        return self._read(tokens)[0]

    def _read(self, tokens: int) -> tuple[Sample, float | None]:
        """The sample, and its Vendi score where outputs are embedded."""
        if tokens not in self.read:
            alike, vendi = {}, None
            if self.embed is not None:
                from strop.measure.entropy import vendi_score

                long_enough = np.flatnonzero(self.scored.lengths >= tokens)
                unit = np.asarray(self.embed(self.scored.ids[long_enough, :tokens].tolist()), float)
                unit /= np.linalg.norm(unit, axis=1, keepdims=True)
                pairs = np.zeros((self.scored.n, self.scored.n))
                pairs[np.ix_(long_enough, long_enough)] = np.clip(unit @ unit.T, 0, 1) ** 2
                alike, vendi = {"embeddings": pairs}, vendi_score(unit)
            self.read[tokens] = self.scored.first(tokens, alike), vendi
        return self.read[tokens]

    def diversity(self, tokens: int, guard: Guard) -> Interval | None:
        """Across outputs, as a share of that of the guard's texts; None without any."""
        long_enough = self.scored.lengths >= tokens
        if guard.pairs is None or long_enough.sum() < 2:
            return None
        if tokens not in self.diverse:
            self.diverse[tokens] = guard.pairs.diversity(self.scored.ids[long_enough, :tokens])
        return self.diverse[tokens]

    def row(self, side: str, steps: int | None, tokens: int) -> dict[str, Any]:
        """One line of the table of frontiers."""
        sample, vendi = self._read(tokens)
        level, spread = sample.levels(np.ones((1, sample.n)))
        return {
            "side": side,
            "steps": steps,
            "setting": self.setting,
            "temperature": self.temperature,
            "outputs": sample.n,
            "left_out": 1 - float(sample.counted.mean()),
            "kept": self.kept,
            "perplexity": float(np.exp(level[0])),
            "entropy": float(spread[0]),
            "vendi": vendi,
            "calls": self.calls,
            "seconds": self.seconds,
        }


def seed_of(seed: int, temperature: float) -> int:
    """Every temperature has random numbers of its own.

    Both sides share them, so that equal settings are one cell; the search has others. A frontier
    whose points shared numbers would be wrong everywhere in the same direction.
    """
    return derive_seed(seed, "compare", round(1e6 * temperature))


class SideOutputs:
    """Draws, scores and reads the outputs of one side."""

    def __init__(self, ask: Ask, side: Named, model: Model | None, by: Scorers) -> None:
        self._ask, self.named, self.model, self._by = ask, side, model, by
        self._points: dict[Any, Point] = {}

    @property
    def run(self) -> Folder:
        """Where the cells of the checkpoint lie; sides of one checkpoint share them."""
        assert self.model is not None
        folder = self._ask.out / "runs" / self.model.spec.sha256[:16]
        return Folder(folder, "run", self._ask.verb.name)

    def spec(self, steps: int, **fields: Any) -> SamplerSpec:
        """The published sampler at a budget, with some fields changed."""
        assert self.model is not None
        settings = {**self.named.sampler, **fields}
        name = str(settings.pop("name", default_sampler(self.model.spec.family)))
        with errors_at(self.named.where):
            return sampler_spec(self.model.spec.family, name, steps, settings)

    def at(self, spec: SamplerSpec) -> Point:
        """The point of one setting; drawn if it is not there."""
        if spec not in self._points:
            cell = self.cell(spec, self._ask["n"], seed_of(self._ask["seed"], spec.temperature))
            self._points[spec] = self._point(cell, spec.temperature)
        return self._points[spec]

    def cell(self, spec: SamplerSpec, n: int, seed: int) -> Cell:
        """So many outputs of a setting."""
        from strop.tuning.search import Bench

        assert self.model is not None
        bench = Bench(
            self.model,
            self.run,
            self._by,
            seed=seed,
            length=self._ask["length"],
            progress=self._ask.progress,
        )
        [cell] = bench.cells([(spec, n)])
        return cell

    def fixed(self) -> Point:
        """The only point of an existing pool."""
        if None not in self._points:
            self._points[None] = self._texts() if self.named.kind == "texts" else self._pool()
        return self._points[None]

    def _pool(self) -> Point:
        cell = pool_cell(self.named.source)
        self._enough(len(cell.table()))
        return self._point(cell, None)

    def _enough(self, outputs: int) -> None:
        """Resamples of a handful of outputs look more certain than they are."""
        if outputs < FEWEST:
            raise UserError(
                "The pool has too few outputs for an interval.",
                where=self.named.source,
                got=outputs,
                expected=f"at least {FEWEST}",
            )

    def _point(self, cell: Cell, temperature: float | None) -> Point:
        from strop.measure.cells import measure, token_table

        table = cell.table().slice(0, self._ask["n"])
        [row] = measure([cell], ["calls", "seconds"], self._by, outputs=(0, len(table)))
        tokens = token_table(cell, self._by)
        in_table = np.isin(tokens.index, table["index"].to_numpy())
        return self._point_of(
            str(row.point),
            row.point.sampler.temperature if temperature is None else temperature,
            {name: values[in_table] for name, values in tokens.columns.items()},
            table["text"].to_pylist(),
            row.calls,
            row.seconds,
        )

    def _texts(self) -> Point:
        from strop.groupeval.inputs import read_inputs
        from strop.measure.cells import text_tokens

        [source] = read_inputs([self.named.source])
        texts = list(source.texts)[: self._ask["n"]]
        self._enough(len(texts))
        columns = text_tokens(
            texts,
            self._ask.evaluator,
            self._ask["span"],
            progress=self._ask.progress,
            name=source.name,
        )
        return self._point_of(source.name, None, columns, texts, None, None)

    def _point_of(
        self,
        setting: str,
        temperature: float | None,
        columns: Mapping[str, NDArray],
        texts: Sequence[str],
        calls: float | None,
        seconds: float | None,
    ) -> Point:
        scored = Scored.of(columns)
        share_read = float(columns["kept_bytes"].sum() / max(1, columns["source_bytes"].sum()))
        embed = self._embed if wants_vendi(self._ask) else None
        return Point(setting, temperature, scored, share_read, texts, calls, seconds, embed)

    def _embed(self, rows: Sequence[Sequence[int]]) -> NDArray:
        """Of the tokens that count, and of nothing behind them."""
        from strop.measure.evaluator import embed

        decode = self._ask.evaluator.decode
        return embed([decode(row) for row in rows], device=self._ask["device"])


def sampler_spec(family: str, name: str, steps: int, fields: Mapping[str, Any]) -> SamplerSpec:
    """A setting of a sampler that fits the family, at a budget."""
    from strop.tuning.space import fitting

    facts = fitting(family, name, where="`a`, `b`")
    fixed: dict[str, Any] = {} if facts.fast else {"implementation": "dense"}
    if not facts.causal:
        fixed["steps"] = steps
    heat = {k: swept(name, v) for k, v in fields.items() if k == "temperature"}
    return SamplerSpec(**{"name": name, **fixed, **fields, **heat})


def is_causal(side: SideOutputs) -> bool:
    """Whether it writes one token after the other, so that it has one budget."""
    if side.model is None:
        return False
    return SAMPLERS[default_sampler(side.model.spec.family)].causal


def pool_cell(source: str) -> Cell:
    """The cell of `RUN` or `RUN@CELL`."""
    from strop.store import Run

    directory, mark, name = source.rpartition(CELL)
    if mark and not Path(source).exists():
        return Run.open(directory).cell(name)
    cells = Run.open(source).cells()
    if len(cells) != 1:
        raise UserError(
            "The run has several cells; a side is one.",
            where=source,
            expected=f"{source}{CELL}CELL, one of " + ", ".join(cell.id for cell in cells[:4]),
            fix=f"strop show {source}",
        )
    return cells[0]


def wants_vendi(ask: Ask) -> bool:
    """Whether outputs are embedded."""
    from strop.measure.evaluator import embedder_available

    return ask["vendi"] == "on" or (ask["vendi"] == "auto" and embedder_available())


# ------------------------------------------------------------------------------------------ looks

SIDES = ("a", "b", "a_space", "b_space")
"""Parameters of the sides, in either order."""


def look_number(ask: Ask, sides: Sequence[SideOutputs], budgets: Sequence[int]) -> int:
    """1 for the first look at two sides, 2 for the next, ...; kept in RUN/runs/looks.json."""
    from strop.disk import write
    from strop.store.folder import as_json

    path = ask.out / "runs" / "looks.json"
    looks_by_pair = kept_lists(path)
    # In either order: swapping the sides asks the same.
    pair = sorted(sides, key=lambda side: json.dumps(_identity(side), sort_keys=True))
    looks = looks_by_pair.setdefault(_hash([_identity(side) for side in pair]), [])
    values = {k: v for k, v in ask.values.items() if k not in (*SIDES, *ASIDE)}
    spaces = [list(side.named.space) for side in pair]
    request = int(_hash([values, spaces, list(budgets), ask.smoke]), 16)
    if request not in looks:
        looks.append(request)
        write(path, as_json(looks_by_pair))
    return 1 + looks.index(request)


def kept_lists(path: Path) -> dict[str, list[int]]:
    """What a comparison stores in a file of its run: lists of whole numbers by key."""
    from strop.store.folder import damaged, parsed

    try:
        lists = parsed(path)
        if not all(isinstance(number, int) for numbers in lists.values() for number in numbers):
            raise ValueError("something that is not a whole number")
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, TypeError) as error:
        raise damaged(path, error, f"restore {path}, or start anew with `force`") from None
    return lists


def _hash(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _identity(side: SideOutputs) -> dict[str, Any]:
    weights = None if side.model is None else side.model.spec.sha256
    named_side = side.named
    return {
        "kind": named_side.kind,
        "source": named_side.source if weights is None else weights,
        "sampler": {key: str(value) for key, value in named_side.sampler.items()},
    }


# ------------------------------------------------------------------------------------------ equal

TRIED = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
"""Multiples of the steps."""
OUTPUTS = 8
"""From which costs are measured."""
COLUMN = {"calls": "nfe", "seconds": "seconds"}


def same_length(ask: Ask, sides: Sequence[Named], models: Mapping[str, Model]) -> Ask:
    """With the length that both sides have, unless one is given.

    That is the shorter one of two checkpoints, and a pool's own if the checkpoint can write it.
    """
    from strop.denoisers.base import usable_length

    pools = [pool_cell(side.source).spec.generator.length for side in sides if side.kind == "pool"]
    if ask["length"] is not None or not models or len(models) + len(pools) < 2:
        return ask
    lengths = [model.length if pools else usable_length(model, None) for model in models.values()]
    return replace(ask, values={**ask.values, "length": min([*pools, *lengths])})


def equal_steps(ask: Ask, sides: Sequence[SideOutputs], number: int) -> list[int]:
    """How many updates each side makes at a budget."""
    what = ask["equal"]
    fixed = [not side.named.tunable or is_causal(side) for side in sides]
    if what == "steps" or any(fixed):
        return [number, number]
    stored = _StoredSteps(ask)
    key = json.dumps([what, number, *(side.spec(number).id for side in sides)])
    if key not in stored.steps:
        stored.keep(key, _steps_of_equal_cost(ask, sides, number, what))
    return stored.steps[key]


def _steps_of_equal_cost(
    ask: Ask, sides: Sequence[SideOutputs], number: int, what: str
) -> list[int]:
    cost = [_cost(ask, side, side.spec(number), what) for side in sides]
    steps = [number, number]
    cheaper = 0 if cost[0] < cost[1] else 1
    target, side = max(cost), sides[cheaper]
    tried = {number: cost[cheaper]}
    for times in TRIED:
        many = min(round(number * times), MOST_STEPS)
        if max(tried.values()) >= target * (1 - NEAR[what]):
            break
        tried[many] = _cost(ask, side, side.spec(many), what)
    steps[cheaper] = min(tried, key=lambda many: (abs(tried[many] - target), many))
    return steps


def _cost(ask: Ask, side: SideOutputs, spec: SamplerSpec, what: str) -> float:
    cell = side.cell(spec, OUTPUTS, ask["seed"])
    return float(cell.table()[COLUMN[what]].to_numpy()[:OUTPUTS].mean())


class _StoredSteps:
    """The numbers of updates that were found, in RUN/runs/equal.json."""

    def __init__(self, ask: Ask) -> None:
        self._path = ask.out / "runs" / "equal.json"
        self.steps = kept_lists(self._path)

    def keep(self, key: str, steps: list[int]) -> None:
        from strop.disk import write
        from strop.store.folder import as_json

        self.steps[key] = steps
        write(self._path, as_json(self.steps))
