# stopped by: name
def compute_reward(state):
    exec("import os")
    return 0.0, {}
