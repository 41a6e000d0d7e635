"""`strop groupeval judge` for the tests, with a client that waits for milliseconds."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from strop.cli.main import run as command
from strop.served import client

Called = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="call")
def quick_judge(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Called:
    quick = {"attempts": 3, "first_wait": 0.001, "longest_wait": 0.002, "jitter": 0.001}
    monkeypatch.setattr(client, "Patience", functools.partial(client.Patience, **quick))

    def called(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = command(["groupeval", "judge", *map(str, arguments), "--model", "m"])
        return code, *capsys.readouterr()

    return called
