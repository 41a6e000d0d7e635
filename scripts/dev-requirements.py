"""Print a dependency group of pyproject.toml (`dev`, or the one named), one requirement a line.

Older pips know no `--group`; this keeps the list in one place all the same.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
print("\n".join(project["dependency-groups"][sys.argv[1] if sys.argv[1:] else "dev"]))
