"""strop lm-eval: the evaluation harness over a strop generator."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from strop.cli import output
from strop.cli.commands import examples
from strop.errors import UserError

# Flags of the harness that are said in another way here, or not at all.
ELSEWHERE = {
    "--model": "it is strop's",
    "--model_args": "say --model-args before the --",
    "--tasks": "say --tasks before the --",
    "--gen_kwargs": "say --gen-kwargs before the --",
    "--batch_size": "say --batch-size before the --",
    "--device": "say --device before the --",
    "--config": "say its settings as flags",
    "--seed": "say seed in --model-args for what is drawn, and --fewshot-seed for the shots",
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
SEEDS = "0,1234,1234"
"""The harness's own seeds of Python, numpy and torch; what is drawn here depends on none."""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        "lm-eval",
        epilog=examples(
            "strop lm-eval --tasks gsm8k --model-args pretrained=llada-8b-instruct,steps=256 "
            "--apply-chat-template --limit 16",
            "strop lm-eval --tasks mine --include-path tasks "
            "--model-args pretrained=embedded:tales,length=16,temperature=0.7,seed=1 -o results",
        ),
    )(lm_eval)


def lm_eval(
    tasks: Annotated[str, typer.Option("-t", "--tasks", help="Names of tasks, with commas.")],
    model_args: Annotated[
        str,
        typer.Option(
            "-a",
            "--model-args",
            help="pretrained=CHECKPOINT and settings: steps, temperature, seed, length, mc_num, "
            "whatever the sampler has; they hold whatever a task's file says.",
        ),
    ],
    gen_kwargs: Annotated[
        str | None,
        typer.Option(help="Generation arguments in place of the task's own."),
    ] = None,
    num_fewshot: Annotated[int | None, typer.Option(min=0, help="Worked examples.")] = None,
    fewshot_seed: Annotated[int, typer.Option(help="Which worked examples are drawn.")] = 1234,
    limit: Annotated[float | None, typer.Option(help="Only so many problems of a task.")] = None,
    include_path: Annotated[
        str | None, typer.Option(help="A directory with tasks of your own.")
    ] = None,
    output_path: Annotated[
        str | None, typer.Option("-o", "--output-path", help="Where results are written.")
    ] = None,
    log_samples: Annotated[
        bool, typer.Option("--log-samples", help="Write every response, too.")
    ] = False,
    apply_chat_template: Annotated[
        bool, typer.Option("--apply-chat-template", help="The checkpoint's own chat template.")
    ] = False,
    confirm_run_unsafe_code: Annotated[
        bool,
        typer.Option(
            "--confirm-run-unsafe-code",
            help="Let the harness run programs that the model wrote, without a sandbox.",
        ),
    ] = False,
    batch_size: Annotated[
        str, typer.Option(help="Sequences at a time; changes nothing but speed.")
    ] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:i.")] = "auto",
    more: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- FLAGS]", help="Further flags of lm-eval, after --."),
    ] = None,
) -> None:
    """Run tasks of lm-eval on a checkpoint with its sampler."""
    said, asked = _pairs(model_args), _pairs(gen_kwargs or "")
    _check_once(said, asked)
    _check_passed(more or [])
    flags: dict[str, Any] = {
        "--tasks": tasks,
        "--model_args": model_args,
        "--gen_kwargs": gen_kwargs,
        "--num_fewshot": num_fewshot,
        "--seed": f"{SEEDS},{fewshot_seed}",
        "--limit": limit,
        "--include_path": include_path,
        "--output_path": output_path,
        "--batch_size": None if "batch_size" in said else batch_size,
        "--device": None if "device" in said else device,
    }
    switches = {
        "--log_samples": log_samples,
        "--apply_chat_template": apply_chat_template,
        "--confirm_run_unsafe_code": confirm_run_unsafe_code,
    }
    words = [
        word for flag, value in flags.items() if value is not None for word in (flag, str(value))
    ]
    words += [flag for flag, wanted in switches.items() if wanted]
    _hand_over(["run", "--model", "strop", *words, *(more or [])])


def _pairs(text: str) -> dict[str, Any]:
    """Names and plain values, as far as they can be told; the harness reads them properly."""
    return dict(re.findall(r"(?:^|,)\s*(\w+)=([^,]*)", text))


def _check_once(said: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse what both say: for the harness the two are not told apart from a task's file."""
    from strop.interop.harness_settings import in_one_name

    said, asked = in_one_name(said, "--model-args"), in_one_name(asked, "--gen-kwargs")
    for name in said.keys() & asked.keys():
        if said[name] != asked[name]:
            raise UserError(
                f"{name!r} is said twice.",
                where="--gen-kwargs",
                got=f"{name}={asked[name]} there, and {name}={said[name]} in --model-args",
                fix="say it once",
            )


def _check_passed(words: Sequence[str]) -> None:
    for word in words:
        flag = word.partition("=")[0]
        flag = SHORT.get(flag, flag)
        # The harness takes a flag's beginning for the flag.
        found = [one for one in ELSEWHERE if flag.startswith("--") and one.startswith(flag)]
        if found and flag != "--":
            raise UserError(
                f"{found[0]} is not passed on to lm-eval.",
                where="after --",
                got=word,
                fix=ELSEWHERE[found[0]],
            )


def _hand_over(words: list[str]) -> None:
    """Call the harness's own command in this process, with our model registered."""
    from strop.interop.lm_eval import register as register_model

    register_model()
    from lm_eval.__main__ import cli_evaluate

    with _arguments(["lm-eval", *words]), _warnings_told():
        try:
            cli_evaluate()
        except SystemExit as end:  # its way to refuse flags and names, with a message of its own
            if end.code not in (None, 0):
                raise UserError("lm-eval has refused this.", got=_first_line(end.code)) from None
        except (ValueError, KeyError) as error:
            if _ours(error):
                raise
            raise UserError("lm-eval has refused this.", got=_first_line(error)) from error


@contextmanager
def _arguments(words: list[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = words
    try:
        yield
    finally:
        sys.argv = before


@contextmanager
def _warnings_told() -> Iterator[None]:
    """Our warnings as notes when they come: a long run should not keep them to its end."""

    def tell(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if category is UserWarning:
            output.note(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = tell
        yield


def _ours(error: Exception) -> bool:
    """Whether the error comes from strop's own code, where it is a bug."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return name.startswith("strop.")


def _first_line(error: object) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__
