"""The posterior study: does sharpening worsen the loss that the sampler's rounds see?

For every checkpoint and number of steps M, on the same held-out sequences with the same hidden
positions: the schedule-matched posterior loss J_{M+1}/L at every temperature, its difference from
tau = 1, the best temperature of the grid, the derivative at tau = 1, and the differences between
checkpoints; and the loss profile c(a)/L at evenly spaced visible probabilities. Intervals come
from one paired bootstrap over sequences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.assets import CHECKPOINT, EMBEDDED, HELD_OUT
from strop.engine.plan import all_parts
from strop.errors import UserError
from strop.spec.generator import OperatingPoint, SamplerSpec
from strop.stats.resample import REPLICATES, Resampled
from strop.table import Column, Table
from strop.verbs import paper, parameters
from strop.verbs.points import TEMPERATURES
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter, Result, quoted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from strop.instruments.posterior import Losses
    from strop.measure.frame import Measured
    from strop.measure.guard import HeldOutRows

EARLY = EMBEDDED + "tales-early"
MOST_ROUNDS = 64
"""Grids of more masses are not for a command line."""
ESTIMATORS = {"masked": "all hidden", "target": "one target"}
"""The mean over all hidden positions first: it is the sharper one. The paper has the second."""


@dataclass(frozen=True, eq=False)
class Cells:
    """What was measured on one checkpoint."""

    origin: dict[str, Any]
    """Source, spec and session, for the result."""
    losses: dict[int, Losses]
    """By number of steps; arrays [sequences, temperatures]."""
    profile: Losses | None
    """Arrays [sequences, levels, 1]: at tau = 1."""


def _run(ask: Ask) -> Result:
    from strop.denoisers import load_denoiser
    from strop.denoisers.base import usable_length
    from strop.instruments.posterior import loss_cell, measured_losses
    from strop.measure.guard import read_rows

    file = Path(ask["held_out"] or HELD_OUT)
    taus = tuple(ask["temperature"])
    settings: dict[str, Any] = {"draws": ask["draws"], "temperatures": taus, "seed": ask["seed"]}
    measured: list[Cells] = []
    first: HeldOutRows | None = None
    length = ask["length"]
    with all_parts() as part:
        for source in ask.sources:
            home = ask.engine.at_home(ask["device"])
            denoiser = load_denoiser(source, device=home, dtype=ask["dtype"])
            length = usable_length(denoiser, length)
            rows = read_rows(file, denoiser, length=length, most=ask["n"], least=2)
            if first is None:
                first = rows
                _tell(ask, rows, file, length)
            if rows.sha256 != first.sha256:
                raise UserError(
                    "The checkpoints read the held-out rows as different tokens.",
                    where=source,
                    got="another tokenizer or mask",
                    expected=f"the tokens of {ask.sources[0]}",
                    fix="run the study for each of them: losses per token of two tokenizers do not "
                    "compare",
                )
            settings |= {"checkpoint": denoiser.spec, "length": length}
            cells = [loss_cell(rows.ids, settings, "deployed", m) for m in ask["steps"]]
            if ask["levels"]:  # at tau = 1 alone: it has many contexts, and temperatures cost
                profile_rows, alone = (
                    rows.ids[: ask["profile_n"]],
                    {**settings, "temperatures": (1.0,)},
                )
                cells.append(loss_cell(profile_rows, alone, "profile", ask["levels"]))
            assert ask.folder is not None
            with part():
                results, session = measured_losses(
                    ask.folder, denoiser, rows.ids, cells, ask.note, ask.engine
                )
                losses = dict(zip(ask["steps"], results, strict=False))
                spec = denoiser.spec.model_dump(mode="json")
                origin = {"source": source, "spec": spec, "session": dict(session)}
                measured.append(Cells(origin, losses, results[-1] if ask["levels"] else None))
    assert first is not None  # there is at least one checkpoint
    facts = {
        "heldout": {
            "file": str(file) if ask["held_out"] else f"shipped: {file.name}",
            "sha256": first.sha256,
            "sequences": len(first.ids),
            "length": length,
            "short": first.short,
            "retokenised": first.retokenised,
        },
        **_conclude(ask, measured),
    }
    return Result(ask.said(), _flat(facts), _tables(facts, ask["sharpened"]), facts)


def _check(ask: Ask) -> None:
    if len(set(ask.sources)) < len(ask.sources):
        raise UserError(
            "The study needs checkpoints, each of them once.",
            where="`checkpoint`",
            got=", ".join(ask.sources),
        )
    parameters.refuse_sweep_without_one(ask["temperature"])
    if ask["sharpened"] not in ask["temperature"] or ask["sharpened"] == 1:
        raise UserError(
            "The sharpened temperature must be on the grid, and not 1.",
            where="`sharpened`",
            got=f"{ask['sharpened']:g}",
            expected="one of " + ", ".join(f"{tau:g}" for tau in ask["temperature"] if tau != 1),
        )


def _tell(ask: Ask, rows: HeldOutRows, file: Path, length: int) -> None:
    if rows.short:
        ask.note(f"{file}: {rows.short} rows have fewer than {length} tokens and are left out")
    if len(rows.ids) < ask["n"]:
        ask.note(f"{file}: {len(rows.ids)} sequences, where {ask['n']} were asked for")
    if rows.retokenised:
        ask.note(
            f"{file}: {rows.retokenised} rows have ids of another tokenizer; their text is read"
        )


# ---------------------------------------------------------------- from losses to numbers


def _conclude(ask: Ask, measured: Sequence[Cells]) -> dict[str, Any]:
    """All estimates with their intervals; every checkpoint and temperature shares its replicates.

    Differences between checkpoints are later minus earlier in the order given, at tau = 1.
    """
    names = short_names([checkpoint.origin["source"] for checkpoint in measured])
    columns: dict[Any, Any] = {}
    for name, checkpoint in zip(names, measured, strict=True):
        for (count, losses), estimator in product(checkpoint.losses.items(), ESTIMATORS):
            key, grid = (name, count, estimator), getattr(losses, estimator)
            columns |= {(*key, tau): grid[:, k] for k, tau in enumerate(ask["temperature"])}
            for derivative in ("slope", "curvature"):
                columns[*key, derivative] = getattr(losses, f"{estimator}_{derivative}")
    drawn = Resampled(columns, seed=ask["seed"])
    cells = list(product(measured[0].losses, ESTIMATORS))
    return {
        "checkpoints": [
            {"name": name, **checkpoint.origin}
            for name, checkpoint in zip(names, measured, strict=True)
        ],
        "unit": "nats per token",
        "replicates": REPLICATES,
        "losses": [_losses(ask, drawn, columns, (name, *cell)) for name in names for cell in cells],
        "differences": _differences(
            drawn,
            names,
            {(m, estimator, 1.0): {"steps": m, "estimator": estimator} for m, estimator in cells},
        ),
        "profile": _profile(ask, names, measured) if ask["levels"] else None,
    }


def _losses(
    ask: Ask, drawn: Resampled, columns: dict[Any, Any], key: tuple[str, int, str]
) -> dict[str, Any]:
    """One checkpoint at one budget under one estimator."""
    temperatures = ask["temperature"]
    best, shares = drawn.lowest([(*key, tau) for tau in temperatures])
    optimum = temperatures[best]
    at = {
        tau: [columns[*key[:2], name, tau] for name in ESTIMATORS]
        for tau in (1.0, ask["sharpened"])
    }
    contrasts = (sharp - plain for sharp, plain in zip(at[ask["sharpened"]], at[1.0], strict=True))
    return {
        **dict(zip(("checkpoint", "steps", "estimator"), key, strict=True)),
        "temperatures": [
            {
                "temperature": tau,
                "loss": drawn.interval((*key, tau)),
                "minus_one": drawn.interval((*key, tau), (*key, 1.0)),
                "optimum_share": float(share),
            }
            for tau, share in zip(temperatures, shares, strict=True)
        ],
        "optimum": optimum,
        "optimum_at_edge": optimum in (min(temperatures), max(temperatures)),
        "slope": drawn.interval((*key, "slope")),
        "curvature": drawn.interval((*key, "curvature")),
        "variance_ratio": _ratio(*at[1.0]),
        "contrast_variance_ratio": _ratio(*contrasts),
    }


def _ratio(masked: Any, target: Any) -> float | None:
    """Variance of the one-target estimate over that of the mean over hidden positions."""
    return float(target.var() / masked.var()) if masked.var() > 0 else None


def _profile(ask: Ask, names: list[str], measured: Sequence[Cells]) -> dict[str, Any]:
    """c(a)/L at tau = 1 by the mean over hidden positions, and its mean over the left grid."""
    columns: dict[Any, Any] = {}
    levels = ask["levels"]
    for name, checkpoint in zip(names, measured, strict=True):
        assert checkpoint.profile is not None
        values = checkpoint.profile.masked[:, :, 0]
        columns |= {(name, k): values[:, k] for k in range(levels)}
        columns[name, "mean"] = values.mean(axis=1)
    drawn = Resampled(columns, seed=ask["seed"])
    keys: list[Any] = [(k, k / levels) for k in range(levels)] + [("mean", "mean")]
    return {
        "sequences": len(next(iter(columns.values()))),
        "levels": [
            {"checkpoint": name, "visible": k / levels, "loss": drawn.interval((name, k))}
            for name in names
            for k in range(levels)
        ],
        "means": [{"checkpoint": name, "loss": drawn.interval((name, "mean"))} for name in names],
        "grids": [
            _grid(name, [float(columns[name, k].mean()) for k in range(levels)], steps)
            for name in names
            for steps in ask["steps"]
            if steps <= MOST_ROUNDS
        ],
        "differences": _differences(drawn, names, {(key,): {"visible": at} for key, at in keys}),
    }


def _grid(name: str, losses: Sequence[float], steps: int) -> dict[str, Any]:
    """The reveal masses that the profile would choose, and what it says that they save."""
    from strop.theory.schedules import grid_of_profile

    masses, price, equal = grid_of_profile(losses, steps)
    row = {"checkpoint": name, "steps": steps, "price": price, "equal": equal}
    return {**row, "masses": ",".join(f"{mass:.10g}" for mass in masses)}


def _differences(
    drawn: Resampled, names: list[str], keys: Mapping[tuple[Any, ...], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Later minus earlier checkpoint in every column, `keys` saying where that is."""
    return [
        {
            "later": later,
            "earlier": earlier,
            **where,
            "difference": drawn.interval((later, *key), (earlier, *key)),
        }
        for earlier, later in combinations(names, 2)
        for key, where in keys.items()
    ]


