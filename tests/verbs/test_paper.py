"""The paper's numbers as data: complete, in shape, consistent with each other."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure
from pydantic import ValidationError

from strop.errors import UserError
from strop.spec import OperatingPoint, SamplerSpec
from strop.stats.interval import Interval
from strop.table import Table
from strop.verbs import audit, cross_model, posterior
from strop.verbs.paper import PaperTable, beside, ids, items, table, tables
from strop.verbs.verb import Result

ROWS = {
    "headline": 4 * 4,
    "headline-full": 3 * 8 * 5,
    "grid-tiny-late": 11 * 7 * 2,
    "grid-small-late": 11 * 7 * 2,
    "grid-small-early": 11 * 7 * 2,
    "grid-didi-ancestral": 11 * 7 * 2,
    "grid-didi-guided": 11 * 7 * 2,
    "cross-model": 7 * 6 + 1,
    "posterior": 3 * 5,
    "late-early": 5 + 1,
    "less-is-more": 2 * 3 * 11,
    "cost": 2,
    "conditional": 2,
    "groupeval-mdlm": 5 * 5,
    "groupeval-didi": 3 * 5,
    "groupeval-exact": 4 * 2,
    "groupeval-main": 4,
    "groupeval-diagnostics": 18,
    "exact-repair": 9,
}
GRIDS = [name for name in ROWS if name.startswith("grid-")]


@pytest.mark.parametrize(("name", "count"), ROWS.items())
def test_counts(name, count):
    assert len(table(name).rows) == count


def test_every_file_loads_and_every_label_occurs_once():
    every = tables()
    assert set(ROWS) <= {one.id for one in every}
    labels = [one.label for one in every]
    assert len(set(labels)) == len(labels)
    for one in every:
        assert one.label.split(":")[0] in ("tab", "fig", "app")
        assert set(one.see) <= set(ids())
        assert one.rows or one.see, "numbers, or where they are"


@pytest.mark.parametrize("name", GRIDS)
def test_grids_are_whole(name):
    grid = table(name)
    settings = {tuple(row[:3]) for row in grid.rows}
    assert len(settings) == len(grid.rows)
    assert {row[0] for row in grid.rows} == {2**k for k in range(11)}
    assert {row[1] for row in grid.rows} == {0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1}


@pytest.mark.parametrize("one", [t for t in tables() if "below_guard" in t.columns])
def test_the_dagger_marks_entropy_below_five(one):
    for row in one.records():
        assert row["below_guard"] == (row["entropy"] < 5)


def test_known_numbers():
    head = table("headline")
    standard = {"temperature": 1.0, "precision": "float64"}
    sharp = {"temperature": 0.9, "precision": "float32"}
    assert head.value("perplexity", steps=1024, **standard) == 107.1
    assert head.value("perplexity", steps=64, **sharp) == 41.3
    assert head.value("entropy", steps=64, **sharp) == 5.27
    full = table("headline-full")
    assert full.value("perplexity", checkpoint="early", steps=2048, **sharp) == 26.9
    cross = table("cross-model")
    assert cross.value("perplexity", model="DUO-DCD", steps=256) == 51.2
    assert cross.value("perplexity", model="GPT-2") == 31.3
    guided = table("grid-didi-guided")
    assert guided.value("perplexity", steps=1024, **sharp) == 15.08
    assert table("grid-tiny-late").value("perplexity", steps=1, **standard) == 4961
    contrast = table("posterior").records(checkpoint="early", steps=128)[0]
    assert (contrast["difference"], contrast["low"], contrast["high"]) == (0.068, 0.042, 0.094)
    less = table("less-is-more")
    four = less.value("ratio", comparison="training", sampler="standard", steps=4)
    assert four == pytest.approx(1.40, abs=0.005)


def test_the_statements_of_the_text_follow_from_the_tables():
    cost = {row["setting"]: row for row in table("cost").records()}
    a, b = cost["standard"], cost["sharpened"]
    assert 1 - b["peak_memory"] / a["peak_memory"] == pytest.approx(0.400, abs=5e-4)
    assert a["seconds"] / b["seconds"] - 1 == pytest.approx(0.172, abs=5e-4)
    differences = [row["difference"] for row in table("posterior").records()]
    assert (min(differences), max(differences)) == (0.036, 0.068)
    assert all(row["low"] > 0 for row in table("posterior").records())
    stronger = table("less-is-more").records(sampler="stronger")
    assert all(row["ratio"] < 1 for row in stronger if row["steps"] > 1)


@pytest.mark.parametrize("name", ["headline", "headline-full", *GRIDS[1:3]])
def test_tables_agree_where_they_overlap(name):
    """The four corners of a checkpoint are printed in several tables."""
    checkpoint = {"grid-small-late": "late", "grid-small-early": "early"}.get(name, "public")
    full, compared = table("headline-full"), 0
    for row in table(name).records():
        if row.get("checkpoint", checkpoint) != checkpoint:
            continue
        knobs = {key: row[key] for key in ("steps", "temperature", "precision")}
        for other in full.records(checkpoint=checkpoint, **knobs):
            near = 0.51 if row["perplexity"] >= 1000 else 0.001  # printed with fewer digits
            assert other["perplexity"] == pytest.approx(row["perplexity"], abs=near)
            assert other["entropy"] == row["entropy"]
            compared += 1
    assert compared >= 4


def test_the_texts_numbers_ship_too():
    claims = table("groupeval-exact").claims
    assert (claims["evaluators_spearman"], claims["first_document_bytes"]) == (0.982, 0.4297)
    assert claims["geq_log_perplexity_spearman"]["MDLM-Small"]["gpt2-large"] == -0.57
    drawn = table("exact-repair").settings
    assert len(drawn["shapes"]) * drawn["targets_per_shape"] == 280
    assert drawn["dirichlet"] == [0.3, 1, 3]


def test_wrong_questions():
    with pytest.raises(UserError, match="headlin"):
        table("headlin")
    with pytest.raises(UserError, match="column"):
        table("headline").records(step=64)
    with pytest.raises(UserError, match="column"):
        table("headline").value("ppl", steps=64)
    with pytest.raises(UserError, match="one row"):
        table("headline").value("perplexity", steps=64)


@pytest.mark.parametrize(
    "change",
    [{"rows": [[1]]}, {"units": {"c": "nats"}}, {"columns": ["a", "a"]}],
)
def test_damaged_tables_are_refused(change):
    good = {
        "id": "x",
        "label": "tab:x",
        "kind": "table",
        "caption": "x",
        "columns": ["a", "b"],
        "rows": [[1, 2.0]],
    }
    assert PaperTable(**good).records() == [{"a": 1, "b": 2.0}]
    with pytest.raises((UserError, ValidationError)):
        PaperTable(**{**good, **change})


def test_counts_of_the_large_models_follow_from_their_percentages():
    """Every count is the only one that rounds to what is printed, and the pairs add up."""
    for name in ("large-models", "large-models-control"):
        for row in table(name).records():
            fitting = [
                k for k in range(row["problems"] + 1)
                if abs(100 * k / row["problems"] - row["success"]) <= 0.0501
            ]  # fmt: skip
            assert fitting == [row["right"]]
    greedy = table("large-models").by("model", "task")
    for row in table("conditional").records():
        llada, dream = row["both"] + row["only_llada"], row["both"] + row["only_dream"]
        assert llada == greedy["LLaDA-8B-Instruct", row["task"]]["right"]
        assert dream == greedy["Dream-v0-Base-7B", row["task"]]["right"]
        assert row["only_llada"] + row["only_dream"] == row["discordant"]
        assert llada + row["only_dream"] + row["neither"] == row["conditions"]


def test_table_2a_is_made_of_the_other_tables():
    """Perplexity and entropy are the headline's corners, GEQ and GED the default judge's."""
    corners = {"standard": (1.0, "float64"), "sharpened": (0.9, "float32")}
    for row in table("groupeval-main").records():
        [judged] = table("groupeval-mdlm").records(judge="GPT-OSS", steps=row["steps"])
        for setting, (temperature, precision) in corners.items():
            where = {"steps": row["steps"], "temperature": temperature, "precision": precision}
            for name in ("perplexity", "entropy"):
                assert row[f"{name}_{setting}"] == table("headline").value(name, **where)
            for name in ("geq", "ged"):
                assert row[f"{name}_{setting}"] == judged[f"{name}_{setting}"]


def test_printed_diagnostics_are_shares_or_modes():
    for row in table("groupeval-diagnostics").records():
        most = 8 if row["what"] == "effective_modes" else 1
        assert 0 <= (row["low"] or 0) <= row["high"] <= most


def test_printed_diagnostics_digit_by_digit():
    """The sentences of the paper's appendix, in its order: percentages, or numbers of modes."""
    said = [
        ("GPT-OSS invalid_rate at 16", 13.3, 13.3), ("GPT-OSS invalid_rate at 16", 6.6, 6.6),
        ("GPT-OSS effective_modes at 16", 473, 473), ("GPT-OSS effective_modes at 16", 574, 574),
        ("GPT-OSS invalid_rate at 4", 59.4, 59.4), ("GPT-OSS invalid_rate at 4", 54.7, 54.7),
        ("GPT-OSS effective_modes", 108, 696), ("GPT-OSS singleton_rate", 9.4, 62.5),
        ("GPT-OSS ceiling_rate", 0, 50), ("Luna singleton_rate", 68.8, 87.5),
        ("Luna ceiling_rate", 65.6, 87.5), ("Luna hybrid_rate", None, 84.3),
        ("Luna non_high_confidence_rate", None, 87.5), ("Terra singleton_rate", 18.8, 75),
        ("Terra ceiling_rate", 6.3, 68.8), ("Luna hybrid_rate", 76.3, 100),
        ("Luna ceiling_rate", 50, 90), ("Luna non_high_confidence_rate", None, 90),
    ]  # fmt: skip
    for (name, low, high), row in zip(said, table("groupeval-diagnostics").records(), strict=True):
        where = f" at {row['steps']}" if row["steps"] else ""
        assert name == f"{row['judge']} {row['what']}{where}"
        assert row["high"] == pytest.approx(high / 100)
        assert row["low"] == (None if low is None else pytest.approx(low / 100))
    standard = [row["sampler"] for row in table("groupeval-diagnostics").records()][:6]
    assert standard == ["standard", "sharpened"] * 3


