"""Run every check, count every assertion, keep the largest residual and the failing cases."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from strop.errors import CheckFailed, UserError, unknown_name
from strop.theory.checks import TOLERANCE, Assertion, Case, Check, identities, propositions
from strop.theory.document import read_document

CHECKS: tuple[Check, ...] = (
    *identities.CHECKS,
    *propositions.DERIVATIVES,
    *propositions.CHECKS,
    *identities.ROUNDS,
    *identities.FORMAL,
    *propositions.BEYOND,
)


@dataclass
class Verification:
    """What a verification found."""

    counts: Counter[str] = field(default_factory=Counter)
    """Assertions per check."""
    largest: float = 0.0
    largest_at: str = ""
    failures: list[tuple[str, Case, Assertion]] = field(default_factory=list)

    def add(self, check: Check, case: Case) -> None:
        """Judge one case."""
        for assertion in check.judge(case):
            self.counts[check.name] += 1
            if not assertion.residual <= self.largest:
                self.largest = assertion.residual
                self.largest_at = f"{check.name}: {assertion.statement}"
            if not assertion.ok:
                self.failures.append((check.name, case, assertion))

    def summary(self) -> dict[str, Any]:
        """The numbers that `strop theory verify` prints."""
        return {
            "assertions": sum(self.counts.values()),
            "failures": len(self.failures),
            "largest_residual": self.largest,
            "largest_residual_at": self.largest_at,
            "tolerance": TOLERANCE,
            "checks": dict(self.counts),
        }

    def write_failure(self, path: Path) -> None:
        """Write the first failing case; `verify --case` reads it again."""
        name, case, assertion = self.failures[0]
        document = {
            "check": name,
            "statement": assertion.statement,
            "residual": assertion.residual if np.isfinite(assertion.residual) else None,
            **case,
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise UserError(
                "The failing case cannot be written.", where=path, got=error.strerror
            ) from None

    def error(self, path: Path) -> CheckFailed:
        """The failure as the command line reports it."""
        name, _, assertion = self.failures[0]
        return CheckFailed(
            f"{len(self.failures)} of {sum(self.counts.values())} assertions failed; "
            f"the first is {name!r}: {assertion.statement}.",
            where=path,
            got=f"residual {assertion.residual:.3g}",
            expected=f"at most {TOLERANCE:g}",
            fix=f"strop theory verify --case {path}",
        )


def verify_all(seed: int = 0, checks: tuple[Check, ...] = CHECKS) -> Verification:
    """Every check on its own stream of random cases."""
    report = Verification()
    for check in checks:
        # A stream per name: a new check does not change the cases of the others.
        rng = np.random.default_rng([seed, zlib.crc32(check.name.encode())])
        for case in check.cases(rng):
            report.add(check, case)
    return report


def verify_case(path: Path) -> Verification:
    """Judge again the case that an earlier verification wrote."""
    case = read_document(str(path))
    checks = {check.name: check for check in CHECKS}
    name = case.get("check")
    if name not in checks:
        raise unknown_name("check", str(name), checks, where=f"{path}: check")
    report = Verification()
    try:
        report.add(checks[str(name)], case)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            "The file does not hold a case of this check.", where=path, got=repr(error)
        ) from None
    return report
