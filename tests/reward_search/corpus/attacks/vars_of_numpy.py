# stopped by: name
def compute_reward(state):
    vars(np)
    return 0.0, {}
