"""What a process in the sandbox may use up; set before a line of the program is read."""

from __future__ import annotations

import resource
from collections.abc import Mapping


def confine(limits: Mapping[str, int]) -> None:
    """Set hard limits, which nothing that runs afterwards can raise; an error ends the process."""
    for kind, most in (
        (resource.RLIMIT_AS, limits["memory"]),
        (resource.RLIMIT_CPU, limits["cpu"]),
        (resource.RLIMIT_FSIZE, limits["file"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
