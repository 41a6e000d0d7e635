"""strop groupeval: plans of groups, how far they are judged, and judging by people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.verbs.groupeval_judge import JUDGE
from strop.verbs.groupeval_score import AGREE, COMPARE, RELIABILITY, SCORE
from strop.verbs.parameters import PARTITION, argument, out
from strop.verbs.verb import Ask, Parameter, Part, Result, Verb, VerbGroup, grid, quoted

if TYPE_CHECKING:
    from strop.groupeval.plan import Plan, Source
    from strop.groupeval.profile import Profile
    from strop.groupeval.series import Series

EXCERPT = 160
PAGE = "human.html"


def _plan(ask: Ask) -> Result:
    from strop.groupeval.inputs import fitted, read_inputs
    from strop.groupeval.plan import make_plan
    from strop.groupeval.profile import Profile
    from strop.groupeval.series import write_plan

    rules = Profile.load(ask["profile"])
    read = ask.some("first", "field", "prompt_field")
    read["prompted"] = rules.kind == "answers"
    sources = read_inputs(list(ask["inputs"]), where=ask["where"] or [], **read)
    sources, left_out = fitted(sources, rules, mixed_sizes=ask["mixed_sizes"])
    plan, texts = make_plan(sources, rules, method=ask["partition"], **ask.some("seed", "controls"))
    new = write_plan(ask.out, plan, rules, texts)
    if ask["label_first"] is not None:
        from strop.groupeval.labelled import mark_first

        graded = mark_first(ask.out, plan, ask["label_first"])
        left_out.append(
            f"the first {ask['label_first']} groups ({graded} texts) are for a person: "
            "strop groupeval export-human makes their page"
        )
    prompted = rules.kind == "answers"
    copies = {
        source.name: copied_texts(source.texts, source.prompts if prompted else None)
        for source in sources
    }
    warned = copy_warnings(copies, plan) if rules.kind == "unconditional" else []
    notes = [*left_out, *_better_profile(sources, rules), *warned]
    rows = [
        [
            name,
            str(n),
            str(sum(group.cell == name for group in plan.groups)),
            *(f"{count} ({count / n:.1%})" if count else "none" for count in copies[name]),
        ]
        for name, n in plan.cells.items()
    ]
    again = "--base-url URL --model NAME --dry-run  (or --offline)"
    return Result(
        parts=(
            grid(["generator", "outputs", "groups", "exact copies", "near copies"], rows),
            _plan_sentence(plan, new),
        ),
        json={
            "run": str(ask.out),
            "new": new,
            "profile": plan.profile,
            "profile_sha256": plan.profile_sha256,
            "plan_sha256": plan.hash,
            "cells": plan.cells,
            "copies": {name: exact for name, (exact, _) in copies.items()},
            "near_copies": {name: near for name, (_, near) in copies.items()},
            "sheets": len(plan.sheets),
            "groups": len(plan.groups),
            "controls": len(plan.controls),
            "pairs_reused": plan.reuse,
            "notes": notes,
        },
        remarks=tuple(f"note: {note}" for note in notes),
        next=f"strop groupeval judge {quoted(ask.out)} {again}",
        value=plan,
    )


def _better_profile(sources: list[Source], rules: Profile) -> list[str]:
    """Texts that answer prompts, several each, are better judged prompt by prompt."""
    if rules.kind != "unconditional":
        return []
    if not any(
        source.prompts and len(set(source.prompts)) < len(source.prompts) for source in sources
    ):
        return []
    return [
        f"prompts have several answers, which {rules.name} does not look at; --profile answers-v1 "
        "judges them prompt by prompt"
    ]


def copied_texts(
    texts: Sequence[str], prompts: Sequence[str | None] | None = None
) -> tuple[int, int]:
    """How many texts have an exact copy in the pool, and how many others have a near copy.

    Near: of the shorter one's runs of four words, the other has at least half. With `prompts` only
    answers to the same one are compared.
    """
    import numpy as np

    from strop.comparing.diversity import with_copy

    keys = [None] * len(texts) if prompts is None else list(prompts)
    counts = Counter(zip(keys, texts, strict=True))
    exact = np.array([counts[key, text] > 1 for key, text in zip(keys, texts, strict=True)], bool)
    near = np.zeros(len(texts), bool)
    words: dict[str, int] = {}
    rows = [[words.setdefault(word, len(words)) for word in text.split()] for text in texts]
    for key in dict.fromkeys(keys):
        same_prompt = [i for i, prompt in enumerate(keys) if prompt == key]
        ids = np.full((len(same_prompt), max(len(rows[i]) for i in same_prompt) or 1), -1)
        for row, i in zip(ids, same_prompt, strict=True):
            row[: len(rows[i])] = rows[i]
        near[same_prompt] = with_copy(ids)
    return int(exact.sum()), int((near & ~exact).sum())


def copy_warnings(copies: Mapping[str, tuple[int, int]], plan: Plan) -> list[str]:
    """Copies seldom meet in one group, so the judge does not see them."""
    return [
        f"{name}: of {plan.cells[name]} texts {exact} are exact and {near} near copies of others; "
        f"few of them meet in a group of {plan.group_size}, so GED hardly shows it"
        for name, (exact, near) in copies.items()
        if exact or near
    ]


def _plan_sentence(plan: Plan, new: bool) -> str:
    sizes = ", ".join(f"{n} outputs: {pairs}" for n, pairs in plan.reuse.items())
    return (
        f"{len(plan.sheets)} groups to judge under {plan.profile}"
        + (f", {len(plan.controls)} of them controls" if plan.controls else "")
        + (f"; pairs of outputs judged together twice: {sizes}" if sizes else "")
        + ("" if new else " (this plan existed already)")
    )


def _show(ask: Ask) -> Result:
    from strop.groupeval.series import Series, list_series, open_plan

    run = Path(ask["run"])
    plan, profile = open_plan(run)
    chosen = list_series(run) if ask["series"] is None else [Series.open(run, ask["series"])]
    documents = [_document(series) for series in chosen]
    rows = [
        [
            document["name"],
            document["series"],
            f"{document['judgments']} of {document['asked']}",
            ", ".join(f"{n} {reason}" for reason, n in document["reasons"].items()) or "none",
            str(document["asked"] - document["judgments"] - len(document["failures"])),
        ]
        for document in documents
    ]
    planted = f", {len(plan.controls)} controls" if plan.controls else ""
    parts: list[Part] = [
        f"{run}: {profile.name}, {len(plan.cells)} generators, {len(plan.groups)} groups{planted}",
        grid(["judge", "series", "judgments", "failures", "not asked"], rows),
    ]
    if ask["failures"]:
        parts += _failures(documents, ask["full"])
    return Result(
        parts=tuple(parts),
        json={
            "run": str(run),
            "profile": profile.name,
            "profile_sha256": profile.hash,
            "cells": plan.cells,
            "groups": len(plan.groups),
            "controls": len(plan.controls),
            "series": documents,
        },
        remarks=tuple(
            f"warning: {document['name']}: {document['warning']}"
            for document in documents
            if document["warning"] is not None
        ),
        next=_after_show(run, documents, failures=ask["failures"]),
        value=chosen,
    )


def _after_show(run: Path, documents: list[dict[str, Any]], *, failures: bool) -> str:
    if not documents:
        return f"strop groupeval judge {quoted(run)} --base-url URL --model NAME"
    if any(document["failures"] for document in documents) and not failures:
        return f"strop groupeval show {quoted(run)} --failures"
    return f"strop groupeval score {quoted(run)}"


def _document(series: Series) -> dict[str, Any]:
    failures = series.failures()
    return {
        "series": series.id,
        "name": series.name,
        "judge": series.judge.document(),
        "judgments": len(series.verdicts()),
        "asked": series.asked,
        "repeats": series.repeats,
        "served": series.served(),
        "warning": series.other_models(),
        "reasons": dict(Counter(failure.reason for failure in failures)),
        "failures": [asdict(failure) for failure in failures],
    }


def _replies(count: int) -> str:
    return {0: "no reply", 1: "after 1 reply"}.get(count, f"after {count} replies")


def _failures(documents: list[dict[str, Any]], full: bool) -> list[Part]:
    lines: list[Part] = []
    for document in documents:
        if document["failures"]:
            lines.append(f"\n{document['name']} ({document['series']})")
        for failure in document["failures"]:
            lines.append(
                f"  {failure['cell']}, partition {failure['partition']}, group {failure['group']}: "
                f"{failure['reason']}, {_replies(failure['attempts'])}: {failure['detail']}"
            )
            if failure["raw"] is not None:
                raw = repr(failure["raw"])
                cut = raw if full or len(raw) <= EXCERPT else raw[:EXCERPT] + " ..."
                lines.append(f"    {cut}")
    return lines


def _export_human(ask: Ask) -> Result:
    from strop.disk import write
    from strop.groupeval.human import human_csv, human_page
    from strop.groupeval.labelled import marked
    from strop.groupeval.series import open_plan

    run = ask["run"]
    first = ask["first"]
    if first is None:
        ids = marked(run, open_plan(run)[0])
        sheets = [sheet.id for sheet in open_plan(run)[0].sheets]
        first = None if ids is None else sheets.index(ids[-1]) + 1
    path = Path(ask["out"]) if ask["out"] else Path(run) / PAGE
    table = path.suffix == ".csv"
    page = (human_csv if table else human_page)(run, first=first).encode()
    write(path, page)
    remark = "valid: yes or no; grades: 0, 1 or 2" if table else "needs no network"
    saved = f"{quoted(path)} --name NAME" if table else "judgments-NAME.json"
    return Result(
        parts=(f"{path}: {len(page):,} bytes, {remark}",),
        json={"page": str(path), "bytes": len(page)},
        next=f"strop groupeval import-human {quoted(run)} {saved}",
        value=path,
    )


def _import_human(ask: Ask) -> Result:
    from strop.groupeval.human import import_answers

    run = ask["run"]
    done = import_answers(run, ask["file"], name=ask["name"])
    series, judged = done.series, len(done.series.verdicts())
    return Result(
        parts=(
            f"{series.name} ({series.id}): {done.added} groups added, {done.known} known before; "
            f"{judged} of {series.asked} judged",
        ),
        json={
            "series": series.id,
            "name": series.name,
            "added": done.added,
            "known": done.known,
            "n_groups": judged,
            "n_groups_asked": series.asked,
        },
        next=f"strop groupeval score {quoted(f'{run}@{series.id}')}",
        value=series,
    )


def _import_profile(ask: Ask) -> Result:
    from strop.groupeval.profile import RUBRIC, SYSTEM, USER, import_profile

    texts = {
        name: Path(ask[key]).read_bytes()
        for key, name in (("system", SYSTEM), ("rubric", RUBRIC), ("user", USER))
    }
    settings = {
        "name": ask["name"],
        "kind": ask["kind"],
        "group_size": ask["group_size"],
        "partitions": 1 if ask["kind"] == "answers" else ask["partitions"],
        "dimensions": list(ask["dimensions"]),
        "modes": not ask["no_modes"],
        "preprocessing": {
            "sentinel": "<|endoftext|>",
            "leading_removed": 1,
            "boundary": "[DOCUMENT BOUNDARY]",
        },
        "decoding": {"temperature": 0.0, "top_p": 1.0, "max_tokens": ask["max_tokens"]},
    }
    profile = import_profile(ask.out, settings, texts, Path(ask["schema"]).read_bytes())
    return Result(
        parts=(f"{profile.name}: groups of {profile.group_size}, hash {profile.hash[:16]}",),
        json={"name": profile.name, "sha256": profile.hash, "profile": str(ask.out)},
        next=f"strop groupeval plan INPUT... --profile {quoted(ask.out)} -o RUN",
        value=profile,
    )


def _validate(ask: Ask) -> Result:
    from strop.verbs.groupeval_validate import validate_judge

    return validate_judge(ask)


PLAN = Verb(
    name="plan",
    help="Freeze which texts are judged together, in which order, under which profile.",
    parameters=(
        argument(
            "inputs",
            "INPUT...",
            "Runs of strop (every cell is a generator), .jsonl, .csv or .parquet files, or folders "
            "of .txt files; NAME=PATH gives a name.",
            kind="many",
        ),
        out("A new directory."),
        Parameter(
            "profile",
            "webtext-v1, answers-v1 (several answers to each prompt), task-v1 (two generators, one "
            "answer each), or the directory of your own.",
            "webtext-v1",
        ),
        Parameter("seed", "Seed of partitions and orders.", 0, "int", most=2**63),
        PARTITION,
        Parameter("field", "Of a file: the field or column that holds the text.", "text"),
        Parameter("prompt_field", "The one that holds what the text answers, if any.", "prompt"),
        Parameter.count("first", "Use only the first outputs of every generator."),
        Parameter(
            "where",
            "Of strop's runs, only cells with these settings, e.g. steps=64,temperature=0.9; "
            "repeat for more.",
            kind="wheres",
        ),
        Parameter.flag("mixed_sizes", "Accept generators of different sizes."),
        Parameter.count(
            "label_first",
            "Draw so many groups at random for a person to grade; `score --with` uses them.",
        ),
        Parameter(
            "controls",
            "Control groups per generator, to test the judge with.",
            0,
            "int",
            most=2**10,
        ),
    ),
    run=_plan,
    examples=(
        "strop groupeval plan runs/first -o runs/ge",
        "strop groupeval plan a=a.jsonl b=b.csv --field response -o runs/ge",
        "strop groupeval plan a=a.jsonl b=b.jsonl --profile answers-v1 -o runs/ge",
    ),
)
SHOW = Verb(
    name="show",
    help="Say what is planned, who judged how much of it, and what went wrong.",
    parameters=(
        argument("run", "RUN", "A directory made by `strop groupeval plan`."),
        Parameter("series", "A judge: its id, the beginning of it, or its name."),
        Parameter.flag("failures", "Every group without a verdict, and why."),
        Parameter.flag("full", "Print whole replies."),
    ),
    run=_show,
    examples=("strop groupeval show runs/ge --failures",),
)
EXPORT_HUMAN = Verb(
    name="export-human",
    help="Write the blinded groups as one self-contained page: open it, grade, download, import.",
    parameters=(
        argument("run", "RUN", "A planned run directory."),
        Parameter(
            "out",
            f"The page; by default RUN/{PAGE}. FILE.csv: a table to fill in instead.",
            flags=("-o", "--out"),
        ),
        Parameter.count(
            "first",
            "Only the first so many groups: the order is random, so it is a sample.",
            shown="those that `plan --label-first` drew, else all",
        ),
    ),
    run=_export_human,
    examples=("strop groupeval export-human runs/ge -o judge.html",),
)
IMPORT_HUMAN = Verb(
    name="import-human",
    help="Check a person's answers by the rules of every judge and keep them as another "
    "series.\n\n"
    "A file with more groups of the same person adds to the series; nothing is counted twice.",
    parameters=(
        argument("run", "RUN", "The run whose page was graded."),
        argument("file", "FILE", "What the page saved, or the table that was filled in (.csv)."),
        Parameter("name", "The person's name in tables; by default as in the file."),
    ),
    run=_import_human,
    examples=("strop groupeval import-human runs/ge judgments-anna.json",),
)
VALIDATE = Verb(
    name="validate",
    help="Compare a judge with people, on groups of texts whose diversity people rated.\n\n"
    "Without FILE: conTest and decTest, which ship. FILE is your own, one group a line: "
    '{"texts": [...], "score": 3.2}; also context, task, label, modes, grades.',
    parameters=(
        Parameter("file", "Rated groups as .jsonl.", argument="FILE"),
        Parameter.flag(
            "offline",
            "The counting judges: offline-v2 with embeddings if they are installed, else n-grams.",
        ),
        Parameter("features", "Features of the offline judge: auto, minilm or ngrams.", "auto"),
        Parameter("base_url", "Address of an OpenAI-compatible server, e.g. http://HOST:8000/v1."),
        Parameter("model", "Its name on the server; with --offline, offline-v1 or offline-v2."),
        Parameter("key_env", "The environment variable that holds the key.", "OPENAI_API_KEY"),
        Parameter("columns", "Fields of FILE to compare with people too.", kind="words"),
        Parameter.count("limit", "Only so many groups, equally many of each task."),
        Parameter.count("repeats", "Ask a server about each group this often.", 1),
        Parameter(
            "controls",
            "Ask a server about so many groups again, in another order, and about as many of each "
            "kind that is planted; 0: none.",
            8,
            "int",
        ),
        Parameter.real("timeout", "Seconds for one request.", 300.0),
        Parameter("max_calls", "Cap for groups and controls together.", kind="int"),
        Parameter.real("max_cost", "Cap for the cost; needs --prices."),
        Parameter("prices", "YAML: MODEL: {input: X, output: Y} per million tokens.", kind="place"),
        Parameter.count("replicates", "Resamples of contexts.", 2000, most=100_000),
        Parameter("seed", "Seed of resampling, and of a plan's orders.", 0, "int", most=2**63),
        Parameter(
            "out",
            "A directory for card, plot and replies; needed for a server.",
            flags=("-o", "--out"),
        ),
    ),
    run=_validate,
    examples=(
        "strop groupeval validate --offline",
        "strop groupeval validate rated.jsonl --offline --json",
    ),
)
IMPORT_PROFILE = Verb(
    name="import-profile",
    help="Freeze your own prompt, rubric and JSON schema as a profile with a hash.\n\n"
    "Numbers under it are a series of their own. The user prompt has the places $count, $code, "
    "$data and $ids, as in the profiles that ship.",
    parameters=(
        Parameter("name", "What the profile is called, e.g. authors-v1.", required=True),
        Parameter.file("system", "File: the system prompt.", required=True),
        Parameter.file("rubric", "File: the rubric, which follows it.", required=True),
        Parameter.file("user", "File: the user prompt.", required=True),
        Parameter.file("schema", "File: the JSON schema of a reply.", required=True),
        Parameter("group_size", "Texts that the judge reads at once.", 8, "int", least=2, most=65),
        Parameter.count("partitions", "How often every output is judged.", 2, most=3),
        Parameter(
            "dimensions",
            "The four grades of 0, 1, 2, as the schema names them.",
            ("readability", "coherence", "substance", "nondegeneration"),
            "words",
        ),
        Parameter(
            "kind",
            "What a group holds.",
            "unconditional",
            choices=("unconditional", "conditional", "answers"),
        ),
        Parameter.flag("no_modes", "The judge is not asked for modes."),
        Parameter.count("max_tokens", "Longest reply in tokens.", 8192),
        out("A new directory."),
    ),
    run=_import_profile,
    examples=(
        "strop groupeval import-profile --name authors-v1 --system system.md --rubric rubric.md "
        "--user user.md --schema schema.json -o authors-v1",
    ),
)
GROUP = VerbGroup(
    name="groupeval",
    help="Quality and diversity of texts, in groups.",
    verbs=(
        PLAN,
        JUDGE,
        SHOW,
        SCORE,
        COMPARE,
        AGREE,
        RELIABILITY,
        VALIDATE,
        EXPORT_HUMAN,
        IMPORT_HUMAN,
        IMPORT_PROFILE,
    ),
)
