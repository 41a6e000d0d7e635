"""Verbs as records: their commands, their functions, and what they return."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import strop
from strop.cli.main import VERBS, build, names, run
from strop.errors import StropError, UserError
from strop.registry import resolve
from strop.stats.interval import Interval
from strop.table import Column, Table
from strop.verbs import calls
from strop.verbs.study import Study
from strop.verbs.verb import Ask, Facts, Parameter, Result, Strong, Verb, VerbGroup, grid

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import make_calls

ROOT = build()
OPTIONAL = ("ray", "lm_eval", "lightning_fabric", "datasets", "optuna", "transformers")


def test_the_functions_are_what_the_records_say() -> None:
    assert make_calls.FILE.read_text(encoding="utf-8") == make_calls.text(), (
        "run scripts/make_calls.py"
    )


@pytest.mark.parametrize("name", make_calls.verbs())
def test_a_function_has_the_arguments_of_its_record(name: str) -> None:
    verb, function = make_calls.verbs()[name], getattr(calls, name)
    assert function.__name__ == name
    assert function.__doc__.startswith(verb.help)
    arguments = inspect.signature(function).parameters.values()
    named = [one for one in arguments if one.kind is inspect.Parameter.KEYWORD_ONLY]
    taken = [one for one in verb.takes if not one.argument]
    assert [one.name for one in named] == [one.name for one in taken]
    for argument, one in zip(named, taken, strict=True):
        assert argument.default is (inspect.Parameter.empty if one.required else one.default)
    placed = [one for one in arguments if one not in named]
    assert len(placed) == len(verb.takes) - len(taken)
    alone = {one.kind is inspect.Parameter.POSITIONAL_ONLY for one in placed}
    assert alone <= {isinstance(verb, Study) and not verb.sources.many}


@pytest.mark.parametrize("name", ["groupeval", "study", "theory_nothing", "nothing"])
def test_what_is_no_verb_is_no_function(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(calls, name)


@pytest.mark.parametrize("name", VERBS)
def test_the_first_line_of_a_help_is_that_of_the_list(name: str) -> None:
    first = (ROOT.commands[name].help or "").split("\n\n")[0]
    assert first == VERBS[name][1]


def records() -> dict[str, Verb]:
    found = {}
    for name, (reference, _) in VERBS.items():
        record = resolve(reference)
        if isinstance(record, Verb):
            found[name] = record
        elif isinstance(record, VerbGroup):
            own = () if record.own is None else (record.own,)
            found |= {f"{name} {one.name}": one for one in (*record.verbs, *own)}
    return found


@pytest.mark.parametrize("name", records())
def test_a_parameter_has_one_name_and_one_default(name: str) -> None:
    verb = records()[name]
    taken = [one.name for one in verb.takes]
    assert len(set(taken)) == len(taken)
    spelled = [word for one in verb.takes if not one.argument for word in names(one)]
    assert len(set(spelled)) == len(spelled)
    for one in verb.takes:
        if not one.argument:
            long = {word.partition("/")[0].lstrip("-").replace("-", "_") for word in names(one)}
            assert one.name in long
        if one.default is not None:
            checked = one.checked(one.default)
            assert one.checked(checked) == checked


def test_verbs_are_functions_after_every_module_was_imported(tmp_path: Path) -> None:
    """A room that bears a verb's name would take its place."""
    missing = set()
    for module in pkgutil.walk_packages(strop.__path__, "strop."):
        if module.name.endswith("__main__") or ".tasks.inside" in module.name:
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            missing.add((error.name or "").split(".")[0])
    assert missing <= {*OPTIONAL}
    functions = make_calls.verbs()
    assert {"sample", "audit", "tune", "compare", "score", "report", "task", "train"} < {*functions}
    groups = {name: getattr(strop, name) for name in calls.MODULES}
    for name in functions:
        group, _, verb = name.partition("_")
        home = groups.get(group)
        function = getattr(strop, name) if home is None else getattr(home, verb)
        assert function is getattr(calls, name)
    assert strop.theory.pair(s=0.7, c=0.5).value["finite_repair"]
    assert strop.theory.collisions(length=2, rounds=4).value["share_prob"] == 0.25
    out = tmp_path / "run"
    drawn = strop.sample("embedded:tales", steps=[2, 4], n=2, length=6, out=out)
    assert [len(pool) for pool in drawn.pools] == [2, 2]
    assert [pool.spec.generator.sampler.steps for pool in drawn.pools] == [2, 4]
    memory = strop.sample("embedded:tales", spec=strop.SamplerSpec(steps=2), n=2, length=6)
    assert (memory.pools[0].ids == drawn.pools[0].ids).all()
    assert [one.run for one in strop.ls(tmp_path).value] == [str(out)]
    assert strop.show(out, first=1).printed_document()["cells"][0]["outputs"] == 2
    scored = strop.score(out, evaluator="none")
    assert scored.to_arrow().num_rows == 2
    assert strop.report(out, out=tmp_path / "page.html").sentence
    assert (tmp_path / "page.html").is_file()
    whole = strop.merge(out, out=tmp_path / "whole")
    assert json.loads(whole.to_json())["cells"][1]["outputs"] == 2
    answers = strop.task("sums", "embedded:sums-ar", limit=2, temperature=0, out=tmp_path / "sums")
    assert len(answers.value.settings) == 1


