# stopped by: name
def compute_reward(state):
    globals()["__builtins__"]
    return 0.0, {}