def test_every_printed_cell_of_the_sweep_is_found_and_others_stand_beside_it():
    """The paper prints 52 of the sweep's 168 cells; Generative Frontiers has 11 of them."""
    knobs = ("steps", "temperature", "precision")
    taus, every = (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1), [2**k for k in range(12)]
    cells = list(product(every, taus, ("float64", "float32")))
    level = {"perplexity": Interval(100.0, 90.0, 110.0, n=128), "entropy": 5.0, "mark": ""}
    rows = [{**dict(zip(knobs, cell, strict=True)), **level} for cell in cells]
    _, item = items()["sweep"]
    study = Result(table=Table("", (), rows))
    ask: Any = SimpleNamespace(sources=("x",))
    shown = item.beside(study, ask, {"x": "public"}).rows
    found = {tuple(row[k] for k in knobs): row for row in shown}
    assert sum(row["paper"] is not None for row in shown) == 52
    assert found[64, 0.9, "float32"]["paper"] == 41.3
    assert found[2048, 0.85, "float32"]["paper"] == 14.4
    assert found[64, 0.9, "float64"]["elsewhere"] == pytest.approx(52.6, abs=0.05)
    assert found[64, 0.9, "float32"]["elsewhere"] is None
    assert found[64, 1.0, "float64"]["within"] == "no"
    assert found[256, 1.0, "float64"]["elsewhere"] is None
    late = item.beside(study, ask, {"x": "late"})
    assert "elsewhere" not in [column.name for column in late.columns]
    known = {tuple(row[k] for k in knobs): row["paper"] for row in late.rows}
    said = table("headline-full").by(*knobs, checkpoint="late")
    assert known[32, 1.0, "float64"] == said[32, 1.0, "float64"]["perplexity"]
    assert known[32, 1.0, "float64"] != found[32, 1.0, "float64"]["paper"]


