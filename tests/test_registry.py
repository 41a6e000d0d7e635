"""Records by name: built in, from a script, from packages that are good, broken or in the way."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import strop
import warm_processes
from packages import install
from strop import registry
from strop.errors import UserError
from strop.measure import Metric, metrics
from strop.measure.metric import METRICS
from strop.registry import Registry
from strop.spec import MetricSpec
from strop.verbs.study import STUDIES

SOURCE = Path(strop.__file__).resolve().parent
FRUIT = "from test_registry import Fruit\n"


@dataclass(frozen=True)
class Fruit:
    name: str
    version: str | None = None
    colour: str = "red"


class Loaded(list[str]):
    """How often the built-in ones were asked for."""


@pytest.fixture
def fruits(monkeypatch: pytest.MonkeyPatch) -> Registry[Fruit]:
    monkeypatch.setattr(registry, "_REGISTRIES", list(registry._REGISTRIES))
    return Registry("fruit", Fruit, "strop.fruits", lambda: (Fruit("apple"), Fruit("pear")))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on the path; what was imported from it is forgotten."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def plug(path: Path, package: str, source: str, **points: str) -> None:
    install(path, package, FRUIT + source, {"strop.fruits": points})


def only(found: list[registry.BrokenPlugin]) -> registry.BrokenPlugin:
    assert len(found) == 1, found
    return found[0]


# ---------------------------------------------------------------- here


def test_what_is_built_in_comes_first(fruits: Registry[Fruit]) -> None:
    assert list(fruits) == ["apple", "pear"]
    fruits.add(Fruit("aardberry", "1"))
    assert list(fruits) == ["apple", "pear", "aardberry"]
    assert len(fruits) == 3
    assert fruits.find("aardberry") == Fruit("aardberry", "1")
    with pytest.raises(UserError) as told:
        fruits.find("aple", where="`fruit`")
    assert "apple" in f"{told.value.fix} {told.value.expected}"
    fruits.forget("aardberry")
    assert "aardberry" not in fruits


def test_built_in_records_are_made_once_and_only_when_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_REGISTRIES", [])
    asked = Loaded()

    def builtin() -> Iterator[Fruit]:
        asked.append("now")
        yield Fruit("apple")

    made = Registry("fruit", Fruit, "strop.fruits", builtin)
    assert asked == []
    assert made["apple"] is made["apple"]
    assert asked == ["now"]


def test_a_script_registers_by_the_type_of_the_record(fruits: Registry[Fruit]) -> None:
    strop.register(Fruit("plum", "1"))
    assert fruits["plum"].version == "1"
    with pytest.raises(UserError) as told:
        strop.register("plum")  # type: ignore[arg-type]
    assert told.value.got == "str"
    assert "Fruit" in str(told.value.expected)


def test_a_name_is_taken_once(fruits: Registry[Fruit]) -> None:
    strop.register(Fruit("plum", "1"))
    for record in (Fruit("plum", "2"), Fruit("apple", "2")):
        with pytest.raises(UserError, match="already"):
            strop.register(record)
    strop.register(Fruit("plum", "2"), replace=True)
    assert fruits["plum"].version == "2"
    with pytest.raises(UserError, match="already"):  # what is built in stays what it is
        strop.register(Fruit("apple", "2"), replace=True)


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (Fruit("plum"), "version"),
        (Fruit("plum", ""), "version"),
        (Fruit("Plum", "1"), "small letters"),
        (Fruit("plum_tree", "1"), "small letters"),
        (Fruit("-plum", "1"), "small letters"),
        (Fruit(3, "1"), "small letters"),  # type: ignore[arg-type]
        (Fruit("plum", 1), "version"),  # type: ignore[arg-type]
    ],
)
def test_an_unusable_record_is_refused(fruits: Registry[Fruit], record: Fruit, told: str) -> None:
    with pytest.raises(UserError) as error:
        strop.register(record)
    assert told in str(error.value.got)
    assert list(fruits) == ["apple", "pear"]


# ---------------------------------------------------------------- from other packages


def test_a_package_adds_one(fruits: Registry[Fruit], path: Path) -> None:
    plug(path, "my-orchard", "FIG = Fruit('fig', '2')\n", fig="my_orchard:FIG")
    assert list(fruits) == ["apple", "pear", "fig"]
    assert fruits.plugins() == {"fig": Fruit("fig", "2")}
    assert registry.Plugin("fruit", "fig", "my-orchard", "2") in registry.plugins()
    assert fruits.problems() == []
    with pytest.raises(UserError, match="already"):
        strop.register(Fruit("fig", "3"), replace=True)


def test_a_package_is_loaded_for_a_new_name_only(fruits: Registry[Fruit], path: Path) -> None:
    plug(path, "lazy-orchard", "FIG = Fruit('fig', '2')\n", fig="lazy_orchard:FIG")
    assert "apple" in fruits
    assert fruits["pear"].colour == "red"
    assert fruits.find("apple")
    assert list(fruits.without_plugins()) == ["apple", "pear"]
    assert "lazy_orchard" not in sys.modules
    assert "fig" in fruits
    assert "lazy_orchard" in sys.modules


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import nothing_like_this\n", "ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("raise SystemExit('enough')\n", "SystemExit: enough"),
        ("if\n", "SyntaxError"),
        ("raise ValueError('a\\nb')\n", "ValueError: a"),
        ("OTHER = 1\n", "AttributeError"),
        ("FIG = 'fig'\n", "a str, not a Fruit"),
        ("FIG = Fruit('fig')\n", "no `version`"),
        ("FIG = Fruit('figs', '1')\n", "called 'fig', its record 'figs'"),
        ("FIG = Fruit('Fig', '1')\n", "small letters"),
    ],
)
def test_a_broken_package_is_left_out_and_told(
    fruits: Registry[Fruit], path: Path, source: str, told: str
) -> None:
    plug(path, "bad-orchard", source, fig="bad_orchard:FIG")
    plug(path, "good-orchard", "DATE = Fruit('date', '1')\n", date="good_orchard:DATE")
    assert list(fruits) == ["apple", "pear", "date"]
    problem = only(fruits.problems())
    assert (problem.group, problem.name, problem.package) == ("strop.fruits", "fig", "bad-orchard")
    assert told in problem.error
    assert "\n" not in problem.error
    assert problem in registry.problems()
    with pytest.raises(UserError, match="bad-orchard") as error:
        fruits.find("fig")
    assert error.value.got == problem.error


def test_who_was_first_stays(fruits: Registry[Fruit], path: Path) -> None:
    names = {"apple": "APPLE", "fig": "FIG"}
    for package, colour in (("b-orchard", "green"), ("a-orchard", "white")):
        lines = (f"{one} = Fruit('{name}', '1', '{colour}')\n" for name, one in names.items())
        module = package.replace("-", "_")
        plug(path, package, "".join(lines), **{k: f"{module}:{v}" for k, v in names.items()})
    assert fruits["apple"].colour == "red"
    assert fruits["fig"].colour == "white"  # by the packages' names, whatever the path's order
    told = {(one.package, one.name): one.error for one in fruits.problems()}
    assert set(told) == {("a-orchard", "apple"), ("b-orchard", "apple"), ("b-orchard", "fig")}
    assert "taken by strop" in told["a-orchard", "apple"]
    assert "taken by a-orchard" in told["b-orchard", "fig"]


def test_an_interrupt_is_no_problem_of_the_package(fruits: Registry[Fruit], path: Path) -> None:
    plug(path, "slow-orchard", "raise KeyboardInterrupt\n", fig="slow_orchard:FIG")
    with pytest.raises(KeyboardInterrupt):
        list(fruits)


def test_a_package_may_look_around_while_it_loads(fruits: Registry[Fruit], path: Path) -> None:
    source = (
        "import strop.registry as r\nFOUND = list(r._REGISTRIES[-1])\nFIG = Fruit('fig', '1')\n"
    )
    plug(path, "curious-orchard", source, fig="curious_orchard:FIG")
    assert list(fruits) == ["apple", "pear", "fig"]


def test_what_a_package_prints_is_no_answer(
    fruits: Registry[Fruit], path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plug(path, "loud-orchard", "print('hello')\nFIG = Fruit('fig', '1')\n", fig="loud_orchard:FIG")
    assert "fig" in fruits
    assert capsys.readouterr() == ("", "hello\n")


def test_one_that_fails_later_is_a_problem_from_then_on(
    fruits: Registry[Fruit], path: Path
) -> None:
    plug(path, "late-orchard", "FIG = Fruit('fig', '1')\n", fig="late_orchard:FIG")
    fruits.leave_out("fig", "it is rotten")
    fruits.leave_out("apple", "nobody can")
    assert list(fruits) == ["apple", "pear"]
    assert only(fruits.problems()).error == "it is rotten"
    assert fruits.described() == []


def test_a_group_that_nobody_reads_is_told(fruits: Registry[Fruit], path: Path) -> None:
    source = FRUIT + "FIG = Fruit('fig', '1')\n"
    install(path, "misspelt", source, {"strop.fruit": {"fig": "misspelt:FIG"}})
    problem = next(one for one in registry.strays() if one.package == "misspelt")
    assert problem.group == "strop.fruit"
    assert "strop.fruits" in problem.error


def test_references_load_when_they_are_resolved() -> None:
    assert registry.resolve("json:dumps") is json.dumps
    assert registry.resolve(len) is len


# ---------------------------------------------------------------- the real ones


def test_ids_of_built_in_metrics_are_what_they_were() -> None:
    assert {one.name: one.spec.id for one in METRICS.builtin.values()} == {
        "perplexity": "5165996b185a8afa",
        "entropy": "219690159b566d63",
        "repetition": "d5d5c6723fb833df",
        "pool-repetition": "51f66df69499524c",
        "distinct": "4f268026e3eadb9a",
        "vendi": "7fda36ede1946cfe",
        "task": "125f1f09e19d8d26",
        "geq": "9fa96d811db8cf0f",
        "diversity": "5350e1aed707254f",
        "violations": "dfff40cb2570c59b",
        "modes": "982812c03e8f245e",
        "calls": "20002e9a1c95a4a1",
        "seconds": "bc3204e0e0d9d0aa",
    }


def test_the_version_of_a_metric_is_part_of_its_identity() -> None:
    plain, first, second = (Metric("words", (), version=v).spec for v in (None, "1", "2"))
    assert len({plain.id, first.id, second.id}) == 3
    assert "version" not in plain.model_dump()
    assert MetricSpec(**json.loads(first.canonical())) == first


def test_records_of_every_kind_find_their_registry() -> None:
    record = Metric("made-up", (), version="1")
    strop.register(record)
    try:
        assert metrics()[-1] is record
    finally:
        METRICS.forget("made-up")
    assert {"audit", "frontier"} <= set(STUDIES.builtin)


def test_the_doctor_knows_every_registry() -> None:
    from strop.verbs.doctor import KINDS

    making = set()
    for file in SOURCE.rglob("*.py"):
        if "assets" in file.parts or "Registry(" not in (text := file.read_text("utf-8")):
            continue
        calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
        if any(isinstance(one.func, ast.Name) and one.func.id == "Registry" for one in calls):
            making.add(".".join(file.relative_to(SOURCE.parent).with_suffix("").parts))
    assert making == set(KINDS)


@pytest.mark.parametrize("package", ["strop.measure", "strop.verbs", "strop.page"])
def test_a_public_name_is_not_a_module_s(package: str) -> None:
    """Else the name would be the module's as soon as somebody has imported that."""
    from importlib import import_module

    found = import_module(package)
    files = {file.stem for file in Path(str(found.__file__)).parent.glob("*.py")}
    assert not files & set(found.__all__)
    for name in found.__all__:
        assert getattr(found, name) is not None


