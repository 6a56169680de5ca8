"""Trial environments: grid worlds, the wrapper for plain Gymnasium environments, vectorisation."""
