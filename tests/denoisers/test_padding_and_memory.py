"""Rows of different lengths in one batch, and windows against remembered keys and values."""

from __future__ import annotations

import pytest
import torch
from large_models import FAMILIES, TOLERANCE, distance, expected, load, rows, write

from strop.denoisers.base import all_logits
from strop.denoisers.bidirectional import Bidirectional
from strop.errors import UserError

LENGTHS = (5, 17, 1, 24, 23)


def left_pad(rows, fill):
    """Rows of ids as one [B, L] tensor that ends with them, and the column each begins at."""
    longest = max(len(row) for row in rows)
    ids = torch.full((len(rows), longest), fill, dtype=torch.long, device=rows[0].device)
    for i, row in enumerate(rows):
        ids[i, longest - len(row) :] = row
    starts = torch.tensor([longest - len(row) for row in rows], device=rows[0].device)
    return ids, starts


@pytest.fixture(scope="module", params=FAMILIES)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Bidirectional:
    return load(request.param, write(request.param, tmp_path_factory.mktemp("padding") / "model"))


@pytest.fixture
def texts() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(0, 300, (n,), generator=generator) for n in LENGTHS]


@pytest.mark.parametrize("fill", [300, 310, 7])
def test_padded_rows_are_the_rows_alone(
    model: Bidirectional, texts: list[torch.Tensor], fill: int
) -> None:
    ids, starts = left_pad(texts, fill)
    assert starts.tolist() == [24 - n for n in LENGTHS]
    found = rows(model, model.padded(ids, starts))
    for row, text in enumerate(texts):
        alone = all_logits(model, text[None], None)[0]
        assert distance(found[row, int(starts[row]) :], alone) < TOLERANCE


def test_without_a_mask_padding_would_be_read(
    model: Bidirectional, texts: list[torch.Tensor]
) -> None:
    ids, starts = left_pad(texts, 300)
    found = rows(model, model.hidden(ids, None))
    alone = all_logits(model, texts[0][None], None)[0]
    assert distance(found[0, int(starts[0]) :], alone) > 1


@pytest.mark.parametrize("starts", [[0], [0, 24], [-1, 0], [[0, 0]]])
def test_rows_that_begin_nowhere(model: Bidirectional, starts: list[int]) -> None:
    with pytest.raises(UserError, match="first columns"):
        model.padded(torch.zeros(2, 24, dtype=torch.long), torch.tensor(starts))


def _canvas() -> torch.Tensor:
    return torch.cat([expected("llada")["input/canvas"]] * 2)


def test_remembering_changes_nothing(model: Bidirectional) -> None:
    states, _ = model.remember(_canvas())
    assert distance(rows(model, states), all_logits(model, _canvas(), None)) < TOLERANCE


@pytest.mark.parametrize("keep", ["prefix", "dual"])
def test_a_window_over_everything_is_a_full_pass(model: Bidirectional, keep: str) -> None:
    _, memory = model.remember(torch.full_like(_canvas(), 3))  # a memory of something else
    found = rows(model, model.window(_canvas(), 0, memory, keep))  # pyright: ignore[reportArgumentType]
    assert distance(found, all_logits(model, _canvas(), None)) < TOLERANCE


@pytest.mark.parametrize(("keep", "end"), [("prefix", 22), ("dual", 15), ("dual", 8)])
def test_an_unchanged_context_makes_no_difference(
    model: Bidirectional, keep: str, end: int
) -> None:
    ids = _canvas()
    full, memory = model.remember(ids)
    states = model.window(ids[:, 7:end], 7, memory, keep)  # pyright: ignore[reportArgumentType]
    assert distance(states, full[:, 7:end]) < TOLERANCE
    # Scores within the window; where the state before it predicts, the first has only its own.
    found, wanted = rows(model, states), rows(model, full)[:, 7:end]
    if end > 8:
        assert distance(found[:, 1:], wanted[:, 1:]) < TOLERANCE
    shifted = model.spec.family == "dream"
    assert (distance(found[:, :1], wanted[:, :1]) > 1) == shifted


@pytest.mark.parametrize(("keep", "end"), [("prefix", 22), ("dual", 15)])
def test_a_memory_is_an_approximation(model: Bidirectional, keep: str, end: int) -> None:
    ids = _canvas()
    _, memory = model.remember(ids)
    changed = ids.clone()
    changed[:, 9] = 5  # within the window, but what is remembered depends on it
    states = model.window(changed[:, 7:end], 7, memory, keep)  # pyright: ignore[reportArgumentType]
    assert distance(states, model.hidden(changed, None)[:, 7:end]) > 1e-2


def test_dual_overwrites_its_window_and_prefix_nothing(model: Bidirectional) -> None:
    ids = _canvas()
    changed = ids.clone()
    changed[:, 9] = 5
    found = {}
    for keep in ("prefix", "dual"):
        _, memory = model.remember(ids)
        model.window(changed[:, 7:], 7, memory, keep)  # pyright: ignore[reportArgumentType]
        found[keep] = model.window(ids[:, 3:7], 3, memory, "dual")
    full = model.hidden(ids, None)[:, 3:7]
    assert distance(found["prefix"], full) < TOLERANCE
    assert distance(found["dual"], full) > 1e-2


def test_padded_rows_have_windows(model: Bidirectional, texts: list[torch.Tensor]) -> None:
    texts = [torch.cat([text, torch.full((6,), 310)]) for text in texts]
    ids, starts = left_pad(texts, 300)
    full, memory = model.remember(ids, starts)
    assert distance(full, model.padded(ids, starts)) < TOLERANCE
    revealed = ids.clone()
    revealed[:, -6] = 11
    for keep, end in (("prefix", 30), ("dual", 27)):
        _, memory = model.remember(ids, starts)
        states = model.window(revealed[:, 24:end], 24, memory, keep)
        for row, text in enumerate(texts):
            first = len(text) - 6
            _, own = model.remember(text[None])
            open_ids = revealed[row, 24:end][None]
            alone = model.window(open_ids, first, own, keep)
            assert distance(states[row], alone[0]) < TOLERANCE


@pytest.mark.parametrize(
    ("columns", "start", "keep"),
    [(4, 20, "dual"), (4, -1, "dual"), (4, 7, "prefix"), (4, 7, "suffix")],
)
def test_windows_that_do_not_fit(model: Bidirectional, columns: int, start: int, keep: str) -> None:
    _, memory = model.remember(_canvas())
    with pytest.raises(UserError):
        model.window(_canvas()[:, :columns], start, memory, keep)  # pyright: ignore[reportArgumentType]
