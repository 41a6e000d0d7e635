"""The paper's tables and figures, and studies beyond it, as declarations."""
