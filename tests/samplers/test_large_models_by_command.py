"""A tiny random LLaDA and Dream by command: every decoder, cache, precision and prompt form.

Their weights say nothing; that every combination answers, keeps what is given and leaves no mask is
what is tested. `make test` runs every decoder in one of the forms, in turn; the other combinations
run with the slow tests. (test_prompted.py has every sampler with prefixes and gaps.)
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import strop
from strop.cli.main import run

SIZE = ["--vocab-size", "4200", "--width", "16", "--blocks", "2", "--heads", "4", "--length", "96"]
BLOCKS = "block_length=8"
DECODERS = {
    "llada": (
        ("llada", BLOCKS),
        ("llada", f"{BLOCKS},remasking=random"),
        ("llada", f"{BLOCKS},cfg_scale=1.5"),
        *(("fast-dllm", f"{BLOCKS},cache={cache}") for cache in ("none", "prefix", "dual")),
        ("fast-dllm", f"{BLOCKS},factor=1"),
        ("blockwise", f"{BLOCKS},score=margin"),
        ("ancestral", ""),
    ),
    "dream": (
        *(("dream", f"alg={one}") for one in ("origin", "maskgit_plus", "topk_margin")),
        ("dream", "alg=entropy,alg_temp=0.5,top_k=5"),
        *(("fast-dllm-dream", f"{BLOCKS},cache={cache}") for cache in ("none", "prefix", "dual")),
        ("blockwise", f"{BLOCKS},commit=entropy-bound,score=entropy"),
        ("remdm-cap", ""),
    ),
}
ROWS = {
    "prefix": ["Once upon a time there was", "The king said,"],
    "gaps": ["Once upon a time[[9]] and they lived happily.", "The[[3]] said to the[[4]] it was."],
}
FORMS = {
    "prefix": ("prefix", ["--length", "12"]),
    "chat": ("prefix", ["--length", "12", "--chat"]),
    "gaps": ("gaps", []),
    "none": (None, ["--length", "12", "-n", "2"]),
}
ALL = [(family, *one) for family, several in DECODERS.items() for one in several]
COMBINATIONS = [
    pytest.param(*one, form, marks=[] if number % len(FORMS) == place else pytest.mark.slow)
    for number, one in enumerate(ALL)
    for place, form in enumerate(FORMS)
]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("large")
    for family in DECODERS:
        assert run(["models", "random", str(root / family), "--family", family, *SIZE]) == 0
    return {family: root / family for family in DECODERS}


@pytest.mark.parametrize(("family", "sampler", "settings", "form"), COMBINATIONS)
def test_every_combination_answers(
    checkpoints: dict[str, Path],
    tmp_path: Path,
    family: str,
    sampler: str,
    settings: str,
    form: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows, flags = FORMS[form]
    if rows is not None:
        file = tmp_path / "prompts.jsonl"
        file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ROWS[rows]))
        flags = [*flags, "--prompts", str(file)]
    own = ["--settings", settings] if settings else []
    words = ["sample", str(checkpoints[family]), "--sampler", sampler, *own, *flags]
    words += ["--steps", "8", "--temperature", "0.7", "--precision", "float64,float32"]
    assert run([*words, "-o", str(tmp_path / "run")]) == 0, capsys.readouterr().err
    cells = strop.Run.open(tmp_path / "run").cells()
    assert len(cells) == 2
    for cell in cells:
        pool = cell.pool()
        assert len(pool) == 2
        assert pool.leftover_masks.tolist() == [0, 0]
        assert all(one is not None and (one > 0).all() for one in pool.changed)
