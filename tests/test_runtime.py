"""OpenMP's threads are told to sleep before torch can load, unless the user has decided."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tiny_models import environment

TOLD = "import os, sys, strop; print(os.environ.get('OMP_WAIT_POLICY'), 'torch' in sys.modules)"


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({}, "PASSIVE False"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE False"),
        ({"GOMP_SPINCOUNT": "1000"}, "None False"),
        ({"KMP_BLOCKTIME": "200"}, "None False"),
    ],
    ids=["nothing", "policy", "gnu", "intel"],
)
def test_threads_sleep_unless_the_user_says_otherwise(own: dict[str, str], told: str) -> None:
    env = environment(**own)
    for name in {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"} - set(own):
        env.pop(name, None)
    command = [sys.executable, "-c", TOLD]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    assert answer.stdout.strip() == told
