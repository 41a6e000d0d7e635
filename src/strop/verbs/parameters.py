"""What verbs are asked for, where they are asked for the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strop.assets import EVALUATOR
from strop.errors import UserError
from strop.records.record import FAMILIES
from strop.runtime import MOST_LENGTH
from strop.spec.value import MOST_STEPS, OUTPUT_LIMIT, SEED_LIMIT
from strop.verbs.verb import SAME, Parameter


def steps(*default: int, smoke: Any = SAME) -> Parameter:
    """The budgets."""
    words = "Updates M, e.g. 16,64."
    return Parameter.counts("steps", words, default, smoke=smoke, most=MOST_STEPS + 1)


def outputs(
    default: int, smoke: Any = SAME, words: str = "Outputs per cell.", least: int = 1
) -> Parameter:
    """How many."""
    return Parameter("n", words, default, "int", smoke, least=least, most=2**32)


def evaluator(default: str = EVALUATOR, smoke: Any = SAME) -> Parameter:
    """Who scores."""
    default_text = f"{EVALUATOR}, for embedded checkpoints only" if default == EVALUATOR else None
    words = "The language model that scores."
    return Parameter("evaluator", words, default, smoke=smoke, shown=default_text)


def refuse_sweep_without_one(temperatures: Sequence[float]) -> None:
    """Refuse temperatures that cannot be compared with 1."""
    if 1 not in temperatures or min(temperatures) <= 0:
        raise UserError(
            "The temperatures must be positive, and 1 among them.",
            where="`temperature`",
            got=", ".join(f"{tau:g}" for tau in temperatures),
        )


def out(
    words: str = "The run directory; continued if it exists.", *, required: bool = True
) -> Parameter:
    """Where results go."""
    return Parameter("out", words, flags=("-o", "--out"), required=required, typed=True)


def argument(name: str, metavar: str, words: str, **more: Any) -> Parameter:
    """A value without a flag, which must be given."""
    return Parameter(name, words, argument=metavar, **{"required": True, **more})


def budgets(words: str, default: tuple[int, ...] | None = None) -> Parameter:
    """Steps of a sampler, whose spec says which there may be."""
    return Parameter("steps", words, default, "ints", least=-(2**63), most=2**63)


SPAN = Parameter(
    "span",
    "Which tokens of an output count.",
    "first-document",
    choices=("first-document", "full-stream", "public-code"),
)
HELD_OUT = Parameter.file(
    "held_out", "Texts for the entropy guard, instead of the shipped ones: JSON lines or a .txt."
)
SEED = Parameter("seed", "Root seed.", 0, "int", most=SEED_LIMIT)
DEVICE = Parameter("device", "auto, cpu, cuda or cuda:i.", "auto")
DTYPE = Parameter(
    "dtype", "Of the generator's network: float32, bfloat16, float16, public.", "auto"
)
FORCE = Parameter.flag("force", "Draw and measure everything anew.")
DRY_RUN = Parameter.flag(
    "dry_run",
    "Say how many cells, outputs and network calls it would be, and how long; draw nothing.",
)
SAMPLER = Parameter("sampler", "By default that of the checkpoint's family.")
LENGTH = Parameter.count("length", "Tokens per output.", shown="the model's own")
AXES = Parameter(
    "axis",
    "A field of the sampler and the values to try, e.g. top_p=1,0.9; may be repeated.",
    kind="axes",
)

MINIMUM, PAPERS_GROUPS = "minimum", "best-of-2000"
PARTITION = Parameter(
    "partition",
    "Second partition: minimum (reuse of pairs), or best-of-2000.",
    MINIMUM,
    choices=(MINIMUM, PAPERS_GROUPS),
)


def grouping(method: str) -> str:
    """How outputs were grouped, and whether that is the paper's way."""
    if method == PAPERS_GROUPS:
        return "groups: the second partition is the best of 2,000 draws, as in the paper"
    return (
        "groups: the second partition reuses the fewest pairs; the paper takes the best of 2,000 "
        f"draws (partition={PAPERS_GROUPS})"
    )