def test_the_sweep_has_the_twelve_budgets_and_the_printed_grids_eleven():
    for id, last in (("sweep", 11), ("grid-small-late", 10)):
        study, item = items()[id]
        asked = study.ask(Path("nowhere"), ["embedded:tales"], **item.values)
        assert audit._counts(asked) == {2**k: (128, 128) for k in range(last + 1)}
        drawn = {
            (p.sampler.temperature, p.sampler.precision) for p in audit._points(asked, "mdlm")[0]
        }
        taus = (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1)
        assert drawn == set(product(taus, ("float64", "float32")))


@pytest.mark.parametrize("id", [id for id in items() if id != "less-is-more"])
def test_a_full_run_asks_for_what_the_paper_did(id: str):
    """Outputs, evaluator, budgets and groups of every printed table, by its own file."""
    study, item = items()[id]
    known = {name: source for name, source in item.sources.items() if source is not None}
    sources = [f"{name}={one}" if item.named else one for name, one in known.items()]
    asked = study.ask(Path("nowhere"), sources, **item.values).values
    for one in map(table, item.tables):
        for name in ("outputs", "outputs_per_cell", "sequences"):
            if name in one.settings and "n" in asked:
                assert asked["n"] in (one.settings[name], (one.settings[name],))
        if "evaluator" in one.settings:
            assert asked["evaluator"] == one.settings["evaluator"]
        if asked.get("steps") and one.id in (id, f"groupeval-{id.partition('-')[0]}"):
            printed = {row["steps"] for row in one.records()} if "steps" in one.columns else set()
            assert printed - {None} <= set(asked["steps"])
    if "partition" in asked:
        assert asked["partition"] == "best-of-2000"