def short_names(sources: Sequence[str]) -> list[str]:
    """The shortest endings of some paths, by whole parts, that tell them apart."""
    parts = [source.rstrip("/").split("/") for source in sources]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(path[-depth:]) for path in parts]
        if len(set(names)) == len(names):
            return names
    return list(sources)


# ---------------------------------------------------------------- the tables


def _flat(facts: Mapping[str, Any]) -> Table:
    """One line per checkpoint, budget, estimator and temperature: for CSV, not for the eye."""
    rows = [
        {
            **{name: row[name] for name in ("checkpoint", "steps", "estimator")},
            **at,
            "slope_at_one": row["slope"],
            "curvature_at_one": row["curvature"],
        }
        for row in facts["losses"]
        for at in row["temperatures"]
    ]
    return Table("Losses", tuple(map(Column, rows[0])), rows, shown=False)


def _tables(facts: Mapping[str, Any], sharpened: float) -> dict[str, Table]:
    held = facts["heldout"]
    title = (
        f"Posterior loss J/L in nats per token, {held['sequences']} held-out sequences of "
        f"{held['length']} tokens, 95% intervals"
    )
    minus = f"{sharpened:g} minus 1"
    columns = (
        Column("checkpoint"),
        Column("steps", "M"),
        Column("loss", "loss at 1", digits=5, bare=True),
        Column("masked", minus, digits=3, signed=True),
        Column("target", f"{minus}, one target", digits=3, signed=True),
        Column(
            "optimum", "best tau", digits=None, help="The lowest mean on the grid.", mark="edge"
        ),
        Column("slope", "slope at 1", digits=3, signed=True),
        Column("curvature", "J'' at 1", digits=3, help="Second derivative of the loss by 1/tau."),
        Column("variance_ratio", "variance ratio", digits=2),
    )
    tables = {"contrasts": Table(title, columns, _contrasts(facts, sharpened))}
    differences = [row for row in facts["differences"] if row["estimator"] == "masked"]
    signed = Column("difference", digits=4, signed=True)
    if differences:
        columns = (Column("later"), Column("earlier", "minus"), Column("steps", "M"), signed)
        title = "Differences between checkpoints at tau = 1"
        tables["differences"] = Table(title, columns, differences)
    profile = facts["profile"]
    if profile is not None:
        rows = [{"what": row["checkpoint"], "mean": row["loss"]} for row in profile["means"]]
        rows += [
            {"what": f"{row['later']} minus {row['earlier']}", "mean": row["difference"]}
            for row in profile["differences"]
            if row["visible"] == "mean"
        ]
        title = f"Mean of the loss profile at tau = 1, {profile['sequences']} sequences"
        columns = (Column("what", "checkpoint"), Column("mean", digits=4))
        tables["profile"] = Table(title, columns, rows)
        columns = (
            Column("checkpoint"),
            Column("steps", "M"),
            Column("equal", "equal masses", digits=4),
            Column("price", "these masses", digits=4),
            Column("masses", "masses for --grid"),
        )
        title = "Grids that the profile would choose, and the loss at reveal it expects of them"
        if profile["grids"]:
            tables["grids"] = Table(title, columns, profile["grids"])
    return tables