@pytest.mark.parametrize(
    ("name", "arguments", "given", "told"),
    [
        ("audit", ("embedded:tales",), {"steps": 0, "out": "x"}, "`steps` is out of range"),
        ("tune", (), {"n": 1, "out": "x"}, "`n` is out of range"),
        ("compare", (), {"span": "half", "out": "x"}, "There is no span called 'half'"),
        ("compare", ("a", "b", "c"), {"out": "x"}, "expected: A, B"),
        ("sample", (), {"stepz": 4}, "There is no parameter called 'stepz'"),
        ("sample", (), {"per_prompt": 2, "out": "x"}, "`per_prompt` is for prompts"),
        (
            "sample",
            ("x",),
            {"load": {"device_map": "auto"}, "devices": "cpu:2", "out": "x"},
            "spread the model over all devices",
        ),
        ("train", ("no-such-file.yaml",), {"out": "x"}, "no-such-file.yaml"),
        ("train", ("mdlm-tiny",), {}, "`out` is missing"),
        ("reproduce", ("headlin",), {"out": "x"}, "headline"),
        ("precision", (), {"samples": 0}, "`samples` is out of range"),
        ("score", ("nowhere",), {"vendi": "maybe"}, "There is no vendi called 'maybe'"),
        ("report", ("nowhere",), {"out": ""}, "The output path is empty"),
        ("task", ("nothing", "x"), {"out": "x"}, "nothing"),
    ],
)
def test_a_call_is_refused_before_any_work(
    name: str, arguments: tuple[str, ...], given: dict[str, Any], told: str, tmp_path: Path
) -> None:
    if given.get("out"):
        given = {**given, "out": tmp_path / given["out"]}
    with pytest.raises(UserError) as caught:
        getattr(strop, name)(*arguments, **given)
    assert told in str(caught.value)
    assert not any(tmp_path.iterdir())


# A verb of one's own


def _double(ask: Ask) -> Result:
    ask.note(f"{ask['value']} is doubled")
    return Result(
        parts=(grid(["twice"], [[str(2 * ask["value"])]]), Facts("Facts", {"a": 1.5})),
        json={"twice": 2 * ask["value"], "words": ask["words"]},
        remarks=("use a smaller `value`",),
        next="strop double 3",
        error=StropError("Too large.") if ask["value"] > 9 else None,
        incomplete=ask["value"] == 9,
        value=2 * ask["value"],
    )


DOUBLE = Verb(
    name="double",
    help="Double a number.\n\nMore words.",
    parameters=(
        Parameter("value", "Which.", 4, "int", least=1, argument="VALUE"),
        Parameter("words", "Some.", ("a", "b"), "words", choices=("a", "b", "c")),
        Parameter("steps", "Of the sampler.", kind="ints"),
    ),
    run=_double,
    examples=("strop double 3",),
)


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERBS, "double", (f"{__name__}:DOUBLE", "Double a number."))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[test_a_command.__module__])


@pytest.mark.usefixtures("double")
def test_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["double", "5"]) == 0
    out, err = capsys.readouterr()
    assert "10" in out.split()
    assert "1.5" in out
    assert err == "5 is doubled\nuse a smaller VALUE\nnext: strop double 3\n"
    assert run(["double", "--json", "--words", "b,c,b"]) == 0
    assert json.loads(capsys.readouterr().out) == {"twice": 8, "words": ["b", "c"]}
    assert run(["double", "9"]) == 2
    capsys.readouterr()
    assert run(["double", "0"]) == 1
    assert "where: VALUE" in capsys.readouterr().err


