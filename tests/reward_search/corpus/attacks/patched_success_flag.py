# stopped by: attribute
def compute_reward(state):
    state.success = True
    return 0.0, {}
