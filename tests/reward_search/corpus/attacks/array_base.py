# stopped by: attribute
def compute_reward(state):
    state.tip_position.base
    return 0.0, {}
