# stopped by: call
def compute_reward(state):
    x = np.ones((100000, 100000))
    return 0.0, {}
