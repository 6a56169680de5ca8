# stopped by: numpy
def compute_reward(state):
    np.add.reduce.__self__
    return 0.0, {}
