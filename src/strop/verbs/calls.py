"""Every verb as a function of its name: its arguments are the parameters of its record.

A function is made when it is asked for. Type checkers and editors read `calls.pyi` instead, which
scripts/make_calls.py writes from the records.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import Parameter as Argument
from inspect import Signature
from typing import Any

from strop.registry import resolve
from strop.verbs.study import Study
from strop.verbs.verb import Parameter, Verb

VERBS: dict[str, tuple[str, str]] = {
    "demo": (
        "strop.page.demo:VERB",
        "Show what strop does: mistakes that one can see, an audit, a judge, and the page.",
    ),
    "sample": (
        "strop.verbs.sample:VERB",
        "Draw outputs of CHECKPOINT for every combination of --steps, --temperature and "
        "--precision.",
    ),
    "score": (
        "strop.verbs.score:VERB",
        "Score every cell of RUN. The same command continues; nothing is scored twice.",
    ),
    "merge": (
        "strop.verbs.merge:VERB",
        "Bring outputs and scores of runs together that were made for the same cells.",
    ),
    "audit": ("strop.verbs.audit:STUDY", "How much of a checkpoint's few-step gap is its sampler?"),
    "compare": ("strop.verbs.compare:STUDY", "Is A better than B, or only sharper?"),
    "tune": ("strop.verbs.tune:STUDY", "Which setting of its samplers suits a checkpoint best?"),
    "probe": (
        "strop.verbs.probe:VERB",
        "Say what the knobs of CHECKPOINT do: seed, temperature, top_p, company, limits.",
    ),
    "power": ("strop.verbs.power:STUDY", "How many outputs does a question need?"),
    "report": (
        "strop.page.command:VERB",
        "Write one self-contained HTML page of RUN...: tables, figures, and a browser of outputs.",
    ),
    "view": (
        "strop.page.live.command:VERB",
        "Show FOLDER... in a browser, and what is under way there.",
    ),
    "export": (
        "strop.verbs.export:VERB",
        "Write every table of a result as CSV, LaTeX, Markdown, Parquet or JSON, and its figure "
        "as PDF.",
    ),
    "reproduce": (
        "strop.verbs.reproduce:VERB",
        "List the paper's tables and figures, or run one and print paper and measured side by "
        "side.",
    ),
    "show": (
        "strop.verbs.show:VERB",
        "Print what a run or one of its cells holds: spec, counts, first outputs.",
    ),
    "ls": (
        "strop.verbs.ls:VERB",
        "List what lies below a directory: runs, audits, studies, training runs, GroupEval.",
    ),
    "precision": (
        "strop.verbs.precision:VERB",
        "Say how much probability the float32 draw truncates, and how entropy and timing shift.",
    ),
    "train": (
        "strop.verbs.train:VERB",
        "Train by CONFIG into a run directory. The same command continues a run.",
    ),
    "lm-eval": (
        "strop.verbs.lm_eval:VERB",
        "Run tasks of lm-eval on a checkpoint with its sampler.",
    ),
    "doctor": (
        "strop.verbs.doctor:VERB",
        "Say what is installed, what is missing and how to get it.",
    ),
    "study": ("strop.cli.main:register", "Studies of checkpoints and their samplers."),
    "groupeval": (
        "strop.verbs.groupeval_verbs:GROUP",
        "Quality and diversity of texts, in groups.",
    ),
    "theory": ("strop.verbs.theory:GROUP", "The paper's mathematics, exact on any small target."),
    "language": (
        "strop.verbs.language:GROUP",
        "A language whose law is known: texts, exact probabilities, what is wrong in a text.",
    ),
    "task": (
        "strop.verbs.task:GROUP",
        "Problems with answers that can be checked: GSM8K, HumanEval, sums.",
    ),
    "models": ("strop.verbs.models:GROUP", "Known checkpoints, and a look at any."),
}
"""Where each verb's record is, and the first line of its help: `strop --help` loads no record."""


OF_GROUP = {"task": "strop.verbs.task:VERB"}
"""Groups that have a function of their name, and the verb that it is."""
MODULES = ("theory",)
"""Groups whose verbs are functions of the module that bears the group's name."""


def record_of(name: str) -> Verb | None:
    """The verb that a function's name stands for."""
    group, _, member = name.partition("_")
    if group in MODULES and member:
        return next((verb for verb in resolve(VERBS[group][0]).verbs if verb.name == member), None)
    reference, _ = VERBS.get(name.replace("_", "-"), (None, ""))
    record = None if reference is None else resolve(OF_GROUP.get(name, reference))
    return record if isinstance(record, Verb) else None


def argument_name(parameter: Parameter, verb: Verb) -> str:
    """The name in the signature of a value without a flag; those of a study have no names."""
    if not isinstance(verb, Study):
        return parameter.name
    name = re.sub(r"\W", "", parameter.argument.lower())
    return f"side_{name}" if len(name) == 1 else name  # compare's A, beside its parameter `a`


def signature(verb: Verb) -> Signature:
    """The arguments that a verb takes: those without a flag first, the others by their names."""
    # a study's checkpoints have no names: one of its parameters may be called like them
    placed = Argument.POSITIONAL_ONLY if isinstance(verb, Study) else Argument.POSITIONAL_OR_KEYWORD
    arguments = []
    for parameter in sorted(verb.takes, key=lambda parameter: not parameter.argument):
        default = Argument.empty if parameter.required else parameter.default
        if not parameter.argument:
            arguments.append(Argument(parameter.name, Argument.KEYWORD_ONLY, default=default))
        elif parameter.kind == "many":
            arguments.append(Argument(argument_name(parameter, verb), Argument.VAR_POSITIONAL))
        else:
            arguments.append(Argument(argument_name(parameter, verb), placed, default=default))
    return Signature(arguments, return_annotation="Result")


def __getattr__(name: str) -> Callable[..., Any]:
    verb = None if name.startswith("__") else record_of(name)
    if verb is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def call(*arguments: Any, **keywords: Any) -> Any:
        return verb(*arguments, **keywords)

    lines = (
        f"{parameter.name}: {parameter.help}" for parameter in verb.takes if not parameter.argument
    )
    call.__name__ = call.__qualname__ = name
    call.__doc__ = "\n\n".join([verb.help, "\n".join(lines)])
    call.__signature__ = signature(verb)  # type: ignore[attr-defined]
    globals()[name] = call
    return call
