"""The command that draws the plain baseline of a revising sampler.

The public settings of revising samplers sharpen too, by top_p: without the plain sampler at the
same top_p and temperature beside them nobody can tell which of the two helped.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from strop.cli import output
from strop.spec import SamplerSpec, plain_baseline

DEFAULTS = {"--seed": 0, "--device": "auto", "--dtype": "auto"}


def note_baseline(
    checkpoint: str, out: str, specs: Sequence[SamplerSpec], same: Mapping[str, Any]
) -> None:
    """Print one command that draws the baseline of every cell; `same` are flags to repeat."""
    plain = [one for spec in specs if (one := plain_baseline(spec)) is not None]
    if not plain:
        return
    first = plain[0]
    flags: dict[str, Any] = {
        "--sampler": first.name,
        "--top-p": repr(first.top_p),
        "--temperature": _each(repr(one.temperature) for one in plain),
        "--precision": _each(one.precision for one in plain),
    }
    if first.grid == "uniform":
        flags["--steps"] = _each(str(one.steps) for one in plain)
    else:
        flags["--grid"] = ",".join(map(repr, first.grid))
    flags |= {k: v for k, v in same.items() if v is not None and v != DEFAULTS.get(k)}
    flags["-o"] = f"{out.rstrip('/')}-plain"
    words = [str(word) for pair in flags.items() for word in pair if word is not True]
    output.note("plain baseline: " + shlex.join(["strop", "sample", checkpoint, *words]))


def _each(words: Any) -> str:
    return ",".join(dict.fromkeys(words))
