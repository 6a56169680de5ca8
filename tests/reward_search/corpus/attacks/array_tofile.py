# stopped by: attribute
def compute_reward(state):
    state.tip_position.tofile('{canary}')
    return 0.0, {}
