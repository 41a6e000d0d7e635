"""Judge some texts by the offline judge: for studies, demonstrations and smoke runs.

The judge counts; it is no language model, and its numbers say so by their series' name. The same
directory can be judged by a real one: `strop groupeval judge DIR --base-url URL --model NAME`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strop.groupeval.inputs import Source, check
from strop.groupeval.judge import pending
from strop.groupeval.offline import judge_offline, offline_judge
from strop.groupeval.plan import make_plan
from strop.groupeval.profile import Profile
from strop.groupeval.result import score
from strop.groupeval.series import Series, list_series, write_plan
from strop.groupeval.verdicts import load
from strop.metrics import embeddings

__all__ = ["PROFILE", "judge_texts"]

PROFILE = "webtext-v1"


def judge_texts(
    texts: Mapping[str, Sequence[str]], out: Path, *, seed: int = 0
) -> dict[str, dict[str, Any]]:
    """Plan and judge some generators' texts in `out`; scores by series name, then as `score` has.

    Series of other judges that are there already are scored too.
    """
    profile = Profile.load(PROFILE)
    sources = [Source(name, tuple(some), None, name) for name, some in texts.items()]
    check(sources, profile)
    plan, frozen = make_plan(sources, profile, seed=seed)
    write_plan(out, plan, profile, frozen)
    dense = embeddings.available()
    weights = embeddings.embedding_spec().sha256 if dense else None
    series = Series.create(out, offline_judge("minilm" if dense else "ngrams", weights))
    with series.writing():
        judge_offline(series, pending(series), embeddings.embed if dense else None, lambda _: None)
    return {one.name: score(load(f"{out}@{one.id}")) for one in list_series(out)}
