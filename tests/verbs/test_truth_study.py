"""The study of what is true of samplers: its numbers, its sentences, and what it refuses."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

import strop
from strop.errors import StropError, UserError
from strop.language import Language
from strop.language.reading import END, PROMPT, tokenizer, truth
from strop.stats.interval import Interval
from strop.store import Run
from strop.table import Table
from strop.verbs import truth as study
from strop.verbs import truth_measured as measured
from strop.verbs.study import run
from strop.verbs.truth_figures import draw
from strop.verbs.verb import Result

sys.path.append(str(Path(__file__).parents[1] / "language"))
from small_grammar import GRAMMAR, write


def interval(value: float, half: float) -> Interval:
    return Interval(value, value - half, value + half, n=100, how="normal")


def row(model="perfect", kind="ancestral", **fields):
    usual = {"steps": 64, "temperature": 1.0, "excess": interval(0.0, 1.0), "calls": 50.0}
    modes, half = fields.pop("modes", 40.0), fields.pop("half", 0.1)
    ends = (modes, modes * np.exp(-0.1), modes * np.exp(0.1))
    fields = {**usual, **fields, "violations": interval(fields.pop("violations", 1.0), half)}
    fields["modes"] = Interval(*map(float, ends), n=100, how="delta")
    fields.setdefault("setting", f"M={fields['steps']} tau={fields['temperature']}")
    return {"model": model, "kind": kind, "change": interval(-0.25, 0.1), **fields}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return str(write(tmp_path_factory.mktemp("grammar") / "small.json", GRAMMAR))


@pytest.fixture(scope="module")
def sharpened(small, tmp_path_factory):
    """One run of a question, its directory, and the outputs by temperature."""
    out = tmp_path_factory.mktemp("study") / "truth"
    result = run("truth", out=out, smoke=True, question="temperature", language=small, n=40)
    cells = Run.open(out / "perfect").cells()
    return result, {c.spec.generator.sampler.temperature: c.pool(40).ids for c in cells}


def test_rows_say_what_is_true_of_the_outputs(sharpened, small):
    result, ids = sharpened
    language = Language.load(small)
    rows = {one["temperature"]: one for one in result.table.rows}
    assert set(rows) == set(ids) == {1.0, 0.6}
    for tau, one in rows.items():
        found = truth(ids[tau], language)
        assert one["violations"].value == pytest.approx(language.violations(ids[tau]).mean())
        assert one["none"].value == (language.violations(ids[tau]) == 0).mean()
        assert one["modes"].value == pytest.approx(np.exp(found.mode_entropy))
        reach = found.mode_error + found.mode_unseen
        assert one["modes"].high == pytest.approx(np.exp(found.mode_entropy + reach))
        assert one["modes"].low == pytest.approx(np.exp(found.mode_entropy - found.mode_error))
        assert one["overlap"] == found.overlap
        assert (one["outputs"], one["calls"] <= 4, one["foreign"]) == (40, True, 0)
    paired = language.violations(ids[0.6]) - language.violations(ids[1.0])
    assert rows[1.0]["change"] is None
    assert rows[0.6]["change"].value == pytest.approx(paired.mean())
    assert rows[0.6]["change"].half == pytest.approx(1.96 * paired.std(ddof=1) / 40**0.5, rel=1e-3)
    assert "tau=0.6" in result.sentence
    assert "paired" in result.sentence
    law = language.posterior([]).reshape(-1)
    entropy = -(law[law > 0] * np.log(law[law > 0])).sum()
    assert result.facts["true_modes"] == pytest.approx(np.exp(entropy))


def test_the_error_of_the_mode_entropy_is_the_spread_over_seeds(small):
    language = Language.load(small)
    found = [truth(language.draw(400, seed), language, interval(0, 0)) for seed in range(60)]
    spread = np.std([one.mode_entropy for one in found], ddof=1)
    # 60 seeds know a spread to 9%; three times that
    assert np.mean([one.mode_error for one in found]) == pytest.approx(1.96 * spread, rel=0.27)


def test_the_interval_of_the_modes_holds_at_few_texts():
    # 80 pools of 128 texts: a coverage of .92 lies above .84 with probability .99, and one of .66
    # (without the modes that were not seen) below it with more.
    language = Language.load("even")
    law = language.posterior([]).reshape(-1)
    true = -(law[law > 0] * np.log(law[law > 0])).sum()
    ids, none, held = language.draw(80 * 128, 4), interval(0, 0), 0
    for k in range(80):
        one = truth(ids[128 * k : 128 * (k + 1)], language, none)
        low, high = one.mode_error, one.mode_error + one.mode_unseen
        held += one.mode_entropy - low <= true <= one.mode_entropy + high
    assert held / 80 > 0.84


def test_the_headline_holds_fails_or_is_undecided():
    few = row(steps=64, temperature=0.8, violations=1.0)
    for many, word in ((1.5, "holds"), (0.5, "fails"), (1.05, "is undecided")):
        said, *_ = study._headline([few, row(steps=256, violations=many)])
        assert f"256 at 1 {word} in truth: 1.00 against {many:.2f}" in said


def test_differences_of_independent_cells():
    gap = study.apart(interval(1.0, 0.3), interval(3.0, 0.4))
    assert (gap.value, gap.low, gap.high) == pytest.approx((-2.0, -2.5, -1.5))


def test_a_schedule_is_held_against_the_constant_with_the_nearest_violations():
    flat = [
        row(violations=v, modes=m, temperature=t) for v, m, t in ((1.0, 20, 0.6), (3.0, 40, 1.0))
    ]
    cooled = row(violations=2.0, modes=40, temperature=strop.spec.Cooling(1, 0.6))
    [said] = study._schedules([*flat, {**cooled, "violations": interval(1.4, 0.1)}])
    assert "1.40 violations, -0.25" in said
    assert "the nearest constant, 0.6, has 1.00 and 20.0" in said
    assert f"it keeps more ({np.log(2):+.2f} +- 0.14 nats" in said
    [said] = study._schedules([*flat, {**cooled, "violations": interval(2.9, 0.1)}])
    assert "the nearest constant, 1, has 3.00 and 40.0: it keeps as much (+0.00 +- 0.14" in said


def test_a_grid_from_a_profile_is_held_against_the_uniform_one_and_the_best_constant():
    flat = [row(violations=v, temperature=t) for v, t in ((2.0, 0.6), (3.0, 1.0))]
    own = {**row(kind="{'grid': 'profile'}", violations=2.5), "steps": 64}
    [said] = study._schedules([*flat, own])
    assert "has 2.50 [2.40, 2.60] violations, the uniform one 3.00 (-0.50" in said
    assert "the best constant, 0.6, 2.00" in said
    other = {**own, "model": "tiny"}  # whose uniform grid was not drawn
    assert not list(study._schedules([*flat, other]))


def test_a_worse_model_is_held_against_the_better_one_of_its_kind():
    rows = [row(violations=2.0), row("narrow", violations=1.0, modes=12)]
    [said] = study._narrower(rows)
    assert "narrow has fewer violations than perfect (-1.00" in said
    late, early = row("late", violations=3.0), row("early", violations=3.1)
    late["perplexity"], early["perplexity"] = interval(2.0, 0.2), interval(4.0, 0.3)
    [_, said] = study._narrower([*rows, late, early])
    half = 0.5 * np.hypot(0.1, 0.075)
    ratio = f"0.50 [{0.5 * np.exp(-2 * half):.2f}, {0.5 * np.exp(2 * half):.2f}]"
    assert f"early has as many violations as late (0.10 [-0.04, 0.24], {ratio} times less" in said


def test_an_order_that_loses_modes():
    told = list(study._orders([row(), row(setting="sure first", modes=3.0, calls=64.0)]))
    assert "does not tell M=64 tau=1.0 from the law in 50 calls" in told[0]
    assert told[1].startswith("perfect: sure first keeps 3.0 modes where another keeps 40.0")


@pytest.mark.parametrize(
    ("violations", "modes", "half", "right"),
    [
        ((1.0, 2.0), (40, 40), 0.1, "better"),
        ((2.0, 1.0), (40, 40), 0.1, "worse"),
        ((1.0, 2.0), (20, 40), 0.1, "mixed"),
        ((2.0, 1.0), (40, 20), 0.1, "mixed"),
        ((1.0, 2.0), (60, 40), 0.1, "better"),
        ((1.0, 2.0), (36, 40), 0.1, "close"),  # whether modes are lost is not known
        ((1.9, 2.0), (40, 40), 0.01, "close"),  # under a tenth
        ((1.0, 2.0), (40, 40), 1.0, "close"),
    ],
)
def test_what_is_true_of_a_pair_is_settled_beforehand(violations, modes, half, right):
    a, b = (row(violations=v, modes=m, half=half) for v, m in zip(violations, modes, strict=True))
    assert measured.truth_of(a, b) == right
    mirror = {"better": "worse", "worse": "better"}
    assert measured.truth_of(b, a) == mirror.get(right, right)


def test_a_verdict_is_right_wrong_or_says_nothing():
    assert measured.outcome("better", "better") == measured.outcome("mixed", "mixed") == "right"
    assert measured.outcome("better", "mixed") == measured.outcome("better", "worse") == "wrong"
    assert measured.outcome("cannot tell", "better") == "cannot tell"
    assert measured.outcome("better", "close") == "better"


def test_verdicts_of_compare_are_counted_by_what_is_true(tmp_path):
    result = run(
        "truth", sources=["perfect"], out=tmp_path / "c", smoke=True, question="compare", n=64
    )
    rows, pairs = list(result.table.rows), result.facts["pairs"]
    assert [(one["a"], one["b"]) for one in pairs] == [(0, 1), (0, 2), (1, 2)]
    for one in pairs:
        assert one["truth"] == measured.truth_of(rows[one["a"]], rows[one["b"]])
        assert one["how"] == measured.outcome(one["said"], one["truth"])
    told = " ".join(result.facts["answer"])
    assert sum(int(n) for n in re.findall(r": (\d+) pairs", told)) == 3
    # outputs of the frontiers are not those of the truth
    run_of = Run.open(tmp_path / "c" / "perfect").cells()
    assert len({cell.spec.seed for cell in run_of}) == 8


def test_a_profile_says_where_a_grid_is_coarse(small):
    from strop.denoisers import load_model

    language = Language.load(small)
    model = load_model("embedded:perfect", load={"language": small})
    grid = measured.profile_grid(model, language, 3)
    assert (len(grid), sum(grid)) == (3, pytest.approx(1))

    def price(masses):
        at = np.append(0.0, np.cumsum(masses)[:-1])
        return float(np.dot(masses, np.interp(at, *profile)))

    profile = np.linspace(0, 1, 33)[:-1], measured.loss_profile(model, language)
    # what is left to lose falls as more is seen
    assert (np.diff(profile[1][::8]) < 0).all()
    rng = np.random.default_rng(0)
    others = [rng.dirichlet(np.ones(3)) for _ in range(300)] + [np.full(3, 1 / 3)]
    assert price(grid) <= min(map(price, others)) + 1e-3


def test_a_network_behind_its_prompt_loses_what_its_card_says():
    from strop.assets import MODELS
    from strop.denoisers import load_model

    language = Language.load("even")
    model = load_model("embedded:even-tiny")
    card = (MODELS / "even-tiny" / "README.md").read_text()
    said = float(re.search(r"Held out: ([\d.]+) nats", card)[1])
    # the mean over levels is the any-order loss; 128 texts of other seeds, 3 standard errors
    found = measured.loss_profile(measured.after_prompt(model, language), language)
    assert np.mean(found) == pytest.approx(said, abs=0.15)


def test_perplexity_is_read_behind_the_prompt():
    from strop.assets import MODELS

    ask = study.STUDY.ask(Path("unused"), language="even")
    source = measured.causal_of(ask)
    assert source == "embedded:even-ar"
    language = Language.load("even")
    texts = [language.decode(one) for one in language.draw(64, 5)]
    card = (MODELS / "even-ar" / "README.md").read_text()
    said = float(re.search(r"Held out: ([\d.]+) nats", card)[1])
    assert np.log(measured.perplexity(ask, source, texts).value) == pytest.approx(said, abs=0.05)
    tail = study.STUDY.ask(Path("unused"), language="tail", question="precision")
    assert measured.causal_of(tail) is None


def test_models_are_asked_what_they_can_do(small, tmp_path):
    """Causal models from left to right, the others not; costly cells of cheap models alone."""
    question = study.QUESTIONS["leak"]
    assert {one["models"] for one in question.cells if "models" in one} == {study.CHEAP}
    pools = tmp_path / "pools"
    first = run(
        "truth",
        out=tmp_path / "a",
        sources=["tiny", "causal"],
        question="leak",
        n=2,
        steps=[64],
        pools=pools,
    )
    assert [row["model"] for row in first.table.rows] == ["tiny", "tiny"]
    # another question of the same outputs draws nothing anew
    [cells] = [Run.open(pools / "tiny").cells()]
    before = [cell.path.stat().st_mtime_ns for cell in cells]
    again = run(
        "truth",
        out=tmp_path / "b",
        sources=["tiny"],
        question="temperature",
        n=2,
        steps=[64],
        pools=pools,
    )
    shared = [row["id"] for row in again.table.rows]
    assert {row["id"] for row in first.table.rows} <= set(shared)
    assert [cell.path.stat().st_mtime_ns for cell in cells] == before
    causal = run("truth", out=tmp_path / "c", sources=["causal"], question="leak", n=2, pools=pools)
    assert [row["temperature"] for row in causal.table.rows] == [1.0, 0.8, 0.6]
    assert all(row["calls"] == 96 for row in causal.table.rows)
    asked = {"question": "orders", "language": small, "n": 2, "steps": [64]}
    for model, cells in (("leaky", 1), ("perfect", 4)):
        rows = run("truth", out=tmp_path / model, sources=[model], **asked).table.rows
        assert len(list(rows)) == cells


@pytest.mark.parametrize("question", ["bound", "compare"])
def test_a_checkpoint_of_ones_own_is_asked_like_those_that_ship(question, tmp_path):
    asked = {"question": question, "smoke": True, "n": 4}
    rows = []
    for source in ("tiny", "embedded:even-tiny"):
        sources = [source, "perfect"]
        result = run("truth", out=tmp_path / source[-4:], sources=sources, **asked)
        rows.append([{**row, "model": "", "source": "", "folder": ""} for row in result.table.rows])
    assert rows[0] == rows[1]
    if question == "bound":  # every model has its own
        alone = run("truth", out=tmp_path / "alone", sources=["perfect"], **asked).table.rows
        for one, other in zip(rows[0][2:], alone, strict=True):
            assert one["bound 1"] == pytest.approx(other["bound 1"])


def test_checkpoints_whose_paths_end_alike_are_told_apart():
    ask = study.STUDY.ask(Path("unused"), sources=["a/small", "b/small", "c/large"])
    assert measured.name_of(ask, "a/small") == "a/small"
    assert measured.name_of(ask, "c/large") == "large"


def test_a_smoke_run_of_a_causal_model_has_rows(tmp_path):
    asked = {"sources": ["causal"], "question": "leak", "smoke": True, "n": 2}
    rows = run("truth", out=tmp_path / "c", **asked).table.rows
    assert [row["temperature"] for row in rows] == [1.0, 0.8]


def drawn(question, rows, **facts):
    rows = [{"sampler": {}, "bound 16": 1.0, "soft": 0.5, **one} for one in rows]
    table = Table("On even", study.COLUMNS, rows)
    asked = {"question": question}
    return draw(Result(asked, table, facts={"true_modes": 41.0, **facts}))


def test_a_figure_has_every_row_once_in_both_panels():
    settings = "M=16 tau=1 float64", "autoregressive M=0 tau=0.8 float64"
    rows = [
        row(model, setting=setting, violations=v, modes=m)
        for model, v, m in (("perfect", 0.0, 40), ("leaky", 2.0, 30))
        for setting in settings
    ]
    left, right = drawn("orders", rows).axes
    assert [one.get_text() for one in left.get_yticklabels()] == [
        "16 steps",
        "left to right temperature 0.8",
    ]
    heights = []
    for axes, values in ((left, [0.01, 2.0] * 2), (right, [40, 30] * 2)):
        dots = [one for one in axes.lines if one.get_marker() == "o" and len(one.get_xdata())]
        dots.sort(key=lambda one: one.get_ydata()[0])
        assert [one.get_xdata()[0] for one in dots] == values  # by setting, then by model
        heights.append([one.get_ydata()[0] for one in dots])
    assert heights[0] == heights[1] == sorted(set(heights[0]))
    assert "language" in right.get_legend_handles_labels()[1][0]


def test_the_figure_of_the_bound_has_a_line_for_every_model_and_budget():
    rows = [
        row(model, steps=m, temperature=tau)
        for model in ("perfect", "leaky", "tiny")
        for m in (2, 4, 16)
        for tau in (1.0, 0.8)
    ]
    for axes in drawn("bound", rows).axes:
        looks = {(one.get_color(), str(one._dash_pattern)) for one in axes.lines}
        assert len(axes.lines) == len(looks) == 9


def test_ranks_are_scipys_ties_included():
    rng = np.random.default_rng(0)
    x, y = rng.integers(4, size=(5, 30)).astype(float), rng.normal(size=(5, 30))
    wanted = [spearmanr(a, b).statistic for a, b in zip(x, y, strict=True)]
    assert measured.ranked(x, y) == pytest.approx(wanted)


def test_controls_are_what_they_are_called(small):
    language = Language.load(small)
    ids, other = language.draw(24, 1), language.draw(24, 2)
    made = {kind: measured.control(kind, ids, other, language) for kind in measured.KINDS}
    best = np.sort(language.log_p(ids))[::-1][:8]
    assert len(np.unique(made["eight best repeated"], axis=0)) <= 8
    assert language.log_p(made["eight best repeated"])[:8] == pytest.approx(best)
    glued = made["glued halves"]  # the first of two sentences has three words
    assert (glued[:, :3] == ids[:, :3]).all()
    assert (glued[1:, 3:] == ids[:-1, 3:]).all()
    assert (made["half of another"] == np.concatenate([ids[::2], other[1::2]])).all()
    assert all(one.shape == ids.shape for one in made.values())
    assert 0 < (measured.control("typos", ids, other, language) != ids).mean() < 0.1


def test_soft_overlap_weighs_a_text_by_its_violations(small):
    language = Language.load(small)
    ids = language.draw(50, 3)
    law = language.posterior([]).reshape(-1)
    mass = np.zeros(len(law))
    for one in ids:
        mode = language.posterior(one[None]).reshape(-1).argmax()
        mass[mode] += np.exp(-language.violations(one[None])[0] / 4) / 50
    assert measured.soft_overlap(ids, language) == pytest.approx(np.minimum(law, mass).sum())


def test_the_bound_and_the_rare_words(small, tmp_path):
    result = run("truth", out=tmp_path / "b", smoke=True, question="bound", language=small, n=8)
    exact, said = result.facts["answer"]
    assert "the bound names temperature" in said
    assert exact.startswith("perfect, M = 2: KL(P || output law) is exactly 1: 0.2656, 0.8: 0.2556")
    assert {"bound 1", "bound 2", "soft"} <= result.table.rows[0].keys()
    for paths in (1, 2):
        least = min(result.table.rows, key=lambda one: one[f"bound {paths}"])
        assert f"{least['temperature']:g} with {paths}" in said
    most = max(result.table.rows, key=lambda one: one["soft"])
    assert f"overlap is largest at {most['temperature']:g}" in said
    # more paths lower the bound of the same texts
    assert all(one["bound 2"] <= one["bound 1"] + 1e-9 for one in result.table.rows)
    result = run("truth", out=tmp_path / "p", smoke=True, question="precision", language=small, n=8)
    shares = [float(v.split(" of ")[1]) for v in result.table.rows[0]["rare"].values()]
    assert sum(shares) == pytest.approx(Language.load(small).length, abs=2e-3)


def test_a_bound_is_that_of_its_rows_temperature(small, tmp_path):
    """Temperature tau is the inverse temperature 1 / tau; the smoke run has 1 and .8."""
    from strop.denoisers import load_model
    from strop.instruments.posterior import path_scores
    from strop.samplers.machinery.start import reveal_grid
    from strop.spec import SamplerSpec
    from strop.theory.mpath import bound_from_scores

    result = run("truth", out=tmp_path / "b", smoke=True, question="bound", language=small, n=4)
    language = Language.load(small)
    model = load_model("embedded:perfect", load={"language": small})
    masses, texts = reveal_grid(SamplerSpec(steps=2)).masses, language.draw(4, seed=1)
    for one in result.table.rows:
        lams = [{1.0: 1.0, 0.8: 1.25}[one["temperature"]]]
        got = path_scores(model, texts, masses, paths=2, lams=lams, seed=0)
        wanted = float(bound_from_scores(got.lams, got.log_q, got.slope).value[0])
        assert one["bound 2"] == pytest.approx(wanted)


def test_a_tokenizer_keeps_the_words_ids():
    from tokenizers import Tokenizer

    language = Language.load("even")
    made = tokenizer(language)
    import json

    found = Tokenizer.from_str(json.dumps(made))
    text = language.decode(language.draw(1, 5)[0])
    assert found.encode(text).ids == language.encode(text).tolist()
    assert found.decode(found.encode(text).ids) == text
    assert found.encode(PROMPT).ids == [language.mask_id + 1]
    assert found.encode(END).ids == [language.mask_id]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"question": "colour"}, "question"),
        ({"question": "orders", "language": "tail"}, "even or skewed"),
        ({"language": "klingon"}, "klingon"),
        ({"sources": ["pefect"]}, "perfect, leaky"),
        ({"sources": ["perfect"] * 9}, "at most 8"),
        ({"sources": ["embedded:tales-tiny"]}, "trained on this language"),
        ({"n": 1}, "at least 2"),
        ({"sources": ["leaky", "leaky"]}, "named twice"),
        ({"sources": ["causal"], "question": "schedules"}, "has no cell for such a model"),
        ({"sources": ["late"], "question": "precision", "language": "tail"}, "language ships"),
        ({"sources": ["causal"], "question": "leak", "steps": [64]}, "No cell of the question"),
        ({"sources": ["tiny"], "question": "compare", "smoke": True}, "makes no pair"),
    ],
    ids=str,
)
def test_what_is_refused(asked, words, tmp_path):
    with pytest.raises((UserError, StropError)) as caught:
        run("truth", out=tmp_path / "x", **{"n": 2, **asked})
    assert words in str(caught.value.message if hasattr(caught.value, "message") else caught.value)
