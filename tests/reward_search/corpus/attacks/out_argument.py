# stopped by: numpy
def compute_reward(state):
    np.add(state.tip_position, 1.0, out=state.tip_position)
    return 0.0, {}
