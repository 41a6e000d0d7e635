"""Every verb as a function of its name, as type checkers and editors read it.

Made by scripts/make_calls.py from the records; change those and run it again.
"""

from collections.abc import Mapping, Sequence
from inspect import Signature
from os import PathLike
from typing import Any, Literal, Required, TypedDict, Unpack

from strop.verbs.verb import Parameter, Result, Verb

Place = str | PathLike[str]
MODULES: tuple[str, ...]
VERBS: dict[str, tuple[str, str]]

def record_of(name: str) -> Verb | None: ...
def argument_name(parameter: Parameter, verb: Verb) -> str: ...
def signature(verb: Verb) -> Signature: ...

class CommonSettingsArguments(TypedDict, total=False):
    """Of several verbs."""

    settings: Mapping[str, Any] | None
    """What only this sampler has, e.g. eta=0.008 (see docs/samplers.md)."""
    implementation: str
    """fast, or dense: the public code step by step."""
    batch_size: int | Literal["auto"] | None
    """Sequences at a time, or auto: as many as fit; changes nothing but speed if fast."""
    dtype: str
    """Of the network: auto (float32), float32, bfloat16, float16, or public: the casts of the
    family's public code."""
    revision: str | None
    """Of a hub id."""
    load: Mapping[str, Any] | None
    """An option for transformers (LLaDA, Dream), e.g. attn_implementation=eager, adapter=DIR,
    or of a known language, e.g. leak=0.05; may be repeated."""

class CommonPromptsArguments(TypedDict, total=False):
    """Of several verbs."""

    prompts: Any | None
    """A .jsonl of prompts, or of texts with gaps such as [[12]]."""
    chat: bool
    """Put prompts into the tokenizer's chat template."""

class CommonConcurrencyArguments(TypedDict, total=False):
    """Of several verbs."""

    concurrency: int
    """Of a served model: requests under way at once."""
    timeout: float
    """Of a served model: seconds for one request."""
    max_calls: int | None
    """Of a served model: cap on requests, earlier ones too."""
    max_cost: float | None
    """The same in money; needs --prices."""
    prices: Place | None
    """YAML: MODEL: {input: X, output: Y} per million tokens."""
    key_env: str
    """The environment variable that holds a server's key."""

class CommonEngineArguments(TypedDict, total=False):
    """Of several verbs."""

    engine: str | None
    """Where work runs: local (the default), devices (a process per device), ray (an actor per
    device)."""
    devices: str | None
    """For engines: cuda:0,cuda:1, all, or cpu:2 for two processes."""
    ray_address: str | None
    """A Ray cluster to join, or auto; else one is started here."""
    shard: str | None
    """Do part i of n of the work, i from 0, e.g. 0/4; auto: as Slurm says."""
    wait: bool
    """With --shard: then do what no other shard has begun, wait for the rest, and end as one
    command would."""

class CommonEvaluatorArguments(TypedDict, total=False):
    """Of several verbs."""

    evaluator: str
    """The language model that scores."""
    span: Literal["first-document", "full-stream", "public-code"]
    """Which tokens of an output count."""
    held_out: Place | None
    """Texts for the entropy guard, instead of the shipped ones: JSON lines or a .txt."""
    dtype: str
    """Of the generator's network: float32, bfloat16, float16, public."""
    force: bool
    """Draw and measure everything anew."""

class CommonLengthArguments(TypedDict, total=False):
    """Of several verbs."""

    length: int | None
    """Tokens per output."""
    seed: int
    """Root seed."""

class DemoArguments(TypedDict, total=False):
    """What `demo` may be told."""

    out: Place
    """The directory."""
    smoke: bool
    """The same in small, in seconds."""
    no_open: bool
    """Open no browser at the end."""

def demo(**given: Unpack[DemoArguments]) -> Result:
    """Show what strop does: mistakes that one can see, an audit, a judge, and the page."""

