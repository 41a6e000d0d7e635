"""The paper's tables and figures as studies: what each needs, and how it is run.

With `smoke` a study runs on the embedded models and the offline judge within minutes. The shape of
the result may be expected there, the numbers may not: other data, another vocabulary, 128 tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.assets import CHECKPOINT, EMBEDDED, EVALUATOR
from strop.errors import UserError, unknown_name
from strop.progress import Progress
from strop.studies import paper

__all__ = ["ITEMS", "Item", "Outcome", "Setup", "reproduce"]

PUBLIC = "kuleshov-group/mdlm-owt"
EARLY, TINY = EMBEDDED + "tales-early", EMBEDDED + "tales-tiny"
OWN = "train it: strop train {0} -o runs/{0}"


@dataclass(frozen=True)
class Setup:
    """What a study is run with; an item fills in what the user leaves open."""

    checkpoints: tuple[str, ...]
    evaluator: str
    steps: tuple[int, ...]
    n: int
    out: Path
    seed: int = 0
    device: str = "auto"
    progress: Progress | None = None


@dataclass(frozen=True)
class Outcome:
    """Paper and measured side by side."""

    keys: tuple[str, ...]
    """The columns that name a row."""
    rows: list[dict[str, Any]]
    """With the keys, `paper` and `measured`; either may be None."""
    unit: str
    document: dict[str, Any]
    """Everything that was measured."""


@dataclass(frozen=True)
class Item:
    """One table or figure."""

    tables: tuple[str, ...]
    """Its names in `assets/paper`."""
    what: str
    needs: str
    """What a full run takes."""
    checkpoints: tuple[str | None, ...]
    """Default sources; None where the paper's checkpoint was never released."""
    smoke_checkpoints: tuple[str, ...]
    evaluator: str
    steps: tuple[int, ...]
    n: int
    run: Callable[[Setup], Outcome]
    smoke_steps: tuple[int, ...] = (4, 16, 64)
    smoke_n: int = 32


