"""Little packages with plug-ins, laid out as pip leaves them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["install"]


def install(
    place: Path, package: str, source: str, entries: Mapping[str, Mapping[str, str]]
) -> Path:
    """One module and its metadata in a directory; `entries` has names and objects by group."""
    module = package.replace("-", "_")
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{module}.py").write_text(source)
    folder = place / f"{module}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = []
    for group, points in entries.items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {target}" for name, target in points.items()]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return place