def _contrasts(facts: Mapping[str, Any], tau: float) -> list[dict[str, Any]]:
    """One line per checkpoint and budget, both estimators in it."""
    rows: dict[Any, dict[str, Any]] = {}
    for cell in facts["losses"]:
        at = {entry["temperature"]: entry for entry in cell["temperatures"]}
        row = rows.setdefault(
            (cell["checkpoint"], cell["steps"]),
            {
                **{name: cell[name] for name in ("checkpoint", "steps")},
                "temperature": tau,
                "loss": at[1.0]["loss"],
                "optimum": cell["optimum"],
                "edge": " (edge of the grid)" if cell["optimum_at_edge"] else "",
                **{name: cell[name] for name in ("variance_ratio", "slope", "curvature")},
            },
        )
        row[cell["estimator"]] = at[tau]["minus_one"]
    return list(rows.values())


# ---------------------------------------------------------------- the figure


def _draw(result: Result) -> Figure:
    """One colour per checkpoint; the last panel is missing where no profile was measured."""
    from matplotlib.lines import Line2D

    from strop.figures import PALETTE, bars, grouped, panels

    look: dict[str, Any]
    facts, tau = result.facts, result.asked["sharpened"]
    names = [checkpoint["name"] for checkpoint in facts["checkpoints"]]
    colours = dict(zip(names, PALETTE * len(names), strict=False))
    figure, axes = panels(3 if facts["profile"] else 2, 6.9 if facts["profile"] else 4.9)
    lines = grouped(facts["losses"], "checkpoint", "estimator")
    for position, (name, colour) in enumerate(colours.items()):
        shift = 0.2 * (position - (len(names) - 1) / 2)
        # Both estimators side by side: filled the mean over hidden positions, open the one target.
        for estimator, fill, aside in (("masked", colour, -0.04), ("target", "white", 0.04)):
            differences = [
                at["minus_one"]
                for row in lines[name, estimator]
                for at in row["temperatures"]
                if at["temperature"] == tau
            ]
            x = [k + aside + shift for k in range(len(differences))]
            look = {"color": colour, "mfc": fill, "marker": "o", "ms": 3.5, "lw": 1}
            bars(axes[0], x, differences, ls="none", **look)
        for row in lines[name, "masked"]:
            grid = sorted(row["temperatures"], key=lambda at: at["temperature"])
            x, y = [at["temperature"] for at in grid], [at["minus_one"].value for at in grid]
            axes[1].plot(x, y, color=colour, lw=0.9, marker="o", ms=2)
        if facts["profile"]:
            levels = [level for level in facts["profile"]["levels"] if level["checkpoint"] == name]
            a = [level["visible"] for level in levels]
            axes[2].plot(a, [level["loss"].value for level in levels], color=colour, lw=1.2)
            low, high = zip(*(level["loss"].ends for level in levels), strict=True)
            axes[2].fill_between(a, low, high, color=colour, alpha=0.2, lw=0)
    axes[0].axhline(0, color="black", lw=0.7)
    axes[0].set(ylabel=f"loss at τ = {tau:g} minus\nat τ = 1, nats per token", xlabel="steps M")
    counts = result.asked["steps"]
    axes[0].set_xticks(range(len(counts)), [f"{m:,}" for m in counts])
    axes[1].axvline(1, color="grey", lw=0.6, ls=":")
    axes[1].set(
        ylabel="loss minus that at τ = 1,\nnats per token (a line a budget)", xlabel="temperature τ"
    )
    if facts["profile"]:
        axes[2].set(
            ylabel="$c(a)\\,/\\,L$ at τ = 1,\nnats per token", xlabel="visible probability a"
        )
    # Outside and one below the other: names are as long as their paths.
    look = {"color": "black", "marker": "o", "ms": 3.5, "ls": ""}
    handles = [Line2D([], [], color=colour, label=name) for name, colour in colours.items()]
    handles.append(Line2D([], [], label="mean over all hidden positions", **look))
    handles.append(Line2D([], [], mfc="white", label="one target, as in the paper", **look))
    figure.legend(handles=handles, loc="outside lower left", fontsize=7)
    return figure