PROMPTS = Parameter.file("prompts", "A .jsonl of prompts, or of texts with gaps such as [[12]].")
CHAT = Parameter.flag("chat", "Put prompts into the tokenizer's chat template.")

ENGINE = (
    Parameter(
        "engine",
        "Where work runs: local (the default), devices (a process per device), ray (an actor per "
        "device).",
    ),
    Parameter("devices", "For engines: cuda:0,cuda:1, all, or cpu:2 for two processes."),
    Parameter("ray_address", "A Ray cluster to join, or auto; else one is started here."),
    Parameter("shard", "Do part i of n of the work, i from 0, e.g. 0/4; auto: as Slurm says."),
    Parameter.flag(
        "wait",
        "With --shard: then do what no other shard has begun, wait for the rest, and end as one "
        "command would.",
    ),
)
"""Where the work of a study runs; `Ask.engine` is the value."""
ANSWERING = (PROMPTS, CHAT)
"""What outputs answer."""
POINTED = (SAMPLER, AXES, LENGTH)
"""What sets where a generator operates."""
DRAWN = (SEED, DEVICE, DTYPE, FORCE)
"""What every verb that runs a network takes."""
GUARD_RULE = Parameter(
    "guard_rule",
    "What of a cell must lie above the entropy guard: its interval, or its mean (the paper's).",
    "interval",
    choices=("interval", "mean"),
)
ANSWERED = (DEVICE, DTYPE, FORCE, DRY_RUN, *ENGINE)
"""What every verb that runs a network by an engine takes, without a root seed."""
MEASURED = (SEED, *ANSWERED)
"""The same with a root seed."""
SCORED = (SPAN, HELD_OUT, *MEASURED)
"""What every study of sampled outputs takes besides budgets, outputs and evaluator."""

SERVER = (
    Parameter.count("concurrency", "Of a served model: requests under way at once.", 8),
    Parameter.real("timeout", "Of a served model: seconds for one request.", 300.0),
    Parameter("max_calls", "Of a served model: cap on requests, earlier ones too.", None, "int"),
    Parameter.real("max_cost", "The same in money; needs --prices."),
    Parameter("prices", "YAML: MODEL: {input: X, output: Y} per million tokens.", kind="place"),
    Parameter("key_env", "The environment variable that holds a server's key.", "OPENAI_API_KEY"),
)
"""How a served model is asked; no number depends on it."""

FAMILY = Parameter(
    "family",
    ", ".join(name for name, family in FAMILIES.builtin.items() if family.noise is not None)
    + " or a plug-in's: where the files do not say.",
)
WEIGHTS = Parameter("weights", "Of a training file; ema by default.", choices=("ema", "raw"))
REVISION = Parameter("revision", "Of a hub id.")
LOAD = Parameter(
    "load",
    "An option for transformers (LLaDA, Dream), e.g. attn_implementation=eager, adapter=DIR, or of "
    "a known language, e.g. leak=0.05; may be repeated.",
    kind="options",
)
SETTINGS = Parameter(
    "settings", "What only this sampler has, e.g. eta=0.008 (see docs/samplers.md).", kind="pairs"
)
IMPLEMENTATION = Parameter(
    "implementation", "fast, or dense: the public code step by step.", "fast"
)
BATCH_SIZE = Parameter(
    "batch_size",
    "Sequences at a time, or auto: as many as fit; changes nothing but speed if fast.",
    kind="batch",
    least=1,
    most=OUTPUT_LIMIT,
)
NETWORK_DTYPE = Parameter(
    "dtype",
    "Of the network: auto (float32), float32, bfloat16, float16, or public: the casts of the "
    "family's public code.",
    "auto",
)


def tokens(words: str) -> Parameter:
    """How long an output is, by any of its three names."""
    names = ("--length", "--gen-length", "--max-new-tokens")
    return Parameter.count("length", words, most=MOST_LENGTH + 1, flags=names)
