"""Tasks of the harness made of local files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml


def write_task(place: Path, name: str, rows: Sequence[Mapping[str, Any]], **fields: Any) -> Path:
    """A task over rows with `q`, and for choices `c` and `y`; its directory."""
    data = place / f"{name}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    content = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "doc_to_text": "{{q}}",
        **fields,
    }
    (place / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return place


def generating(place: Path, name: str, questions: Sequence[str], **more: Any) -> Path:
    """A task whose answers are texts."""
    says = {"until": ["."], "do_sample": False, "temperature": 0.0, "max_gen_toks": 12}
    return write_task(
        place,
        name,
        [{"q": one} for one in questions],
        output_type="generate_until",
        doc_to_target="x",
        generation_kwargs={**says, **more.pop("says", {})},
        metric_list=[{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        **more,
    )


def choosing(place: Path, name: str, rows: Sequence[tuple[str, list[str]]]) -> Path:
    """A task whose answers are choices; the first one is right."""
    return write_task(
        place,
        name,
        [{"q": q, "c": c, "y": 0} for q, c in rows],
        output_type="multiple_choice",
        doc_to_choice="{{c}}",
        doc_to_target="{{y}}",
        metric_list=[{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    )


def evaluated(place: Path, *names: str, **more: Any) -> dict[str, Any]:
    """What the real harness finds, run in this process."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    from strop.interop.lm_eval import register

    register()
    manager = TaskManager(include_path=str(place), include_defaults=False)
    found = simple_evaluate(
        model="strop", tasks=[*names], task_manager=manager, bootstrap_iters=0, **more
    )
    assert found is not None
    return dict(found)


def responses(found: Mapping[str, Any], name: str) -> list[Any]:
    """Per document the responses to its requests."""
    rows = sorted(found["samples"][name], key=lambda row: row["doc_id"])
    return [row["resps"] for row in rows]
