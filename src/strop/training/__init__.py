"""Training: the objective (data and loop follow)."""
