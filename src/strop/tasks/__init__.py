"""Tasks with right and wrong answers."""
