"""strop lm-eval: the evaluation harness over a strop generator."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any
from unittest.mock import patch

from strop.errors import UserError
from strop.verbs.parameters import DEVICE
from strop.verbs.verb import Ask, Parameter, Result, Verb

# Flags of the harness that are given in another way here, or not at all.
ELSEWHERE = {
    "--model": "it is strop's",
    "--model_args": "give `model_args` before the --",
    "--tasks": "give `tasks` before the --",
    "--gen_kwargs": "give `gen_kwargs` before the --",
    "--batch_size": "give `batch_size` before the --",
    "--device": "give `device` before the --",
    "--config": "give its settings as flags",
    "--seed": "give seed in `model_args` for what is drawn, and `fewshot_seed` for the shots",
    "--use_cache": "its keys know neither checkpoint nor settings; leave it out",
    "--trust_remote_code": "no code of a checkpoint is run here; leave it out",
}
SHORT = {
    "-M": "--model",
    "-a": "--model_args",
    "-t": "--tasks",
    "-b": "--batch_size",
    "-C": "--config",
    "-c": "--use_cache",
}
SWITCHES = ("log_samples", "apply_chat_template", "confirm_run_unsafe_code")
SEEDS = "0,1234,1234"
"""The harness's own seeds of Python, numpy and torch; what is drawn here depends on none."""


def _run(ask: Ask) -> Result:
    model_args = _pairs("`model_args`", ask["model_args"])
    gen_kwargs = _pairs("`gen_kwargs`", ask["gen_kwargs"] or "")
    _check_once(model_args, gen_kwargs)
    more = list(ask["more"] or ())
    _check_passed(more)
    values = {
        **ask.some("tasks", "model_args", "gen_kwargs", "num_fewshot"),
        "seed": f"{SEEDS},{ask['fewshot_seed']}",
        **ask.some("limit", "include_path", "output_path"),
        "batch_size": None if "batch_size" in model_args else ask["batch_size"],
        "device": None if "device" in model_args else ask["device"],
    }
    words = ["run", "--model", "strop"]
    for name, value in values.items():
        words += [] if value is None else [f"--{name}", str(value)]
    words += [f"--{name}" for name in SWITCHES if ask[name]]
    _hand_over([*words, *more], ask.note)
    return Result()


def _pairs(where: str, text: str) -> dict[str, Any]:
    """Names and plain values, as far as they can be read here; the harness parses them in full."""
    pairs = re.findall(r"(?:^|,)\s*(\w+)=([^,]*)", text)
    names = [name for name, _ in pairs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"{twice[0]!r} is given twice.", where=where, got=text, fix="give it once")
    return dict(pairs)


def _check_once(model_args: Mapping[str, Any], gen_kwargs: Mapping[str, Any]) -> None:
    """Refuse what both give: the harness cannot tell the two from what a task's file gives."""
    from strop.interop.harness_settings import in_one_name

    model_args, gen_kwargs = (
        in_one_name(model_args, "`model_args`"),
        in_one_name(gen_kwargs, "`gen_kwargs`"),
    )
    for name in model_args.keys() & gen_kwargs.keys():
        if model_args[name] != gen_kwargs[name]:
            raise UserError(
                f"{name!r} is given twice.",
                where="`gen_kwargs`",
                got=f"{name}={gen_kwargs[name]} there, and {name}={model_args[name]} in model_args",
                fix="give it once",
            )


def _check_passed(words: Sequence[str]) -> None:
    for word in words:
        flag = word.partition("=")[0]
        flag = SHORT.get(flag, flag)
        # The harness takes a flag's beginning for the flag.
        matches = [name for name in ELSEWHERE if flag.startswith("--") and name.startswith(flag)]
        if matches and flag != "--":
            raise UserError(
                f"{matches[0]} is not passed on to lm-eval.",
                where="after --",
                got=word,
                fix=ELSEWHERE[matches[0]],
            )


def _hand_over(words: list[str], note: Callable[[str], None]) -> None:
    """Call the harness's own command in this process, with our model registered."""
    from strop.interop.lm_eval import register as register_model

    register_model()
    from lm_eval.__main__ import cli_evaluate

    with patch.object(sys, "argv", ["lm-eval", *words]), _warnings_as_notes(note):
        try:
            cli_evaluate()
        except SystemExit as end:  # how it refuses flags and names, with its own message
            if end.code not in (None, 0):
                raise UserError("lm-eval has refused this.", got=_first_line(end.code)) from None
        except (ValueError, KeyError) as error:
            if _ours(error):
                raise
            raise UserError("lm-eval has refused this.", got=_first_line(error)) from error


@contextmanager
def _warnings_as_notes(note: Callable[[str], None]) -> Iterator[None]:
    """Our warnings as notes at once: a long run should not hold them back to its end."""

    def tell(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if category is UserWarning:
            note(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = tell
        yield


def _ours(error: Exception) -> bool:
    """Whether the error comes from strop's own code, where it is a bug."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__", "")).startswith("strop.")


def _first_line(error: object) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__


VERB = Verb(
    name="lm-eval",
    help="Run tasks of lm-eval on a checkpoint with its sampler.",
    parameters=(
        Parameter("tasks", "Names of tasks, with commas.", flags=("-t", "--tasks"), required=True),
        Parameter(
            "model_args",
            "pretrained=CHECKPOINT and settings: steps, temperature, seed, length, mc_num, "
            "whatever the sampler has; they take precedence over a task's file.",
            flags=("-a", "--model-args"),
            required=True,
        ),
        Parameter("gen_kwargs", "Generation arguments in place of the task's own."),
        Parameter("num_fewshot", "Worked examples.", kind="int"),
        Parameter("fewshot_seed", "Which worked examples are drawn.", 1234, "int"),
        Parameter.real("limit", "Only so many problems of a task."),
        Parameter("include_path", "A directory with tasks of your own."),
        Parameter("output_path", "Where results are written.", flags=("-o", "--output-path")),
        Parameter.flag("log_samples", "Write every response, too."),
        Parameter.flag("apply_chat_template", "The checkpoint's own chat template."),
        Parameter.flag(
            "confirm_run_unsafe_code",
            "Let the harness run programs that the model wrote, without a sandbox.",
        ),
        Parameter("batch_size", "Sequences at a time; changes nothing but speed.", "auto"),
        DEVICE,
        Parameter(
            "more", "Further flags of lm-eval, after --.", kind="many", argument="[-- FLAGS]"
        ),
    ),
    run=_run,
    examples=(
        "strop lm-eval --tasks gsm8k --model-args pretrained=llada-8b-instruct,steps=256 "
        "--apply-chat-template --limit 16",
        "strop lm-eval --tasks mine --include-path tasks "
        "--model-args pretrained=embedded:tales,length=16,temperature=0.7,seed=1 -o results",
    ),
    json=False,
)
