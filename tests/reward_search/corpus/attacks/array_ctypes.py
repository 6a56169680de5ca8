# stopped by: attribute
def compute_reward(state):
    state.tip_position.ctypes.data_as
    return 0.0, {}
