"""strop language: texts whose law is known; numpy loads when a verb runs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from strop.errors import CheckFailed
from strop.spec.value import OUTPUT_LIMIT
from strop.table import plain
from strop.verbs.parameters import SEED, argument
from strop.verbs.verb import Ask, Facts, Parameter, Result, Verb, VerbGroup, grid, quoted

CLOSE = 1e-9
"""How far two ways to the same probability may lie apart."""


def _draw(ask: Ask) -> Result:
    from strop.disk import write
    from strop.language import Language

    language = Language.load(ask["language"])
    ids = language.draw(ask["n"], ask["seed"])
    texts = [language.decode(row) for row in ids]
    rows = [{"text": text, "ids": row.tolist()} for text, row in zip(texts, ids, strict=True)]
    if ask["out"] is None:
        parts, following = texts, f"strop language explain {quoted(texts[0])}"
    else:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        write(Path(ask["out"]), lines.encode())
        parts = [f"{len(texts)} texts in {ask['out']}"]
        following = f"strop language score {quoted(ask['out'])}"
    document = {"language": ask["language"], "texts": texts, "out": ask["out"]}
    return Result(
        parts=tuple(parts), json=document, next=following + _language_flag(ask), value=texts
    )


def _score(ask: Ask) -> Result:
    from strop.groupeval.inputs import read_inputs
    from strop.language import Language
    from strop.language.reading import DRAWS, score

    language = Language.load(ask["language"])
    entropy = language.entropy(DRAWS)
    lines, rows = [], []
    for source in read_inputs([ask["texts"]]):
        scores = score(source.texts, language=language, entropy=entropy)
        rows.append({"source": source.name, "texts": len(source.texts), **plain(vars(scores))})
        lines.append(
            [
                source.name,
                str(len(source.texts)),
                f"{scores.violations:.2f}",
                f"{scores.without.value:.0%}",
                f"{scores.excess:.1f}",
                f"{scores.effective_modes:.1f}",
                f"{scores.coverage:.0%}",
                f"{scores.overlap:.2f}",
            ]
        )
    header = "texts", "n", "violations", "without", "excess (nats)", "modes", "coverage", "overlap"
    true = rows[0]["true_modes"]
    note = f"entropy {entropy:.2f} nats a text; the language has {true:.1f} effective modes"
    return Result(
        parts=(grid(header, lines), note),
        json={"language": ask["language"], "entropy": entropy.document(), "rows": rows},
        next="strop language explain TEXT" + _language_flag(ask),
        value=rows,
    )


def _explain(ask: Ask) -> Result:
    from strop.language import explain

    explanation = explain(ask["text"], language=ask["language"])
    lines = [
        [str(w.position), w.sentence, w.stands, w.should, w.because] for w in explanation.wrong
    ]
    header = ["token", "sentence", "stands", "should stand", "because"]
    about = ", ".join(f"{name}: {value}" for name, value in explanation.latents.items())
    plural = "" if len(lines) == 1 else "s"
    counted = f"{len(lines)} violation{plural}, log P {explanation.log_p:.2f} nats"
    parts = (explanation.text, "", about, counted, *([grid(header, lines)] if lines else []))
    following = "strop language draw" + _language_flag(ask)
    return Result(parts=parts, json=asdict(explanation), next=following, value=explanation)


def _bound(ask: Ask) -> Result:
    from strop.language import Language, path_bounds

    language = Language.load(ask["language"])
    results = [
        bound
        for steps in ask["steps"]
        for temperature in ask["temperature"]
        for bound in path_bounds(
            language,
            steps,
            temperature=temperature,
            paths=ask["paths"],
            texts=ask["n"],
            seed=ask["seed"],
        )
    ]
    rows = [
        [str(bound.steps), f"{bound.temperature:g}", str(bound.paths), f"{bound.bound:.2f}"]
        for bound in results
    ]
    title = "KL(language || sampler) is at most, in nats per text"
    table = grid(["M", "tau", "paths", "bound [95%]"], rows)
    return Result(
        parts=(replace(table, title=title),),
        json={
            "language": ask["language"],
            "texts": ask["n"],
            "rows": plain([vars(r) for r in results]),
        },
        next="strop sample embedded:perfect --steps 4,64 -n 16 -o runs/perfect",
        value=results,
    )


def _check(ask: Ask) -> Result:
    from strop.language import check

    facts = check(ask["grammar"])
    error = None
    if facts["error"] > CLOSE:
        error = CheckFailed(
            "Two ways to the predictive laws differ.",
            where=ask["grammar"],
            got=facts["error"],
            expected=f"at most {CLOSE}",
        )
    printed = {name: f"{v:.2f}" if name == "entropy" else v for name, v in facts.items()}
    return Result(
        parts=(Facts(f"The grammar {ask['grammar']}", printed),),
        json=plain(facts),
        next=f"strop language draw --language {quoted(ask['grammar'])}",
        error=error,
        value=facts,
    )


def _language_flag(ask: Ask) -> str:
    name = ask["language"]
    return "" if name == LANGUAGE.default else f" --language {quoted(name)}"


LANGUAGE = Parameter("language", "even, skewed, tail, or a grammar's file.", "even")
DRAW = Verb(
    name="draw",
    help="Draw texts exactly by the law of the language.",
    parameters=(
        LANGUAGE,
        Parameter.count("n", "Texts.", 4, most=OUTPUT_LIMIT),
        SEED,
        Parameter("out", "A .jsonl for texts and ids, not the terminal.", flags=("-o", "--out")),
    ),
    run=_draw,
    examples=("strop language draw -n 2", "strop language draw -n 512 -o texts.jsonl"),
)
SCORE = Verb(
    name="score",
    help="Say what is true of texts: violations, excess surprise, modes, overlap.\n\n"
    "TEXTS is a .jsonl, a .parquet, a folder of .txt, or a run, cell by cell.",
    parameters=(argument("texts", "TEXTS", "Texts of the language."), LANGUAGE),
    run=_score,
    examples=("strop language score texts.jsonl",),
)
EXPLAIN = Verb(
    name="explain",
    help="Print a text with what is wrong in it, and what should have stood there.\n\n"
    "Of all explanations with the fewest typos the likeliest; [MASK] stands for any word.",
    parameters=(argument("text", "TEXT", "A text, or its beginning."), LANGUAGE),
    run=_explain,
    examples=('strop language explain "Once Anna Marsh lived in the town of Los Diego."',),
)
CHECK = Verb(
    name="check",
    help="Check a grammar, and say what it amounts to; exit 3 if its law is not exact.",
    parameters=(argument("grammar", "GRAMMAR", "A file, or even, skewed, tail."),),
    run=_check,
    examples=("strop language check even",),
)
BOUND = Verb(
    name="bound",
    help="Bound how far a sampler's law is from the language's, with a perfect denoiser.\n\n"
    "The ancestral sampler on an equal grid: the mean over m paths of what a path gives a text.",
    parameters=(
        LANGUAGE,
        Parameter.counts("steps", "Rounds M.", (4,), most=2**20),
        Parameter("temperature", "Temperatures.", (1.0,), "numbers"),
        Parameter.counts("paths", "Paths per text.", (1, 16, 64), most=4096),
        Parameter("n", "Exact texts.", 96, "int", least=2, most=OUTPUT_LIMIT),
        SEED,
    ),
    run=_bound,
    examples=("strop language bound --steps 4,16 --temperature 1,0.9",),
)
GROUP = VerbGroup(
    name="language",
    help="A language whose law is known: texts, exact probabilities, what is wrong in a text.",
    verbs=(DRAW, SCORE, EXPLAIN, CHECK, BOUND),
    examples=("strop language draw -n 2", "strop language check even"),
)
