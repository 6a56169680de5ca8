# stopped by: numpy
def compute_reward(state):
    np.random.seed(0)
    return 0.0, {}