class SampleArguments(
    CommonSettingsArguments,
    CommonPromptsArguments,
    CommonConcurrencyArguments,
    CommonEngineArguments,
    total=False,
):
    """What `sample` may be told."""

    out: Place | None
    """The run directory; continued if it exists."""
    steps: int | Sequence[int] | None
    """Updates M, e.g. 16,64; 64 by default (autoregressive: the length)."""
    temperature: float | Sequence[float]
    """tau, e.g. 1.0,0.9; 0 is greedy."""
    precision: str | Sequence[str]
    """Of the draw: float64, float32 or both."""
    n: int | None
    """Outputs per cell; may grow later. 16 by default; with prompts, one for each."""
    seed: int
    """Root seed; output i depends on it and on i."""
    sampler: str | None
    """By default that of the family; a plug-in's, or one of: ancestral, ancestral-uncached,
    analytic, ancestral-duo, analytic-duo, sedd-analytic, sedd-euler, sedd-analytic-duo,
    duo-ancestral, duo-held, didi-guided, didi-ancestral, didi-guided-literal,
    didi-ancestral-literal, ancestral-remdm, remdm-cap, remdm-rescale, remdm-conf,
    remdm-loop, autoregressive, served, llada, fast-dllm, dream, fast-dllm-dream,
    blockwise, sdar, llada2, llada2-edit, llada2-pipeline, fast-dllm-v2, bd3lm,
    diffusion-gemma."""
    top_p: float
    """Nucleus of the clean-token distribution."""
    grid: str | Sequence[float] | None
    """Reveal masses that sum to 1, e.g. 0.2,0.3,0.5, instead of --steps."""
    finish: str | None
    """Last mass: greedy, draw or none; by default the public one."""
    spec: Any | None
    """A YAML file of samplers, e.g. from `strop audit`; no other settings."""
    noise: str
    """Of dense, drawn on: cpu (the same everywhere), or device."""
    length: int | None
    """Tokens per output, after a prompt if there is one; else the model's."""
    per_prompt: int | None
    """Outputs for each prompt; may grow later."""
    shots: Any | None
    """A .jsonl of worked examples, put before every prompt."""
    bos: Literal["tokenizer", "always", "never"]
    """What opens a prompt; tokenizer is its own rule."""
    device: str
    """auto, cpu, cuda or cuda:i."""
    weights: Literal["ema", "raw"] | None
    """Of a training file; ema by default."""
    family: str | None
    """mdlm, sedd, duo, didi, bd3lm, llada, dream, sdar, llada2, fast-dllm-v2,
    diffusion-gemma, language or a plug-in's: where the files do not say."""
    force: bool
    """Start the run directory anew."""
    dry_run: bool
    """Say how many cells, outputs and network calls it would be, and how long; draw nothing."""

def sample(checkpoint: Any | None = None, **given: Unpack[SampleArguments]) -> Result:
    """Draw outputs of CHECKPOINT for every combination of --steps, --temperature and
    --precision."""

class ScoreArguments(CommonEngineArguments, total=False):
    """What `score` may be told."""

    evaluator: str | Sequence[str] | None
    """Causal language models, e.g. embedded:tales-ar,gpt2@REVISION,smollm2-135m, a directory;
    none for the metrics that need no text."""
    span: str | Sequence[str]
    """What counts."""
    clean_up: bool | None
    """Tidy spaces as transformers 4 did; by default for public-code only."""
    own_ids: bool
    """Score the generator's ids, without retokenising."""
    vendi: Literal["auto", "on", "off"]
    """Vendi score; auto: if embeddings are installed."""
    held_out: Place | None
    """Texts for the entropy guard, not the shipped ones: JSON lines or a .txt; kept in the
    run."""
    batch_size: int | None
    """Outputs at a time; changes nothing but speed."""
    device: str
    """auto, cpu, cuda or cuda:i."""
    dtype: str
    """Of the evaluator: auto (float32), bfloat16, float16."""

def score(run: Place, **given: Unpack[ScoreArguments]) -> Result:
    """Score every cell of RUN. The same command continues; nothing is scored twice."""

class MergeArguments(TypedDict, total=False):
    """What `merge` may be told."""

    out: Required[Place]
    """The run that gets them all."""

def merge(*runs: Place, **given: Unpack[MergeArguments]) -> Result:
    """Bring outputs and scores of runs together that were made for the same cells."""

