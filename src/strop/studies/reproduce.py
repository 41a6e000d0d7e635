"""The paper's tables and figures as studies: what each needs, and how it is run.

With `smoke` a study runs on the embedded models and the offline judge within minutes. The shape of
the result may be expected there, the numbers may not: other data, another vocabulary, 128 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from strop.assets import CHECKPOINT, EMBEDDED, EVALUATOR
from strop.errors import UserError, unknown_name
from strop.progress import Progress
from strop.studies import paper_runs
from strop.studies.contenders import MODELS
from strop.studies.item import Item, Outcome, Setup

__all__ = ["ELSEWHERE", "ITEMS", "reproduce"]

PUBLIC = "kuleshov-group/mdlm-owt"
EARLY, TINY = EMBEDDED + "tales-early", EMBEDDED + "tales-tiny"
OWN = "train it: strop train {0} -o runs/{0}"


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
    if id in ELSEWHERE:
        raise UserError(f"{id} has no study of its own here: {ELSEWHERE[id]}.", where=id)
    if id not in ITEMS:
        raise unknown_name("table or figure", id, ITEMS)
    item = ITEMS[id]
    sources: Sequence[str | None] = checkpoints or (
        item.smoke_checkpoints if smoke else item.checkpoints
    )
    given = tuple(one for one in sources if one is not None)
    own = smoke and not checkpoints and not item.smoke_checkpoints
    if not own and len(given) != len(item.checkpoints):
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
        paper_runs.cells("headline", full=False),
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
        paper_runs.cells("headline-full", full=False, checkpoint="public"),
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
            paper_runs.cells(f"grid-{name}", full=True),
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
        paper_runs.less("training"),
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
        paper_runs.less("size"),
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
        paper_runs.frontier,
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
        paper_runs.posterior,
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
        paper_runs.cost,
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
        paper_runs.groupeval("groupeval-mdlm"),
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
        paper_runs.groupeval("groupeval-didi"),
        smoke_n=40,
        smoke_steps=(4, 16),
    ),
    "cross-model": Item(
        ("cross-model", "cross-model-entropy"),
        "MDLM, sharpened and not, among its successors, and GPT-2",
        f"six public checkpoints, gpt2-large, {_GPU}",
        tuple(one.source for one in MODELS.values()),
        (),
        "gpt2-large",
        (4, 16, 64, 128, 256, 1024),
        40,
        paper_runs.cross_model,
        smoke_steps=(4, 16),
        smoke_n=16,
    ),
    "didi-grids": Item(
        ("grid-didi-guided", "grid-didi-ancestral"),
        "DiDi-Instruct with and without its reward: seven temperatures, two precisions",
        f"DiDi-Instruct's files, gpt2-large, {_GPU}",
        (MODELS["DiDi-Instruct"].source,),
        (),
        "gpt2-large",
        BUDGETS,
        40,
        paper_runs.didi_grids,
        smoke_steps=(2, 8),
        smoke_n=8,
    ),
    "exact-output": Item(
        ("groupeval-exact",),
        "the same outputs under two evaluators and a judge",
        "MDLM's and DiDi-Instruct's files, gpt2-large, Qwen/Qwen3-8B-Base, a judge's endpoint "
        f"(afterwards: strop groupeval judge OUT/groupeval), {_GPU}",
        tuple(MODELS[name].source for name in ("MDLM-Small", "DiDi-Instruct")),
        (),
        "gpt2-large",
        (4, 16, 64, 256, 1024),
        40,
        paper_runs.exact_output,
        smoke_steps=(4, 16),
        smoke_n=16,
    ),
    "exact-repair": Item(
        ("exact-repair",),
        "a perfect model of two bits, and of 280 random targets",
        "nothing; figures: strop theory figure -o DIR",
        (),
        (),
        EVALUATOR,
        (2,),
        1,
        paper_runs.exact_repair,
    ),
}
"""By name, in the order of the list."""

ELSEWHERE: dict[str, str] = {
    "overview": "its panels are cross-model, groupeval-mdlm and posterior",
    "tiny": "two columns of grid-tiny-late",
    "large-models": "LLaDA and Dream are not loaded yet",
    "large-models-control": "the tasks of LLaDA and Dream are not run yet",
    "conditional": "LLaDA and Dream are not loaded yet; strop groupeval judges conditional outputs",
}
"""The paper's other tables and figures, and where their numbers come from."""
