"""What runs on this machine, as the tests of the sandbox need it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["below", "running"]


def below(pid: int) -> set[int]:
    """The descendants of a process."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*"):
        fields = _fields(int(place.name))
        if fields:
            parents[int(place.name)] = int(fields[1])
    found, reached = set(), {pid}
    while reached:
        reached = {child for child, parent in parents.items() if parent in reached} - found
        found |= reached
    return found


def running(pid: int) -> bool:
    """Whether it is there and not only waiting to be counted."""
    fields = _fields(pid)
    return bool(fields) and fields[0] != "Z"


def _fields(pid: int) -> list[str]:
    """State, parent and so on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
