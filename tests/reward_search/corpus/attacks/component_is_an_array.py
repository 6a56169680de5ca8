# stopped by: result
def compute_reward(state):
    return 1.0, {'a': np.ones(1000)}
    return 0.0, {}
