# stopped by: result
def compute_reward(state):
    return 1.0
    return 0.0, {}
