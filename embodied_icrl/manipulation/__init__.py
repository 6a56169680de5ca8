"""Floor 2: manipulation tasks for the reward search, each a declaration. Never imports torch."""
