# stopped by: name
def compute_reward(state):
    np = state
    np.anything
    return 0.0, {}
