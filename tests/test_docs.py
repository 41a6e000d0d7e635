"""README and docs say what is true: their code runs, their commands parse, their links lead on.

Everything on a page that can be checked without running it is checked for every block and span:
commands against the real command tree, Makefile, extras and scripts; Python by importing every
name and matching every call of strop with its signature; JSON, YAML, links, headings, paths.

Then the page is followed as a reader would, in order and in an empty directory: Python blocks share
a namespace, commands run, and what a console session shows is compared with what is printed. Not
run, but parsed, are

- what is listed in HEAVY, each with its reason;
- what is listed in SLOW, except by `make test-slow`, which follows those pages to their ends;
  other pages run it with the smaller numbers of SMALLER, where a few outputs show as much;
- the pages in LEDGERS, which say how numbers were measured;
- commands with a placeholder (RUN, CHECKPOINT) that READERS gives no value for;
- verbs that prose names without using them; `make`, `pip`, `torchrun` and benchmarks.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import doc_pages
import strop
import warm_processes
from doc_pages import PLACEHOLDER, ROOT, Command, Piece, commands, page_faults, pages, pieces
from index_readme import absolute, published
from small_harness import small_harness
from strop import registry
from strop.assets import MODELS
from strop.cli.main import run
from tiny_models import WORDS, environment, write_checkpoint

HUB = "needs a hub"
SERVER = "needs a language-model server"
CORPUS = "needs a corpus"
MINUTES = "takes more than half a minute"
HEAVY = {
    "strop train mine.yaml -o runs/mine": "tests/training has it with fewer steps",
    "strop audit runs/mine/checkpoints/step-00002000 --evaluator gpt2 -o runs/mine-audit": HUB,
    "strop view runs/audit": "serves until Ctrl-C; tests/page/test_view.py has it",
    "strop --install-completion": "writes into the files of the user's shell",
    "strop audit kuleshov-group/mdlm-owt --evaluator gpt2 -o runs/owt": HUB,
    "strop audit --axis temperature=1,0.9,0.8 --axis top_p=1,0.9 -o runs/nucleus": MINUTES,
    "strop audit --sampler remdm-cap --axis eta=0.01,0.02 -o runs/remdm": MINUTES,
    "strop audit --axis name=ancestral,remdm-cap --axis eta=0.008,0.02 -o runs/both": MINUTES,
    "strop study exact-output --smoke -o runs/exact": MINUTES,
    "strop study tuned-against-tuned --smoke -o runs/tuned-against-tuned": MINUTES,
    "strop tune --smoke -o runs/tune": MINUTES,
    "strop sample --spec runs/tune/sampler-tuned.yaml -n 2 -o runs/tuned-outputs": (
        "needs the search above"
    ),
    "strop task run sums embedded:sums embedded:sums-ar --temperature 0,0.5,1,1.5 -o runs/sums": (
        MINUTES
    ),
    "strop study tasks --smoke -o runs/tasks": MINUTES,
    "strop reproduce large-models --smoke -o runs/large": MINUTES,
    "strop reproduce conditional --smoke -o runs/cond": MINUTES,
    "strop score stories.jsonl --evaluator gpt2": HUB,
    "strop sample openai-community/gpt2 --sampler autoregressive -n 40 -o runs/gpt2": HUB,
    "strop score runs/x --evaluator gpt2,smollm2-135m --span first-document,full-stream": HUB,
    "strop study cross-model -o runs/cross": HUB,
    "strop study cross-model DUO=files/duo SEDD=files/sedd -o runs/two": "needs released weights",
    "strop study didi-grids files/didi -o runs/grids": "needs released weights",
    "strop study exact-output --pools runs/cross -o runs/exact": "needs the study above",
    "strop groupeval agree RUN@gpt-oss RUN@anna": SERVER,
    "strop groupeval import-human RUN judgments-anna.json": "a person judges before it",
    "strop groupeval validate --offline": MINUTES,
    "strop groupeval score RUN --with NAME": "a person judges before it",
    "strop groupeval import-profile --name authors-v1 --system system.md --rubric rubric.md "
    "--user user.md --schema schema.json -o authors-v1": "needs prompts of one's own",
    "strop theory verify --case FILE": "needs a check that failed",
    "strop lm-eval --tasks gsm8k --num-fewshot 5 --model-args pretrained=llada-8b-instruct,"
    "steps=256,block_length=32 --apply-chat-template -o results": HUB,
    "strop theory markov -o runs/markov": MINUTES,
    "strop train mdlm-tiny -o runs/tiny --shards data/owt --prepare-only": CORPUS,
    "strop train mdlm-tiny -o runs/tiny --shards data/owt": CORPUS,
}
"""Commands that are parsed only, and Python blocks by their first line."""
SLOW = {
    "strop study decoders -o runs/decoders": "256 problems; docs/studies.md has its smoke run",
    "strop compare embedded:tales embedded:tales --b top_p=0.9 --smoke -o runs/compare": (
        "half a minute; docs/compare.md has a smaller one"
    ),
    "strop sample embedded:tales-tiny --steps 4 -n 16 --batch-size 4 --engine ray --devices cpu:2"
    " -o runs/ray": "Ray's own processes; tests/engines has them",
    "strop study decoders --smoke -o runs/decoders": "tests/verbs has it with three decoders",
    "strop study cache --smoke -o runs/cache": "tests/verbs has it with fewer outputs",
    "strop theory verify": "tests/theory runs it",
    "strop doctor --gpu": "half a minute; tests/samplers has its parts",
    "strop doctor --gpu --json": "the same",
    "from strop.theory.mpath import run_mpath_study": "all the targets of two tables",
    "strop probe embedded:tales-ar": "tests/served runs it",
    "strop merge runs/local runs/devices runs/ray runs/shards -o runs/one": "needs the run above",
}
"""What `make test` parses and `make test-slow` runs: commands, and Python by its first line."""
LEDGERS = ("docs/claims.md", "docs/evidence.md", "docs/gallery.md")
"""Pages of numbers that were measured: their commands take up to an hour and are parsed only."""
SMALLER = {
    "README.md": {
        "audit embedded:tales --steps 4,16,64 -n 32": "audit embedded:tales-tiny --length 16"
        " --steps 2,4 -n 4",
        'temperature=0.9, n=16, out="runs/x"': 'temperature=0.9, n=2, out="runs/x"',
        "--temperature 0,1 --limit 32": "--temperature 0,1 --limit 4",
    },
    "docs/architecture.md": {"--steps 16 -n 4 -o": "--steps 4 -n 2 -o"},
    "docs/audit.md": {"n=(8,), length=32": "n=(2,), length=8"},
    "docs/checkpoints.md": {"--steps 4,16 -n 8": "--steps 2,4 -n 2"},
    "docs/compare.md": {
        "embedded:tales embedded:tales-early --length 32": "embedded:tales-tiny"
        " embedded:tales-early --length 16",
        "-n 16 --budget 0": "-n 8 --budget 0",
        'sources=("embedded:tales", ': 'sources=("embedded:tales-tiny", ',
        'out="runs/two"': 'out="runs/early"',  # what the command above has made
        "n=16,\n    length=32": "n=8,\n    length=16",
    },
    "docs/families/autoregressive.md": {
        "autoregressive --length 256": "autoregressive -n 2 --length 16",
        "n=16, seed=1, length=256": "n=2, seed=1, length=16",
    },
    "docs/families/dream.md": {
        "--steps 32 --length 32 -n 2": "--steps 4 --length 32 -n 1",
        "--length 32 -n 2 -o runs/dream-prefix": "--length 32 -n 1 -o runs/dream-prefix",
    },
    "docs/families/llada.md": {
        "--steps 32 --length 32 --temperature 0.7 -n 2": "--steps 4 --length 32 -n 1",
        "--length 32 -n 2 -o runs/llada-dual": "--length 32 -n 1 -o runs/llada-dual",
    },
    "docs/families/remdm.md": {"remdm-loop --steps 1024 --top-p 0.9 -n 128": "remdm-loop -n 8"},
    "docs/models.md": {
        "--steps 8 --settings candidates=2 --sampler didi-guided -n 4": "--steps 2"
        " --settings candidates=2 --sampler didi-guided -n 1"
    },
    "docs/precision.md": {"--steps 64,1024": "--steps 64"},
    "docs/samplers.md": {"--steps 32 --length 64 -n 2": "--steps 8 --length 16 -n 2"},
    "docs/tour.md": {
        "--temperature 1,0.8 -n 32 -o": "--temperature 1,0.8 -n 4 -o",
        "--fresh-n 32 -o runs/audit --dry-run": "--fresh-n 32 -o runs/dry --dry-run",
        "--length 32 --steps 4,16 -n 32 --fresh-n 32 -o runs/audit\n": "--length 8 --steps 2,4"
        " -n 8 --fresh-n 8 -o runs/audit\n",
        "--length 32 --steps 4 --temperature 0.6,0.9,1.2 -n 32": "--length 16 --steps 2"
        " --temperature 0.6,0.9,1.2 -n 8",
    },
    "docs/walks.md": {
        "--length 32 --steps 4,16 -n 32 --fresh-n 32 -o runs/student --dry-run": "--length 8"
        " --steps 2,4 -n 8 --fresh-n 8 -o runs/student --dry-run",
        "--length 32 --steps 4,16 -n 32 --fresh-n 32 -o runs/student\n```\n\nThe last": "--length 8"
        " --steps 2,4 -n 8 --fresh-n 8 -o runs/student\n```\n\nThe last",
        "--length 32 --steps 4,16 -n 32 --fresh-n 32 --goal best": "--length 8 --steps 2,4 -n 8"
        " --fresh-n 8 --goal best",
        "length=32, steps=(4, 16), n=(32,), fresh_n=(32,)": "length=8, steps=(2, 4), n=(8,),"
        " fresh_n=(8,)",
        "--length 32 --steps 4 --temperature 0.6,0.9,1.2 -n 32": "--length 16 --steps 2"
        " --temperature 0.6,0.9,1.2 -n 8",
    },
    "docs/tasks.md": {"--seeds 2 --limit 4": "--seeds 2 --limit 2", "limit=4": "limit=2"},
}
"""Per page, what `make test` runs in place of what it says; `make test-slow` runs what it says."""
if shutil.which("bwrap") is None:
    HEAVY["strop task check humaneval --limit 4"] = "needs bubblewrap"
    HEAVY["from strop.tasks import find_box"] = "needs bubblewrap"
SOURCE = str(Path(strop.__file__).resolve().parent.parent)
"""Where this strop lies, for processes that start in another directory."""
RUN = ("strop ", "echo ", "python scripts/")
"""What is run at all: the rest sets up, trains on several devices or measures for minutes."""


@dataclass(frozen=True)
class Reader:
    """What a reader of one page has at hand: values for placeholders, files, runs, names."""

    stands: dict[str, str] = field(default_factory=dict)
    prepare: Callable[[], Any] = lambda: None
    names: dict[str, Any] = field(default_factory=dict)
    around: Callable[[], contextlib.AbstractContextManager[Mapping[str, str] | None]] = (
        contextlib.nullcontext
    )
    """Of the whole page; what it yields are more values for placeholders."""


def tiny(place: str) -> Callable[[], Any]:
    """A checkpoint of 12 tokens and length 8."""
    return lambda: write_checkpoint(Path(place))


def causal() -> None:
    """A GPT-2 of one block at path/to/dir."""
    from transformers import GPT2Config, GPT2LMHeadModel

    end = len(WORDS) - 1
    shape = {"n_positions": 256, "n_embd": 16, "n_layer": 1, "n_head": 2}
    ends = {"bos_token_id": end, "eos_token_id": end}
    config = GPT2Config(vocab_size=len(WORDS), **shape, **ends)
    GPT2LMHeadModel(config).save_pretrained("path/to/dir")
    shutil.copy(write_checkpoint(Path("tiny")) / "tokenizer.json", "path/to/dir")


def a_run() -> None:
    """runs/x, of two small cells."""
    done("strop sample embedded:tales-tiny --length 8 --steps 2,4 -n 8 -o runs/x")


def an_audit() -> None:
    done("strop audit embedded:tales-tiny --length 8 --steps 2 -n 8 -o runs/audit")


def two_pools() -> None:
    """Texts of two generators, planned; a page that judges them finds the plan that it makes."""
    Path("runs").mkdir()
    for name, verb in (("a", "saw"), ("b", "lost")):
        texts = (f"On day {i} the old man {verb} a boat near the {i} hills." for i in range(16))
        rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        Path(f"runs/{name}.jsonl").write_text(rows)
    done("strop groupeval plan standard=runs/a.jsonl sharpened=runs/b.jsonl -o runs/ge")


def judged_pools() -> None:
    two_pools()
    done("strop groupeval judge runs/ge --offline")


def judged_answers() -> None:
    """The same, and answers of two generators to the same prompts, as APIs give them."""
    judged_pools()
    rows = [{"prompt": f"Prompt {i % 3}", "response": f"Answer {i}."} for i in range(6)]
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = ["prompt,response", *(f"{row['prompt']},{row['response']}" for row in rows)]
    Path("b.csv").write_text("\n".join(lines) + "\n")
    files = "a=a.jsonl b=b.csv --field response --profile answers-v1"
    done(f"strop groupeval plan {files} -o runs/apis")
    done("strop groupeval judge runs/apis --offline --features ngrams")


def rated_groups() -> None:
    """Groups that somebody rated, and a pool to grade."""
    rows = [
        {"texts": [f"Ship {i % k} sank.", "All is well."], "score": i}
        for i in range(4)
        for k in (1, 2)
    ]
    Path("rated.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    texts = (f"On day {i} the old man saw a boat near the {i} hills." for i in range(32))
    Path("a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def two_apis() -> None:
    """Four answers of each of two APIs to six prompts; one repeats itself, one fails at times."""
    rows = [
        {"prompt": f"Tell a story of {i} ships.", "response": f"Ship {(i * k) % 3} of {i} sank."}
        for i in range(6)
        for k in range(4)
    ]
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [f"{row['prompt']},{row['response'] if i % 5 else ''}" for i, row in enumerate(rows)]
    Path("b.csv").write_text("\n".join(["prompt,response", *lines]) + "\n")


def two_files() -> None:
    """Eight texts of each of two generators."""
    for name, words in (("a", ("ship", "sea", "crew")), ("b", ("king", "town", "oak"))):
        texts = [f"The {words[k % 3]} was number {k} of {words[(k + 1) % 3]}s." for k in range(8)]
        lines = [json.dumps({"text": text * 12}) + "\n" for text in texts]
        Path(f"{name}.jsonl").write_text("".join(lines))


@contextlib.contextmanager
def a_judge() -> Iterator[Mapping[str, str]]:
    """A server for which all answers but empty ones are good, at `http://HOST:8000/v1`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests" / "groupeval"))
        from scripted_server import Action, answers_verdict, serving
    with serving(lambda body, _: Action(answers_verdict(body))) as served:
        yield {"http://HOST:8000/v1": served.url, "NAME": "served"}


