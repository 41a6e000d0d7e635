"""How sure a verdict must be, where several budgets are compared and a run is looked at again.

Together all verdicts of a run may err with probability `ALPHA`. The first look spends `FIRST` of
it, and every later look half of what is left: 4%, 0.5%, 0.25%, ... Looking again is taking a
verdict on more outputs; asking again for the same is no new look. Within a look the budgets share
alike. Generators may be called different for two reasons, their frontiers or their sharpness, and
these share alike too. All of it is Bonferroni's bound, so nothing is assumed of how looks, budgets
and reasons depend on each other.

Frontiers that are not the same differ by the margin at some entropy, on one side. To be called the
same, or better on the other side, that one interval must err, at one end. Then the part for
sharpness is not needed; of the part for frontiers one of its two ends may still err (a quarter of
the whole: a crossing where there is none, or a mean on the wrong side). So three quarters are left
for one end of an interval at every entropy, whatever the number of entropies.
"""

from __future__ import annotations

from dataclasses import dataclass

from strop.errors import UserError

ALPHA = 0.05
FIRST = 0.8
REASONS = 2


def spent(look: int) -> float:
    """The part of `ALPHA` that look 1, 2, 3, ... may spend; all of them together spend it whole."""
    if look < 1:
        raise UserError("Looks are counted from one.", got=look)
    return ALPHA * FIRST if look == 1 else ALPHA * (1 - FIRST) / 2 ** (look - 1)


@dataclass(frozen=True)
class Level:
    """Of the intervals behind one verdict."""

    look: int = 1
    budgets: int = 1

    @property
    def alpha(self) -> float:
        """How often a verdict at one budget in this look may be wrong."""
        return spent(self.look) / self.budgets

    @property
    def same(self) -> float:
        """The confidence of intervals that must lie inside the margin at one setting."""
        return 1 - self.alpha

    @property
    def everywhere(self) -> float:
        """The confidence of intervals that must do so at every entropy: an end errs in 3/4."""
        return 1 - 2 * self.alpha * (1 - 1 / (2 * REASONS))

    @property
    def different(self) -> float:
        """The confidence of intervals that must lie on one side of zero."""
        return 1 - self.alpha / REASONS
