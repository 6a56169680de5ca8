"""Floor 4: reward code for manipulation tasks: extraction, checks and the sandbox."""