def test_rows_say_whether_they_lie_within_the_noise_of_both():
    """A ratio of 1.1 is two standard errors of ours, and one and a half of both."""
    measured = Interval(110.0, 100.0, 121.0, n=128)
    rows = [
        {"paper": 100.0, "measured": measured},
        {"paper": 60.0, "measured": measured},
        {"paper": None, "measured": measured},
        {"paper": 100.0, "measured": Interval(110.0)},
    ]
    told = beside("x", (), rows, outputs=128, log=True)
    assert [row["within"] for row in told.rows] == ["yes", "no", None, None]
    assert "within" in [column.name for column in told.columns]
    printed = [{"paper": Interval(0.1, 0.08, 0.12), "measured": Interval(0.2, 0.18, 0.22, n=500)}]
    assert beside("x", (), printed).rows[0]["within"] == "no"
    plain = beside("x", (), [{"paper": 1.0, "measured": 2.0}])
    assert "within" not in [column.name for column in plain.columns]


def test_perplexities_are_compared_by_their_logarithms():
    """Of 60, half and twice that, times the root of two for the noise of both: 22.5 to 160."""
    level = Interval(60.0, 30.0, 120.0, n=128)
    cell = {"steps": 64, "temperature": 1.0, "precision": "float64", "entropy": 5.0, "mark": ""}
    study = Result(table=Table("", (), [{**cell, "perplexity": level}]))
    _, item = items()["headline"]
    ask: Any = SimpleNamespace(sources=("x",))
    [row] = item.beside(study, ask, {"x": "public"}).rows
    assert (row["paper"], row["within"]) == (154.9, "yes")  # on a straight scale up to 124
    told = beside("x", (), [{"paper": 21.0, "measured": level}], outputs=128, log=True)
    assert told.rows[0]["within"] == "no"


def test_posterior_rows_stand_beside_the_checkpoint_they_are_of():
    """Two checkpoints under names of their own; both estimators; late minus early."""
    sources = [("a", "runs/early"), ("b", "runs/late")]
    level = Interval(0.05, 0.04, 0.06, n=512)
    contrasts = [
        {"checkpoint": name, "steps": steps, "masked": level, "target": level, "optimum": 1.05}
        for name, _ in sources
        for steps in (2, 4, 128)
    ]
    gap = {"later": "b", "earlier": "a", "difference": level}
    near = Interval(-0.55, -0.585, -0.515, n=512)
    facts = {
        "checkpoints": [{"name": name, "source": source} for name, source in sources],
        "differences": [
            {**gap, "steps": 128, "estimator": "masked"},
            {**gap, "steps": 128, "estimator": "target"},
            {**gap, "steps": 32, "estimator": "target", "difference": near},
        ],
        "profile": {"differences": [{**gap, "visible": "mean"}, {**gap, "visible": 0.5}]},
    }
    result = Result(more={"contrasts": Table("", (), contrasts)}, facts=facts)
    ask: Any = {"sharpened": 0.9}
    roles = {"runs/early": "early", "runs/late": "late"}
    shown = items()["posterior"][1].beside(result, ask, roles).rows
    by = {(row["what"], row["checkpoint"], row["steps"], row["estimator"]): row for row in shown}
    for name, role in (("a", "early"), ("b", "late")):
        for estimator in ("all hidden", "one target"):
            row = by["0.9 minus 1", name, 128, estimator]
            assert row["paper"].value == table("posterior").value(
                "difference", checkpoint=role, steps=128
            )
            assert (row["best"], row["paper_best"]) == ("1.05", "1 or 1.05")
            assert by["0.9 minus 1", name, 4, estimator]["paper"] is None
    assert by["late minus early", "b minus a", 128, "all hidden"]["paper"].value == -0.617
    assert by["late minus early", "b minus a", None, "profile's mean"]["paper"].value == -0.674
    # The paper prints no ends here: its 512 sequences count as noisy as ours, and its estimator is
    # that of one target. Of -.589 and -.55 ± .035 each, the gap is .039 and its noise .049.
    assert by["late minus early", "b minus a", 128, "all hidden"]["within"] is None
    assert by["late minus early", "b minus a", 128, "one target"]["within"] == "no"
    assert by["late minus early", "b minus a", 32, "one target"]["within"] == "yes"
    assert len(shown) == 2 * 6 + 4
    swapped = {"runs/early": "late", "runs/late": "early"}
    assert len(items()["posterior"][1].beside(result, ask, swapped).rows) == 2 * 6


