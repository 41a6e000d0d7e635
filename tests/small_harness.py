"""The evaluation harness without what takes it a quarter of a minute and is not strop's doing.

Before every run it reads the files of all its own tasks, some 14,000, and then asks pip for every
installed package. Tests bring tasks of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def small_harness() -> Iterator[None]:
    from lm_eval.tasks.manager import TaskManager
    from torch.utils import collect_env

    begin = functools.partialmethod(TaskManager.__init__, include_defaults=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskManager, "__init__", begin)
        patch.setattr(collect_env, "get_pip_packages", lambda *_: ("pip", ""))
        yield
