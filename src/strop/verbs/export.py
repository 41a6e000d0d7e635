"""strop export: every table of a result as files for a paper, a spreadsheet or a notebook."""

from __future__ import annotations

from pathlib import Path

from strop.errors import UserError
from strop.stats.interval import Interval
from strop.table import Table
from strop.verbs.groupeval_score import kept_scores
from strop.verbs.parameters import argument
from strop.verbs.study import STUDIES
from strop.verbs.verb import Ask, Parameter, Result, Verb, grid, result_of

FORMATS = ("csv", "tex", "md", "parquet", "json")
FOLDER = "export"
LONGEST = 100
"""Most letters of a table's name, since it names a file."""


def _run(ask: Ask) -> Result:
    from strop.store import read_mark
    from strop.store.folder import RESULT, damaged
    from strop.store.run import study_result

    folder = Path(ask["folder"])
    mark = read_mark(folder)
    if mark is not None and mark.kind == "groupeval":
        return _written(ask, folder, kept_scores(folder))
    document = study_result(folder)
    if document is None:
        raise UserError(
            "There is no finished result in this directory.",
            where=folder,
            expected="what audit, tune, compare, power, groupeval score, a study or a task run "
            "leaves",
            fix="strop ls DIRECTORY lists results; of a plain run strop score RUN --json prints "
            "the numbers",
        )
    result = result_of(document, folder / RESULT)
    for name in result.more:
        if name != Path(name).name or "\0" in name or len(name) > LONGEST:
            raise damaged(folder / RESULT, f"a table has no name for a file: {name[:LONGEST]!r}")
    return _written(ask, folder, result, str(document["study"]))


def _written(ask: Ask, folder: Path, result: Result, study: str = "") -> Result:
    """Every table of a result that has rows, and its figure."""
    from strop.disk import disk, write

    kind = ask["format"]
    if ask["out"] == "":
        raise UserError("The output path is empty.", where="`out`", fix="leave it out")
    target = folder / FOLDER if ask["out"] is None else Path(ask["out"])
    with disk(target):
        target.mkdir(parents=True, exist_ok=True)
    tables = {"table": result.table, **result.more}
    files = []
    for name, table in tables.items():
        if table.rows:
            files.append(target / f"{name}.{kind}")
            write(files[-1], exported(table, kind))
    files += _figure(result, study, target)
    titles = {name: table.title for name, table in tables.items()}
    rows = [[str(file), titles.get(file.stem, "the figure")] for file in files]
    return Result(
        parts=(grid(["file", "what"], rows),),
        json={"files": [str(file) for file in files]},
        value=files,
    )


def exported(table: Table, kind: str) -> bytes:
    """One table in one format; those for readers name the level of its intervals."""
    if kind == "csv":
        return table.csv()
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(table.arrow(), sink)
        return sink.getvalue().to_pybytes()
    if kind == "json":
        return Result(table=table).to_json().encode()
    caption = " ".join(filter(None, [f"{table.title}.", _levels(table)]))
    if kind == "md":
        return f"{table.markdown()}\n{caption}\n".encode()
    return f"% {caption}\n{table.latex()}".encode()


def _levels(table: Table) -> str:
    """Which intervals the table has, in words."""
    values = [value for row in table.rows for value in row.values() if isinstance(value, Interval)]
    levels = sorted({interval.level for interval in values if interval.bounded})
    if not levels:
        return ""
    return "Intervals: " + ", ".join(f"{100 * level:.4g}%" for level in levels) + "."


def _figure(result: Result, study: str, target: Path) -> list[Path]:
    """The result's figure as PDF, where its verb draws one."""
    record = STUDIES.without_plugins().get(study) or STUDIES.plugins().get(study)
    if record is None or record.draw is None:
        return []
    from strop.figures import write_figure

    draw, file = record.draw, target / f"{study}.pdf"
    write_figure(lambda: draw(result), [file])
    return [file]


VERB = Verb(
    name="export",
    help="Write every table of a result as CSV, LaTeX, Markdown, Parquet or JSON, and its figure "
    "as PDF.\n\nLaTeX tables use booktabs. The numbers are those of the result; nothing is "
    "measured anew.",
    parameters=(
        argument(
            "folder", "FOLDER", "What an audit, a search, a comparison, a study or GroupEval left."
        ),
        Parameter("format", "The kind of files.", "csv", choices=FORMATS),
        Parameter("out", "Where the files go.", flags=("-o", "--out"), shown=f"FOLDER/{FOLDER}"),
    ),
    run=_run,
    examples=("strop export runs/audit --format tex", "strop export runs/compare -o tables"),
)