class AuditArguments(
    CommonPromptsArguments,
    CommonConcurrencyArguments,
    CommonEngineArguments,
    CommonEvaluatorArguments,
    CommonLengthArguments,
    total=False,
):
    """What `audit` may be told."""

    out: Required[Place]
    """The directory; continued if it exists."""
    steps: int | Sequence[int] | None
    """Updates M, e.g. 16,64; a causal model has one budget."""
    n: int | Sequence[int]
    """Outputs per cell: one number, or one per budget."""
    grid: bool
    """Seven temperatures .80 to 1.10 instead of three."""
    guard_rule: Literal["interval", "mean"]
    """What of a cell must lie above the entropy guard: its interval, or its mean (the
    paper's)."""
    second_evaluator: str | None
    """Another one, for the gain on fresh outputs."""
    fresh: bool
    """Report the gain on outputs that were not chosen from."""
    fresh_n: int | Sequence[int] | None
    """Fresh outputs per cell."""
    goal: Literal["fewest-steps", "best"]
    """What to recommend: the fewest steps that are near enough, or the least perplexity."""
    within: float | str
    """How much more perplexing than the standard sampler with the most steps fewer steps may
    be: 0.05 or 5%."""
    sampler: str | None
    """By default that of the checkpoint's family."""
    axis: Mapping[str, Sequence[Any]] | None
    """A field of the sampler and the values to try, e.g. top_p=1,0.9; may be repeated."""
    device: str
    """auto, cpu, cuda or cuda:i."""
    dry_run: bool
    """Say how many cells, outputs and network calls it would be, and how long; draw nothing."""
    smoke: bool
    """On the embedded models, within minutes."""

def audit(checkpoint: Place | None = None, /, **given: Unpack[AuditArguments]) -> Result:
    """How much of a checkpoint's few-step gap is its sampler?"""

class CompareArguments(
    CommonConcurrencyArguments,
    CommonEngineArguments,
    CommonEvaluatorArguments,
    CommonLengthArguments,
    total=False,
):
    """What `compare` may be told."""

    out: Required[Place]
    """The directory; continued if it exists."""
    a: str | Sequence[str] | None
    """A's published setting, e.g. temperature=0.9; repeatable."""
    b: str | Sequence[str] | None
    """B's published setting, likewise."""
    a_space: str | Sequence[str] | None
    """What may be tuned for A, e.g. eta=0.005:0.1:log; repeatable."""
    b_space: str | Sequence[str] | None
    """Likewise for B."""
    steps: int | Sequence[int]
    """Updates M, e.g. 16,64."""
    equal: Literal["steps", "calls", "seconds"]
    """What both sides have alike at a budget."""
    n: int
    """Outputs per temperature and side."""
    temperature: float | Sequence[float]
    """The sweep that traces the frontiers."""
    budget: int
    """Outputs of each side's search at each budget; 0 for no search."""
    a_name: str | None
    """What A is called in tables, figures and the verdict."""
    b_name: str | None
    """What B is called."""
    margin: float | str
    """The smallest difference in perplexity that matters."""
    vendi: Literal["auto", "on", "off"]
    """Embeddings for diversity."""
    judge: Literal["offline"] | None
    """Who judges both at one entropy, by GEQ and GED."""
    device: str
    """auto, cpu, cuda or cuda:i."""
    dry_run: bool
    """Say how many cells, outputs and network calls it would be, and how long; draw nothing."""
    smoke: bool
    """On the embedded models, within minutes."""

def compare(
    side_a: Place | None = None, side_b: Place | None = None, /, **given: Unpack[CompareArguments]
) -> Result:
    """Is A better than B, or only sharper?"""

class TuneArguments(
    CommonPromptsArguments,
    CommonConcurrencyArguments,
    CommonEngineArguments,
    CommonEvaluatorArguments,
    CommonLengthArguments,
    total=False,
):
    """What `tune` may be told."""

    out: Required[Place]
    """The directory; continued if it exists."""
    space: str | Sequence[str] | None
    """What may be tried: temperature=0.6:1.1, eta=0.005:0.1:log, name=ancestral,remdm-cap;
    may be repeated."""
    steps: int | Sequence[int] | None
    """Budgets of updates M, each searched on its own."""
    calls: int | Sequence[int] | None
    """Budgets of network calls per output instead."""
    objective: str | None
    """A metric, or one of its numbers; also geq, calls and seconds."""
    task: str | None
    """A task whose problems the outputs answer, e.g. sums."""
    judge: str
    """Who judges where the objective is geq."""
    best: Literal["min", "max"] | None
    """Which way is better."""
    constraint: str | Sequence[str] | None
    """What a setting must hold, e.g. repetition<=0.2; may be repeated."""
    guard: bool
    """Hold the entropy guard, where there is one."""
    budget: int
    """Outputs per search."""
    n: int
    """The most outputs of one candidate."""
    first: int
    """Outputs that a candidate starts with."""
    tolerance: float
    """A share that is not worth more outputs."""
    fresh_n: int
    """Fresh outputs of the choice."""
    sampler: str | None
    """By default that of the checkpoint's family."""
    device: str
    """auto, cpu, cuda or cuda:i."""
    dry_run: bool
    """Say how many cells, outputs and network calls it would be, and how long; draw nothing."""
    smoke: bool
    """On the embedded models, within minutes."""

