"""Training: from text to a checkpoint that every other command loads."""
