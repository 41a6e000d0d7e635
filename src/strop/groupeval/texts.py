"""The frozen texts of a plan, under the codes of their pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from strop.disk import reading
from strop.errors import UserError
from strop.groupeval.controls import Control
from strop.groupeval.inputs import Source
from strop.groupeval.profile import canonical, sha256

__all__ = ["Texts"]

COLUMNS = ("kind", "pool", "index", "text", "prompt")

Row = tuple[str, str, int, str, str | None]


@dataclass(frozen=True)
class Texts:
    """Rows of (kind, pool code, index, text, prompt)."""

    rows: tuple[Row, ...]

    @classmethod
    def freeze(
        cls, sources: Mapping[str, Source], controls: Mapping[str, Sequence[Control]]
    ) -> Texts:
        """Of every pool code, its source and its control groups."""
        rows: list[Row] = []
        for code in sorted(sources):
            source = sources[code]
            prompts = source.prompts or (None,) * len(source.texts)
            pairs = zip(source.texts, prompts, strict=True)
            rows += [("plan", code, i, text, prompt) for i, (text, prompt) in enumerate(pairs)]
            planted = [text for control in controls.get(code, ()) for text in control.texts]
            rows += [("control", code, i, text, None) for i, text in enumerate(planted)]
        return cls(tuple(rows))

    @property
    def hash(self) -> str:
        """SHA-256 of all rows."""
        return sha256(canonical(self.rows))

    @cached_property
    def _by_pool(self) -> dict[tuple[str, str], list[tuple[str, str | None]]]:
        found: dict[tuple[str, str], list[tuple[str, str | None]]] = {}
        for kind, code, _, text, prompt in self.rows:
            found.setdefault((code, kind), []).append((text, prompt))
        return found

    def of(self, code: str, kind: str = "plan") -> list[str]:
        """The texts of one pool by index."""
        return [text for text, _ in self._by_pool.get((code, kind), ())]

    def at(self, code: str, kind: str, index: int) -> tuple[str, str | None]:
        """One text, and the prompt that it answers if the plan is conditional."""
        return self._by_pool[code, kind][index]

    def parquet(self) -> bytes:
        """The content of the file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = (pa.string(), pa.string(), pa.int64(), pa.string(), pa.string())
        columns = zip(*self.rows, strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        sink = pa.BufferOutputStream()
        table = pa.table(arrays, names=COLUMNS)
        pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
        return sink.getvalue().to_pybytes()

    @classmethod
    def read(cls, path: Path, expected: str) -> Texts:
        """The frozen texts, if they are still those of the plan."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with reading(path):
                content = path.read_bytes()
            source = pa.BufferReader(content)
            table = pq.read_table(source, use_threads=False, page_checksum_verification=True)
            texts = cls(tuple(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True)))
            same = texts.hash == expected
        # Whatever a changed byte makes of the file: arrow's errors, no text, no table, no memory.
        except (OSError, KeyError, TypeError, ValueError, MemoryError, pa.ArrowException):
            same, texts = False, cls(())
        if not same:
            raise UserError(
                "The frozen texts are missing or were changed.",
                where=path,
                fix="restore the file; judgments refer to exactly these texts",
            )
        return texts
