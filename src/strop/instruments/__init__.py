"""What studies measure besides outputs: held-out losses, cost, memory, caches, precision."""