# ---------------------------------------------------------------- what commands do with them

STUDY = """
from strop.verbs import Column, Parameter, Result, Sources, Study, Table

def run(ask):
    rows = [{"word": word, "letters": len(word) * ask["times"]} for word in ask.sources]
    return Result(ask.said(), Table("Letters", (Column("word"), Column("letters")), rows))

LETTERS = Study(
    name="letters",
    title="How long are words?",
    about="Count letters.",
    sources=Sources(("WORD...",), "Some words.", ("strop",)),
    parameters=(Parameter("times", "Times what.", 1, "int", least=1),),
    run=run,
    version="7",
)
"""
CROOKED = """
from strop.verbs import Study
CROOKED = Study(
    name="crooked", title="x", about="x", sources=None, parameters=(), run=None, version="1"
)
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """One good study, and everything that can be wrong with the rest."""
    place = tmp_path / "packages"
    loud = "import sys\nprint('loaded', __name__, file=sys.stderr)\n"
    groups = ("samplers", "families", "metrics", "studies", "judges", "tasks")
    install(
        place, "letter-study", loud + STUDY, {"strop.studies": {"letters": "letter_study:LETTERS"}}
    )
    install(place, "crooked", CROOKED, {"strop.studies": {"crooked": "crooked:CROOKED"}})
    broken = loud + "raise SystemExit(5)\n"
    everywhere = {f"strop.{group}": {"broken": "broken:BROKEN"} for group in groups}
    install(place, "broken", broken, everywhere)
    taken = "from dataclasses import replace\nfrom strop.measure.metric import ENTROPY\n"
    taken += "MINE = replace(ENTROPY, version='1')\n"
    install(place, "taken", taken, {"strop.metrics": {"entropy": "taken:MINE"}})
    return place


def strop_with(place: Path, *words: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(SOURCE.parent), str(place)])
    return warm_processes.run(
        [sys.executable, "-m", "strop", *map(str, words)],
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "120"},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "words",
    ["--help", "--version", "score --help", "study cost --help", "sample --help", "reproduce"],
)
def test_commands_that_need_no_plug_in_load_none(installed: Path, words: str) -> None:
    ended = strop_with(installed, *words.split())
    assert ended.returncode == 0, ended.stderr
    assert "loaded" not in ended.stderr


def test_a_study_of_another_package_is_a_command(installed: Path, tmp_path: Path) -> None:
    ended = strop_with(installed, "study", "--help")
    assert ended.returncode == 0, ended.stderr
    assert "How long are words?" in ended.stdout
    assert "crooked" not in ended.stdout
    out = tmp_path / "out"
    ended = strop_with(installed, "study", "letters", "cat", "--times", 2, "-o", out, "--json")
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["rows"] == [{"word": "cat", "letters": 6}]
    assert document["asked"]["version"] == "7"
    assert json.loads((out / "result.json").read_text())["asked"]["version"] == "7"
    ended = strop_with(installed, "study", "letters", "--times", 0, "-o", tmp_path / "x")
    assert ended.returncode == 1
    assert "--times" in ended.stderr  # in the flags of a command that is not ours
    for name, told in (("crooked", "AttributeError"), ("broken", "SystemExit: 5")):
        ended = strop_with(installed, "study", name, "-o", tmp_path / "x")
        assert ended.returncode == 1
        assert told in ended.stderr


def test_the_doctor_tells_what_was_found(installed: Path) -> None:
    ended = strop_with(installed, "doctor", "--json")
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    good = {"kind": "study", "name": "letters", "package": "letter-study", "version": "7"}
    assert report["plugins"] == [good]
    told = {(one["group"], one["name"]): one["error"] for one in report["plugin_problems"]}
    assert "taken by strop" in told["strop.metrics", "entropy"]
    assert "AttributeError" in told["strop.studies", "crooked"]
    for group in ("samplers", "families", "metrics", "studies", "judges", "tasks"):
        assert told[f"strop.{group}", "broken"]
    ended = strop_with(installed, "doctor")
    assert "letter-study" in ended.stdout
    assert "not usable: strop.studies broken of broken: SystemExit: 5" in ended.stdout


def test_scores_are_measured_in_spite_of_broken_packages(
    installed: Path, checkpoint: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    ended = strop_with(installed, "sample", checkpoint, "--steps", 2, "-n", 4, "-o", run)
    assert ended.returncode == 0, ended.stderr
    assert "loaded" not in ended.stderr.replace("loaded broken", "")
    words = ("score", run, "--evaluator", "none", "--json")
    right = json.loads(strop_with(installed, *words).stdout)["cells"]
    source = "from strop.measure import Metric\n"
    source += "FAULTY = Metric('faulty', (), measure=lambda texts, ids: 1 / 0, version='1')\n"
    install(installed, "faulty", source, {"strop.metrics": {"faulty": "faulty:FAULTY"}})
    ended = strop_with(installed, *words)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["cells"] == right
    assert ended.stderr.count("'faulty' is left out: ZeroDivisionError") == 1
    ended = strop_with(installed, "report", run, "-o", tmp_path / "page.html")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("'faulty' is left out: ZeroDivisionError") == 1


def test_a_metric_of_a_script_fails_where_its_author_sees_it() -> None:
    from strop.measure.metric import leave_out_broken

    record = Metric("made-up", (), version="1")
    strop.register(record)
    try:
        with pytest.raises(ZeroDivisionError), leave_out_broken(record):
            _ = 1 / 0
        assert "made-up" in METRICS
    finally:
        METRICS.forget("made-up")


def test_importing_the_package_loads_nothing(installed: Path) -> None:
    code = "import sys, strop, strop.measure, strop.verbs, strop.page\n"
    code += "heavy = ('torch', 'pydantic', 'numpy', 'importlib.metadata', 'letter_study')\n"
    code += "print([name for name in heavy if name in sys.modules])\n"
    code += "strop.register\nfrom strop.verbs.study import STUDIES\nSTUDIES['cost']\n"
    code += "print('letter_study' in sys.modules, 'torch' in sys.modules)\n"
    path = os.pathsep.join([str(SOURCE.parent), str(installed)])
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert ended.stdout.split("\n")[:2] == ["[]", "False False"], ended.stderr
