# stopped by: attribute
def compute_reward(state):
    state.tip_position.dump('{canary}')
    return 0.0, {}
