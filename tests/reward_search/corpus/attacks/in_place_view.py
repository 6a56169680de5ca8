# stopped by: call
def compute_reward(state):
    tip = state.tip_position
    tip += 1.0
    return 0.0, {}
