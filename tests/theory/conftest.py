"""The command run in this process.

Tolerances of this room: probabilities and short sums in float64 are equal up to 1e-14, which is 45
roundings of a number of size one; long sums up to 1e-11 as they say; a number quoted with k digits
up to half a unit of the last. Under AVX-512 and SSE4 the errors of the first kind were at most
1.2e-15.
"""

from __future__ import annotations

import json

import pytest

from strop.cli.main import run


@pytest.fixture
def strop(capsys):
    """Run a command in this process; gives (exit code, stdout, stderr)."""

    def call(*args):
        code = run([str(a) for a in args])
        out = capsys.readouterr()
        return code, out.out, out.err

    return call


@pytest.fixture
def theory(strop, tmp_path):
    """Run `strop theory VERB` on a document with --json; gives (exit code, JSON)."""

    def call(verb, document=None, *flags):
        args = ["theory", verb]
        if document is not None:
            path = tmp_path / "target.json"
            path.write_text(document if isinstance(document, str) else json.dumps(document))
            args.append(str(path))
        code, out, _ = strop(*args, *flags, "--json")
        return code, json.loads(out)

    return call
