# stopped by: finite
def compute_reward(state):
    return np.log(0.0), {}
    return 0.0, {}
