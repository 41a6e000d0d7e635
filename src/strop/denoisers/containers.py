"""What a container leaves this process of the machine's memory.

The kernel tells how much the machine has free, also inside a container with less. Whoever takes
more than the container may is killed without a word, so its limits are read where the kernel keeps
them: in the control group of this process and in those above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
SECOND = ("memory.max", "memory.current", "inactive_file")
"""Version 2 of control groups: the limit, what is in use, and what of it are files that the kernel
drops when memory is wanted."""
FIRST = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
"""Version 1, whose folders lie below `memory`."""


def left_in_container() -> int | None:
    """Bytes up to the nearest limit; None where there is none, or nobody says."""
    found = []
    try:
        for line in OWN.read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds == "":
                found += _left(ROOT, path, SECOND)
            elif "memory" in kinds.split(","):
                found += _left(ROOT / "memory", path, FIRST)
    except (OSError, ValueError):
        return None
    return min(found, default=None)


def _left(root: Path, path: str, names: tuple[str, str, str]) -> Iterator[int]:
    """Of a group and of those above it; a container may see its own group as the root."""
    group = root / path.lstrip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(root):
            return
        try:
            most, used = ((folder / name).read_text().strip() for name in names[:2])
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except OSError:  # not this one: the root has no limit
            continue
        if most != "max":
            yield max(0, int(most) - int(used) + int(stat.get(names[2], 0)))
