"""Floor 0: errors, atomic files, paths, seeds and the config builder. Imports NumPy alone."""