@pytest.mark.usefixtures("double")
def test_a_result_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["double", "10"]) == 1
    out, err = capsys.readouterr()
    assert "20" in out.split()
    assert "strop: Too large." in err
    assert run(["double", "10", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["what"] == "Too large."
    with pytest.raises(StropError):
        DOUBLE(10)


@pytest.mark.usefixtures("double")
def test_help_comes_in_panels(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["double", "--help"]) == 0
    out = capsys.readouterr().out
    assert "More words." in out
    sampler = out.index("Sampler")
    assert out.index("--words") < sampler < out.index("--steps")
    assert "[default: (a,b)]" in out


def test_a_call_from_python() -> None:
    result = DOUBLE(3, words="c")
    assert (result.value, result.json) == (6, {"twice": 6, "words": ("c",)})
    assert DOUBLE(value=3).value == 6
    assert inspect.signature(strop.sample).return_annotation == "Result"


@pytest.mark.parametrize(
    ("parameter", "value", "checked"),
    [
        (Parameter("n", "", kind="int", least=1, most=4), 3, 3),
        (Parameter("n", "", kind="ints", least=1, most=4), 3, (3,)),
        (Parameter("n", "", kind="ints", least=1, most=4), [3, 1, 3], (3, 1)),
        (Parameter("n", "", kind="counts", least=1, most=4), [3, 1, 3], (3, 1, 3)),
        (Parameter("n", "", kind="batch", least=1, most=4), "auto", "auto"),
        (Parameter("n", "", kind="place"), "a/b", Path("a/b")),
        (Parameter("n", ""), Path("a/b"), "a/b"),
        (Parameter("n", "", kind="many", argument="RUN..."), ["a", "a"], ("a", "a")),
        (Parameter("n", "", kind="int"), None, None),
    ],
)
def test_a_value_has_one_form(parameter: Parameter, value: Any, checked: Any) -> None:
    assert parameter.checked(value) == checked


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        (Parameter("n", "", kind="int", least=1, most=4), 0),
        (Parameter("n", "", kind="int", least=1, most=4), 4),
        (Parameter("n", "", kind="ints", least=1, most=4), [1, 4]),
        (Parameter("n", "", kind="ints"), []),
        (Parameter("n", "", kind="batch", least=1, most=4), 0),
        (Parameter("n", "", kind="batch", least=1, most=4), "all"),
        (Parameter("n", "", kind="path"), "no-such-file"),
        (Parameter("n", "", choices=("a",)), "b"),
        (Parameter("n", "", required=True), None),
    ],
)
def test_what_is_no_value_names_the_parameter(parameter: Parameter, value: Any) -> None:
    with pytest.raises(UserError) as caught:
        parameter.checked(value)
    assert caught.value.where == "`n`"


# Results

COLUMNS = (Column("name"), Column("loss", unit="nats", digits=3), Column("share", percent=True))
ROWS = [
    {"name": "a_1 & b", "loss": Interval(1.5, 1.25, 2.0), "share": 0.5, "kept": 3},
    {"name": "c|d", "loss": None, "share": -0.25, "kept": "x"},
]
RESULT = Result(
    asked={"n": 2},
    table=Table("Losses", COLUMNS, ROWS),
    facts={"answer": ("It is small.", "Really."), "least": 1.5},
    notes=("Mind the gap.",),
)


def test_a_result_says_its_sentence_and_its_tables() -> None:
    assert RESULT.sentence == "It is small."
    assert RESULT.tables == (RESULT.table,)
    answer = (Strong("It is small."), Strong("Really."))
    assert RESULT.printed()[-4:] == ("Mind the gap.", "", *answer), "it ends in the answer"
    first = replace(RESULT, verdict_first=True).printed()
    assert (first[:2], first[-1]) == (answer, "Mind the gap.")
    assert Result(parts=("One.", "Two.")).sentence == "One."
    assert Result().sentence is None
    with pytest.raises(UserError):
        RESULT.figure()
    assert Result(draw=lambda _: "drawn").figure() == "drawn"  # type: ignore[arg-type]


def test_a_result_as_text(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    assert RESULT.to_csv(path).splitlines() == [
        "name,loss,loss_low,loss_high,share,kept",
        "a_1 & b,1.5,1.25,2.0,0.5,3",
        "c|d,,,,-0.25,x",
    ]
    assert path.read_text() == RESULT.to_csv()
    assert RESULT.to_markdown().splitlines() == [
        "| name | loss, nats | share |",
        "| --- | --- | --- |",
        "| a_1 & b | 1.50 [1.25, 2.00] | 50.00% |",
        "| c\\|d | – | -25.00% |",
    ]
    assert RESULT.to_latex().splitlines() == [
        r"\begin{tabular}{lll}",
        r"\toprule",
        r"name & loss, nats & share \\",
        r"\midrule",
        r"a\_1 \& b & 1.50 [1.25, 2.00] & 50.00\% \\",
        r"c|d & -- & -25.00\% \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert "<td>a_1 &amp; b</td><td>1.50 [1.25, 2.00]</td>" in RESULT._repr_html_()
    assert "<p>Mind the gap.</p>" in RESULT._repr_html_()


def test_a_result_as_columns() -> None:
    columns = RESULT.to_arrow().to_pydict()
    assert columns["loss"] == [1.5, None]
    assert (columns["loss_low"], columns["loss_high"]) == ([1.25, None], [2.0, None])
    assert columns["kept"] == ["3", "x"]  # of two kinds, so as texts
    assert RESULT.frame.num_rows == 2


def test_a_result_for_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = RESULT.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["share"]) == [0.5, -0.25]


def test_a_result_as_json() -> None:
    document = json.loads(RESULT.to_json())
    assert document["asked"] == {"n": 2}
    assert document["rows"][0]["loss"]["low"] == 1.25
    assert json.loads(Result(json={"a": Interval(1.0, 0.5, 2.0)}).to_json())["a"]["high"] == 2.0