def tune(checkpoint: Place | None = None, /, **given: Unpack[TuneArguments]) -> Result:
    """Which setting of its samplers suits a checkpoint best?"""

class ProbeArguments(CommonConcurrencyArguments, total=False):
    """What `probe` may be told."""

    knob: Mapping[str, Sequence[Any]] | None
    """A further field and a value, or two to compare, e.g. threshold=0.1,0.99; may be
    repeated."""
    length: int
    """Of a local checkpoint: tokens per output."""
    steps: int
    """Of a local diffusion checkpoint: updates."""
    device: str
    """auto, cpu, cuda or cuda:i."""

def probe(checkpoint: Any | None = None, **given: Unpack[ProbeArguments]) -> Result:
    """Say what the knobs of CHECKPOINT do: seed, temperature, top_p, company, limits."""

class PowerArguments(
    CommonEngineArguments, CommonEvaluatorArguments, CommonLengthArguments, total=False
):
    """What `power` may be told."""

    out: Required[Place]
    """The directory; continued if it exists."""
    gap: float | Sequence[float]
    """Perplexity gaps to find, as shares."""
    margin: float | str
    """The margin of `the same`."""
    look: int
    """At which look of `strop compare` it will be."""
    judged: str | None
    """Judged texts (RUN, RUN@SERIES, .jsonl) for a difference in GEQ."""
    geq: float
    """The difference in GEQ to find, in points."""
    accuracy: float | None
    """The pilot's accuracy, where no task was graded."""
    accuracy_gap: float
    """The difference in accuracy to find."""
    steps: int
    """Updates M of the pilot."""
    n: int
    """Outputs of the pilot per temperature."""
    temperature: float | Sequence[float]
    """Of the pilot."""
    sampler: str | None
    """By default that of the checkpoint's family."""
    device: str
    """auto, cpu, cuda or cuda:i."""
    dry_run: bool
    """Say how many cells, outputs and network calls it would be, and how long; draw nothing."""
    smoke: bool
    """On the embedded models, within minutes."""

def power(source: Place | None = None, /, **given: Unpack[PowerArguments]) -> Result:
    """How many outputs does a question need?"""

class ReportArguments(TypedDict, total=False):
    """What `report` may be told."""

    out: Place
    """The page."""
    title: str | None
    """Of the page; the checkpoints' names by default."""
    outputs: int | None
    """Outputs of each generator to hold; by default those that fit (8 MB)."""

def report(*runs: Place, **given: Unpack[ReportArguments]) -> Result:
    """Write one self-contained HTML page of RUN...: tables, figures, and a browser of
    outputs."""

class ViewArguments(TypedDict, total=False):
    """What `view` may be told."""

    port: int | None
    """Of 127.0.0.1; by default the first free one from 8111."""
    no_open: bool
    """Print the address only."""

def view(*folders: Place, **given: Unpack[ViewArguments]) -> Result:
    """Show FOLDER... in a browser, and what is under way there."""

class ExportArguments(TypedDict, total=False):
    """What `export` may be told."""

    format: Literal["csv", "tex", "md", "parquet", "json"]
    """The kind of files."""
    out: Place | None
    """Where the files go."""

def export(folder: Place, **given: Unpack[ExportArguments]) -> Result:
    """Write every table of a result as CSV, LaTeX, Markdown, Parquet or JSON, and its figure
    as PDF."""

class ReproduceArguments(CommonEngineArguments, total=False):
    """What `reproduce` may be told."""

    out: Place | None
    """The directory; continued if it exists."""
    smoke: bool
    """On the embedded models, within minutes."""
    checkpoint: str | Sequence[str] | None
    """Instead of the paper's; repeat for a second one. late=PATH, early=PATH or public=ID
    says which of the paper's it stands for."""
    evaluator: str | None
    """Instead of the paper's."""
    steps: int | Sequence[int] | None
    """Instead of the paper's budgets."""
    n: int | None
    """Instead of the paper's."""
    limit: int | None
    """Problems of a task, from the first; the paper's are all."""
    held_out: Place | None
    """JSON lines of texts: of the posterior loss, or the guard."""
    seed: int | None
    """Root seed; 0 by default."""
    device: str | None
    """auto, cpu, cuda or cuda:i."""
    dtype: str | None
    """Of the generator's network: float32, bfloat16, float16, public."""