# ---------------------------------------------------------------- beside others


def beside_cells(result: Result, cells: Sequence[Measured]) -> tuple[Table, Figure | None]:
    """Worse predictor, better generator: the loss, and the perplexity of cells that match it."""
    from strop.measure.frame import perplexity_ratio

    weights = {
        checkpoint["name"]: checkpoint["spec"]["sha256"]
        for checkpoint in result.facts["checkpoints"]
    }
    scored = {
        (cell.spec.generator.checkpoint.sha256, cell.steps, cell.point): cell
        for cell in reversed(cells)  # the first of equal ones
        if cell.perplexities
    }
    rows = []
    for row in result.more["contrasts"].rows:
        key = (weights[row["checkpoint"]], row["steps"])
        settings = (SamplerSpec(temperature=tau) for tau in (1.0, row["temperature"]))
        plain, sharp = (scored.get((*key, OperatingPoint.of(spec))) for spec in settings)
        if plain is not None and sharp is not None:
            rows.append({**row, "ratio": perplexity_ratio(plain, sharp)})
    columns = (
        Column("checkpoint"),
        Column("steps", "M"),
        Column("temperature", "tau", digits=None),
        Column("masked", "loss against tau 1", digits=3),
        Column("ratio", "perplexity ratio", digits=3),
    )
    table = Table("Worse predictor, better generator", columns, rows)
    return table, _scatter(rows) if rows else None


