# stopped by: decorator
@np.array
def compute_reward(state):
    return 0.0, {}
