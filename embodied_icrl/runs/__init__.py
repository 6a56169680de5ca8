"""Floor 3: the run directory, its checkpoints, resuming, and the log of metrics."""