def test_cells_beside_a_loss_are_its_own_at_1_over_sharpened(monkeypatch):
    monkeypatch.setattr(
        "strop.measure.frame.perplexity_ratio", lambda one, other: one.level / other.level
    )
    monkeypatch.setattr(posterior, "_scatter", lambda _: None)
    cells: Any = [
        SimpleNamespace(
            spec=SimpleNamespace(generator=SimpleNamespace(checkpoint=SimpleNamespace(sha256=sha))),
            steps=steps,
            point=OperatingPoint.of(SamplerSpec(temperature=tau)),
            perplexities=(1,),
            level=level,
        )
        for sha, steps, tau, level in [
            ("x", 2, 1.0, 300.0), ("x", 2, 0.9, 100.0), ("x", 8, 1.0, 80.0), ("x", 8, 0.9, 40.0),
            ("y", 2, 1.0, 500.0),
        ]
    ]  # fmt: skip
    facts = {
        "checkpoints": [{"name": n, "spec": {"sha256": s}} for n, s in (("a", "x"), ("b", "y"))]
    }
    rows = [
        {"checkpoint": name, "steps": m, "temperature": 0.9, "masked": 0.1 * m}
        for name in "ab"
        for m in (2, 8)
    ]
    found, _ = posterior.beside_cells(
        Result(facts=facts, more={"contrasts": Table("", (), rows)}), cells
    )
    assert [(r["checkpoint"], r["steps"], r["ratio"]) for r in found.rows] == [
        ("a", 2, 3.0),
        ("a", 8, 2.0),
    ]
    assert found.rows[1]["masked"] == 0.8


def test_ranges_of_the_overview_are_the_ends_over_its_cells():
    def level(value: float) -> Interval:
        return Interval(value, value / 2, value * 2, n=16)

    rows = [{"masked": level(0.02 * k), "ratio": level(1.0 + k)} for k in (2, 1, 3)]
    _, item = items()["overview"]
    shown = item.beside(Result(table=Table("", (), rows)), {}, {}).rows  # type: ignore[arg-type]
    told = [(row["paper"], row["measured"].value) for row in shown]
    assert told == [(0.036, 0.02), (0.068, 0.06), (2.6, 2.0), (3.8, 4.0)]


def test_a_row_of_the_comparison_has_its_own_model_s_numbers():
    def row(name: str, sampler: SamplerSpec) -> dict[str, Any]:
        generator = SimpleNamespace(sampler=sampler, length=1024)
        knobs = {k: getattr(sampler, k) for k in ("steps", "temperature", "precision")}
        one: Any = SimpleNamespace(
            spec=SimpleNamespace(generator=generator), row=lambda: knobs, calls=7.0
        )
        return cross_model._row(name, one)

    sharp = SamplerSpec(steps=64, temperature=0.9, precision="float32")
    plain = SamplerSpec(steps=256)
    printed = table("cross-model")
    for name, sampler in (("MDLM-Small", sharp), ("MDLM-Small", plain), ("DUO-DCD", plain)):
        where = {k: getattr(sampler, k) for k in ("steps", "temperature", "precision")}
        [said] = printed.records(model=name, **where)
        told = row(name, sampler)
        assert (told["paper"], told["paper_entropy"]) == (said["perplexity"], said["entropy"])
    assert row("DUO", sharp)["paper"] is None
    causal = SamplerSpec(name="autoregressive", steps=0)
    assert row("GPT-2", causal)["paper"] == 31.3


def test_the_panel_of_judged_pools_goes_from_open_to_filled_by_one_judge():
    """Of a language model if one judged; what an entropy falls from is open."""
    level = {"entropy_standard": 5.7, "entropy_sharpened": 5.3, "steps": 16}
    model = {**level, "judge": "gpt-oss", "geq_standard": 4.0, "geq_sharpened": 5.0}
    model |= {"ged_standard": 6.0, "ged_sharpened": 7.5}
    counting = {**model, "judge": "offline-v2/counts", "geq_standard": 1.0, "ged_sharpened": None}
    axes = Figure().subplots()
    cross_model._judged_on(axes, [counting, model])
    drawn = {
        (float(line.get_xdata()[0]), float(line.get_ydata()[0])): line.get_markerfacecolor()
        for line in axes.lines
        if len(line.get_xdata())
    }
    assert {place for place, fill in drawn.items() if fill == "white"} == {(5.7, 4.0), (5.7, 6.0)}
    assert {place for place, fill in drawn.items() if fill != "white"} == {(5.3, 5.0), (5.3, 7.5)}
    assert axes.xaxis_inverted()
