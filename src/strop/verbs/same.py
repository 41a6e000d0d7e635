"""What "the same command" means for a finished answer: the same words, and the same fingerprints.

Files count by what they hold, wherever they lie and whatever their times say; repositories of the
hub by their commit; plug-ins by their versions; a task by its problems and rules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strop import assets
from strop.errors import UserError
from strop.registry import versions
from strop.store.cell import contents
from strop.version import __version__


def fingerprints(
    words: Mapping[str, Any], *, places: Sequence[str | None], task: str | None = None
) -> dict[str, Any]:
    """All that a finished answer depends on; nothing is loaded.

    `places` are models, evaluators and files as the user names them.
    """
    # Imported for their records, whose versions count.
    from strop.groupeval.judges import JUDGES  # noqa: F401
    from strop.measure.metric import METRICS  # noqa: F401
    from strop.tasks import TASKS

    found = {
        "strop": __version__,
        "files": [_of_place(str(one)) for one in places if one is not None],
        "plugins": versions(),
        "task": None if task is None else TASKS.find(task, where="`task`").fingerprint,
    }
    return json.loads(json.dumps({**words, **found}, default=str))


def _of_place(name: str) -> Any:
    """What a place holds; of a hub's repository its commit."""
    if name.startswith(assets.EMBEDDED):
        return contents(assets.embedded_path(name))
    path = Path(name).expanduser()
    if path.exists():
        return contents(path)
    repo, _, revision = name.partition("@")
    if repo.count("/") != 1:
        return name
    from strop.checkpoints.hub import config_of

    try:
        found = config_of(repo, revision or None)
    except UserError:  # whoever loads it has the words
        return None
    return None if found is None else found.parent.name
