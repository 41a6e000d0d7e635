"""Which models are asked how: families, chat templates, programs, end tokens."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from strop.assets import MODELS
from strop.denoisers import load_model
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.prompts import ChatTemplate
from strop.spec import CheckpointSpec
from strop.tasks import TASKS, results, run_task, score_task
from strop.tasks.running import decided, entrant_of

AR = "embedded:sums-ar"
sandboxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is missing")


def test_families_answer_by_their_own_samplers(llada: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    found = run_task("sums", [llada, AR], out, temperatures=(0, 1), seeds=1, limit=2)
    mine = {one.label: one.sampler for one in found.settings}
    assert (mine["random-llada"].name, mine["random-llada"].steps) == ("llada", 24)
    assert mine["random-llada"].precision == "float64"  # as its public code draws
    assert mine["random-llada"].settings["block_length"] == 32
    assert (mine["sums-ar"].name, mine["sums-ar"].precision) == ("autoregressive", "float32")
    # Flags of a diffusion sampler are for the diffusion model, and add to the run.
    again = run_task(
        "sums",
        [llada, AR],
        out,
        temperatures=(0,),
        limit=2,
        sampler="fast-dllm",
        steps=(8,),
        settings={"block_length": 8},
        precision="float32",
    )
    names = [one.sampler.name for one in again.of_label("random-llada")]
    assert sorted(names) == ["fast-dllm", "llada", "llada"]
    assert [one.sampler.name for one in again.of_label("sums-ar")] == ["autoregressive"] * 2


def test_an_unconditional_model_takes_part(tmp_path: Path) -> None:
    found = run_task("sums", "embedded:tales-tiny", tmp_path / "run", temperatures=(1,), limit=1)
    assert [one.sampler.name for one in found.settings] == ["ancestral"]


def test_dense_batches_take_part(tmp_path: Path) -> None:
    found = run_task(
        "sums", AR, tmp_path / "run", temperatures=(0,), limit=2, implementation="dense"
    )
    assert [len(one.index) for one in found.settings] == [2]


TEMPLATE = (
    "{% for m in messages %}<u>{{ m['content'] }}</u>{% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}<no>{% endif %}"
)


class TestChat:
    @pytest.fixture
    def named(self, tmp_path: Path) -> Any:
        """A causal model with a chat template, under a name."""

        def make(name: str) -> Any:
            place = tmp_path / name
            shutil.copytree(MODELS / "sums-ar", place)
            (place / "chat_template.jinja").write_text(TEMPLATE)
            return load_model(place, device="cpu")

        return make

    @pytest.mark.parametrize(
        ("name", "chat"),
        [("some-Instruct", True), ("some-9B", True), ("some-Base-7B", False), ("x-base", False)],
    )
    def test_a_template_is_used_unless_the_name_says_base(
        self, named: Any, name: str, chat: bool
    ) -> None:
        model = named(name)
        entrant = entrant_of(model, name, None, None)
        assert entrant.chat == chat
        assert ("chat template" in decided(entrant)) == chat
        assert entrant_of(model, name, not chat, None).chat != chat

    def test_thinking_is_off_where_there_is_a_switch(self) -> None:
        assert ChatTemplate(TEMPLATE).render("two") == "<u>two</u><no>"

    def test_problems_are_messages(self, named: Any, tmp_path: Path) -> None:
        found = run_task("sums", named("chatty"), tmp_path / "run", temperatures=(0,), limit=1)
        cell = found.settings[0].grades[0].cell
        kept = cell.prompts()
        assert kept is not None
        text = (kept.pieces_of(0) or [""])[0]
        assert text == f"<u>{found.items[0].prompt}</u><no>"


def test_no_template_means_plain_text_and_the_ends_are_told() -> None:
    entrant = entrant_of(load_model(AR, device="cpu"), AR, None, None)
    assert (entrant.chat, entrant.bos) == (False, "tokenizer")
    assert entrant.ends == ("<|endoftext|>",)
    assert "ends at <|endoftext|>" in decided(entrant)


class Parrot:
    """A causal model that answers every prompt it knows with a text that was put into it."""

    mask_id = None
    start_id = 50256
    vocab_size = 50257
    length = default_length = 4096
    source = "parrot"
    device = torch.device("cpu")
    codec = TextCodec.gpt2()

    def __init__(self, texts: dict[str, str]) -> None:
        shape: dict[str, int | float | bool] = {
            "vocab_size": 50257,
            "length": 4096,
            "start_id": 50256,
        }
        self.spec = CheckpointSpec(family="ar", sha256="0" * 64, shape=shape)
        self.scripts = {
            prompt: [*self.codec.encode(text), self.start_id] for prompt, text in texts.items()
        }

    def read(self, ids: torch.Tensor, memory: Any) -> tuple[torch.Tensor, Any]:
        if memory is None:
            prompts = [self.codec.decode(row.tolist()) for row in ids]
            memory = ([self.scripts.get(one, [self.start_id]) for one in prompts], 0)
        scripts, at = memory
        scores = torch.zeros(len(ids), self.vocab_size)
        for row, script in enumerate(scripts):
            scores[row, script[min(at, len(script) - 1)]] = 100.0
        return scores, (scripts, at + 1)


@sandboxed
def test_programs_are_run_in_the_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = TASKS["humaneval"].all_items()
    bodies = [items[0].reference, "    raise ValueError('no')\n    return 1\n", ""]
    parrot = Parrot({one.prompt: body for one, body in zip(items, bodies, strict=False)})
    found = run_task("humaneval", parrot, tmp_path / "run", temperatures=(0,), limit=3, length=200)
    told = found.greedy("parrot").answered()
    assert [one.outcomes["program"] for one in told] == ["passed", "error", "empty"]
    first = told[0].answers["program"]
    assert first is not None
    assert "def has_close_elements" in first
    row = results(tmp_path / "run").settings[0]
    assert row.accuracy("program").value == pytest.approx(1 / 3)
    assert row.truncated == 0
    [score] = [s for s in row.grades[0].cell.scores().values() if s.metric.name == "task"]
    assert score.metric.settings["sandbox"] == "bubblewrap"
    # Verdicts that are there are read without a sandbox; new ones are not given.
    monkeypatch.setenv("PATH", str(tmp_path))
    assert score_task(tmp_path / "run").settings[0].counts("program") == row.counts("program")
    for file in (tmp_path / "run").rglob("scores/*.parquet"):
        file.unlink()
    with pytest.raises(UserError, match="no sandbox"):
        score_task(tmp_path / "run")


def test_without_a_sandbox_nothing_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no sandbox"):
        run_task("humaneval", AR, tmp_path / "run", limit=1)
    assert not (tmp_path / "run").exists()