def _scatter(rows: Sequence[Mapping[str, Any]]) -> Figure:
    from strop.figures import panels

    figure, [axes] = panels(1, 2.6)
    if scatter_on(axes, rows) > 1:
        figure.legend(loc="outside upper left", ncol=1)
    return figure


NAMED_POINTS = 6
"""More cells in one plot would write their budgets over each other."""


def scatter_on(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> int:
    """Loss against perplexity ratio, a colour per checkpoint; how many there are."""
    from matplotlib.patheffects import withStroke

    from strop.figures import GREY, PALETTE, errors, grouped

    lines = grouped(rows, "checkpoint")
    for colour, ((name,), own_rows) in zip(PALETTE * len(lines), lines.items(), strict=False):
        axes.errorbar(
            [row["masked"].value for row in own_rows],
            [row["ratio"].value for row in own_rows],
            errors([row["ratio"] for row in own_rows]),
            errors([row["masked"] for row in own_rows]),
            fmt="o",
            ms=4,
            lw=0.8,
            color=colour,
            label=name,
        )
        for row in own_rows if len(rows) <= NAMED_POINTS else ():
            position = (row["masked"].value, row["ratio"].value)
            look: dict[str, Any] = {"fontsize": 6.5, "color": colour, "zorder": 4}
            look["path_effects"] = [withStroke(linewidth=2, foreground="white")]  # over other bars
            text = f"M {row['steps']:,}"
            axes.annotate(text, position, (3, 3), textcoords="offset points", **look)
    axes.axvline(0, color=GREY, lw=0.7, ls=":")
    axes.axhline(1, color=GREY, lw=0.7, ls=":")
    axes.margins(x=0.25, y=0.15)
    axes.set(
        xlabel="worse predictor →   nats per token", ylabel="better samples →\nperplexity ratio"
    )
    return len(lines)


def _beside(result: Result, ask: Ask, roles: Mapping[str, str]) -> Table:
    """Both estimators beside the paper's one target; then late minus early, and the profile's."""
    sources = {
        checkpoint["name"]: checkpoint["source"] for checkpoint in result.facts["checkpoints"]
    }
    role = {name: roles.get(source, "") for name, source in sources.items()}
    printed = paper.table("posterior").by("checkpoint", "steps")
    rows = [
        {
            "what": f"{ask['sharpened']:g} minus 1",
            "checkpoint": row["checkpoint"],
            "steps": row["steps"],
            "estimator": words,
            **_printed(printed.get((role[row["checkpoint"]], row["steps"]))),
            "measured": row[name],
            "best": f"{row['optimum']:g}",
        }
        for row in result.more["contrasts"].rows
        for name, words in ESTIMATORS.items()
    ]
    profile = (result.facts["profile"] or {"differences": []})["differences"]
    means: list[dict[str, Any]] = [
        {**row, "steps": None} for row in profile if row["visible"] == "mean"
    ]
    for row in (*result.facts["differences"], *means):
        if (role[row["later"]], role[row["earlier"]]) != ("late", "early"):
            continue
        where = {"what": "budget", "steps": row["steps"]}
        if row["steps"] is None:
            where = {"what": "profile-mean"}
        records = paper.table("late-early").records(**where)
        line = {
            "what": "late minus early",
            "checkpoint": f"{row['later']} minus {row['earlier']}",
            "steps": row["steps"],
            "estimator": ESTIMATORS.get(row.get("estimator", ""), "profile's mean"),
            "paper": _printed(records[0] if records else None)["paper"],
            "measured": row["difference"],
        }
        if row.get("estimator") == "masked":  # less noisy than the paper's, which prints no ends
            line["within"] = None
        rows.append(line)
    keys = (Column("what"), Column("checkpoint"), Column("steps", "M"), Column("estimator"))
    sequences = paper.table("late-early").settings["sequences"]
    return paper.beside("nats per token", keys, rows, outputs=sequences)


def _printed(record: Mapping[str, Any] | None) -> dict[str, Any]:
    """The paper's difference with its interval, and the temperatures that it found best."""
    if record is None:
        return {"paper": None, "paper_best": None}
    best = " or ".join(f"{tau:g}" for tau in paper.table("posterior").settings["best"])
    return {"paper": paper.with_interval(record)["difference"], "paper_best": best}


STUDY = Study(
    name="posterior",
    title="What sharpening does to the loss that the sampler's rounds see",
    about="Measure the schedule-matched posterior loss of CHECKPOINTS on held-out text.",
    sources=Sources(
        ("CHECKPOINT...",),
        "One or more, the less trained first; by default the embedded ones.",
        (EARLY, CHECKPOINT),
    ),
    parameters=(
        parameters.steps(2, 8, 32, 128, 1024, smoke=(2, 8, 32)),
        Parameter(
            "temperature",
            "The grid; 1 must be on it. The paper does not print its own for this loss.",
            TEMPERATURES,
            "numbers",
        ),
        Parameter.real("sharpened", "Which one the table compares with 1.", 0.9),
        parameters.outputs(512, smoke=64, words="Held-out sequences, at most.", least=2),
        Parameter.count("draws", "Hidden sets per sequence and budget.", 1, most=2**20),
        Parameter("levels", "Levels of the loss profile; 0: none.", 32, "int", most=2**20),
        Parameter("profile_n", "Sequences of the profile, at most.", 128, "int", smoke=64, least=2),
        Parameter.file("held_out", "JSON lines with `text` or `ids`.", shown="the rows that ship"),
        parameters.LENGTH,
        *parameters.MEASURED,
    ),
    run=_run,
    check=_check,
    draw=_draw,
    next=lambda ask: f"strop study cost {ask.sources[-1]} -o {quoted(ask.out)}-cost",
    examples=("strop study posterior --steps 2,8 -n 64 -o runs/posterior",),
    beside_cells=beside_cells,
    items=(paper.item("posterior", _beside),),
)