def reproduce(
    id: str,
    *,
    out: Path,
    smoke: bool = False,
    checkpoints: Sequence[str] = (),
    evaluator: str | None = None,
    steps: Sequence[int] = (),
    n: int | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> Outcome:
    """Run one item, whole or small."""
    if id not in ITEMS:
        raise unknown_name("table or figure", id, ITEMS)
    item = ITEMS[id]
    sources: Sequence[str | None] = checkpoints or (
        item.smoke_checkpoints if smoke else item.checkpoints
    )
    given = tuple(one for one in sources if one is not None)
    if len(given) != len(item.checkpoints):
        raise UserError(
            f"{id} needs {len(item.checkpoints)} checkpoints.",
            got=f"{len(given)}" + (f": {', '.join(given)}" if given else ""),
            expected=item.needs,
            fix="give them with --checkpoint, one flag each, or use --smoke",
        )
    return item.run(
        Setup(
            checkpoints=given,
            evaluator=evaluator or (EVALUATOR if smoke else item.evaluator),
            steps=tuple(steps) or (item.smoke_steps if smoke else item.steps),
            n=n or (item.smoke_n if smoke else item.n),
            out=out,
            seed=seed,
            device=device,
            progress=progress,
        )
    )


def _sampling(setup: Setup) -> Any:
    from strop.metrics.entropy import read_held_out
    from strop.metrics.evaluator import load_evaluator
    from strop.studies.sampled import Sampling

    return Sampling(
        evaluator=load_evaluator(setup.evaluator, device=setup.device),
        n=setup.n,
        seed=setup.seed,
        held_out=read_held_out(),
        device=setup.device,
        progress=setup.progress,
    )


def _cells(table: str, full: bool, **where: Any) -> Callable[[Setup], Outcome]:
    """A table of perplexities by steps, temperature and precision."""

    def run(setup: Setup) -> Outcome:
        from strop.denoisers import load_denoiser
        from strop.studies.audit import CORNERS, GRID, audit

        how = _sampling(setup)
        result = audit(
            load_denoiser(setup.checkpoints[0], device=setup.device),
            [how.evaluator],
            out=setup.out,
            steps=setup.steps,
            settings=GRID if full else CORNERS,
            n=[setup.n] * len(setup.steps),
            fresh=False,
            seed=setup.seed,
            held_out=how.held_out,
            progress=setup.progress,
        )
        keys = ("steps", "temperature", "precision")
        printed = {tuple(row[k] for k in keys): row for row in paper.table(table).records(**where)}
        rows = []
        for cell in result.document()["cells"]:
            key = tuple(cell[k] for k in keys)
            row = printed.get(key)
            rows.append(
                {
                    **dict(zip(keys, key, strict=True)),
                    "paper": row and row["perplexity"],
                    "paper_entropy": row and row["entropy"],
                    "measured": cell["perplexity"][0]["value"],
                    "low": cell["perplexity"][0]["low"],
                    "high": cell["perplexity"][0]["high"],
                    "measured_entropy": cell["entropy"]["value"],
                    "below_guard": cell["below_guard"],
                }
            )
        return Outcome(keys, rows, "perplexity", result.document())

    return run


def _less(comparison: str) -> Callable[[Setup], Outcome]:
    def run(setup: Setup) -> Outcome:
        from strop.studies.less_is_more import run_less_is_more

        more, less = setup.checkpoints
        result = run_less_is_more(more, less, _sampling(setup), out=setup.out, steps=setup.steps)
        keys = ("sampler", "steps")
        printed = {
            tuple(row[k] for k in keys): row["ratio"]
            for row in paper.table("less-is-more").records(comparison=comparison)
        }
        rows = [
            {
                **{k: row[k] for k in keys},
                "paper": printed.get(tuple(row[k] for k in keys)),
                "measured": row["ratio"],
                "low": row["low"],
                "high": row["high"],
            }
            for row in result["rows"]
        ]
        return Outcome(keys, rows, "perplexity, more over less", result)

    return run


def _frontier(setup: Setup) -> Outcome:
    from strop.studies.frontier import run_frontier

    result = run_frontier(
        setup.checkpoints[0],
        _sampling(setup),
        out=setup.out,
        steps=setup.steps,
        precisions=("float32",),
    )
    keys = ("steps", "temperature", "precision")
    rows = [
        {
            **{k: row[k] for k in keys},
            "paper": None,
            "measured": row["perplexity"],
            "low": row["low"],
            "high": row["high"],
            "measured_entropy": row["entropy"],
            "below_guard": row["below_guard"],
        }
        for row in result["rows"]
    ]
    return Outcome(keys, rows, "perplexity", result)


def _posterior(setup: Setup) -> Outcome:
    from strop.studies.posterior import run_posterior

    result = run_posterior(
        setup.checkpoints,
        out=setup.out,
        steps=setup.steps,
        n=setup.n,
        profile_n=min(setup.n, 128),
        seed=setup.seed,
        device=setup.device,
    )
    names = [one["name"] for one in result["checkpoints"]]
    roles = dict(zip(names, ("early", "late"), strict=False))
    sharpened = result["asked"]["sharpened"]
    rows = []
    for one in result["losses"]:
        if one["estimator"] != "target":
            continue
        at = next(t for t in one["temperatures"] if t["temperature"] == sharpened)
        found = paper.table("posterior").records(
            checkpoint=roles.get(one["checkpoint"], "public"), steps=one["steps"]
        )
        rows.append(
            {
                "checkpoint": one["checkpoint"],
                "steps": one["steps"],
                "paper": found[0]["difference"] if found else None,
                "measured": at["minus_one"]["mean"],
                "low": at["minus_one"]["low"],
                "high": at["minus_one"]["high"],
            }
        )
    unit = f"nats per token, tau = {sharpened:g} minus tau = 1"
    return Outcome(("checkpoint", "steps"), rows, unit, result)


def _cost(setup: Setup) -> Outcome:
    from strop.studies.cost import run_cost

    result = run_cost(
        setup.checkpoints[0],
        out=setup.out,
        steps=setup.steps,
        batch_size=setup.n,
        seed=setup.seed,
        device=setup.device,
    )
    printed = {
        (row["setting"], row["steps"]): row["seconds"] for row in paper.table("cost").records()
    }
    rows = [
        {
            "setting": row["setting"],
            "steps": row["updates"],
            "implementation": row["implementation"],
            "paper": printed.get((row["setting"], row["updates"]))
            if row["implementation"] == "dense"
            else None,
            "measured": row["seconds"],
            "low": row["seconds_low"],
            "high": row["seconds_high"],
        }
        for row in result["rows"]
    ]
    return Outcome(("setting", "steps", "implementation"), rows, "seconds per sequence", result)


def _groupeval(name: str) -> Callable[[Setup], Outcome]:
    def run(setup: Setup) -> Outcome:
        from strop.studies.groupeval_cells import run_groupeval

        panel, document = run_groupeval(setup, name)
        from strop.studies.groupeval_panel import paper_panel

        printed = {
            row.steps: row.difference
            for row in paper_panel(name).of(paper_panel(name).default_judge)
        }
        rows = [
            {
                "judge": row.judge,
                "steps": row.steps,
                "paper": printed.get(row.steps),
                "measured": row.difference,
                "low": row.interval[0],
                "high": row.interval[1],
                "GED": f"{row.ged[0]:.2f} -> {row.ged[1]:.2f}",
            }
            for row in panel.rows
        ]
        return Outcome(("judge", "steps"), rows, "GEQ, sharpened minus standard", document)

    return run


BUDGETS = tuple(2**k for k in range(11))
_GPU = "a GPU"
ITEMS: dict[str, Item] = {
    "headline": Item(
        ("headline",),
        "the four corners on the public checkpoint",
        f"{PUBLIC}, gpt2, {_GPU}",
        (PUBLIC,),
        (CHECKPOINT,),
        "gpt2",
        (16, 64, 256, 1024),
        128,
        _cells("headline", full=False),
    ),
    "headline-full": Item(
        ("headline-full",),
        "the same at every budget",
        f"{PUBLIC}, gpt2, {_GPU}",
        (PUBLIC,),
        (CHECKPOINT,),
        "gpt2",
        (1, 2, 8, 32, 128, 512, 1024, 2048),
        128,
        _cells("headline-full", full=False, checkpoint="public"),
        smoke_steps=(1, 2, 8, 32),
    ),
    **{
        f"grid-{name}": Item(
            (f"grid-{name}",),
            f"seven temperatures, two precisions, 11 budgets: {told}",
            f"a checkpoint of your own ({OWN.format(config)}), gpt2, {_GPU}",
            (None,),
            (smoke,),
            "gpt2",
            BUDGETS,
            n,
            _cells(f"grid-{name}", full=True),
            smoke_n=16,
        )
        for name, told, config, smoke, n in (
            ("small-late", "MDLM-Small after 914,672 steps", "mdlm-small", CHECKPOINT, 128),
            ("small-early", "MDLM-Small after 20,788 steps", "mdlm-small", EARLY, 128),
            ("tiny-late", "MDLM-Tiny", "mdlm-tiny", TINY, 256),
        )
    },
    "less-is-more-training": Item(
        ("less-is-more",),
        "does longer training hurt few-step generation?",
        f"a late and an early MDLM-Small ({OWN.format('mdlm-small')}), gpt2, {_GPU}",
        (None, None),
        (CHECKPOINT, EARLY),
        "gpt2",
        BUDGETS,
        128,
        _less("training"),
        smoke_steps=(2, 4, 8),
    ),
    "less-is-more-size": Item(
        ("less-is-more",),
        "does a larger model hurt few-step generation?",
        "MDLM-Small and MDLM-Tiny of your own, gpt2, " + _GPU,
        (None, None),
        (CHECKPOINT, TINY),
        "gpt2",
        BUDGETS,
        128,
        _less("size"),
        smoke_steps=(2, 4, 8),
    ),
    "frontier": Item(
        ("frontier",),
        "perplexity and entropy against temperature (the paper prints no numbers)",
        f"{PUBLIC}, gpt2, {_GPU}",
        (PUBLIC,),
        (CHECKPOINT,),
        "gpt2",
        (8, 128, 1024),
        128,
        _frontier,
        smoke_steps=(8, 64),
    ),
    "posterior": Item(
        ("posterior", "late-early"),
        "sharpening worsens the schedule-matched posterior loss",
        "an early and a late MDLM-Small of your own, held-out text, " + _GPU,
        (None, None),
        (EARLY, CHECKPOINT),
        "gpt2",
        (2, 8, 32, 128, 1024),
        512,
        _posterior,
        smoke_steps=(2, 8, 32),
        smoke_n=64,
    ),
    "cost": Item(
        ("cost",),
        "memory and seconds per sequence, dense and fast",
        f"{PUBLIC}, {_GPU} (the paper's is an H100)",
        (PUBLIC,),
        (CHECKPOINT,),
        "gpt2",
        BUDGETS,
        8,
        _cost,
        smoke_steps=(4, 16),
        smoke_n=8,
    ),
    "groupeval-mdlm": Item(
        ("groupeval-mdlm",),
        "judged quality and diversity, standard against sharpened",
        f"{PUBLIC}, a judge's endpoint (afterwards: strop groupeval judge OUT/groupeval), {_GPU}",
        (PUBLIC,),
        (CHECKPOINT,),
        "gpt2",
        (4, 16, 64, 256, 1024),
        128,
        _groupeval("groupeval-mdlm"),
    ),
    "groupeval-didi": Item(
        ("groupeval-didi",),
        "the same for DiDi-Instruct, 40 outputs a cell",
        f"DiDi-Instruct's files, a judge's endpoint, {_GPU}",
        (None,),
        (EARLY,),
        "gpt2",
        (4, 16, 64, 256, 1024),
        40,
        _groupeval("groupeval-didi"),
        smoke_n=40,
        smoke_steps=(4, 16),
    ),
}