def reproduce(id: str | None = None, **given: Unpack[ReproduceArguments]) -> Result:
    """List the paper's tables and figures, or run one and print paper and measured side by
    side."""

class ShowArguments(TypedDict, total=False):
    """What `show` may be told."""

    first: int
    """Outputs to print."""
    full: bool
    """Print whole outputs."""
    output: int | None
    """Only the output of this number, whole."""
    unmask: bool
    """Replay that output round by round."""

def show(run: Place, cell: str | None = None, **given: Unpack[ShowArguments]) -> Result:
    """Print what a run or one of its cells holds: spec, counts, first outputs."""

def ls(root: Place | None = None) -> Result:
    """List what lies below a directory: runs, audits, studies, training runs, GroupEval."""

class PrecisionArguments(CommonLengthArguments, total=False):
    """What `precision` may be told."""

    steps: int | Sequence[int]
    """Updates M, e.g. 64,1024."""
    temperature: float
    """tau of the draw."""
    top_p: float
    """Nucleus of the draw."""
    samples: int
    """Outputs whose contexts are looked at."""
    rows: int
    """Masked positions per level."""
    reveals: int
    """Reveals to count per level in draws from the exact law."""
    device: str
    """auto, cpu, cuda or cuda:i."""
    dtype: str
    """Of the network."""

def precision(checkpoint: Any | None = None, **given: Unpack[PrecisionArguments]) -> Result:
    """Say how much probability the float32 draw truncates, and how entropy and timing shift."""

class TrainArguments(TypedDict, total=False):
    """What `train` may be told."""

    out: Required[Place]
    """The run directory; continued if it exists."""
    data_root: Place
    """Where the sources' relative paths begin."""
    shards: Place | None
    """Where the prepared corpus lies; by default in the run."""
    set: Mapping[str, Any] | None
    """Change one value, e.g. --set model.n_blocks=2; repeatable."""
    device: str
    """auto, cpu, cuda or cuda:i."""
    strategy: str
    """Under torchrun: auto (ddp), ddp or fsdp."""
    prepare_only: bool
    """Tokenise the corpus and stop."""

def train(config: Any, **given: Unpack[TrainArguments]) -> Result:
    """Train by CONFIG into a run directory. The same command continues a run."""

class LmEvalArguments(TypedDict, total=False):
    """What `lm_eval` may be told."""

    tasks: Required[str]
    """Names of tasks, with commas."""
    model_args: Required[str]
    """pretrained=CHECKPOINT and settings: steps, temperature, seed, length, mc_num, whatever
    the sampler has; they take precedence over a task's file."""
    gen_kwargs: str | None
    """Generation arguments in place of the task's own."""
    num_fewshot: int | None
    """Worked examples."""
    fewshot_seed: int
    """Which worked examples are drawn."""
    limit: float | None
    """Only so many problems of a task."""
    include_path: str | None
    """A directory with tasks of your own."""
    output_path: str | None
    """Where results are written."""
    log_samples: bool
    """Write every response, too."""
    apply_chat_template: bool
    """The checkpoint's own chat template."""
    confirm_run_unsafe_code: bool
    """Let the harness run programs that the model wrote, without a sandbox."""
    batch_size: str
    """Sequences at a time; changes nothing but speed."""
    device: str
    """auto, cpu, cuda or cuda:i."""

def lm_eval(*more: Place, **given: Unpack[LmEvalArguments]) -> Result:
    """Run tasks of lm-eval on a checkpoint with its sampler."""

class DoctorArguments(TypedDict, total=False):
    """What `doctor` may be told."""

    gpu: bool
    """Try the samplers on the GPU, or on a pretend one."""

def doctor(**given: Unpack[DoctorArguments]) -> Result:
    """Say what is installed, what is missing and how to get it."""

