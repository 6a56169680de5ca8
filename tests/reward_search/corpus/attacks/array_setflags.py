# stopped by: attribute
def compute_reward(state):
    state.tip_position.setflags(write=True)
    return 0.0, {}