def two_answered() -> None:
    """A task run with two checkpoints, which differ in a number of their configuration."""
    shutil.copytree(MODELS / "sums-ar", "other")
    config = json.loads(Path("other/config.json").read_text())
    Path("other/config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-5}))
    done("strop task run sums embedded:sums-ar other --temperature 0 --limit 4 -o runs/two")


READERS: dict[str, Reader] = {
    "README.md": Reader(prepare=two_files),
    "docs/sample.md": Reader(
        {"CHECKPOINT": "path/to/dir", "RUN": "runs/made"}, tiny("path/to/dir")
    ),
    "docs/precision.md": Reader({"CHECKPOINT": "tiny"}, tiny("tiny")),
    "docs/families/remdm.md": Reader({"CHECKPOINT": "tiny"}, tiny("tiny")),
    "docs/families/autoregressive.md": Reader(prepare=causal),
    "docs/score.md": Reader({"RUN": "runs/x"}, a_run),
    "docs/show.md": Reader({"RUN": "runs/x"}, a_run),
    "docs/export.md": Reader({"FOLDER": "runs/audit"}, an_audit),
    "docs/report.md": Reader({"RUN": "runs/audit"}, an_audit),
    "docs/groupeval.md": Reader({"RUN": "runs/ge"}, judged_answers),
    "docs/groupeval-scores.md": Reader({"RUN": "runs/ge", "FILE": "judgments"}, judged_pools),
    "docs/validation.md": Reader(prepare=rated_groups),
    "docs/conditional.md": Reader({"RUN": "runs/two"}, two_answered),
    "docs/theory.md": Reader({"FILE": "bits.json"}),
    "docs/lm-eval.md": Reader(around=small_harness),
    "docs/extending.md": Reader({"RUN": "runs/ge"}, two_pools),
    "docs/walks.md": Reader(prepare=two_apis, around=a_judge),
}


# Following a page


def done(text: str) -> None:
    """A command that a page takes for granted."""
    command = Command("before the page", 0, text, inline=False)
    fault = ran(command, text)
    assert fault is None, fault


def ran(command: Command, text: str) -> str | None:
    """Run a command; what went wrong, if anything did."""
    words = replace(command, text=text).words()
    if words[0] == "strop":
        code, out, err = in_process(words[1:])
    else:
        how: dict[str, Any] = {"capture_output": True, "text": True}
        how["env"] = environment(PYTHONPATH=SOURCE)
        if words[0] == "python":
            ended = warm_processes.run([sys.executable, *words[1:]], **how)
        else:
            ended = subprocess.run(["sh", "-c", text], check=False, **how)
        code, out, err = ended.returncode, ended.stdout, ended.stderr
    if code != 0:
        return f"{command.place}: `{text}` ends with {code}: {err[-600:]}"
    printed = rows(out.splitlines())
    missing = [row for row in rows(command.printed) if not any(alike(row, one) for one in printed)]
    return f"{command.place}: `{text}` does not print {missing}" if missing else None


def in_process(words: list[str]) -> tuple[int, str, str]:
    """The command in this process: torch is loaded once, not once per command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    return code, out.getvalue(), err.getvalue()


def rows(lines: Iterable[str]) -> list[list[str]]:
    """Those of printed tables, cell by cell; what stands right of a table is the page's own."""
    found = (line.split("│")[1:-1] for line in lines if "│" in line)
    return [[cell.strip() for cell in row] for row in found]


def alike(told: list[str], printed: list[str]) -> bool:
    """Equal words and numbers; 1e-8 covers the ten digits shown, 1e-12 a residual of rounding."""
    number = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")
    one, other = " | ".join(told), " | ".join(printed)
    pairs = zip(number.findall(one), number.findall(other), strict=False)
    return number.sub("0", one) == number.sub("0", other) and all(
        math.isclose(float(a), float(b), rel_tol=1e-8, abs_tol=1e-12) for a, b in pairs
    )


def bare(command: Command) -> str:
    """A command without the remark behind it."""
    return re.sub(r"\s+#.*", "", command.text)


def to_run(command: Command, reader: Reader, slow: bool) -> str | None:
    """The command with values for its placeholders; None if it is only parsed."""
    text = bare(command)
    if text in SLOW and not slow:
        return None
    if not text.startswith(RUN) or command.is_name or command.shortened or text in HEAVY:
        return None
    text = re.sub(r"\s*\[[^]]*\]", "", text) if command.program == "strop" else text
    for word, value in reader.stands.items():
        text = re.sub(rf"(?<![\w.-]){word}(\.\.\.)?(?![\w=-])", value, text)
    return None if PLACEHOLDER.search(text) else text


def follow(page: str, text: str, reader: Reader, slow: bool = False) -> list[str]:
    """Do what a page says, in order; what does not work."""
    found: list[str] = []
    names = dict(reader.names)
    mentioned = set[str]()
    for piece in pieces(page, text):
        left_out = HEAVY if slow else HEAVY | SLOW
        if piece.kind == "python" and piece.text.splitlines()[0] not in left_out:
            found += executed(piece, names)
        for command in commands(piece):
            wanted = to_run(command, reader, slow)
            if wanted is None or (command.inline and wanted in mentioned):
                continue  # prose that names a command once more does not have it run once more
            mentioned.add(wanted)
            fault = ran(command, wanted)
            found += [fault] if fault else []
    return found


def executed(piece: Piece, names: dict[str, Any]) -> list[str]:
    """Run a Python block in the page's namespace; what it raised."""
    try:
        # Not with this file's own `from __future__`: annotations of a page are evaluated.
        code = compile("\n" * piece.line + piece.text, piece.page, "exec", dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()):
            exec(code, names)
    except Exception as error:
        return [f"{piece.place}: {type(error).__name__}: {error}"]
    return []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 8192


def test_a_package_index_shows_a_readme_without_dead_links() -> None:
    text = (ROOT / "README.md").read_text()
    addresses = re.compile(r"\]\(([^)]+)\)")
    assert "![" in text
    alone = absolute(text, published({}), "1.2")
    assert all(one.startswith("https://") for one in addresses.findall(alone))
    assert "![" not in alone
    assert "draws it" not in alone  # the picture's caption
    assert "Which steps and which temperature" in alone
    source = published({"GITHUB_REPOSITORY": "someone/strop"})
    found = absolute(text, source, "1.2")
    wanted = {
        one if one.startswith("https:") else f"https://github.com/someone/strop/{kind}/v1.2/{one}"
        for picture, one in re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", text)
        for kind in ["raw" if picture else "blob"]
    }
    assert set(addresses.findall(found)) == wanted
    assert any("/raw/v1.2/docs/figures/" in one for one in wanted)


def test_every_page_links_the_glossary() -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        up = "../" * (len(page.relative_to(ROOT / "docs").parts) - 1)
        assert f"({up}glossary.md)" in page.read_text() or page.name == "glossary.md", page
    words = re.findall(r"(?m)^\| ([a-z ]+) \|", (ROOT / "docs" / "glossary.md").read_text())
    wanted = {"guard", "corner", "operating point", "budget", "fresh", "span", "frontier", "series"}
    wanted |= {"cell", "pool"}
    assert wanted <= set(words)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of the reader's own, from which the scripts can be reached.

    What a page registers is forgotten afterwards.
    """
    for one in registry._REGISTRIES:
        monkeypatch.setattr(one, "_added", {})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    os.symlink(ROOT / "scripts", "scripts")
    with warm_processes.everywhere():
        yield tmp_path


@pytest.mark.parametrize("page", pages())
def test_what_a_page_says_is_there(page: str) -> None:
    found = page_faults(page, doc_pages.text_of(page))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", [page for page in pages() if page not in LEDGERS])
def test_a_reader_can_follow_the_page(page: str, empty: Path) -> None:
    reader, text = READERS.get(page, Reader()), doc_pages.text_of(page)
    for whole, smaller in SMALLER.get(page, {}).items():
        assert text.count(whole) == 1, f"{page} says {whole!r} {text.count(whole)} times"
        text = text.replace(whole, smaller)
    reader.prepare()
    with reader.around() as more:
        found = follow(page, text, replace(reader, stands={**reader.stands, **(more or {})}))
    assert not found, "\n".join(found)


def said(page: str) -> set[str]:
    """The commands of a page, and the first lines of its Python blocks."""
    whole = pieces(page, doc_pages.text_of(page))
    first = {piece.text.splitlines()[0] for piece in whole if piece.kind == "python"}
    return first | {bare(command) for piece in whole for command in commands(piece)}


def shortened(page: str) -> bool:
    """Whether `make test` does not do all that a page says."""
    measured = page in LEDGERS
    return page in SMALLER or not (measured or SLOW.keys().isdisjoint(said(page)))


@pytest.mark.slow
@pytest.mark.parametrize("page", [*filter(shortened, pages())])
def test_a_reader_can_follow_the_page_to_its_end(page: str, empty: Path) -> None:
    reader = READERS.get(page, Reader())
    reader.prepare()
    with reader.around() as more:
        reader = replace(reader, stands={**reader.stands, **(more or {})})
        found = follow(page, doc_pages.text_of(page), reader, slow=True)
    assert not found, "\n".join(found)


def test_no_entry_of_the_tables_is_out_of_date() -> None:
    written = set[str]().union(*map(said, pages()))
    assert SLOW.keys() | HEAVY.keys() <= written
    assert READERS.keys() | SMALLER.keys() <= set(pages())


# Pages that are wrong on purpose


def static(text: str) -> list[str]:
    return page_faults("docs/made-up.md", text)


def fenced(text: str, kind: str = "") -> str:
    return f"# Made up\n\n```{kind}\n{text}\n```\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (fenced("strop sample X --stepz 4 -o RUN"), "No such option: --stepz"),
        (fenced("strop audit X -o RUN [--stepz 4]"), "No such option: --stepz"),
        (fenced("strop sample X --steps 4"), "Missing option '-o'"),
        (fenced("strop smaple X -o RUN"), "no command 'smaple'"),
        (fenced("strop study nothing -o RUN"), "no command 'nothing'"),
        (fenced("strop show A B C"), "unexpected extra argument"),
        (fenced("strop groupeval"), "a verb is missing"),
        (fenced("strop sample X --sampler ancestal -o RUN"), "no sampler 'ancestal'"),
        (fenced("strop sample X -o RUN && strop shw RUN"), "no command 'shw'"),
        (fenced("torchrun --nproc-per-node 8 -m strop train X --shard Y -o RUN"), "--shard"),
        (fenced("$ strop theory pair --z 0.7", "console"), "No such option: --z"),
        (fenced("make demmo"), "no target demmo"),
        (fenced("pip install 'strop[trian]'"), "no extra 'trian'"),
        (fenced("python scripts/nothing.py"), "no file scripts/nothing.py"),
        (fenced("python scripts/make-sums.py X --famly didi"), "no flag --famly"),
        (fenced("strop show RUN\nsed -i x y"), "nobody checks what sed does"),
        (fenced("from strop.spec import Samplr", "python"), "no attribute 'Samplr'"),
        (fenced("import strop.nothing", "python"), "No module named 'strop.nothing'"),
        (fenced("import strop\nstrop.sampel()", "python"), "no attribute 'sampel'"),
        (fenced("import strop\nstrop.sample(a, m=16)", "python"), "argument 'm'"),
        (fenced("import strop\nstrop.SamplerSpec(stepz=1)", "python"), "stepz"),
        (fenced("if", "python"), "invalid syntax"),
        (fenced('{"a": 1', "json"), "Expecting"),
        (fenced("{a: 1", "yaml"), "expected"),
        (fenced("src/strop/\n  nothing.py    a file"), "nothing.py"),
        ("| `strop study nothing -o DIR` | x |", "no command 'nothing'"),
        ("Say `strop study cost --smoke`.", "Missing option '-o'"),
        ("`strop sample ... --stepz`", "no flag --stepz"),
        ("`strop sample` takes `--stepz 4`.", "has --stepz"),
        ("`strop.measure.nothing`", "no attribute 'nothing'"),
        ('`strop.train("mdlm-tiny", out="x", output="y")`', "argument 'output'"),
        ("`tests/nothing.py`", "no file tests/nothing.py"),
        ("[x](nothing.md)", "no file nothing.md"),
        ("![x](figures/nothing.svg)", "no file figures/nothing.svg"),
        ("# Made up\n\n[x](#made-down)", "no heading #made-down"),
        ("[x](theory.md#nothing)", "no heading theory.md#nothing"),
    ],
)
def test_a_wrong_page_is_found_out(text: str, told: str) -> None:
    found = static(text)
    assert len(found) == 1, found
    assert told in found[0]


def test_a_right_page_has_no_fault() -> None:
    text = fenced("strop audit [CHECKPOINT] -o RUN [--steps 4,16]   # a remark")
    text += "`strop sample ... -n`, `strop groupeval`, `strop --install-completion`, `-n 8`"
    assert static(text + "[x](#made-up) [y](https://example.org/nothing)") == []


def test_what_does_not_work_is_told(empty: Path) -> None:
    reader = Reader({"RUN": "runs/nothing"})
    text = fenced("x = 1", "python") + fenced("assert x == 2", "python") + fenced("strop show RUN")
    found = follow("docs/made-up.md", text, reader)
    assert [fault.split(": ")[1] for fault in found] == [
        "AssertionError",
        "`strop show runs/nothing` ends with 1",
    ]


def test_what_a_session_shows_is_compared(empty: Path) -> None:
    right, wrong = "│ t │ 0.6 │   of the output", "│ t │ 0.7 │"
    for row, faults in ((right, 0), (wrong, 1)):
        text = fenced(f"$ strop theory pair --s 0.7 --c 0.5\n{row}\n...", "console")
        assert len(follow("docs/made-up.md", text, Reader())) == faults


def test_heavy_commands_and_placeholders_are_not_run(empty: Path) -> None:
    text = "`strop --install-completion` `strop show RUN` `strop sample` `make demo`"
    assert follow("docs/made-up.md", text, Reader()) == []