class TaskArguments(
    CommonSettingsArguments, CommonConcurrencyArguments, CommonEngineArguments, total=False
):
    """What `task` may be told."""

    out: Required[Place]
    """The directory; continued if it exists."""
    temperature: float | Sequence[float]
    """0 is greedy, and is drawn once."""
    seeds: int
    """So many seeds, 0, 1, ..., above 0."""
    limit: int | None
    """Only so many problems, from the first; may grow later."""
    sampler: str | None
    """Of diffusion models; by default each family's own."""
    steps: int | Sequence[int] | None
    """Updates M of diffusion models, e.g. 8,24; by default one per token."""
    precision: str | None
    """Of the draw: float64 or float32; by default each family's public code."""
    length: int | None
    """Tokens of a response; the task's."""
    chat: bool | None
    """Problems as messages in the tokenizer's chat template; by default where there is one,
    unless the checkpoint is called base."""
    bos: Literal["tokenizer", "always", "never"] | None
    """What opens a plain text; tokenizer is its own rule. By default always for Dream, else
    tokenizer."""
    device: str
    """auto, cpu, cuda or cuda:i."""
    unsafe_run: bool
    """Run programs without a sandbox, as yourself."""
    against: int | None
    """The row to compare all others with, by its number; by default each row is compared with
    the same checkpoint and sampler at its lowest temperature."""
    force: bool
    """Start the directory anew."""
    dry_run: bool
    """Say how many cells, outputs and network calls it would be, and how long; draw nothing."""

def task(task: str, *checkpoints: Place, **given: Unpack[TaskArguments]) -> Result:
    """Let every CHECKPOINT answer TASK at every temperature, and grade the responses."""

def theory_account(target: Place) -> Result:
    """Theorem 1 on one problem: J_N, B_N, C_N, R_N, both KLs and the bounds."""

def theory_derivative(target: Place) -> Result:
    """Theorem 2 on one problem: the slope of the output error at lambda = 1, and lambda*."""

class TheoryPairArguments(TypedDict, total=False):
    """What `theory_pair` may be told."""

    s: Required[float]
    """Agreement of the two bits, 1/2 < s < 1."""
    c: Required[float]
    """Chance that both share a round, 0 < c < 1."""
    lam: float
    """Inverse temperature."""

def theory_pair(**given: Unpack[TheoryPairArguments]) -> Result:
    """Proposition 2: two bits, in closed form, and the temperature that repairs them."""

class TheoryCollisionsArguments(TypedDict, total=False):
    """What `theory_collisions` may be told."""

    length: int
    """Tokens per output."""
    rounds: int
    """Reveal rounds of equal mass."""
    clipped: bool
    """The public schedule: --rounds updates and a cleanup round."""

def theory_collisions(**given: Unpack[TheoryCollisionsArguments]) -> Result:
    """How often tokens share their reveal round."""

class TheoryStudyArguments(TypedDict, total=False):
    """What `theory_study` may be told."""

    seed: int
    """Seed of targets and grids."""
    grid_law: str
    """sorted-uniform, inner-uniform, dirichlet-2, weights or equal."""

def theory_study(**given: Unpack[TheoryStudyArguments]) -> Result:
    """280 random targets with the exact denoiser: the best inverse temperature of each."""

class TheoryVerifyArguments(TypedDict, total=False):
    """What `theory_verify` may be told."""

    seed: int
    """Seed of the random cases."""
    case: Place | None
    """Check again only the case in this file."""
    out: Place
    """Where a failing case is written."""

def theory_verify(**given: Unpack[TheoryVerifyArguments]) -> Result:
    """Check every identity, bound, derivative and proposition; exit 3 if one fails."""

class TheoryFigureArguments(TypedDict, total=False):
    """What `theory_figure` may be told."""

    out: Required[Place]
    """Directory for SVG and PNG files."""
    seed: int
    """Seed of the random targets."""

def theory_figure(**given: Unpack[TheoryFigureArguments]) -> Result:
    """Draw the theory figures, each as SVG and PNG."""

class TheoryMarkovArguments(TypedDict, total=False):
    """What `theory_markov` may be told."""

    out: Required[Place]
    """Directory for the data and figure."""
    outputs: int
    """Per generator."""
    length: int
    """Tokens per output."""
    steps: int | Sequence[int] | None
    """Numbers of updates, comma-separated."""
    seed: int
    """Seed of the chain and of the outputs."""

def theory_markov(**given: Unpack[TheoryMarkovArguments]) -> Result:
    """The real samplers on an exact Markov-chain denoiser at full length (needs torch)."""
