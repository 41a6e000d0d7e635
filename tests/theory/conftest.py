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
